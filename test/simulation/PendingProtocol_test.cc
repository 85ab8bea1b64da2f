// The pieces of work that a thread has still to do, while another one looks at what is exposed,
// under every interleaving that many seeds find. That one is a thread of the test, or the watch.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>

#include "kernel/BlockingScope.h"
#include "kernel/PendingWork.h"
#include "kernel/Runtime.h"
#include "kernel/Simulation.h"
#include "kernel/StallWatch.h"
#include "kernel/ThreadContext.h"
#include "support/Item.h"
#include "support/Seeds.h"
#include "support/TestSeed.h"
#include "util/Mutex.h"

namespace {

using test_support::TestRandom;
using workflow::BlockingScope;
using workflow::CondVar;
using workflow::ExposedWork;
using workflow::Mutex;
using workflow::MutexLock;
using workflow::PendingWork;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::schedule_point;
using workflow::Simulation;
using workflow::StallWatch;
using workflow::ThreadContext;

constexpr size_t kPieces = 5;

struct Piece final : Runnable {
  void run_queued() override { begun++; }
  int begun = 0;
  bool given = false;
};

// What the pieces of one seed have come to. Virtual threads are never two at once, so it needs no
// lock.
struct Pieces {
  // Those of the outer loop, of the loop inside one of its pieces, and one that is added.
  std::array<Piece, kPieces> outer;
  std::array<Piece, kPieces> inner;
  Piece added;

  template <size_t N>
  static RunnableList list_of(std::array<Piece, N>& pieces) {
    RunnableList list;
    for (Piece& piece : pieces) {
      list.push_back(&piece);
    }
    return list;
  }
};

void give(RunnableList& pieces) {
  while (auto* const piece = static_cast<Piece*>(pieces.pop_front())) {
    piece->given = true;
    piece->run_queued();
  }
}

void run_user_code(TestRandom& random) {
  if (random.one_in(3)) return;  // this piece runs none
  PendingWork::expose_all(ThreadContext::current().pending);
  for (uint64_t points = random.below(6); points > 0; points--) {
    schedule_point();
  }
}

void play_inner(Pieces& pieces, TestRandom& random) {
  RunnableList list = Pieces::list_of(pieces.inner);
  PendingWork work(&pieces.inner, list, give, PendingWork::Gives::kWhenHeldUp);
  while (Runnable* const piece = work.next()) {
    piece->run_queued();
    run_user_code(random);
  }
}

void play_outer(Pieces& pieces, TestRandom& random, bool blocks) {
  RunnableList list = Pieces::list_of(pieces.outer);
  PendingWork work(&pieces.outer, list, give, PendingWork::Gives::kWhenHeldUp);
  const auto* const last = &pieces.outer[kPieces - 2];
  bool has_added = false;
  bool has_nested = false;
  while (auto* const piece = static_cast<Piece*>(work.next())) {
    piece->run_queued();
    run_user_code(random);
    if (!has_nested && (piece == last || random.one_in(2))) {
      has_nested = true;
      play_inner(pieces, random);
    }
    if (!has_added) {
      has_added = true;
      RunnableList one;
      one.push_back(&pieces.added);
      work.add(one);
      for (uint64_t points = random.below(6); points > 0; points--) {
        schedule_point();
      }
    }
    if (blocks && random.one_in(4)) {
      PendingWork::give_all();
    }
  }
  if (!has_nested) {
    play_inner(pieces, random);
  }
}

void on_a_handler(Simulation& simulation, std::function<void()> function) {
  simulation.runtime().handlers().post(new test_support::Item(std::move(function)));
}

// Returns how many pieces were given away.
size_t play(uint64_t seed, bool blocks) {
  Simulation simulation(seed, {});
  Pieces pieces;
  TestRandom random(seed);
  simulation.runtime().stall_watch().exposed().enable();
  on_a_handler(simulation, [&] { play_outer(pieces, random, blocks); });
  simulation.spawn([&] {
    ExposedWork& exposed = simulation.runtime().stall_watch().exposed();
    for (int looks = 0; looks < 12; looks++) {
      exposed.look();
    }
  });
  EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
  EXPECT_FALSE(simulation.runtime().stall_watch().exposed().look());
  size_t given = 0;
  const auto check = [&given](const Piece& piece) {
    EXPECT_EQ(piece.begun, 1);
    given += piece.given ? 1 : 0;
  };
  for (const auto* const loop : {&pieces.outer, &pieces.inner}) {
    for (const Piece& piece : *loop) {
      check(piece);
    }
    EXPECT_FALSE(loop->front().given) << "nothing came before it";
  }
  check(pieces.added);
  EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
  return given;
}

TEST(PendingProtocol, EachPieceBeginsOnce) {
  size_t given = 0;
  size_t whole = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    const size_t count = play(seed, false);
    given += count;
    whole += count == 0 ? 1 : 0;
  });
  if (!std::getenv("WORKFLOW_TEST_SEED")) {
    EXPECT_GT(given, 0U);
    EXPECT_GT(whole, 0U);
  }
}

TEST(PendingProtocol, TheOwnerBlocksMeanwhile) {
  for_each_seed(kSeeds, [](uint64_t seed) { play(seed, true); });
}

// What user code adds is exposed, even if nothing was left when it began.
TEST(PendingProtocol, WhatIsAddedIsGivenAwayToo) {
  Simulation simulation(1, {});
  simulation.runtime().stall_watch().exposed().enable();
  Pieces pieces;
  on_a_handler(simulation, [&] {
    ExposedWork& exposed = simulation.runtime().stall_watch().exposed();
    RunnableList list;
    list.push_back(&pieces.outer[0]);
    PendingWork work(&pieces, list, give, PendingWork::Gives::kWhenHeldUp);
    work.next()->run_queued();
    PendingWork::expose_all(ThreadContext::current().pending);
    for (Piece* const piece : {&pieces.outer[1], &pieces.outer[2]}) {
      RunnableList one;
      one.push_back(piece);
      work.add(one);
      exposed.look();
      EXPECT_FALSE(exposed.look()) << "nothing is left";
      EXPECT_TRUE(piece->given);
    }
    EXPECT_EQ(work.next(), nullptr);
  });
  EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
  EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
}

// Also where nobody watches.
TEST(PendingProtocol, WhatIsAddedByAThreadThatBlocksIsGivenAwayAtOnce) {
  std::array<Piece, 2> pieces;
  RunnableList list;
  list.push_back(&pieces[0]);
  PendingWork work(&pieces, list, give, PendingWork::Gives::kWhenItBlocks);
  work.next()->run_queued();
  {
    const BlockingScope blocks;
    RunnableList one;
    one.push_back(&pieces[1]);
    work.add(one);
    EXPECT_TRUE(pieces[1].given);
  }
  EXPECT_EQ(work.next(), nullptr);
}

// What one call ends stays with it, and so does what another thread than a handler does.
TEST(PendingProtocol, OnlyWhatMayBeGivenAwayIs) {
  Simulation simulation(1, {});
  simulation.runtime().stall_watch().exposed().enable();
  Pieces pieces;
  const auto play_loop = [&](PendingWork::Gives when) {
    RunnableList list = Pieces::list_of(pieces.outer);
    PendingWork work(&pieces, list, give, when);
    while (Runnable* const piece = work.next()) {
      piece->run_queued();
      PendingWork::expose_all(ThreadContext::current().pending);
      EXPECT_FALSE(simulation.runtime().stall_watch().exposed().look());
    }
  };
  on_a_handler(simulation, [&] { play_loop(PendingWork::Gives::kWhenItBlocks); });
  simulation.spawn([&] { play_loop(PendingWork::Gives::kWhenHeldUp); });
  EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
  for (const Piece& piece : pieces.outer) {
    EXPECT_EQ(piece.begun, 2);
    EXPECT_FALSE(piece.given);
  }
  EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
}

// The first look cannot know for how long a piece has run.
TEST(PendingProtocol, OneLookGivesNothingAway) {
  Simulation simulation(1, {});
  simulation.runtime().stall_watch().exposed().enable();
  Pieces pieces;
  on_a_handler(simulation, [&] {
    ExposedWork& exposed = simulation.runtime().stall_watch().exposed();
    RunnableList list = Pieces::list_of(pieces.outer);
    PendingWork work(&pieces, list, give, PendingWork::Gives::kWhenHeldUp);
    for (int i = 0; i < 2; i++) {
      work.next()->run_queued();
      PendingWork::expose_all(ThreadContext::current().pending);
      EXPECT_TRUE(exposed.look());
      EXPECT_FALSE(pieces.outer.back().given);
    }
    EXPECT_FALSE(exposed.look()) << "nothing is left";
    EXPECT_TRUE(pieces.outer[2].given);
    EXPECT_TRUE(pieces.outer.back().given);
    EXPECT_EQ(work.next(), nullptr);
  });
  EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
  EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
}

// A simulation with the thread of the watch, which otherwise runs only beside the system's clock.
class WatchedSimulation {
 public:
  explicit WatchedSimulation(uint64_t seed) : simulation_(seed, {.max_steps = 200'000}) {
    watch().exposed().enable();
    EXPECT_TRUE(watch().start());
  }
  ~WatchedSimulation() {
    simulation_.spawn([this] { watch().stop(); });
    run_until_quiet();
    EXPECT_EQ(simulation_.stop().outcome, Simulation::Outcome::kQuiet);
  }
  WatchedSimulation(const WatchedSimulation&) = delete;
  WatchedSimulation& operator=(const WatchedSimulation&) = delete;

  // Until no thread has anything to do, which includes the watch: it sleeps.
  void run_until_quiet() {
    const Simulation::Result result = simulation_.run();
    EXPECT_EQ(result.outcome, Simulation::Outcome::kQuiet) << result.description;
  }
  Simulation& simulation() { return simulation_; }

 private:
  StallWatch& watch() { return simulation_.runtime().stall_watch(); }

  Simulation simulation_;
};

// User code waits here until the test lets it go on.
class Gate {
 public:
  void pass() {
    const MutexLock lock(mutex_);
    while (!is_open_) {
      opened_.wait(mutex_);
    }
    is_open_ = false;
  }
  void open() {
    const MutexLock lock(mutex_);
    is_open_ = true;
    opened_.notify_one();
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool is_open_ WF_GUARDED_BY(mutex_) = false;
};

// However long a piece lasts, the watch looks only while something is exposed: in the simulation,
// where nothing else happens meanwhile, it would look for ever.
TEST(PendingProtocol, TheWatchSleepsWhileNothingIsExposed) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WatchedSimulation watched(seed);
    Pieces pieces;
    Gate gate;
    on_a_handler(watched.simulation(), [&] {
      RunnableList list = Pieces::list_of(pieces.outer);
      PendingWork work(&pieces, list, give, PendingWork::Gives::kWhenHeldUp);
      work.next()->run_queued();
      PendingWork::expose_all(ThreadContext::current().pending);
      PendingWork::give_all();  // nothing is left, as in the last piece
      gate.pass();
      RunnableList one;
      one.push_back(&pieces.added);
      work.add(one);
      gate.pass();
      EXPECT_EQ(work.next(), nullptr);
    });
    watched.run_until_quiet();
    EXPECT_TRUE(pieces.outer.back().given);
    EXPECT_FALSE(pieces.added.given);
    gate.open();
    watched.run_until_quiet();
    EXPECT_TRUE(pieces.added.given) << "what is exposed later wakes the watch";
    gate.open();
    watched.run_until_quiet();
  });
}

// Each time is a multiple of this, as it is in the watch. So the watch often goes to sleep just
// when something is exposed.
constexpr int64_t kTickNs = 100'000;

// Some pieces end only when all others have begun. Before the thread exposes them, it sleeps for a
// moment, or for about as long as it takes until the watch sleeps.
void play_held_up(Simulation& simulation, Pieces& pieces, TestRandom& random) {
  const auto wait_for = [&simulation](const auto& begun) {
    while (!begun()) {
      simulation.sleep_for(kTickNs);
    }
  };
  const auto sleep = [&] {
    const uint64_t ticks = random.one_in(2) ? random.below(5) : 80 + random.below(16);
    simulation.sleep_for(static_cast<int64_t>(ticks) * kTickNs);
  };
  RunnableList list = Pieces::list_of(pieces.outer);
  PendingWork work(&pieces, list, give, PendingWork::Gives::kWhenHeldUp);
  while (Runnable* const piece = work.next()) {
    piece->run_queued();
    sleep();
    PendingWork::expose_all(ThreadContext::current().pending);
    if (piece != &pieces.outer.back() && random.one_in(2)) continue;
    wait_for([&] {
      return std::all_of(pieces.outer.begin(), pieces.outer.end(),
                         [](const Piece& other) { return other.begun > 0; });
    });
    sleep();
    RunnableList one;
    one.push_back(&pieces.added);
    work.add(one);
    wait_for([&] { return pieces.added.begun > 0; });
  }
}

TEST(PendingProtocol, TheWatchOverlooksNothing) {
  for_each_seed(4 * kSeeds, [](uint64_t seed) {
    WatchedSimulation watched(seed);
    Pieces pieces;
    TestRandom random(seed);
    on_a_handler(watched.simulation(), [&] { play_held_up(watched.simulation(), pieces, random); });
    watched.run_until_quiet();
    for (const Piece& piece : pieces.outer) {
      EXPECT_EQ(piece.begun, 1);
    }
    EXPECT_EQ(pieces.added.begun, pieces.added.given ? 1 : 0);
  });
}

}  // namespace

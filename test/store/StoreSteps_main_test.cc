#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/KillLedger.h"
#include "store/LedgerEnds.h"
#include "store/LedgerPlay.h"
#include "store/LedgerProcess.h"
#include "store/LedgerScript.h"
#include "store/SocketSteps.h"
#include "store/SqliteChild.h"
#include "support/ChildProcess.h"
#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"
#include "support/Text.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTimerStore.h"

// A process that uses a store in a Redis is killed at each step of what it exchanges with the
// server: see SocketSteps.h. Each time it does the same (LedgerScript.h), in a namespace of its
// own. Others run what it has left, and the outside ledger judges all of it.

namespace {

using redis_test::RedisServer;
using store_test::Asker;
using store_test::Begun;
using store_test::KillLedger;
using store_test::LedgerEnds;
using store_test::name_of;
using store_test::Notes;
using test_support::env_number;
using test_support::eventually;
using test_support::kSanitized;
using test_support::SqliteChild;
using test_support::test_seed;
using test_support::TestRandom;

struct Place {
  const char* name;
  int shards;
  int64_t stride;  // every so many steps, unless all are played

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

// Whether LedgerProcess.h writes down when the runs of that name end.
bool notes_ends(const std::string& name) {
  for (const std::string& beginning : {store_test::kOnly, store_test::kSeries, store_test::kSlow}) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

// That LedgerEnds finds each kind of lie. The killed process is the first one.
std::string check_ends(const std::string& killed, const std::string& later) {
  KillLedger ledger({});
  ledger.read(killed);
  ledger.read(later);
  return LedgerEnds(ledger, {.acknowledged = {"a"}, .notes_ends = notes_ends}).check();
}

TEST(LedgerEnds, FindWhatIsRunAgainAndWhatIsNot) {
  EXPECT_EQ(check_ends("s a 1 100 105 11 1000 0\n", "s b 2 100 105 12 1000 0\n"), "");
  EXPECT_EQ(check_ends("s a 1 100 105 11 1000 0\n", "s a 1 100 2105 12 1000 0\n"),
            "a (1) was acknowledged, and has run again");

  const std::string done =
      "s b 2 100 105 11 1000 0\n? 1 1 cancel b\n! 1 1 110 file ok 0 done:2:0,\n";
  EXPECT_EQ(check_ends(done, ""), "");
  EXPECT_EQ(check_ends(done, "s b 2 100 2105 12 1000 0\n"), "b (2) was done, and has run again");

  const std::string begun = "s one/c 3 100 105 11 1000 0\n";
  EXPECT_EQ(check_ends(begun, "s one/c 3 100 2105 12 1000 0\n"), "");
  EXPECT_EQ(check_ends(begun + "d one/c 3 106 11\n", ""), "");
  EXPECT_EQ(check_ends(begun + "? 1 1 cancel one/c\n! 1 1 110 file ok 0 running:3:1,\n", ""), "");
  EXPECT_EQ(check_ends(begun, ""), "one/c (3) was cut off, and has not run again");
}

// One step: a process with a store of its own, which is killed, and what becomes of its store.
class Round {
 public:
  Round(std::string url, int64_t step) : url_(std::move(url)), step_(step) {}

  // Returns what is wrong, in one line; empty: nothing.
  std::string play() {
    std::string wrong = follow_script();
    if (!wrong.empty()) return wrong;
    KillLedger before(kRules);
    before.read(test_support::text_of(killed_notes_));
    in_doubt_ = before.in_doubt();
    wrong = use_what_is_left(before.names_of("keep"));
    if (!wrong.empty()) return wrong;
    ledger_.read(test_support::text_of(killed_notes_));
    ledger_.read(test_support::text_of(later_notes_));
    wrong = ledger_.check();
    return wrong.empty() ? LedgerEnds(ledger_, killed_).check() : wrong;
  }

  bool has_ended() const { return exit_code_ == 0; }
  size_t in_doubt() const { return in_doubt_.size(); }
  size_t acknowledged() const { return killed_.acknowledged.size(); }
  const KillLedger& ledger() const { return ledger_; }

 private:
  static inline const KillLedger::Rules kRules = {.receipt = "memory",
                                                  .remembered = store_test::kRemembered};

  std::string follow_script() {
    SqliteChild child({"LEDGER_PART=script", "LEDGER_URL=" + url_, "LEDGER_NOTES=" + killed_notes_,
                       "LEDGER_STEP=" + std::to_string(step_)});
    const std::string acknowledged = "acknowledged ";
    for (std::optional<std::string> line = child.line(); line; line = child.line()) {
      if (line->starts_with(acknowledged)) {
        killed_.acknowledged.insert(line->substr(acknowledged.size()));
      } else if (*line != "closed") {
        return *line;
      }
    }
    exit_code_ = child.wait();
    return exit_code_ == 0 || exit_code_ == -SIGKILL
               ? ""
               : "the process ends with " + std::to_string(exit_code_);
  }

  // What was in doubt is settled, at once and when all that is left has run, and the names that
  // were kept are used again.
  std::string use_what_is_left(const std::set<std::string>& kept) {
    const Notes notes(later_notes_);
    notes.write("e");
    Begun begun;
    const auto store = store_test::open_store(url_);
    settle(*store, notes);
    Asker asker(*store, notes);
    handle(*store, notes, &begun);
    std::set<std::string> ended;
    WFStoreResult left;
    const bool is_empty = eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // each look costs the server
      left = store_test::ledger_parts::end_what_is_left(*store, asker, begun, ended);
      return left.ok() && left.count == 0;
    });
    if (!is_empty) return std::to_string(left.count) + " timers are left";
    for (const std::string& name : kept) {
      asker.schedule(name, store_test::now_us() + kTenYearsUs, WF_TIMER_KEEP);
    }
    asker.wait();
    for (const std::string& name : kept) {
      asker.cancel(name);
    }
    asker.wait();
    settle(*store, notes);
    return store->close(test_support::kPatience) ? "" : "a run does not end";
  }
  void settle(WFTimerStore& store, const Notes& notes) const {
    for (const auto& [session, number] : in_doubt_) {
      const WFStoreRequestId id = {session, number};
      notes.write("a " + store_test::text_of(id) + ' ' + store_test::text_of(store.ask(id)));
    }
  }

  static constexpr int64_t kTenYearsUs = 315'360'000'000'000;

  const std::string url_;
  const int64_t step_;
  const test_support::FastDir directory_;
  const std::string killed_notes_ = directory_.path("killed");
  const std::string later_notes_ = directory_.path("later");
  LedgerEnds::Killed killed_ = {.notes_ends = notes_ends};
  int exit_code_ = -1;
  std::vector<KillLedger::Id> in_doubt_;
  KillLedger ledger_{kRules};
};

class StoreSteps : public testing::TestWithParam<Place> {
 protected:
  // Plays every so many steps, several at a time: most of the time they wait for leases to end.
  void play(int64_t first, int64_t stride) {
    next_ = first;
    std::vector<std::thread> threads;
    for (int i = 0; i < kAtATime; i++) {
      threads.emplace_back([this, stride] {
        while (!is_over_) {
          play_step(next_.fetch_add(stride));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  struct Seen {
    size_t kills = 0, in_doubt = 0, repeated = 0, acknowledged = 0, won = 0, running = 0;
  };
  const Seen& seen() const { return seen_; }

 private:
  static constexpr int kAtATime = kSanitized ? 4 : 12;

  void play_step(int64_t step) {
    Round round(server_.url() + "&namespace=step" + std::to_string(step) +
                    "&shards=" + std::to_string(GetParam().shards),
                step);
    const std::string wrong = round.play();
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(wrong, "") << "WORKFLOW_STORE_STEP=" << step;
    if (!wrong.empty() || round.has_ended()) {
      is_over_ = true;
    }
    const KillLedger& ledger = round.ledger();
    seen_.kills += round.has_ended() ? 0 : 1;
    seen_.in_doubt += round.in_doubt();
    seen_.repeated += ledger.repeated();
    seen_.acknowledged += round.acknowledged();
    seen_.won += ledger.answers("won");
    seen_.running += ledger.answers("running") + ledger.answers("after_run");
  }

  const RedisServer server_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  Seen seen_;
};

// WORKFLOW_STORE_ALL_FAULTS=1 plays all steps, and WORKFLOW_STORE_STEP begins with that one.
TEST_P(StoreSteps, AnOutsideLedgerOfReceiptsAndStartsHoldsOverAKillAtEachStep) {
  const bool all = env_number("WORKFLOW_STORE_ALL_FAULTS", 0) != 0;
  const int64_t stride = all ? 1 : GetParam().stride * (kSanitized ? 3 : 1);
  const uint64_t chosen = TestRandom(test_seed()).below(static_cast<uint64_t>(stride));
  const int64_t first = env_number("WORKFLOW_STORE_STEP", static_cast<int64_t>(chosen));
  play(first, stride);
  std::printf(
      "%zu kills: %zu requests in doubt, %zu runs repeated, %zu acknowledged, %zu won, %zu while "
      "running\n",
      seen().kills, seen().in_doubt, seen().repeated, seen().acknowledged, seen().won,
      seen().running);
  EXPECT_GT(seen().kills, 0U);
  if (all && !HasFailure() && first == 0) {
    EXPECT_GT(seen().kills, 300U);
    EXPECT_GT(seen().in_doubt, 0U);
    EXPECT_GT(seen().repeated, 0U);
    EXPECT_GT(seen().running, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Places, StoreSteps,
                         testing::Values(Place{"Redis", 1, 29}, Place{"RedisOfTwoShards", 2, 71}),
                         name_of<Place>);

void follow_script() {
  socket_steps::left = env_number("LEDGER_STEP", -1);
  const Notes notes;
  const auto store = store_test::open_store();
  handle(*store, notes);
  store_test::Script(*store, notes).play();
}

// A process lives for a second, and needs no more.
void use_few_threads() {
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  settings.handler_threads = 4;
  settings.compute_threads = 1;
  WORKFLOW_library_init(&settings);
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("LEDGER_RATE", "1000000", 1);  // what is left begins as fast as it can
  if (test_support::variable("LEDGER_PART") == "script") {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
    use_few_threads();
    follow_script();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/Dial.h"
#include "store/LedgerPlay.h"
#include "store/LedgerRounds.h"
#include "support/ChildProcess.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/ShiftedClocks.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"
#include "util/Thread.h"

// Stores of several processes, which are killed or stopped in mid-load, or whose clocks are wrong.
// An outside ledger judges all of it, see KillLedger.h.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using std::chrono::milliseconds;
using store_test::Children;
using store_test::Dial;
using store_test::KillLedger;
using store_test::kLease;
using store_test::kRoundsOfStore;
using store_test::LedgerRounds;
using store_test::name_of;
using store_test::name_of_round;
using store_test::play;
using store_test::rounds;
using store_test::says;
using test_support::env_number;
using test_support::eventually;
using test_support::kSanitized;
using test_support::test_seed;
using test_support::TestRandom;

// Where a store is.
struct Place {
  const char* name;
  const char* receipt;
  bool is_owned = false;
  bool is_redis = false;
  bool is_cluster = false;
  bool has_wrong_clocks = false;  // those of its processes

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

KillLedger::Rules rules_of(const Place& place) {
  return {.leases_end_with_process = place.is_owned, .receipt = place.receipt};
}

class StoreKills : public testing::TestWithParam<Place> {
 protected:
  StoreKills() : ledger_(rules_of(GetParam())) {
    if (GetParam().is_redis) {
      server_ = std::make_unique<RedisServer>();
    } else if (GetParam().is_cluster) {
      cluster_ = std::make_unique<RedisCluster>();
    }
  }

  void begin_store(int64_t number) {
    ledger_.begin_store();
    const std::string space = "namespace=kills" + std::to_string(number);
    ledger_.set_url(GetParam().is_redis     ? server_->url() + "&" + space + "&shards=2"
                    : GetParam().is_cluster ? cluster_->store_url(space + "&shards=6")
                                            : "sqlite:" + ledger_.path("timers") +
                                                  (GetParam().is_owned ? "?layout=owned" : ""));
  }

  // One process, or two where that is possible. `more` has further variables.
  Children start_workers(int64_t round, const std::vector<std::string>& more = {}) {
    const std::string name = name_of_round(round);
    const std::string before = name_of_round(round - 1) + 'a';
    const auto shifted_by = [&more](const char* seconds) {
      std::vector<std::string> variables = more;
      variables.push_back(std::string("LEDGER_SHIFT_S=") +
                          (GetParam().has_wrong_clocks ? seconds : "0"));
      return variables;
    };
    Children children;
    children.push_back(ledger_.start_worker(name + 'a', GetParam().is_owned ? before : name + 'b',
                                            shifted_by("600")));
    if (!GetParam().is_owned) {
      children.push_back(ledger_.start_worker(name + 'b', random_.one_in(2) ? before : name + 'a',
                                              shifted_by("-600")));
    }
    return children;
  }

  // Kills each process at a random instant, some of them before they have opened the store.
  void kill_workers(int64_t round) {
    for (const auto& child : start_workers(round)) {
      uint64_t life_us = random_.below(20'000);
      if (!random_.one_in(8)) {
        ASSERT_EQ(child->line(), "begun");
        life_us = random_.below(kSanitized ? 200'000 : 80'000);
      }
      ::usleep(static_cast<useconds_t>(life_us));
      child->kill();
    }
  }

  // Stops the first process until its leases have ended. Then it goes on for a while.
  void stop_worker(int64_t round) {
    const size_t stopped = ledger_.processes();
    const Children children = start_workers(round);
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(200)));
    children[0]->send(SIGSTOP);
    std::this_thread::sleep_for(kLease + milliseconds(100));
    children[0]->send(SIGCONT);
    ASSERT_TRUE(ledger_.wait_for_answers(20, stopped));
    // It is killed while it has no answer to something. Right after an answer was seen it may have
    // all: on a busy machine its threads wait then for their turn to ask again.
    ASSERT_TRUE(eventually([&] {
      children[0]->send(SIGSTOP);
      if (ledger_.has_asked(stopped)) return true;
      children[0]->send(SIGCONT);
      return false;
    }));
  }

  // The processes fork while they use the store, and are killed. Their children are still there
  // when the next ones use it.
  void fork_workers(int64_t round) {
    Dial dial(ledger_.path("dial"));
    dial.set(0);
    Children children =
        start_workers(round, {"LEDGER_FAULT=fork", "LEDGER_DIAL=" + ledger_.path("dial")});
    const size_t first = ledger_.processes() - children.size();
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(100)));
    dial.set(1);
    for (const auto& child : children) {
      ASSERT_TRUE(says(*child, "forked"));
    }
    for (size_t process = first; process < ledger_.processes(); process++) {
      ASSERT_TRUE(ledger_.wait_for_answers(20, process));
    }
    for (const auto& child : children) {
      child->kill();
    }
    forked_ = std::move(children);
  }

  // There are overdue timers when the processes begin, of which half may begin in a second. What is
  // stored meanwhile does not wait for them.
  void leave_backlog(int64_t round) {
    const auto overdue = static_cast<size_t>(env_number("WORKFLOW_STORE_BACKLOG", 1000));
    const std::string name = name_of_round(round);
    {
      const auto child = ledger_.start(
          "fill", {"LEDGER_NAME=" + name + 'o', "LEDGER_COUNT=" + std::to_string(overdue)});
      ASSERT_TRUE(says(*child, "filled"));
      ASSERT_EQ(child->wait(), 0);
    }
    const Children children =
        start_workers(round, {"LEDGER_RATE=" + std::to_string(overdue / 2), "LEDGER_PAUSE_US=300"});
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    // At most two processes have run these, so one of them has run ten.
    ASSERT_TRUE(eventually([&] { return ledger_.starts(name + 'a') >= 20; }));
    const auto earlier = ledger_.starts_before(10, name + 'a', name + 'o');
    ASSERT_TRUE(earlier);
    EXPECT_LT(*earlier, overdue);
    ASSERT_TRUE(ledger_.wait_for_answers(random_.below(200)));
  }

  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  Children forked_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisCluster> cluster_;
};

TEST_P(StoreKills, AnOutsideLedgerOfReceiptsAndStartsHoldsOverKills) {
  const bool are_few = kSanitized || GetParam().is_cluster;
  play(
      ledger_, rounds(are_few ? 4 : kRoundsOfStore), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { kill_workers(round); }, [this] { return ledger_.saw_enough(); });
}

TEST_P(StoreKills, AnOutsideLedgerOfReceiptsAndStartsHoldsOverStopsBeyondLeases) {
  play(
      ledger_, rounds(2), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { stop_worker(round); }, [this] { return ledger_.saw_enough(); });
}

// The faults whose rounds take long are not played in each place.
const auto kFewPlaces = testing::Values(
    Place{"Shared", "file"}, Place{.name = "Owned", .receipt = "file", .is_owned = true},
    Place{.name = "Redis", .receipt = "memory", .is_redis = true});

class StoreForks : public StoreKills {};
class StoreBacklogs : public StoreKills {};

// ThreadSanitizer ends a process that forks with threads and starts others, and AddressSanitizer
// may have locked what the child needs.
TEST_P(StoreForks, AnOutsideLedgerOfReceiptsAndStartsHolds) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer does not follow a process with threads into a fork";
  play(
      ledger_, rounds(2), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { fork_workers(round); }, [this] { return ledger_.saw_enough(); });
}

TEST_P(StoreBacklogs, AnOutsideLedgerOfReceiptsAndStartsHolds) {
  play(
      ledger_, rounds(1), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { leave_backlog(round); }, [this] { return ledger_.saw_much(); });
}

INSTANTIATE_TEST_SUITE_P(Places, StoreForks, kFewPlaces, name_of<Place>);
INSTANTIATE_TEST_SUITE_P(Places, StoreBacklogs, kFewPlaces, name_of<Place>);
INSTANTIATE_TEST_SUITE_P(
    Places, StoreKills,
    testing::Values(Place{"Shared", "file"},
                    Place{.name = "Owned", .receipt = "file", .is_owned = true},
                    Place{.name = "Redis", .receipt = "memory", .is_redis = true},
                    Place{.name = "RedisOfWrongClocks",
                          .receipt = "memory",
                          .is_redis = true,
                          .has_wrong_clocks = true},
                    Place{.name = "Cluster", .receipt = "memory", .is_cluster = true}),
    name_of<Place>);

// Clocks that are set by an hour while the store is in use, of the machine or of the server. One of
// the processes is in another time zone.
class StoreSetClocks : public testing::TestWithParam<Place> {
 protected:
  StoreSetClocks() : ledger_(rules_of(GetParam())) {
    if (GetParam().is_redis) {
      server_ = std::make_unique<RedisServer>(
          RedisServer::Options{.environment = {std::string("LD_PRELOAD=") + REDIS_CLOCK_AHEAD,
                                               "CLOCK_AHEAD_FILE=" + directory_.path("clock")}});
    }
    // No series has a run for each of the dates in an hour that is left out: those would be many.
    std::vector<std::string> variables = {"LEDGER_FAULT=clock",
                                          "LEDGER_DIAL=" + directory_.path("clock"),
                                          "LEDGER_PAUSE_US=1000", "LEDGER_SERIES=latest"};
    if (!server_) {
      variables.push_back("LEDGER_SETS_CLOCK=1");
    }
    ledger_.set_variables(variables);
  }

  void begin_store(int64_t number) {
    ledger_.begin_store();
    ledger_.set_url(server_ ? server_->url() + "&shards=2&namespace=clocks" + std::to_string(number)
                            : "sqlite:" + ledger_.path("timers") +
                                  (GetParam().is_owned ? "?layout=owned" : ""));
    ledger_.set_clock(clock_, kLatest);
  }

  void play_round(int64_t round) {
    const size_t first = ledger_.processes();
    const std::string name = name_of_round(round);
    Children children;
    children.push_back(ledger_.start_worker(name + 'a', name + 'b', {"TZ=America/New_York"}));
    if (!GetParam().is_owned) {
      children.push_back(ledger_.start_worker(name + 'b', name + 'a', {"TZ=Australia/Lord_Howe"}));
    }
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    const auto back = static_cast<int64_t>(random_.below(3));
    for (const int64_t ahead : {kLatest - kHour, kLatest - back * kHour, kLatest}) {
      for (size_t process = first; process < ledger_.processes(); process++) {
        ASSERT_TRUE(ledger_.wait_for_answers(20, process));
      }
      // The ledger does not know by which clock something has happened right after it was set.
      std::this_thread::sleep_for(milliseconds(600));
      ledger_.set_clock(clock_, ahead);
    }
    ASSERT_TRUE(ledger_.wait_for_answers(20));
  }

  static constexpr int64_t kHour = 3600;
  static constexpr int64_t kLatest = 2 * kHour;  // each round ends with it, so that all is due

  const test_support::FastDir directory_;
  Dial clock_{directory_.path("clock")};
  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  std::unique_ptr<RedisServer> server_;
};

TEST_P(StoreSetClocks, AnOutsideLedgerOfReceiptsAndStartsHolds) {
  play(
      ledger_, rounds(1), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { play_round(round); }, [this] { return ledger_.saw_much(); });
}

INSTANTIATE_TEST_SUITE_P(Places, StoreSetClocks, kFewPlaces, name_of<Place>);

// In a process whose machine has the clock that is set.
void follow_clock() {
  static const Dial* const clock = new Dial(test_support::variable("LEDGER_DIAL"));
  shifted_clocks::further_wall_shift_ns = [] { return clock->get() * 1'000'000'000; };
  std::thread([] {
    for (int64_t before = clock->get();; workflow::pause_ns(1'000'000)) {
      if (const int64_t now = clock->get(); now != before) {
        shifted_clocks::signal();
        before = now;
      }
    }
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  if (!test_support::variable("LEDGER_SETS_CLOCK").empty()) {
    follow_clock();
  }
  shifted_clocks::wall_shift_ns = test_support::env_number("LEDGER_SHIFT_S", 0) * 1'000'000'000;
  return store_test::run_tests_or_part(argc, argv);
}

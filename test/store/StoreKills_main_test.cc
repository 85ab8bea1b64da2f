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
#include <vector>

#include "store/LedgerPlay.h"
#include "store/LedgerRounds.h"
#include "support/RedisCluster.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/ShiftedClocks.h"
#include "support/TestSeed.h"

// Stores of several processes, which are killed or stopped in mid-load, or whose clocks are wrong.
// An outside ledger judges all of it, see KillLedger.h.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using std::chrono::milliseconds;
using store_test::Children;
using store_test::KillLedger;
using store_test::kLease;
using store_test::kRoundsOfStore;
using store_test::LedgerRounds;
using store_test::name_of;
using store_test::name_of_round;
using store_test::play;
using store_test::rounds;
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

  // One process, or two where that is possible.
  Children start_workers(int64_t round) {
    const std::string name = name_of_round(round);
    const std::string before = name_of_round(round - 1) + 'a';
    const auto shifted_by = [](const char* seconds) {
      return std::vector<std::string>{std::string("LEDGER_SHIFT_S=") +
                                      (GetParam().has_wrong_clocks ? seconds : "0")};
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
  }

  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
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

}  // namespace

int main(int argc, char** argv) {
  shifted_clocks::wall_shift_ns = test_support::env_number("LEDGER_SHIFT_S", 0) * 1'000'000'000;
  return store_test::run_tests_or_part(argc, argv);
}

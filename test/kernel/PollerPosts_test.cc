#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernel/HandlerPool.h"
#include "kernel/Poller.h"
#include "support/Item.h"
#include "support/PostLedger.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TestSeed.h"

// Posts to a poller: what they cost, and what becomes of them while the poller stops.

namespace {

using test_support::Item;
using test_support::PostLedger;
using test_support::Tally;
using test_support::test_seed;
using test_support::TestRandom;
using workflow::HandlerPool;
using workflow::Poller;

// A poller on its own, with a handler thread.
class LonePoller {
 public:
  LonePoller() {
    EXPECT_TRUE(handlers_.start());
    EXPECT_TRUE(poller_.start());
  }
  Poller& get() { return poller_; }

  void stop() {
    poller_.timers().stop();
    poller_.timers().wait_until_ended();
    handlers_.stop();
    poller_.stop();
  }

 private:
  HandlerPool handlers_{1};
  Poller poller_{workflow::system_clock(), handlers_};
};

// How often each eventfd of the process was written, if nobody reads it: eventfd(2), proc(5).
std::map<std::string, uint64_t> eventfd_writes() {
  std::map<std::string, uint64_t> writes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(entry.path());
    for (std::string word; file >> word;) {
      if (word == "eventfd-count:") {
        file >> std::hex >> writes[entry.path().filename()];
      }
    }
  }
  return writes;
}

}  // namespace

TEST(PollerPosts, OneSystemCallWakesForAllThatIsPostedBeforeTheNextRound) {
  const auto others = eventfd_writes();
  LonePoller poller;
  const auto ours = [&others] {
    uint64_t writes = 0;
    for (const auto& [fd, count] : eventfd_writes()) {
      writes += others.count(fd) > 0 ? 0 : count;
    }
    return writes;
  };
  Tally begun;
  Tally opened;
  Tally ran;
  ASSERT_TRUE(poller.get().post(new Item([&] {
    begun.add();
    EXPECT_TRUE(opened.wait_for(1));
  })));
  ASSERT_TRUE(begun.wait_for(1));
  const uint64_t before = ours();
  EXPECT_GE(before, 1U);
  for (int i = 0; i < 1000; i++) {
    ASSERT_TRUE(poller.get().post(new Item([&ran] { ran.add(); })));
  }
  EXPECT_LE(ours(), before + 1);
  opened.add();
  EXPECT_TRUE(ran.wait_for(1000));
  poller.stop();
}

// The seed is printed; see test_seed().
TEST(PollerPostsStress, EachPostThatIsTakenRunsThoughThePollerStops) {
  constexpr size_t kPosters = 3;
  constexpr uint64_t kRounds = test_support::kSanitized ? 60 : 200;
  const auto pause = [](TestRandom& random) {
    // Sometimes as long as a round has for posted items.
    std::this_thread::sleep_for(
        std::chrono::microseconds(random.below(random.one_in(8) ? 1500 : 30)));
  };
  size_t refused = 0;
  const auto goes_on = [&refused](uint64_t rounds) {
    return rounds < kRounds || (refused == 0 && rounds < 20 * kRounds);
  };
  for (uint64_t round = 0; goes_on(round) && !testing::Test::HasFailure(); round++) {
    LonePoller poller;
    PostLedger ledger(poller.get(), kPosters, test_seed() + round, pause);
    {
      std::vector<std::jthread> threads;
      for (size_t poster = 0; poster < kPosters; poster++) {
        threads.emplace_back([&ledger, poster] { ledger.post(poster); });
      }
      threads.emplace_back([&ledger] {
        for (int i = 0; i < 10; i++) {
          ledger.look();
        }
      });
      TestRandom random(test_seed() + round, kPosters);
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(4000)));
      poller.stop();
    }
    ledger.close();
    refused += PostLedger::most(kPosters) - ledger.posted();
  }
  EXPECT_GT(refused, 0U);
}

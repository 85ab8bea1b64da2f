#include "store/RedisServerClock.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "support/TestSeed.h"

// What replies tell about the clock of a server.

namespace {

using test_support::TestRandom;
using workflow::RedisServerClock;

constexpr int64_t kAheadUs = 1'700'000'000'000'000;  // of the clock here

// A request that was sent at `sent_us`, and took so long there and back.
void exchange(RedisServerClock& clock, int64_t sent_us, int64_t there_us, int64_t back_us,
              int64_t ahead_us = kAheadUs) {
  clock.learn(sent_us, sent_us + there_us + back_us, sent_us + there_us + ahead_us);
}

TEST(RedisServerClock, IsUnknownBeforeAReply) {
  RedisServerClock clock;
  EXPECT_FALSE(clock.is_known());
  EXPECT_EQ(clock.offset_us(), 0);
  exchange(clock, 1000, 10, 10);
  EXPECT_TRUE(clock.is_known());
}

// A date that is computed with an offset that is too small would come too early.
TEST(RedisServerClock, IsAheadByAsMuchAsTheQuickestRequestTook) {
  TestRandom random(test_support::test_seed());
  for (int i = 0; i < 100; i++) {
    RedisServerClock clock;
    int64_t quickest_us = INT64_MAX;
    for (int64_t sent_us = 0; sent_us < 100'000; sent_us += 1000) {
      const int64_t there_us = random.between(0, 100);
      const int64_t back_us = random.one_in(10) ? 70'000 : random.between(0, 100);
      exchange(clock, sent_us, there_us, back_us);
      quickest_us = std::min(quickest_us, there_us);
      EXPECT_EQ(clock.offset_us(), kAheadUs + quickest_us);
    }
  }
}

TEST(RedisServerClock, FollowsAClockThatIsSet) {
  RedisServerClock clock;
  exchange(clock, 0, 10, 10);
  exchange(clock, 1000, 20, 30, kAheadUs + 5000);
  EXPECT_EQ(clock.offset_us(), kAheadUs + 5000 - 30);  // as little as the reply allows
  exchange(clock, 2000, 20, 30, kAheadUs);
  EXPECT_EQ(clock.offset_us(), kAheadUs + 20);
}

}  // namespace

#include "store/StoreRepeat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "support/TestSeed.h"

// Which date a timer that recurs runs for, whatever its dates and the clock are.

namespace {

using test_support::test_seed;
using test_support::TestRandom;
using workflow::kNeverUs;
using workflow::StoreRepeat;

constexpr int64_t kSecondUs = 1'000'000;

StoreRepeat parse(const std::string& text) {
  const auto repeat = StoreRepeat::parse(text);
  EXPECT_TRUE(repeat.has_value()) << text;
  return repeat.value();
}

StoreRepeat every(int64_t period_us, int64_t first_us, const std::string& missed = "latest") {
  return parse("every " + missed + " " + std::to_string(period_us) + " " +
               std::to_string(first_us));
}

// What date_to_run_us() promises, found one date after the other.
int64_t latest_step_by_step(const StoreRepeat& repeat, int64_t due_us, int64_t now_us) {
  for (int64_t next = repeat.next_us(due_us); next <= now_us; next = repeat.next_us(due_us)) {
    due_us = next;
  }
  return due_us;
}

TEST(StoreRepeat, TheDateToRunIsTheLatestThatHasCome) {
  TestRandom random(test_seed());
  for (int i = 0; i < 2000; i++) {
    const StoreRepeat repeat = every(random.between(1, 50), random.between(0, 100));
    const int64_t due_us = random.between(0, 300);
    const int64_t now_us = random.between(0, 600);
    EXPECT_EQ(repeat.date_to_run_us(due_us, now_us), latest_step_by_step(repeat, due_us, now_us))
        << repeat.to_text() << ", due at " << due_us << ", it is " << now_us;
  }
}

TEST(StoreRepeat, TheDateToRunOfACronExpressionIsTheLatestThatHasCome) {
  TestRandom random(test_seed());
  const StoreRepeat repeat = parse("cron latest UTC */20 3-5 * * *");
  for (int i = 0; i < 200; i++) {
    const int64_t due_us = random.between(0, 2'000'000'000) * kSecondUs;
    const int64_t now_us = due_us + random.between(0, 1'000'000) * kSecondUs;
    EXPECT_EQ(repeat.date_to_run_us(due_us, now_us), latest_step_by_step(repeat, due_us, now_us));
  }
}

TEST(StoreRepeat, EachMissedDateCountsIfTheTimerSaysSo) {
  EXPECT_EQ(every(10, 0, "each").date_to_run_us(20, 95), 20);
  EXPECT_EQ(every(10, 0, "latest").date_to_run_us(20, 95), 90);
}

// A clock that is set wrong, or a hostile reply, takes no longer than any other. A step for each
// date would take longer than the time limit of the test.
TEST(StoreRepeat, AClockThatIsFarAheadTakesNoLonger) {
  constexpr int64_t kLastUs = std::numeric_limits<int64_t>::max() / 1000;
  for (const int64_t now_us : {int64_t{70'100'000'980'000'000}, kLastUs, kNeverUs - 1, kNeverUs}) {
    EXPECT_EQ(every(10, 5).date_to_run_us(1'700'000'000'000'000, now_us), kLastUs / 10 * 10 + 5);
    const int64_t of_cron_us = parse("cron latest UTC * * * * *").date_to_run_us(0, now_us);
    EXPECT_LE(of_cron_us, kLastUs);
    EXPECT_GT(of_cron_us, kLastUs - 120 * kSecondUs);
  }
}

}  // namespace

#include "kernel/LeaderTurn.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace {

using workflow::LeaderTurn;

constexpr int64_t kTurnBeginNs = 1'000'000'000;
constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

// What a turn was like whose callbacks take `callback_ns` each, with a processor for so large a
// share of the time.
struct Course {
  int64_t passed_ns = 0;
  int64_t looks = 0;  // at the processor time
};
Course run_turn(int processors, int64_t callback_ns, double share) {
  LeaderTurn turn(kTurnBeginNs, LeaderTurn::length_ns(processors));
  Course course;
  do {
    course.passed_ns += callback_ns;
  } while (!turn.is_over(kTurnBeginNs + course.passed_ns, [&] {
    course.looks++;
    return static_cast<int64_t>(static_cast<double>(course.passed_ns) * share);
  }));
  return course;
}

}  // namespace

TEST(LeaderTurn, EndsWhenTheLeaderHasUsedItsTime) {
  for (const int64_t callback_ns : {1 * kUs, 7 * kUs, 100 * kUs, 333 * kUs}) {
    const Course course = run_turn(2, callback_ns, 1);
    // What passes until the first look counts as 100 µs.
    const int64_t first_look_ns = (100 * kUs + callback_ns - 1) / callback_ns * callback_ns;
    EXPECT_GE(course.passed_ns, first_look_ns + 400 * kUs) << callback_ns;
    EXPECT_LT(course.passed_ns, first_look_ns + 400 * kUs + callback_ns) << callback_ns;
    EXPECT_LE(course.looks, 3) << callback_ns;
  }
}

TEST(LeaderTurn, DoesNotCountTheWaitForAProcessor) {
  const Course course = run_turn(2, 5 * kUs, 0.5);
  EXPECT_GT(course.passed_ns, 800 * kUs);
  EXPECT_LT(course.passed_ns, 1200 * kUs);
}

TEST(LeaderTurn, EndsSoonWhereCallbacksSleep) {
  for (const int processors : {1, 2, 64}) {
    for (const double share : {0.0, 0.1, 0.15}) {
      const Course course = run_turn(processors, 5 * kUs, share);
      EXPECT_GE(course.passed_ns, 2 * kMs) << processors << " " << share;
      EXPECT_LT(course.passed_ns, 2100 * kUs) << processors << " " << share;
    }
  }
}

TEST(LeaderTurn, IsLongerWhereOthersCouldRunOnlyInsteadOfTheLeader) {
  const Course course = run_turn(1, 5 * kUs, 1);
  EXPECT_GE(course.passed_ns, 10 * kMs);
  EXPECT_LT(course.passed_ns, 10'100 * kUs);
  EXPECT_LE(course.looks, 12);
  // As long as it mostly has that processor.
  EXPECT_GT(run_turn(1, 5 * kUs, 0.8).passed_ns, 10 * kMs);
  EXPECT_LT(run_turn(1, 5 * kUs, 0.7).passed_ns, 2100 * kUs);
}

// A callback that begins to sleep after a while is noticed within a millisecond or two.
TEST(LeaderTurn, LooksAgainWhetherTheLeaderHasAProcessor) {
  LeaderTurn turn(kTurnBeginNs, LeaderTurn::length_ns(1));
  int64_t passed_ns = 0;
  const auto used_ns = [&] { return passed_ns < 3 * kMs ? passed_ns : 3 * kMs; };
  do {
    passed_ns += 5 * kUs;
  } while (!turn.is_over(kTurnBeginNs + passed_ns, used_ns));
  EXPECT_GE(passed_ns, 4 * kMs);
  EXPECT_LT(passed_ns, 6 * kMs);
}

TEST(LeaderTurn, EndsWithoutAClockForTheProcessorTime) {
  LeaderTurn turn(kTurnBeginNs, LeaderTurn::length_ns(1));
  int64_t passed_ns = 0;
  do {
    passed_ns += 5 * kUs;
  } while (!turn.is_over(kTurnBeginNs + passed_ns, [] { return int64_t{0}; }));
  EXPECT_GE(passed_ns, 2 * kMs);
  EXPECT_LT(passed_ns, 2100 * kUs);
}

TEST(LeaderTurn, AsksForTheProcessorTimeOnlyAfterAWhile) {
  LeaderTurn turn(kTurnBeginNs, LeaderTurn::length_ns(4));
  EXPECT_FALSE(turn.is_over(kTurnBeginNs + 99 * kUs, []() -> int64_t {
    ADD_FAILURE() << "asked";
    return 0;
  }));
}

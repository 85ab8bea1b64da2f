#include "kernel/SpareCount.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/TestSeed.h"

namespace {

using workflow::SpareCount;

constexpr int64_t kSpareNs = SpareCount::kSpareNs;
constexpr int64_t kCountedNs = 1'000'000'000;  // when the first count begins

// How many threads one after the other have to end.
int leavers(SpareCount& spare, int surplus) {
  int n = 0;
  while (spare.one_leaves(surplus - n)) {
    n++;
  }
  return n;
}

// One whose count has begun, with so many spare threads that are all idle.
SpareCount counting(int surplus) {
  SpareCount spare;
  spare.count(surplus, surplus, kCountedNs);
  return spare;
}

}  // namespace

TEST(SpareCount, NobodyEndsWithoutCause) {
  SpareCount spare;
  EXPECT_FALSE(spare.one_leaves(0));
  EXPECT_EQ(spare.count_ends_ns(), 0);
}

TEST(SpareCount, ThoseThatWereSpareAndIdleThroughoutEnd) {
  SpareCount spare = counting(3);
  EXPECT_EQ(spare.count_ends_ns(), kCountedNs + kSpareNs);
  spare.count(3, 3, kCountedNs + kSpareNs - 1);
  EXPECT_EQ(leavers(spare, 3), 0) << "the count goes on";
  spare.count(3, 3, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 3), 3);
  EXPECT_EQ(spare.count_ends_ns(), kCountedNs + 2 * kSpareNs);
}

TEST(SpareCount, ThoseThatTookWorkStay) {
  SpareCount spare = counting(3);
  spare.took_work(2);
  spare.took_work(1);
  spare.took_work(2);
  spare.count(3, 3, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 3), 1);
}

TEST(SpareCount, ThoseThatWereNeededForAMomentStay) {
  SpareCount spare = counting(3);
  spare.fell(2);
  spare.fell(1);
  spare.count(3, 3, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 3), 1);
}

TEST(SpareCount, ThoseThatWorkWhenTheCountEndsStay) {
  SpareCount spare = counting(3);
  spare.count(3, 2, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 3), 2);
}

TEST(SpareCount, EachCountStandsForItself) {
  SpareCount spare = counting(2);
  spare.took_work(0);
  spare.count(2, 2, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 2), 0);
  spare.count(2, 2, kCountedNs + 2 * kSpareNs);
  EXPECT_EQ(leavers(spare, 2), 2);
}

TEST(SpareCount, AThreadThatComesDuringACountEndsAfterTheNext) {
  SpareCount spare = counting(1);
  spare.fell(0);
  spare.count(1, 1, kCountedNs + kSpareNs);
  EXPECT_EQ(leavers(spare, 1), 0);
  spare.count(2, 2, kCountedNs + 2 * kSpareNs);
  EXPECT_EQ(leavers(spare, 2), 1) << "the second was not spare all the time";
}

TEST(SpareCount, ACountOfLongAgoSaysNothingAboutAThreadThatComesLater) {
  SpareCount spare = counting(1);
  spare.fell(0);
  const int64_t later_ns = kCountedNs + 10 * kSpareNs;
  spare.count(1, 1, later_ns);
  EXPECT_EQ(leavers(spare, 1), 0);
  spare.count(1, 1, later_ns + kSpareNs);
  EXPECT_EQ(leavers(spare, 1), 1);
}

TEST(SpareCount, AThreadThatEndsWasNotSpareThroughout) {
  SpareCount spare = counting(2);
  spare.count(2, 2, kCountedNs + kSpareNs);
  EXPECT_TRUE(spare.one_leaves(2));
  spare.count(2, 2, kCountedNs + 2 * kSpareNs);
  EXPECT_EQ(leavers(spare, 2), 1) << "the other one, which had to end before";
}

TEST(SpareCount, RemovedThreadsEndAtOnce) {
  SpareCount spare;
  spare.removed(1);
  spare.removed(2);
  EXPECT_EQ(leavers(spare, 2), 2);
}

TEST(SpareCount, AThreadThatIsAddedKeepsOneThatHadToEnd) {
  SpareCount spare;
  spare.removed(1);
  spare.removed(2);
  spare.removed(3);
  spare.added(4);  // two others have gone on meanwhile
  EXPECT_EQ(leavers(spare, 4), 2);
  spare.added(1);
  EXPECT_EQ(leavers(spare, 1), 0);
}

TEST(SpareCount, ThreadsThatAreNeededDoNotEnd) {
  SpareCount spare;
  spare.removed(1);
  spare.removed(2);
  spare.fell(1);
  EXPECT_EQ(leavers(spare, 1), 1);
  spare.removed(1);
  spare.fell(0);
  spare.fell(-1);
  EXPECT_EQ(leavers(spare, -1), 0);
  spare.removed(0);
  EXPECT_EQ(leavers(spare, 0), 0) << "too few could be started, so nobody is spare";
}

// Against one that remembers everything it has seen since the count began.
TEST(SpareCount, FollowsWhatWasSeenInEachCount) {
  test_support::TestRandom random(test_support::test_seed());
  for (int round = 0; round < 300; round++) {
    SpareCount spare;
    std::vector<int> seen = {0};  // surpluses, and how many were idle when one took work
    int leaving = 0;
    int surplus = 0;
    int64_t now_ns = kCountedNs;
    int64_t ends_ns = 0;
    const auto least_seen = [&seen] { return *std::min_element(seen.begin(), seen.end()); };
    for (int step = 0; step < 200; step++) {
      now_ns += static_cast<int64_t>(random.below(4)) * kSpareNs / 4;
      switch (random.below(7)) {
        case 0:
          surplus++;
          break;
        case 1:
          surplus--;
          leaving = std::clamp(leaving, 0, std::max(surplus, 0));
          spare.fell(surplus);
          break;
        case 2:
          surplus++;
          leaving = std::min(leaving + 1, std::max(surplus, 0));
          spare.removed(surplus);
          break;
        case 3:
          surplus--;
          leaving = std::clamp(leaving - 1, 0, std::max(surplus, 0));
          spare.added(surplus);
          break;
        case 4: {
          const int idle = static_cast<int>(random.below(5));
          seen.push_back(idle);
          spare.took_work(idle);
          break;
        }
        case 5:
          if (spare.one_leaves(surplus)) {
            leaving--;
            surplus--;
          }
          break;
        default: {
          if (surplus <= 0) break;
          const int idle = 1 + static_cast<int>(random.below(5));
          spare.count(surplus, idle, now_ns);
          if (now_ns < ends_ns) break;
          leaving = std::max(leaving, std::min(least_seen(), idle));
          ends_ns = now_ns + kSpareNs;
          seen.clear();
        }
      }
      seen.push_back(std::max(surplus, 0));
      SpareCount copy = spare;
      ASSERT_EQ(leavers(copy, surplus), leaving) << "round " << round << ", step " << step;
      ASSERT_LE(leaving, std::max(surplus, 0));
      ASSERT_EQ(spare.count_ends_ns(), ends_ns);
    }
  }
}

#include "kernel/WorkPace.h"

#include <gtest/gtest.h>

using workflow::WorkPace;

namespace {

constexpr int64_t kShortNs = 500;

// One that knows items of 500 ns.
WorkPace short_pace() {
  WorkPace pace;
  for (int i = 0; i < 30; i++) {
    pace.ran(10, 10 * kShortNs);
  }
  return pace;
}

void find_after(WorkPace::Rest rest, WorkPace& pace, size_t items) {
  pace.rested(rest);
  pace.found(items);
}

}  // namespace

TEST(WorkPace, UnknownItemsCountAsLong) {
  const WorkPace pace;
  EXPECT_EQ(pace.share(1000, 1), 1u);
  EXPECT_TRUE(pace.worth_a_thread(1));
  EXPECT_FALSE(pace.worth_a_thread(0));
}

TEST(WorkPace, ShortItemsAreTakenTogether) {
  const WorkPace pace = short_pace();
  const size_t share = pace.share(1000, 1);
  EXPECT_GT(share, 10u);
  EXPECT_LE(static_cast<int64_t>(share) * kShortNs, WorkPace::kShareNs);
  EXPECT_LE(share, WorkPace::kMaxShared);
  EXPECT_EQ(pace.share(6, 1), 6u);
  EXPECT_EQ(pace.share(6, 3), 2u) << "the workers share what waits";
  EXPECT_EQ(pace.share(1, 3), 1u);
}

TEST(WorkPace, FewShortItemsAreNotWorthAThread) {
  const WorkPace pace = short_pace();
  EXPECT_FALSE(pace.worth_a_thread(1));
  EXPECT_FALSE(pace.worth_a_thread(10));
  EXPECT_TRUE(pace.worth_a_thread(1000));
  EXPECT_FALSE(pace.worth_stealing(1));
  EXPECT_TRUE(pace.worth_stealing(30));
}

// What one item costs to hand over decides, however many wait.
TEST(WorkPace, ItemsThatAreHandedOverOneByOneAreLeftToOneThreadWhileTheyAreShorterThanThat) {
  const auto pace_of = [](int64_t item_ns) {
    WorkPace pace;
    pace.hands_over();
    for (int i = 0; i < 30; i++) {
      pace.ran(10, 10 * item_ns);
    }
    return pace;
  };
  EXPECT_FALSE(pace_of(400).worth_a_thread(100'000));
  EXPECT_TRUE(pace_of(600).worth_a_thread(100'000));
  EXPECT_TRUE(pace_of(200).better_left_to_one());
  // In between nobody is woken, and nobody goes to sleep.
  EXPECT_FALSE(pace_of(400).better_left_to_one());
  WorkPace unknown;
  unknown.hands_over();
  EXPECT_TRUE(unknown.worth_a_thread(1));
  EXPECT_FALSE(unknown.better_left_to_one());
}

TEST(WorkPace, ShortItemsAreMeasuredRarely) {
  const auto measured = [](WorkPace pace) {
    int count = 0;
    for (int i = 0; i < 320; i++) {
      count += pace.measures() ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(measured(WorkPace()), 80);
  EXPECT_EQ(measured(short_pace()), 10);
}

TEST(WorkPace, AStuckWorkerMakesItemsLong) {
  WorkPace pace = short_pace();
  pace.stuck();
  EXPECT_TRUE(pace.worth_a_thread(1));
  EXPECT_EQ(pace.share(1000, 1), 1u);
}

TEST(WorkPace, OneInterruptionDoesNotMakeItemsLong) {
  WorkPace pace = short_pace();
  pace.ran(1, 10'000'000);
  pace.ran(10, 10 * kShortNs);
  pace.ran(10, 10 * kShortNs);
  EXPECT_FALSE(pace.worth_a_thread(1));
}

TEST(WorkPace, NapsWhenManyItemsComeDuringAWakeUp) {
  WorkPace pace;
  EXPECT_FALSE(pace.naps());
  find_after(WorkPace::Rest::kSleep, pace, 1);
  EXPECT_FALSE(pace.naps());
  find_after(WorkPace::Rest::kSleep, pace, 20);
  EXPECT_TRUE(pace.naps());
  find_after(WorkPace::Rest::kNap, pace, 100);
  EXPECT_TRUE(pace.naps()) << "it has paid";
}

TEST(WorkPace, NapsThatDoNotPayBecomeRare) {
  WorkPace pace;
  find_after(WorkPace::Rest::kSleep, pace, 20);
  int naps = 0;
  for (int i = 0; i < 10'000; i++) {
    if (pace.naps()) {
      naps++;
      find_after(WorkPace::Rest::kNap, pace, 20);
    }
  }
  EXPECT_LT(naps, 20);
  EXPECT_GT(naps, 5) << "it tries again now and then";
}

TEST(WorkPace, OnlyTheFirstLookAfterARestTellsWhetherNapsPay) {
  WorkPace pace;
  pace.found(100);
  EXPECT_FALSE(pace.naps()) << "nobody had rested";
  find_after(WorkPace::Rest::kSleep, pace, 20);
  pace.found(1);
  EXPECT_TRUE(pace.naps());
  find_after(WorkPace::Rest::kSleep, pace, 0);
  EXPECT_TRUE(pace.naps()) << "a worker that finds nothing was not woken for any";
  pace.rested(WorkPace::Rest::kNap);
  pace.rested(WorkPace::Rest::kNone);
  pace.found(0);
  EXPECT_TRUE(pace.naps()) << "the worker that had napped has not looked";
}

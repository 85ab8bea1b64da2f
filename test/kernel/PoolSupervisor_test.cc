#include "kernel/PoolSupervisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/TestSeed.h"

namespace {

using workflow::PoolSupervisor;
using View = PoolSupervisor::View;
using Watch = PoolSupervisor::Watch;

constexpr int64_t kLookNs = PoolSupervisor::kLookNs;
constexpr int64_t kStarvedNs = PoolSupervisor::kStarvedNs;
constexpr int64_t kBeginNs = 1'000'000'000;

// All workers are busy, and work waits.
View all_busy(uint64_t shares, int room) {
  return {.shares = shares, .work_waits = true, .room = room};
}

// One that watches for this since kBeginNs, when workers had taken items `shares` times.
PoolSupervisor watching(Watch watch, uint64_t shares = 7) {
  PoolSupervisor supervisor;
  EXPECT_TRUE(supervisor.watch(watch));
  supervisor.begin_wait(shares, kBeginNs);
  return supervisor;
}

}  // namespace

TEST(PoolSupervisor, RestsUntilItIsAsked) {
  PoolSupervisor supervisor;
  EXPECT_EQ(supervisor.watched(), Watch::kNone);
  EXPECT_FALSE(supervisor.is_looking());
  EXPECT_EQ(supervisor.looks(), 0u);
}

TEST(PoolSupervisor, IsNotifiedOnlyWhenItHasToWatchForMore) {
  PoolSupervisor supervisor;
  EXPECT_TRUE(supervisor.watch(Watch::kGrowth));
  EXPECT_FALSE(supervisor.watch(Watch::kGrowth));
  EXPECT_TRUE(supervisor.watch(Watch::kLooks));
  EXPECT_FALSE(supervisor.watch(Watch::kGrowth));
  EXPECT_EQ(supervisor.watched(), Watch::kLooks);
}

TEST(PoolSupervisor, LooksSoonAtWorkersAndLaterForGrowth) {
  PoolSupervisor supervisor;
  supervisor.watch(Watch::kGrowth);
  EXPECT_EQ(supervisor.begin_wait(7, kBeginNs), kBeginNs + kStarvedNs);
  const int64_t later_ns = kBeginNs + kStarvedNs / 4;
  EXPECT_EQ(supervisor.begin_wait(8, later_ns), kBeginNs + kStarvedNs);
  supervisor.watch(Watch::kLooks);
  EXPECT_EQ(supervisor.begin_wait(8, later_ns), later_ns + kLookNs);
}

TEST(PoolSupervisor, GoesOnLookingWhileAWorkerKeepsItems) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  for (int i = 1; i <= 10; i++) {
    supervisor.look({.shares = 7, .keeps_items = true}, kBeginNs + i * kLookNs);
    EXPECT_TRUE(supervisor.is_looking());
    EXPECT_EQ(supervisor.looks(), static_cast<uint64_t>(i));
  }
  supervisor.look({.shares = 7}, kBeginNs + 11 * kLookNs);
  EXPECT_TRUE(supervisor.is_looking()) << "this is the first look that could not help";
}

TEST(PoolSupervisor, GoesOnLookingWhileWorkIsLeftAlthoughAWorkerIsIdle) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  for (int i = 1; i <= 10; i++) {
    supervisor.look({.shares = 7, .work_waits = true, .has_idle_worker = true},
                    kBeginNs + i * kLookNs);
    EXPECT_TRUE(supervisor.is_looking());
  }
}

TEST(PoolSupervisor, RestsAfterSomeQuietLooks) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  int64_t now_ns = kBeginNs;
  for (int i = 1; i < PoolSupervisor::kQuietLooks; i++) {
    supervisor.look({.shares = 7}, now_ns += kLookNs);
    EXPECT_TRUE(supervisor.is_looking());
  }
  supervisor.look({.shares = 7}, now_ns += kLookNs);
  EXPECT_EQ(supervisor.watched(), Watch::kNone);
}

TEST(PoolSupervisor, CountsOnlyQuietLooksInARow) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  int64_t now_ns = kBeginNs;
  for (uint64_t shares = 8; shares < 20; shares++) {
    for (int i = 0; i < PoolSupervisor::kQuietLooks; i++) {  // the first of them sees a new share
      supervisor.look({.shares = shares}, now_ns += kLookNs);
      EXPECT_TRUE(supervisor.is_looking()) << shares;
    }
  }
}

TEST(PoolSupervisor, ForgetsAfterARestWhatItSawBefore) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  int64_t now_ns = kBeginNs;
  while (supervisor.is_looking()) {
    supervisor.look({.shares = 7}, now_ns += kLookNs);
  }
  now_ns += 100 * kStarvedNs;
  supervisor.watch(Watch::kGrowth);
  EXPECT_EQ(supervisor.begin_wait(7, now_ns), now_ns + kStarvedNs) << "the rest does not count";
  supervisor.watch(Watch::kLooks);
  supervisor.begin_wait(7, now_ns);
  supervisor.look({.shares = 7}, now_ns + kLookNs);
  EXPECT_TRUE(supervisor.is_looking()) << "the quiet looks of before do not count";
}

TEST(PoolSupervisor, FindsThatThePoolStarvesWhenNothingWasTakenForLong) {
  PoolSupervisor supervisor = watching(Watch::kGrowth);
  const PoolSupervisor::Findings findings = supervisor.look(all_busy(7, 3), kBeginNs + kStarvedNs);
  EXPECT_TRUE(findings.starves);
  EXPECT_TRUE(findings.are_items_long);
  EXPECT_EQ(supervisor.watched(), Watch::kGrowth) << "work waits, and two more may be started";
  EXPECT_EQ(supervisor.begin_wait(7, kBeginNs + kStarvedNs), kBeginNs + 2 * kStarvedNs);
}

TEST(PoolSupervisor, GrowsAgainWhenTheAddedThreadHasTakenAnItemAndNothingElseWasTaken) {
  PoolSupervisor supervisor = watching(Watch::kGrowth);
  int64_t now_ns = kBeginNs;
  for (uint64_t shares = 7; shares < 20; shares++) {
    EXPECT_TRUE(supervisor.look(all_busy(shares, 30), now_ns += kStarvedNs).starves) << shares;
    supervisor.grew();
    EXPECT_EQ(supervisor.begin_wait(shares + 1, now_ns), now_ns + kStarvedNs);
  }
  EXPECT_FALSE(supervisor.look(all_busy(22, 30), now_ns + kStarvedNs).starves);
}

TEST(PoolSupervisor, GrowsAgainWhenNoThreadCouldBeAdded) {
  PoolSupervisor supervisor = watching(Watch::kGrowth);
  int64_t now_ns = kBeginNs;
  for (int i = 0; i < 10; i++) {
    EXPECT_TRUE(supervisor.look(all_busy(7, 30), now_ns += kStarvedNs).starves) << i;
    EXPECT_EQ(supervisor.begin_wait(7, now_ns), now_ns + kStarvedNs);
  }
}

TEST(PoolSupervisor, DoesNotGrowWhileItemsAreTaken) {
  PoolSupervisor supervisor = watching(Watch::kGrowth);
  int64_t now_ns = kBeginNs;
  for (uint64_t shares = 8; shares < 20; shares++) {
    const PoolSupervisor::Findings findings =
        supervisor.look(all_busy(shares, 3), now_ns += kStarvedNs);
    EXPECT_FALSE(findings.starves);
    EXPECT_FALSE(findings.are_items_long);
    EXPECT_EQ(supervisor.watched(), Watch::kGrowth);
  }
}

TEST(PoolSupervisor, DoesNotGrowBeforeTheTimeAlthoughItLooksMoreOften) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  View view = all_busy(7, 1);
  view.keeps_items = true;
  for (int64_t past_ns = kLookNs; past_ns < kStarvedNs; past_ns += kLookNs) {
    EXPECT_FALSE(supervisor.look(view, kBeginNs + past_ns).starves);
  }
  EXPECT_TRUE(supervisor.look(view, kBeginNs + kStarvedNs).starves);
}

TEST(PoolSupervisor, DoesNotGrowWithoutRoomWorkOrNeed) {
  const int64_t look_ns = kBeginNs + 2 * kStarvedNs;
  const std::vector<View> views = {
      all_busy(7, 0),
      {.shares = 7, .room = 3},
      {.shares = 7, .work_waits = true, .has_idle_worker = true, .room = 3}};
  for (const View& view : views) {
    PoolSupervisor supervisor = watching(Watch::kGrowth);
    EXPECT_FALSE(supervisor.look(view, look_ns).starves);
    EXPECT_NE(supervisor.watched(), Watch::kGrowth);
  }
}

TEST(PoolSupervisor, RestsWhenThePoolHasGrownToItsLimit) {
  PoolSupervisor supervisor = watching(Watch::kGrowth);
  EXPECT_TRUE(supervisor.look(all_busy(7, 1), kBeginNs + kStarvedNs).starves);
  EXPECT_EQ(supervisor.watched(), Watch::kNone);
}

TEST(PoolSupervisor, WatchesForGrowthWhenLooksDoNotHelpAnyMore) {
  PoolSupervisor supervisor = watching(Watch::kLooks);
  int64_t now_ns = kBeginNs;
  for (int i = 0; i < PoolSupervisor::kQuietLooks; i++) {
    supervisor.look(all_busy(7, 1), now_ns += kLookNs);
  }
  EXPECT_EQ(supervisor.watched(), Watch::kGrowth);
  EXPECT_EQ(supervisor.begin_wait(7, now_ns), kBeginNs + kStarvedNs)
      << "it has starved since the looks began";
}

// Whatever a pool does: work that waits while all are busy has a thread soon after kStarvedNs if
// there is room, and never one before; a look that can help is followed by another.
TEST(PoolSupervisor, KeepsItsPromisesInAnyOrderOfEvents) {
  test_support::TestRandom random(test_support::test_seed());
  PoolSupervisor supervisor;
  int64_t now_ns = kBeginNs;
  int64_t nothing_taken_since_ns = now_ns;
  uint64_t shares = 0;
  uint64_t starved = 0;
  bool has_grown = false;  // and nothing was taken since
  for (int i = 0; i < 100'000; i++) {
    if (random.one_in(3)) {
      supervisor.watch(random.one_in(2) ? Watch::kLooks : Watch::kGrowth);
    }
    if (random.one_in(20)) {
      shares++;
      nothing_taken_since_ns = std::exchange(has_grown, false) ? nothing_taken_since_ns : now_ns;
    }
    if (supervisor.watched() == Watch::kNone) {
      now_ns += static_cast<int64_t>(random.below(kStarvedNs));
      continue;
    }
    const bool is_looking = supervisor.is_looking();
    const int64_t look_ns = supervisor.begin_wait(shares, now_ns);
    ASSERT_LE(look_ns, now_ns + (is_looking ? kLookNs : kStarvedNs));
    if (random.one_in(4)) continue;  // it is notified before that
    now_ns = std::max(now_ns, look_ns);
    const View view = {.shares = shares,
                       .work_waits = !random.one_in(3),
                       .has_idle_worker = random.one_in(6),
                       .keeps_items = random.one_in(6),
                       .room = static_cast<int>(random.below(3))};
    const bool all_are_busy = view.work_waits && !view.has_idle_worker;
    const PoolSupervisor::Findings findings = supervisor.look(view, now_ns);
    starved += findings.starves;
    if (findings.starves) {
      ASSERT_TRUE(all_are_busy && view.room > 0);
      ASSERT_GE(now_ns - nothing_taken_since_ns, kStarvedNs);
      nothing_taken_since_ns = now_ns;
      has_grown = true;
      supervisor.grew();
    }
    if (view.keeps_items || (view.work_waits && view.has_idle_worker)) {
      ASSERT_TRUE(supervisor.is_looking());
    }
    if (all_are_busy && view.room > (findings.starves ? 1 : 0)) {
      ASSERT_NE(supervisor.watched(), Watch::kNone);
    }
  }
  EXPECT_GT(starved, 100u);
}

#include "kernel/LeaderStall.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "util/Time.h"

namespace {

using workflow::kNsPerMs;
using workflow::LeaderStall;

constexpr int64_t kStallBeginNs = 1'000'000'000;

// What a LeaderStall asks of LeaderThreads.
struct FakeLeader {
  uint64_t item = 0;
  int64_t begin_ns = 0;
  int64_t used_ns = 0;
  bool asleep = false;

  uint64_t callback_epoch() const { return item; }
  int64_t item_begin_ns() const { return begin_ns; }
  int64_t cpu_ns() const { return used_ns; }
  bool sleeps() const { return asleep; }
};

// Looks whenever it says so, from `now_ns` on, until the leader is to be replaced or has run its
// item for `patience_ns`. While an item runs the leader uses `share` of the time. Returns for how
// long it had run the item; kNever if it was not replaced.
int64_t time_to_replace(FakeLeader leader, int64_t now_ns, double share,
                        int64_t patience_ns = 20 * kNsPerMs) {
  LeaderStall stall;
  for (; now_ns < leader.begin_ns + patience_ns; now_ns = stall.next_look_ns()) {
    FakeLeader seen = leader;
    seen.item = now_ns < leader.begin_ns ? 0 : leader.item;
    const auto ran_ns = static_cast<double>(std::max<int64_t>(now_ns - leader.begin_ns, 0));
    seen.used_ns = static_cast<int64_t>(ran_ns * share);
    if (stall.look(seen, now_ns)) return now_ns - leader.begin_ns;
    EXPECT_GT(stall.next_look_ns(), now_ns);
    EXPECT_LE(stall.next_look_ns(), now_ns + LeaderStall::kLookNs);
  }
  return workflow::kNever;
}

}  // namespace

// The rest of the millisecond is for waking those who take over.
TEST(LeaderStall, ReplacesInTimeWheneverTheItemHasBegun) {
  constexpr int64_t kSoonNs = 600'000;
  for (const bool asleep : {false, true}) {
    for (int64_t offset_ns = 0; offset_ns < 2 * LeaderStall::kLookNs; offset_ns += 1'000) {
      const FakeLeader leader{.item = 7, .begin_ns = kStallBeginNs + offset_ns, .asleep = asleep};
      const int64_t after_ns = time_to_replace(leader, kStallBeginNs, asleep ? 0 : 1);
      ASSERT_LE(after_ns, kSoonNs) << offset_ns;
      ASSERT_GE(after_ns, LeaderStall::kLongNs) << offset_ns;
    }
  }
}

TEST(LeaderStall, LeavesALeaderThatIsAtAnotherItemAtEachLook) {
  LeaderStall stall;
  FakeLeader leader{.asleep = true};
  int64_t now_ns = kStallBeginNs;
  for (leader.item = 1; leader.item < 1'000; leader.item += 2) {
    leader.begin_ns = now_ns - LeaderStall::kLookNs / 2;
    EXPECT_FALSE(stall.look(leader, now_ns));
    EXPECT_TRUE(stall.is_absent());
    now_ns = stall.next_look_ns();
  }
  leader.item = 0;
  EXPECT_FALSE(stall.look(leader, now_ns));
  EXPECT_FALSE(stall.is_absent());
}

// It has run the item for long when the first look finds it. That look does not know whether it had
// a processor.
TEST(LeaderStall, JudgesNobodyByOneLook) {
  LeaderStall stall;
  const FakeLeader leader{.item = 3, .begin_ns = kStallBeginNs, .asleep = true};
  EXPECT_FALSE(stall.look(leader, kStallBeginNs + 10 * LeaderStall::kLongNs));
  // It was late, so it looks for longer than usual.
  EXPECT_EQ(stall.next_look_ns(), kStallBeginNs + 10 * LeaderStall::kLongNs + LeaderStall::kLongNs);
  EXPECT_TRUE(stall.look(leader, stall.next_look_ns()));
}

TEST(LeaderStall, WaitsForOneThatWaitsForAProcessor) {
  const FakeLeader leader{.item = 3, .begin_ns = kStallBeginNs};
  EXPECT_EQ(time_to_replace(leader, kStallBeginNs, 0), workflow::kNever);
}

// It has half of a processor, or less.
TEST(LeaderStall, ReplacesOneThatHasUsedAProcessorForLong) {
  for (const double share : {0.5, 0.25, 0.125}) {
    const FakeLeader leader{.item = 3, .begin_ns = kStallBeginNs};
    const int64_t after_ns = time_to_replace(leader, kStallBeginNs, share);
    const double used_ns = static_cast<double>(after_ns) * share;
    EXPECT_GE(used_ns, LeaderStall::kLongNs) << share;
    EXPECT_LE(used_ns, LeaderStall::kLongNs + LeaderStall::kLookNs) << share;
  }
}

TEST(LeaderStall, SaysAgainThatALeaderIsToBeReplacedUntilItIs) {
  LeaderStall stall;
  FakeLeader leader{.item = 3, .begin_ns = kStallBeginNs, .asleep = true};
  EXPECT_FALSE(stall.look(leader, kStallBeginNs));
  int64_t now_ns = kStallBeginNs + LeaderStall::kLongNs;
  for (int i = 0; i < 10; i++) {
    EXPECT_TRUE(stall.look(leader, now_ns)) << "no thread could be started";
    now_ns = stall.next_look_ns();
  }
  leader.item = 5;
  leader.begin_ns = now_ns;
  EXPECT_FALSE(stall.look(leader, now_ns));
}

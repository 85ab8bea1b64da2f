// How items reach the workers of a pool that knows its items to be short: it takes several of them
// at a time, and wakes no thread for a few.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "ShortItems.h"
#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "support/Eventually.h"
#include "support/Item.h"
#include "support/Tally.h"

using namespace test_support;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::HandlerPool;
using workflow::RunnableList;

namespace {

// Numbers in the order in which items noted them.
class Noted {
 public:
  void add(size_t number) {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  std::vector<size_t> get() {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }

 private:
  std::mutex mutex_;
  std::vector<size_t> numbers_;
};

}  // namespace

// In each case the pool is destroyed first, which waits for the items that still use the tallies.

TEST(HandOff, ItemsBehindABlockedOneRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<HandlerPool>(2);
}

TEST(HandOff, ItemsBehindOneThatComputesRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<HandlerPool>(2, Blocks::kComputes);
}

TEST(HandOff, ItemsPostedBehindOneThatComputesRunElsewhere) {
  Tally begun;
  Tally others;
  ShortItems<HandlerPool> pool(2);
  for (size_t round = 1; round <= 10; round++) {
    post(*pool, [&begun, &others, round] {
      begun.add();
      compute_until(others, round);
    });
    EXPECT_TRUE(begun.wait_for(round));
    post(*pool, [&others] { others.add(); });
    EXPECT_TRUE(others.wait_for(round));
  }
}

TEST(HandOff, ItemsBehindABlockedOneGrowThePool) {
  Tally released;
  Tally others;
  ShortItems<HandlerPool> pool(1);
  post_behind_a_blocked_item(
      *pool, [&] { EXPECT_TRUE(released.wait_for(1)); }, others);
  EXPECT_TRUE(others.wait_for(kKept));
  released.add();
}

TEST(HandOff, ABlockingScopeGivesTheItemsBehindItBack) {
  Tally others;
  ShortItems<HandlerPool> pool(1);
  post_behind_a_blocked_item(
      *pool,
      [&] {
        const BlockingScope blocking;
        EXPECT_TRUE(others.wait_for(kKept));
      },
      others);
  EXPECT_TRUE(others.wait_for(kKept));
}

TEST(HandOff, APostIsNotedWhileTheOnlyWorkerThatIsAwakeBlocks) {
  Tally begun;
  Tally released;
  Tally others;
  ShortItems<HandlerPool> pool(2);
  for (size_t round = 1; round <= 10; round++) {
    post(*pool, [&begun, &released, round] {
      begun.add();
      EXPECT_TRUE(released.wait_for(round));
    });
    EXPECT_TRUE(begun.wait_for(round));
    post(*pool, [&] { others.add(); });
    EXPECT_TRUE(others.wait_for(round));
    released.add();
  }
}

TEST(HandOff, ComputationsBehindABlockedOneRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<ComputePool>(2);
}

TEST(HandOff, ComputationsBehindALongOneRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<ComputePool>(2, Blocks::kComputes);
}

TEST(HandOff, ComputationsBehindOneThatWaitsBeginInOrder) {
  static constexpr size_t kBehind = 30;
  Tally released;
  Tally others;
  Noted begun;
  ShortItems<ComputePool> pool(1);
  pool.post_one([&] { EXPECT_TRUE(released.wait_for(1)); });
  pool.post_one([&] {
    BlockingScope scope;  // another thread goes on with what this one has taken
    EXPECT_TRUE(others.wait_for(kBehind));
  });
  for (size_t i = 0; i < kBehind; i++) {
    pool.post_one([&, i] {
      begun.add(i);
      others.add();
    });
  }
  released.add();
  EXPECT_TRUE(others.wait_for(kBehind));
  const std::vector<size_t> order = begun.get();
  EXPECT_EQ(order.size(), kBehind);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(HandOff, FewItemsAreTurnedRoundAtATime) {
  static constexpr size_t kItems = 20'000;
  Tally released;
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  post(pool, [&] { EXPECT_TRUE(released.wait_for(1)); });
  Noted begun;
  for (size_t i = 0; i < kItems;) {
    RunnableList batch;
    for (size_t n = 0; n < 1 + i % 3 && i < kItems; n++, i++) {
      batch.push_back(new Item([&begun, i] { begun.add(i); }));
    }
    pool.post(batch);
  }
  RunnableList large;
  for (size_t i = kItems; i < 2 * kItems; i++) {
    large.push_back(new Item([&begun, i] { begun.add(i); }));
  }
  pool.post(large);
  released.add();
  pool.stop();
  EXPECT_EQ(begun.get().size(), 2 * kItems);
  EXPECT_LT(pool.most_gathered(), HandlerPool::kPiece);
}

// Real time passes in the next two, because the fact is that little happens meanwhile.
TEST(HandOff, NobodyLooksWhileWorkWaitsForThreadsThatAreBusy) {
  Tally released;
  Tally begun;
  ShortItems<ComputePool> pool(1);
  pool.post_one([&] {
    begun.add();
    EXPECT_TRUE(released.wait_for(1));
  });
  EXPECT_TRUE(begun.wait_for(1));
  pool.post_one([] {});
  const uint64_t before = (*pool).looks();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT((*pool).looks() - before, 10U);
  released.add();
}

TEST(HandOff, FewLooksFollowAShare) {
  static constexpr size_t kRounds = 5;
  Tally runs;
  ShortItems<HandlerPool> pool(2);
  uint64_t looks = 0;
  for (size_t round = 1; round <= kRounds; round++) {
    RunnableList batch;
    for (size_t i = 0; i < 3; i++) {
      batch.push_back(new Item([&runs] { runs.add(); }));
    }
    (*pool).post(batch);
    // The pool looks as long as a thread that a busy machine lets wait has some of the items.
    EXPECT_TRUE(runs.wait_for(3 * round));
    const uint64_t before = (*pool).looks();
    std::this_thread::sleep_for(std::chrono::milliseconds(12));
    looks += (*pool).looks() - before;
  }
  EXPECT_LT(looks, 10 * kRounds);
}

// A thread that is busy for long is not one that takes what is posted soon.
TEST(HandOff, NothingIsLeftToAThreadThatIsBusyForLong) {
  Tally released;
  Tally runs;
  ShortItems<HandlerPool> pool(2);
  post(*pool, [&] { EXPECT_TRUE(released.wait_for(1)); });
  post(*pool, [&] { runs.add(); });
  EXPECT_TRUE(runs.wait_for(1));
  // The pool looks after an item that a slow machine has let wait for kLookNs.
  constexpr auto kSoon = std::chrono::microseconds(300);
  size_t soon = 0;
  for (size_t round = 2; round < 2000 && soon < 18; round++) {
    EXPECT_TRUE(test_support::eventually([&] { return !(*pool).is_watched(); }));
    const uint64_t before = (*pool).looks();
    const auto posted = std::chrono::steady_clock::now();
    post(*pool, [&] { runs.add(); });
    EXPECT_TRUE(runs.wait_for(round));
    const uint64_t after = (*pool).looks();
    if (std::chrono::steady_clock::now() - posted > kSoon) continue;
    EXPECT_EQ(after, before);
    soon++;
  }
  EXPECT_GT(soon, 0U);
  released.add();
}

// Real time passes, because the fact is that nothing happens meanwhile: no thread of the process
// sleeps and wakes but this one, and perhaps one of a sanitizer. On a busy machine that may take
// some attempts.
TEST(HandOff, AnIdlePoolSleeps) {
  ShortItems<HandlerPool> handlers(2);
  ShortItems<ComputePool> computing(2);
  const auto sleeps = [] {
    struct rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  EXPECT_TRUE(test_support::eventually([&sleeps] {
    const long before = sleeps();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return sleeps() - before <= 5;
  }));
}

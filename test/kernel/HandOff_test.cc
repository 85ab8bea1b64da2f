// How items reach the workers of a pool that knows its items to be short: it takes several of them
// at a time, and wakes no thread for a few.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "PostFunction.h"
#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "support/Eventually.h"
#include "support/Item.h"
#include "support/Tally.h"

using test_support::Item;
using test_support::post;
using test_support::Tally;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::HandlerPool;
using workflow::RunnableList;

namespace {

constexpr size_t kKept = 8;

// A pool that is stopped in the end, and has run many short items.
template <class Pool>
class ShortItems {
 public:
  explicit ShortItems(int threads) : pool_(threads) {
    EXPECT_TRUE(pool_.start());
    Tally runs;
    for (size_t i = 1; i <= 500; i++) {
      post_one([&runs] { runs.add(); });
      if (i % 10 == 0) {
        EXPECT_TRUE(runs.wait_for(i));
      }
    }
  }
  ~ShortItems() { pool_.stop(); }
  Pool& operator*() { return pool_; }

  void post_one(std::function<void()> function) {
    if constexpr (std::is_same_v<Pool, ComputePool>) {
      post(pool_, "queue", std::move(function));
    } else {
      post(pool_, std::move(function));
    }
  }

 private:
  Pool pool_;
};

// An item that blocks, and others behind it, which a worker may have taken together.
void post_behind_a_blocked_item(HandlerPool& pool, const std::function<void()>& block,
                                Tally& others) {
  RunnableList batch;
  batch.push_back(new Item(block));
  for (size_t i = 0; i < kKept; i++) {
    batch.push_back(new Item([&others] { others.add(); }));
  }
  pool.post(batch);
}

}  // namespace

TEST(HandOff, ItemsBehindABlockedOneRunElsewhere) {
  Tally released;
  Tally others;
  ShortItems<HandlerPool> pool(2);
  for (size_t round = 1; round <= 10; round++) {
    post_behind_a_blocked_item(
        *pool, [&] { EXPECT_TRUE(released.wait_for(round)); }, others);
    EXPECT_TRUE(others.wait_for(round * kKept));
    released.add();
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
    post(*pool, [&] {
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
  Tally released;
  Tally others;
  ShortItems<ComputePool> pool(2);
  for (size_t round = 1; round <= 10; round++) {
    pool.post_one([&] { EXPECT_TRUE(released.wait_for(round)); });
    for (size_t i = 0; i < kKept; i++) {
      pool.post_one([&others] { others.add(); });
    }
    EXPECT_TRUE(others.wait_for(round * kKept));
    released.add();
  }
}

// Real time passes, because the fact is that nothing happens meanwhile: no thread of the process
// sleeps and wakes but this one. On a busy machine that may take some attempts.
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
    return sleeps() - before <= 1;
  }));
}

#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>

#include "PostFunction.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "support/Item.h"
#include "support/Tally.h"

namespace test_support {

// How many items are posted behind one that blocks.
inline constexpr size_t kKept = 8;

// A pool that is stopped in the end, and has run many short items.
template <class Pool>
class ShortItems {
 public:
  explicit ShortItems(int threads) : pool_(threads) {
    EXPECT_TRUE(pool_.start());
    std::atomic<size_t> runs{0};
    for (size_t i = 1; i <= 2000; i++) {
      post_one([&runs] { runs++; });
      while (i % 10 == 0 && runs < i) {
        std::this_thread::yield();
      }
    }
  }
  ~ShortItems() { pool_.stop(); }
  Pool& operator*() { return pool_; }

  void post_one(std::function<void()> function) {
    if constexpr (std::is_same_v<Pool, workflow::ComputePool>) {
      post(pool_, "queue", std::move(function));
    } else {
      post(pool_, std::move(function));
    }
  }

 private:
  Pool pool_;
};

// An item that blocks, and others behind it, which a worker may have taken together.
inline void post_behind_a_blocked_item(workflow::HandlerPool& pool,
                                       const std::function<void()>& block, Tally& others) {
  workflow::RunnableList batch;
  batch.push_back(new Item(block));
  for (size_t i = 0; i < kKept; i++) {
    batch.push_back(new Item([&others] { others.add(); }));
  }
  pool.post(batch);
}

// Computes until somebody else has counted so far.
inline void compute_until(const Tally& tally, size_t count) {
  while (tally.count() < count) {
  }
}

// What is behind an item that blocks is run by other threads, each time. Without a deadline: the
// item ends only when the others have run, or it waits for the test to see that they have.
enum class Blocks { kSleeps, kComputes };
template <class Pool>
void expect_items_behind_a_blocked_one_run_elsewhere(int threads, Blocks how = Blocks::kSleeps) {
  Tally released;
  Tally others;
  // Destroyed first, which waits for the items that still use the tallies.
  ShortItems<Pool> pool(threads);
  for (size_t round = 1; round <= 10; round++) {
    const auto block = [&released, &others, round, how] {
      if (how == Blocks::kComputes) return compute_until(others, round * kKept);
      EXPECT_TRUE(released.wait_for(round));
    };
    if constexpr (std::is_same_v<Pool, workflow::ComputePool>) {
      pool.post_one(block);
      for (size_t i = 0; i < kKept; i++) {
        pool.post_one([&others] { others.add(); });
      }
    } else {
      post_behind_a_blocked_item(*pool, block, others);
    }
    EXPECT_TRUE(others.wait_for(round * kKept));
    released.add();
  }
}

}  // namespace test_support

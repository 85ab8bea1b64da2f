#include "kernel/WorkerPool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "PostFunction.h"
#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "kernel/Simulation.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "workflow/detail/Runnable.h"

using namespace test_support;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::HandlerPool;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::WorkerPool;

namespace {

// A pool that is started, and stopped in the end.
class StartedHandlerPool {
 public:
  explicit StartedHandlerPool(int threads) : pool_(threads) { EXPECT_TRUE(pool_.start()); }
  ~StartedHandlerPool() { pool_.stop(); }
  HandlerPool& operator*() { return pool_; }
  HandlerPool* operator->() { return &pool_; }

 private:
  HandlerPool pool_;
};

}  // namespace

// In virtual time, because a second thread would help one that gets no processor for long.
TEST(HandlerPool, OneThreadRunsInOrderOfPosting) {
  std::vector<int> order;
  {
    const workflow::Simulation simulation(1, {});
    StartedHandlerPool pool(1);
    for (int i = 0; i < 500; i++) {
      post(*pool, [&order, i] { order.push_back(i); });
    }
    RunnableList batch;
    for (int i = 500; i < 1000; i++) {
      batch.push_back(new Item([&order, i] { order.push_back(i); }));
    }
    pool->post(batch);
    EXPECT_TRUE(batch.empty());
  }
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(HandlerPool, PostingAnEmptyBatchDoesNothing) {
  StartedHandlerPool pool(1);
  RunnableList batch;
  pool->post(batch);
  EXPECT_TRUE(pool->idle() || pool->taken() == 0);
}

TEST(HandlerPool, BurstsFromManyThreadsAllRun) {
  constexpr int kThreads = 4;
  constexpr int kItems = 20'000;
  std::atomic<int> runs{0};
  {
    std::vector<std::jthread> threads;
    StartedHandlerPool pool(4);
    for (int t = 0; t < kThreads; t++) {
      threads.emplace_back([&] {
        for (int i = 0; i < kItems; i += 2) {
          post(*pool, [&runs] { runs++; });
          RunnableList batch;
          batch.push_back(new Item([&runs] { runs++; }));
          pool->post(batch);
        }
      });
    }
    threads.clear();  // joins them
  }
  EXPECT_EQ(runs, kThreads * kItems);
}

TEST(HandlerPool, ABurstOfBlockingItemsUsesEveryThread) {
  constexpr size_t kThreads = 8;
  Tally begun;
  Tally released;
  StartedHandlerPool pool(kThreads);
  RunnableList batch;
  for (size_t i = 0; i < kThreads; i++) {
    batch.push_back(new Item([&] {
      begun.add();
      EXPECT_TRUE(released.wait_for(1));
    }));
  }
  pool->post(batch);
  EXPECT_TRUE(begun.wait_for(kThreads));
  EXPECT_FALSE(pool->idle());
  released.add();
}

TEST(HandlerPool, SleepingThreadsWakeForEachPost) {
  Tally runs;
  StartedHandlerPool pool(3);
  for (size_t i = 1; i <= 2000; i++) {
    post(*pool, [&runs] { runs.add(); });
    ASSERT_TRUE(runs.wait_for(i));
  }
}

TEST(HandlerPool, StopRunsWhatWasPostedAndWhatThatPosts) {
  for (const int threads : {1, 4}) {
    std::atomic<int> runs{0};
    HandlerPool pool(threads);
    ASSERT_TRUE(pool.start());
    std::function<void(int)> descend = [&](int depth) {
      runs++;
      if (depth > 0) {
        post(pool, [&descend, depth] { descend(depth - 1); });
        post(pool, [&descend, depth] { descend(depth - 1); });
      }
    };
    post(pool, [&descend] { descend(12); });
    pool.stop();
    EXPECT_EQ(runs, (1 << 13) - 1);
  }
}

TEST(HandlerPool, NothingIsLostBetweenStopAndPost) {
  for (int round = 0; round < 300; round++) {
    std::atomic<int> runs{0};
    HandlerPool pool(2);
    ASSERT_TRUE(pool.start());
    std::thread poster([&] {
      for (int i = 0; i < 50; i++) {
        post(pool, [&runs] { runs++; });
      }
    });
    pool.stop();
    poster.join();
    ASSERT_EQ(runs, 50) << "round " << round;
  }
}

TEST(HandlerPool, PostAfterStopRunsInThePoster) {
  HandlerPool pool(2);
  ASSERT_TRUE(pool.start());
  pool.stop();
  std::thread::id ran_on;
  post(pool, [&ran_on] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(HandlerPool, ChainsPostedAfterStopUseConstantStack) {
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  pool.stop();
  int left = 200'000;
  std::function<void()> next = [&] {
    if (--left > 0) {
      post(pool, next);
    }
  };
  post(pool, next);
  EXPECT_EQ(left, 0);
}

TEST(HandlerPool, StopWithoutStartReturns) {
  HandlerPool pool(2);
  pool.stop();
  int runs = 0;
  post(pool, [&runs] { runs++; });
  EXPECT_EQ(runs, 1);
}

TEST(HandlerPool, StopTwiceReturns) {
  HandlerPool pool(2);
  ASSERT_TRUE(pool.start());
  pool.stop();
  pool.stop();
}

TEST(BlockingScope, LendsAThreadSoThatAnItemMayWaitForAnother) {
  Tally first;
  Tally second;
  StartedHandlerPool pool(1);
  post(*pool, [&] {
    BlockingScope scope;
    EXPECT_TRUE(second.wait_for(1));
    first.add();
  });
  post(*pool, [&] { second.add(); });
  EXPECT_TRUE(first.wait_for(1));
}

TEST(BlockingScope, LendsAsManyThreadsAsBlock) {
  constexpr size_t kWaiting = 50;
  Tally ended;
  Tally released;
  StartedHandlerPool pool(1);
  for (size_t i = 0; i < kWaiting; i++) {
    post(*pool, [&] {
      BlockingScope scope;
      EXPECT_TRUE(released.wait_for(1));
      ended.add();
    });
  }
  post(*pool, [&] { released.add(); });
  EXPECT_TRUE(ended.wait_for(kWaiting));
}

TEST(BlockingScope, MayNest) {
  Tally ended;
  Tally other;
  StartedHandlerPool pool(1);
  post(*pool, [&] {
    BlockingScope outer;
    BlockingScope inner;
    EXPECT_TRUE(other.wait_for(1));
    ended.add();
  });
  post(*pool, [&] { other.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(BlockingScope, StartsNoThreadForOtherThreads) {
  StartedHandlerPool pool(1);
  const BlockingScope scope;
  EXPECT_EQ(pool->thread_count(), 1);
}

TEST(HandlerPool, GrowsWhenACallbackBlocksWithoutTelling) {
  Tally first;
  Tally second;
  StartedHandlerPool pool(1);
  post(*pool, [&] {
    EXPECT_TRUE(second.wait_for(1));
    first.add();
  });
  post(*pool, [&] { second.add(); });
  EXPECT_TRUE(first.wait_for(1));
}

TEST(HandlerPool, GrowsAgainAndAgain) {
  constexpr size_t kBlocked = 10;
  Tally begun;
  StartedHandlerPool pool(1);
  for (size_t i = 0; i < kBlocked; i++) {
    post(*pool, [&begun] {
      begun.add();
      EXPECT_TRUE(begun.wait_for(kBlocked));
    });
  }
  EXPECT_TRUE(begun.wait_for(kBlocked));
}

TEST(HandlerPool, GrowsWhileItStops) {
  constexpr size_t kBlocked = 4;
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  Tally begun;
  Tally stopping;
  for (size_t i = 0; i < kBlocked; i++) {
    post(pool, [&] {
      EXPECT_TRUE(stopping.wait_for(1));
      begun.add();
      EXPECT_TRUE(begun.wait_for(kBlocked));
    });
  }
  // The first goes on only when stop() has most likely begun.
  std::thread releaser([&stopping] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stopping.add();
  });
  pool.stop();
  releaser.join();
  EXPECT_EQ(begun.count(), kBlocked);
}

TEST(HandlerPool, MayBeStoppedByOneOfItsWorkers) {
  // As at the end of a process, the pool and the thread are not given back.
  static HandlerPool& pool = *new HandlerPool(1);
  static Tally& runs = *new Tally;
  static Tally& stopped = *new Tally;
  ASSERT_TRUE(pool.start());
  post(pool, [] {
    for (int i = 0; i < 100; i++) {
      post(pool, [] { runs.add(); });
    }
    pool.stop();
    EXPECT_EQ(runs.count(), 100u);
    stopped.add();
    for (;;) {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  });
  EXPECT_TRUE(stopped.wait_for(1));
}

// Also when it has announced waits before and after it was abandoned.
TEST(WorkerPool, AnAbandonedWorkerTakesNoOthersPlace) {
  // As at the end of a process, the pool and the thread are not given back.
  static ComputePool& pool = *new ComputePool(1);
  static Tally& abandoned = *new Tally;
  static Tally& runs = *new Tally;
  ASSERT_TRUE(pool.start());
  const auto post_item = [](std::function<void()> body) {
    EXPECT_TRUE(pool.post(pool.queue("queue"), new Item(std::move(body))));
  };
  post_item([] {
    { const BlockingScope wait; }  // another thread is started
    pool.abandon_caller();
    { const BlockingScope wait; }
    abandoned.add();
    for (;;) {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  });
  EXPECT_TRUE(abandoned.wait_for(1));
  for (int i = 0; i < 3; i++) {
    post_item([] { runs.add(); });
  }
  EXPECT_TRUE(runs.wait_for(3));
}

TEST(WorkerPool, TakenAndIdleTellThatNothingHappens) {
  Tally runs;
  StartedHandlerPool pool(2);
  EXPECT_EQ(pool->taken(), 0u);
  for (size_t i = 0; i < 10; i++) {
    post(*pool, [&runs] { runs.add(); });
  }
  EXPECT_TRUE(runs.wait_for(10));
  EXPECT_EQ(pool->taken(), 10u);
  const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
  while (!pool->idle() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();  // the last item has run, but its worker is not back yet
  }
  EXPECT_TRUE(pool->idle());
}

// Under virtual time, so that nobody waits for the spare threads to grow tired.
class SpareThreads : public testing::Test {
 protected:
  static constexpr int64_t kSecond = workflow::kNsPerSec;

  void run_for(int64_t duration_ns) {
    const auto result = simulation_.run_for(duration_ns);
    EXPECT_EQ(result.outcome, workflow::Simulation::Outcome::kQuiet) << result.description;
  }

  workflow::Simulation simulation_{1, {.spurious_wakeups = false}};
};

TEST_F(SpareThreads, EndAfterBlockedItemsReturned) {
  HandlerPool pool(2);
  ASSERT_TRUE(pool.start());
  for (int i = 0; i < 5; i++) {
    post(pool, [this] {
      BlockingScope scope;
      simulation_.sleep_for(kSecond);
    });
  }
  run_for(kSecond / 2);
  EXPECT_EQ(pool.thread_count(), 7) << "five that block and two that work";
  run_for(kSecond);
  EXPECT_EQ(pool.thread_count(), 7) << "they stay for a while, in case more is to come";
  run_for(2 * WorkerPool::kSpareNs);
  EXPECT_EQ(pool.thread_count(), 2);
  pool.stop();
}

TEST_F(SpareThreads, EndAfterTheyHelpedAStarvedPool) {
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  for (int i = 0; i < 3; i++) {
    post(pool, [this] { simulation_.sleep_for(kSecond); });
  }
  run_for(WorkerPool::kStarvedNs / 2);
  EXPECT_EQ(pool.thread_count(), 1);
  run_for(kSecond / 2);
  EXPECT_EQ(pool.thread_count(), 3);
  run_for(kSecond + 2 * WorkerPool::kSpareNs);
  EXPECT_EQ(pool.thread_count(), 1);
  pool.stop();
}

TEST_F(SpareThreads, ComeBackWhenNeededAgain) {
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  for (int round = 0; round < 3; round++) {
    post(pool, [this] {
      BlockingScope scope;
      simulation_.sleep_for(kSecond);
    });
    run_for(kSecond / 2);
    EXPECT_EQ(pool.thread_count(), 2);
    run_for(kSecond + 2 * WorkerPool::kSpareNs);
    EXPECT_EQ(pool.thread_count(), 1);
  }
  pool.stop();
}

// Items that compute, of which all come to run although more threads exist than are configured.
class SpareThreadsUnderLoad : public SpareThreads, public testing::WithParamInterface<bool> {
 protected:
  static constexpr int kWaits = 40;
  static constexpr int kConfigured = 2;

  SpareThreadsUnderLoad() {
    if (GetParam()) {
      pool_ = std::make_unique<ComputePool>(kConfigured);
    } else {
      pool_ = std::make_unique<HandlerPool>(kConfigured);
    }
    EXPECT_TRUE(pool_->start());
  }
  ~SpareThreadsUnderLoad() override { pool_->stop(); }

  void post_item(std::function<void()> body) {
    if (auto* const compute = dynamic_cast<ComputePool*>(pool_.get())) {
      EXPECT_TRUE(compute->post(compute->queue("queue"), new Item(std::move(body))));
    } else {
      post(static_cast<HandlerPool&>(*pool_), std::move(body));
    }
  }
  // Has so many items wait for a second, and say so.
  void let_items_wait() {
    for (int i = 0; i < kWaits; i++) {
      post_item([this] {
        const BlockingScope scope;
        simulation_.sleep_for(kSecond);
      });
    }
    run_for(kSecond / 2);
    EXPECT_EQ(pool_->thread_count(), kConfigured + kWaits);
  }
  void post_computation(int64_t length_ns) {
    post_item([this, length_ns] {
      running_++;
      most_running_ = std::max(most_running_, running_);
      simulation_.sleep_for(length_ns);
      running_--;
      computed_++;
    });
  }

  std::unique_ptr<WorkerPool> pool_;
  int running_ = 0;
  int most_running_ = 0;
  int computed_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, SpareThreadsUnderLoad, testing::Bool(),
                         [](const auto& info) { return info.param ? "Compute" : "Handler"; });

TEST_P(SpareThreadsUnderLoad, EndAlthoughItemsComeAllTheTime) {
  let_items_wait();
  for (int i = 0; i < 200; i++) {
    post_computation(kSecond / 1000);
    run_for(kSecond / 10);
  }
  EXPECT_EQ(computed_, 200);
  EXPECT_EQ(pool_->thread_count(), kConfigured);
}

TEST_P(SpareThreadsUnderLoad, LeaveTheWorkToAsManyAsAreConfigured) {
  constexpr int kItems = 12'000;
  constexpr int64_t kLengthNs = 8 * WorkerPool::kLookNs;  // so that looks find them in one item
  let_items_wait();
  for (int i = 0; i < kItems; i++) {
    post_computation(kLengthNs);
  }
  run_for(kSecond);
  EXPECT_LE(most_running_, kConfigured);
  run_for(kItems * kLengthNs / kConfigured + kSecond);
  EXPECT_EQ(computed_, kItems);
  EXPECT_LE(most_running_, kConfigured);
  EXPECT_EQ(pool_->thread_count(), kConfigured) << "the others have ended while there was work";
}

TEST_P(SpareThreadsUnderLoad, AreUsedAgainBeforeNewOnesAreStarted) {
  for (int round = 0; round < 20; round++) {
    let_items_wait();
    run_for(kSecond);
  }
}

// Callbacks go on, and hold up the pool, when the waits that they have announced are over.
TEST_F(SpareThreads, AreUsedWhenThoseForWhichTheyStoodInHoldUpThePool) {
  constexpr int kWaits = 20;
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  for (int i = 0; i < kWaits; i++) {
    post(pool, [this] {
      {
        const BlockingScope scope;
        simulation_.sleep_for(kSecond);
      }
      simulation_.sleep_for(kSecond);
    });
  }
  run_for(kSecond + kSecond / 2);
  bool ran = false;
  post(pool, [&ran] { ran = true; });
  run_for(WorkerPool::kStarvedNs + 2 * WorkerPool::kLookNs);
  EXPECT_TRUE(ran);
  EXPECT_EQ(pool.thread_count(), kWaits + 1);
  run_for(kSecond);
  pool.stop();
}

// A pool of one thread whose item does not say that it waits. Another thread works in its place,
// and no further one.
TEST_F(SpareThreads, StandInForAnItemThatHoldsUpThePool) {
  HandlerPool pool(1);
  ASSERT_TRUE(pool.start());
  for (int round = 0; round < 3; round++) {
    int running = 0;
    int most_running = 0;
    int ran = 0;
    post(pool, [this] { simulation_.sleep_for(kSecond); });
    for (int i = 0; i < 1000; i++) {
      post(pool, [&, this] {
        running++;
        most_running = std::max(most_running, running);
        simulation_.sleep_for(kSecond / 500);
        running--;
        ran++;
      });
    }
    run_for(3 * kSecond);
    EXPECT_EQ(ran, 1000);
    EXPECT_EQ(most_running, 1);
    EXPECT_EQ(pool.thread_count(), 2) << "round " << round;
  }
  run_for(2 * WorkerPool::kSpareNs);
  EXPECT_EQ(pool.thread_count(), 1);
  pool.stop();
}

// However many wait: each has a stand-in, or what they wait for would find no thread.
TEST(WorkerPool, WaitsThatTellAreNotLimited) {
  constexpr int kWaiting = 1100;  // more threads than a pool grows to by itself
  std::atomic<int> waiting{0};
  std::atomic<bool> released{false};
  Tally left;
  StartedHandlerPool pool(1);
  for (int i = 0; i < kWaiting; i++) {
    post(*pool, [&] {
      const BlockingScope blocking;
      waiting++;
      released.wait(false);
      left.add();
    });
  }
  post(*pool, [&] {
    released = true;
    released.notify_all();
  });
  left.wait_for(kWaiting);
  EXPECT_EQ(waiting, kWaiting);
}

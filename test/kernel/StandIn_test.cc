#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/BlockingScope.h"
#include "kernel/HandlerPool.h"
#include "kernel/ThreadContext.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "workflow/Runnable.h"

// HandlerPool::run(): a thread that is not the pool's works in the place of an idle worker.

using test_support::Item;
using test_support::Tally;
using workflow::BlockingScope;
using workflow::HandlerPool;
using workflow::RunnableList;
using workflow::ThreadContext;

namespace {

class Pool {
 public:
  explicit Pool(int threads) : pool_(threads) { EXPECT_TRUE(pool_.start()); }
  ~Pool() { pool_.stop(); }
  HandlerPool* operator->() { return &pool_; }

  // Until its workers have nothing to do, so that run() finds one to stand in for.
  void rest() { pool_.wait_quiet(); }
  void post(std::function<void()> function) { pool_.post(new Item(std::move(function))); }
  void run(const std::vector<std::function<void()>>& functions) {
    RunnableList batch;
    for (const auto& function : functions)
      batch.push_back(new Item(function));
    pool_.run(batch);
    EXPECT_TRUE(batch.empty());
  }

 private:
  HandlerPool pool_;
};

// As a HandlerPool, but it does not grow when a busy machine lets work wait for long.
class FixedPool final : public workflow::WorkerPool {
 public:
  explicit FixedPool(int threads) : WorkerPool({.threads = threads}) { EXPECT_TRUE(start()); }
  ~FixedPool() override { stop(); }

  void post(std::function<void()> function) {
    mutex_.lock();
    queue_.push_back(new Item(std::move(function)));
    unlock_and_wake();
  }
  void run(const std::vector<std::function<void()>>& functions) {
    mutex_.lock();
    for (const auto& function : functions)
      queue_.push_back(new Item(function));
    unlock_and_work();
  }

 private:
  bool has_work() const WF_REQUIRES(mutex_) override { return !queue_.empty(); }
  workflow::Runnable* next() WF_REQUIRES(mutex_) override { return queue_.pop_front(); }

  RunnableList queue_ WF_GUARDED_BY(mutex_);
};

}  // namespace

TEST(StandIn, RunsWhatItBringsOnTheCallingThread) {
  Pool pool(1);
  pool.rest();
  const auto here = std::this_thread::get_id();
  std::vector<int> order;
  const auto step = [&](int number) {
    return [&order, number, here] {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_TRUE(ThreadContext::current().on_framework_thread());
      order.push_back(number);
    };
  };
  const uint64_t taken = pool->taken();
  pool.run({step(1), step(2), step(3)});
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(pool->taken(), taken + 3);
  EXPECT_TRUE(pool->idle());
  EXPECT_FALSE(ThreadContext::current().on_framework_thread());
}

TEST(StandIn, IsNoThreadMoreThanThePoolHas) {
  constexpr int kItems = 2000;
  for (const int threads : {1, 2, 3}) {
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    Tally runs;
    FixedPool pool(threads);
    pool.wait_quiet();
    const auto work = [&] {
      const int now = ++inside;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::yield();
      inside--;
      runs.add();
    };
    for (int i = 0; i < kItems; i++) {
      pool.run({work, [&] { pool.post(work); }, work});
    }
    EXPECT_TRUE(runs.wait_for(kItems * 3));
    EXPECT_LE(most, threads);
  }
}

TEST(StandIn, FindsNoPlaceWhileAllWorkersAreBusy) {
  Pool pool(1);
  Tally begun;
  Tally released;
  pool.post([&] {
    begun.add();
    EXPECT_TRUE(released.wait_for(1));
  });
  ASSERT_TRUE(begun.wait_for(1));
  Tally runs;
  std::thread::id where;
  pool.run({[&] {
    where = std::this_thread::get_id();
    runs.add();
  }});
  released.add();
  EXPECT_TRUE(runs.wait_for(1));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(StandIn, IsStoodInForWhileItBlocks) {
  Pool pool(1);
  pool.rest();
  Tally brought;
  bool came = false;
  pool.run({[&] {
              const BlockingScope blocking;
              came = brought.wait_for(1);
            },
            [&] { brought.add(); }});
  EXPECT_TRUE(came);
}

TEST(StandIn, ThatBlocksWithoutSayingSoIsMadeUpForByAThreadMore) {
  Pool pool(1);
  pool.rest();
  Tally brought;
  bool came = false;
  pool.run({[&] { came = brought.wait_for(1); }, [&] { brought.add(); }});
  EXPECT_TRUE(came);
}

TEST(StandIn, IsWaitedForByTheStop) {
  Pool pool(2);
  pool.rest();
  Tally begun;
  std::atomic<int> runs{0};
  std::thread stopper;
  pool.run({[&] {
              stopper = std::thread([&] {
                begun.add();
                pool->stop();
                EXPECT_EQ(runs, 3);
              });
              EXPECT_TRUE(begun.wait_for(1));
              runs++;
              pool.post([&] { runs++; });
            },
            [&] { runs++; }});
  stopper.join();
  pool.run({[&] { runs++; }});  // as post() after the stop
  EXPECT_EQ(runs, 4);
}

TEST(StandIn, WorksAmongThreadsThatPostAndChangeThePool) {
  constexpr int kRounds = 5000;
  std::atomic<int> runs{0};
  {
    Pool pool(2);
    std::thread poster([&] {
      for (int i = 0; i < kRounds; i++) {
        pool.post([&] { runs++; });
      }
    });
    std::thread changer([&] {
      for (int i = 0; i < 100; i++) {
        EXPECT_EQ(pool->increase_threads(), 0);
        EXPECT_EQ(pool->decrease_threads(), 0);
      }
    });
    for (int i = 0; i < kRounds; i++) {
      pool.run({[&] { runs++; }, [&] { runs++; }});
    }
    poster.join();
    changer.join();
    pool->wait_quiet();
    EXPECT_EQ(pool->configured_threads(), 2);
  }
  EXPECT_EQ(runs, 3 * kRounds);
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "Lingering.h"
#include "PostFunction.h"
#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "kernel/Runtime.h"
#include "kernel/Simulation.h"
#include "support/Eventually.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFGlobal.h"

// Pools that get more or fewer threads while they work.

using namespace test_support;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::HandlerPool;
using workflow::WorkerPool;

namespace {

// A compute pool that is started, and stopped in the end. It never grows by itself.
class StartedComputePool {
 public:
  explicit StartedComputePool(int threads) : pool_(threads) { EXPECT_TRUE(pool_.start()); }
  ~StartedComputePool() { pool_.stop(); }
  ComputePool* operator->() { return &pool_; }

  void post(std::function<void()> function) {
    EXPECT_TRUE(pool_.post(pool_.queue("queue"), new Item(std::move(function))));
  }

 private:
  ComputePool pool_;
};

bool count_becomes(const WorkerPool& pool, int threads) {
  return test_support::eventually([&] { return pool.thread_count() == threads; });
}

// Keeps `n` threads busy until open().
class Busy {
 public:
  Busy(StartedComputePool& pool, size_t n) {
    for (size_t i = 0; i < n; i++) {
      pool.post([this] {
        begun_.add();
        EXPECT_TRUE(opened_.wait_for(1));
        ended_.add();
      });
    }
    EXPECT_TRUE(begun_.wait_for(n));
  }
  void open() { opened_.add(); }
  ~Busy() { EXPECT_TRUE(ended_.wait_for(begun_.count())); }

 private:
  Tally begun_;
  Tally opened_;
  Tally ended_;
};

}  // namespace

TEST(PoolSize, FollowsIncreaseAndDecrease) {
  StartedComputePool pool(2);
  EXPECT_EQ(pool->configured_threads(), 2);
  for (int threads = 3; threads <= 6; threads++) {
    ASSERT_EQ(pool->increase_threads(), 0);
    EXPECT_EQ(pool->configured_threads(), threads);
    EXPECT_EQ(pool->thread_count(), threads);
  }
  Busy all(pool, 6);
  all.open();
  for (int threads = 5; threads >= 1; threads--) {
    ASSERT_EQ(pool->decrease_threads(), 0);
    EXPECT_EQ(pool->configured_threads(), threads);
    EXPECT_TRUE(count_becomes(*pool.operator->(), threads));
  }
  Tally ran;
  pool.post([&ran] { ran.add(); });
  EXPECT_TRUE(ran.wait_for(1));
}

TEST(PoolSize, TheLastThreadStays) {
  StartedComputePool pool(1);
  errno = 0;
  EXPECT_EQ(pool->decrease_threads(), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(pool->configured_threads(), 1);
}

TEST(PoolSize, CannotChangeAfterStop) {
  ComputePool pool(2);
  ASSERT_TRUE(pool.start());
  pool.stop();
  errno = 0;
  EXPECT_EQ(pool.increase_threads(), -1);
  EXPECT_EQ(errno, ECANCELED);
  errno = 0;
  EXPECT_EQ(pool.decrease_threads(), -1);
  EXPECT_EQ(errno, ECANCELED);
}

TEST(PoolSize, WhileAllAreBusyTheFirstThatIsFreeLeaves) {
  StartedComputePool pool(3);
  Busy all(pool, 3);
  Tally ran;
  for (int i = 0; i < 100; i++) {
    pool.post([&ran] { ran.add(); });
  }
  ASSERT_EQ(pool->decrease_threads(), 0);
  ASSERT_EQ(pool->decrease_threads(), 0);
  EXPECT_EQ(pool->thread_count(), 3);
  EXPECT_EQ(pool->configured_threads(), 1);
  all.open();
  EXPECT_TRUE(ran.wait_for(100));
  EXPECT_TRUE(count_becomes(*pool.operator->(), 1));
}

TEST(PoolSize, AnIncreaseRightAfterADecreaseKeepsTheThread) {
  StartedComputePool pool(2);
  for (int i = 0; i < 2000; i++) {
    ASSERT_EQ(pool->decrease_threads(), 0);
    ASSERT_EQ(pool->increase_threads(), 0);
  }
  EXPECT_EQ(pool->configured_threads(), 2);
  EXPECT_TRUE(count_becomes(*pool.operator->(), 2));
  Busy both(pool, 2);  // they really work side by side
  both.open();
}

TEST(PoolSize, AnIncreaseBringsAThreadAtOnceWhileAllAreBusy) {
  StartedComputePool pool(1);
  Busy all(pool, 1);
  Tally ran;
  pool.post([&ran] { ran.add(); });
  ASSERT_EQ(pool->increase_threads(), 0);
  EXPECT_TRUE(ran.wait_for(1));
  all.open();
}

// Others leave, waits begin, and the supervisor adds threads, while one that has left still ends.
TEST(PoolSize, AThreadThatTakesLongToEndHoldsNobodyUp) {
  Tally begun;
  Tally ending;
  Tally released;
  Tally others;
  HandlerPool pool(3);
  ASSERT_TRUE(pool.start());
  for (int i = 0; i < 3; i++) {
    test_support::post(pool, [&] {
      lingering.ending = &ending;
      lingering.released = &released;
      begun.add();
      EXPECT_TRUE(begun.wait_for(3));
    });
  }
  EXPECT_TRUE(begun.wait_for(3));
  EXPECT_EQ(pool.decrease_threads(), 0);
  EXPECT_TRUE(ending.wait_for(1));
  EXPECT_EQ(pool.decrease_threads(), 0);
  EXPECT_TRUE(count_becomes(pool, 1));
  for (int i = 0; i < 2; i++) {
    test_support::post(pool, [&] {
      { const BlockingScope tells; }
      EXPECT_TRUE(others.wait_for(1));  // does not tell
    });
  }
  test_support::post(pool, [&] { others.add(); });
  EXPECT_TRUE(others.wait_for(1));
  released.add();
  pool.stop();
}

TEST(PoolSize, ItemsMayChangeIt) {
  Tally done;
  StartedComputePool pool(1);
  pool.post([&] {
    EXPECT_EQ(pool->increase_threads(), 0);
    EXPECT_EQ(pool->decrease_threads(), 0);
    EXPECT_EQ(pool->decrease_threads(), -1);
    EXPECT_EQ(pool->increase_threads(), 0);
    done.add();
  });
  EXPECT_TRUE(done.wait_for(1));
  EXPECT_TRUE(count_becomes(*pool.operator->(), 2));
}

TEST(PoolSize, NothingIsLostUnderLoad) {
  constexpr int kThreads = 3;
  constexpr int kItems = 20'000;
  std::atomic<int> runs{0};
  std::vector<std::jthread> threads;
  StartedComputePool pool(2);
  for (int thread = 0; thread < kThreads; thread++) {
    threads.emplace_back([&] {
      for (int i = 0; i < kItems; i++) {
        pool.post([&runs] { runs++; });
      }
    });
  }
  TestRandom random(test_support::test_seed());
  int wanted = 2;
  for (int i = 0; i < 3000; i++) {
    if (wanted < 6 && random.one_in(2)) {
      ASSERT_EQ(pool->increase_threads(), 0);
      wanted++;
    } else if (pool->decrease_threads() == 0) {
      wanted--;
    }
    ASSERT_EQ(pool->configured_threads(), wanted);
  }
  threads.clear();  // joins them
  EXPECT_TRUE(test_support::eventually([&] { return runs == kThreads * kItems; }));
  EXPECT_TRUE(count_becomes(*pool.operator->(), wanted));
}

TEST(PoolSize, MayChangeWhileThePoolStops) {
  TestRandom random(test_support::test_seed());
  for (int round = 0; round < 300; round++) {
    ComputePool pool(1 + static_cast<int>(random.below(3)));
    ASSERT_TRUE(pool.start());
    std::atomic<int> runs{0};
    int taken = 0;
    std::thread changer([&] {
      for (int i = 0; i < 30; i++) {
        if (i % 3 != 2) {
          pool.increase_threads();
        } else {
          pool.decrease_threads();
        }
      }
    });
    std::thread poster([&] {
      for (int i = 0; i < 30; i++) {
        Item* item = new Item([&runs] { runs++; });
        if (pool.post(pool.queue("queue"), item)) {
          taken++;
        } else {
          delete item;
        }
      }
    });
    pool.stop();
    changer.join();
    poster.join();
    ASSERT_EQ(runs, taken);
    ASSERT_EQ(pool.thread_count(), 0);
  }
}

TEST(PoolSize, OfTheLibrary) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = 1;
  settings.compute_threads = 1;
  WORKFLOW_library_init(&settings);
  workflow::Runtime& runtime = workflow::Runtime::current();
  EXPECT_EQ(WFGlobal::increase_handler_thread(), 0);
  EXPECT_EQ(WFGlobal::increase_compute_thread(), 0);
  EXPECT_EQ(runtime.handlers().configured_threads(), 2);
  EXPECT_EQ(runtime.handlers().thread_count(), 2);
  EXPECT_EQ(runtime.compute().configured_threads(), 2);
  EXPECT_EQ(runtime.compute().thread_count(), 2);
  EXPECT_EQ(WFGlobal::decrease_handler_thread(), 0);
  EXPECT_EQ(WFGlobal::decrease_compute_thread(), 0);
  EXPECT_TRUE(count_becomes(runtime.handlers(), 1));
  EXPECT_TRUE(count_becomes(runtime.compute(), 1));
  for (int (*decrease)() : {WFGlobal::decrease_handler_thread, WFGlobal::decrease_compute_thread}) {
    errno = 0;
    EXPECT_EQ(decrease(), -1);
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST(PoolSize, OfAnExecutor) {
  Executor executor;
  ASSERT_EQ(executor.init(1), 0);
  EXPECT_EQ(executor.increase_thread(), 0);
  EXPECT_EQ(executor.decrease_thread(), 0);
  errno = 0;
  EXPECT_EQ(executor.decrease_thread(), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(WFGlobal::get_compute_executor()->increase_thread(), 0);
  EXPECT_EQ(WFGlobal::get_compute_executor()->decrease_thread(), 0);
}

// Under virtual time: threads that block, and spare ones that grow tired --------------------------

class PoolSizeInTime : public testing::Test {
 protected:
  static constexpr int64_t kSecond = workflow::kNsPerSec;

  template <class BODY>
  void for_seeds(BODY&& body) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
      workflow::Simulation simulation(seed, {});
      ComputePool pool(2);
      ASSERT_TRUE(pool.start());
      body(simulation, pool);
      simulation.run_for(2 * WorkerPool::kSpareNs + kSecond);
      EXPECT_EQ(pool.thread_count(), pool.configured_threads()) << "seed " << seed;
      int runs = 0;
      for (int i = 0; i < 5; i++) {
        EXPECT_TRUE(pool.post(pool.queue("queue"), new Item([&runs] { runs++; })));
      }
      simulation.run_for(kSecond);
      EXPECT_EQ(runs, 5) << "seed " << seed;
      pool.stop();
      if (HasFailure()) return;
    }
  }

  static void block(workflow::Simulation& simulation, ComputePool& pool, int64_t duration_ns) {
    ASSERT_TRUE(pool.post(pool.queue("queue"), new Item([&simulation, duration_ns] {
                            const BlockingScope scope;
                            simulation.sleep_for(duration_ns);
                          })));
  }
};

TEST_F(PoolSizeInTime, DecreaseWhileAllAreBlocked) {
  for_seeds([](workflow::Simulation& simulation, ComputePool& pool) {
    block(simulation, pool, kSecond);
    block(simulation, pool, kSecond);
    simulation.run_for(kSecond / 2);
    EXPECT_EQ(pool.thread_count(), 4);
    EXPECT_EQ(pool.decrease_threads(), 0);
    simulation.run_for(kSecond / 4);
    EXPECT_EQ(pool.thread_count(), 3);
  });
}

TEST_F(PoolSizeInTime, IncreaseWhileAllAreBlocked) {
  for_seeds([](workflow::Simulation& simulation, ComputePool& pool) {
    block(simulation, pool, kSecond);
    block(simulation, pool, kSecond);
    simulation.run_for(kSecond / 2);
    EXPECT_EQ(pool.increase_threads(), 0);
    simulation.run_for(kSecond / 4);
    EXPECT_EQ(pool.thread_count(), 5);
  });
}

// The spare thread ends by itself at the moment at which a thread has to leave, or is wanted.
TEST_F(PoolSizeInTime, ChangesWhileASpareThreadGrowsTired) {
  for_seeds([](workflow::Simulation& simulation, ComputePool& pool) {
    EXPECT_EQ(pool.increase_threads(), 0);  // so that two may leave
    block(simulation, pool, kSecond);
    for (int change = 0; change < 2; change++) {
      simulation.spawn([&simulation, &pool, change] {
        simulation.sleep_for(kSecond + WorkerPool::kSpareNs);
        EXPECT_EQ(change == 0 ? pool.decrease_threads() : pool.increase_threads(), 0);
      });
    }
    simulation.spawn([&simulation, &pool] {
      simulation.sleep_for(kSecond + WorkerPool::kSpareNs);
      EXPECT_EQ(pool.decrease_threads(), 0);
      EXPECT_EQ(pool.increase_threads(), 0);
    });
    simulation.run_for(2 * kSecond + WorkerPool::kSpareNs);
  });
}

TEST_F(PoolSizeInTime, ChangesWhileItemsBlockAndReturn) {
  for_seeds([](workflow::Simulation& simulation, ComputePool& pool) {
    for (int i = 0; i < 4; i++) {
      block(simulation, pool, i * 10);
    }
    for (int thread = 0; thread < 2; thread++) {
      simulation.spawn([&simulation, &pool, thread] {
        for (int i = 0; i < 3; i++) {
          EXPECT_EQ(pool.increase_threads(), 0);
          simulation.sleep_for(thread * 10);
          EXPECT_EQ(pool.decrease_threads(), 0);
        }
      });
    }
    simulation.run_for(kSecond);
  });
}

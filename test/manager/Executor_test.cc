#include "workflow/Executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernel/ComputePool.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/Eventually.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

using test_support::Tally;

namespace {

const workflow::WorkerPool* own_pool() {
  return workflow::ThreadContext::current().pool;
}

const workflow::WorkerPool* handlers() {
  return &workflow::Runtime::current().handlers();
}

const workflow::WorkerPool* library_compute() {
  return &workflow::Runtime::current().compute();
}

// An executor with one queue, and an account of the tasks started on it.
class Own {
 public:
  explicit Own(size_t threads) {
    EXPECT_EQ(queue.init(), 0);
    EXPECT_EQ(executor.init(threads), 0);
  }

  WFGoTask* create(std::function<void()> function) {
    WFGoTask* task = WFTaskFactory::create_go_task(&queue, &executor, std::move(function));
    task->set_callback([this](WFGoTask* done) { add(done); });
    return task;
  }
  void go(std::function<void()> function) { create(std::move(function))->start(); }

  void add(const WFGoTask* task) {
    EXPECT_EQ(task->get_error(), 0);
    (task->get_state() == WFT_STATE_SUCCESS ? succeeded : aborted).add();
    EXPECT_TRUE(task->get_state() == WFT_STATE_SUCCESS || task->get_state() == WFT_STATE_ABORTED);
  }

  // Holds one thread until open(); returns when it is held.
  void hold() {
    const size_t before = held_.count();
    go([this] {
      pool_ = static_cast<const workflow::ComputePool*>(own_pool());
      held_.add();
      EXPECT_TRUE(opened_.wait_for(1));
    });
    EXPECT_TRUE(held_.wait_for(before + 1));
  }
  void open() { opened_.add(); }
  // Waits until deinit(), which another thread calls, lets nothing begin any more.
  void open_during_deinit() {
    EXPECT_TRUE(test_support::eventually([this] { return pool_.load()->is_abandoned(); }));
    open();
  }

  ExecQueue queue;
  Tally succeeded;
  Tally aborted;

 private:
  Tally held_;
  Tally opened_;
  std::atomic<const workflow::ComputePool*> pool_{nullptr};  // of the thread that was held last

 public:
  Executor executor;  // destroyed first: it waits for all of the above
};

}  // namespace

TEST(Executor, AQueueThatIsInUseRefusesAnother) {
  Own own(1);
  Executor other;
  ASSERT_EQ(other.init(1), 0);
  const auto go_on_other = [&own, &other](ExecQueue* queue) {
    WFGoTask* task = WFTaskFactory::create_go_task(queue, &other, [] {});
    task->set_callback([&own](WFGoTask* done) { own.add(done); });
    task->start();
  };
  own.hold();
  own.go([] {});  // stays in the queue
  go_on_other(&own.queue);
  EXPECT_TRUE(own.aborted.wait_for(1));
  own.open();
  EXPECT_TRUE(own.succeeded.wait_for(2));
  // The last item has been taken out: any executor may have it now.
  go_on_other(&own.queue);
  EXPECT_TRUE(own.succeeded.wait_for(3));
  go_on_other(WFGlobal::get_exec_queue("a queue of the library"));
  EXPECT_TRUE(own.aborted.wait_for(2));
}

TEST(Executor, AQueueMayGoWhenOnlyWhatHasTimedOutIsInIt) {
  Own own(1);
  own.hold();
  {
    ExecQueue queue;
    ASSERT_EQ(queue.init(), 0);
    Tally ended;
    WFGoTask* task = WFTaskFactory::create_timedgo_task(0, 1, &queue, &own.executor, [] {});
    task->set_callback([&ended](WFGoTask* done) {
      EXPECT_EQ(done->get_error(), ETIMEDOUT);
      ended.add();
    });
    task->start();
    ASSERT_TRUE(ended.wait_for(1));
  }
  own.open();
  own.go([] {});
  EXPECT_TRUE(own.succeeded.wait_for(2));
}

TEST(Executor, InitRefusesNoThreadsAndBeingCalledTwice) {
  Executor executor;
  errno = 0;
  EXPECT_EQ(executor.init(0), -1);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(executor.init(size_t{INT_MAX} + 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(executor.init(1), 0);
  errno = 0;
  EXPECT_EQ(executor.init(1), -1);
  EXPECT_EQ(errno, EALREADY);
  errno = 0;
  EXPECT_EQ(WFGlobal::get_compute_executor()->init(1), -1);
  EXPECT_EQ(errno, EALREADY);
}

TEST(Executor, WithoutInitNumbersOfThreadsCannotChange) {
  Executor executor;
  errno = 0;
  EXPECT_EQ(executor.increase_thread(), -1);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(executor.decrease_thread(), -1);
  EXPECT_EQ(errno, EINVAL);
  executor.deinit();
}

TEST(Executor, WithoutInitTasksAreAborted) {
  ExecQueue queue;
  Executor executor;
  Tally ended;
  int state = WFT_STATE_UNDEFINED;
  const auto run = [&] {
    WFGoTask* task = WFTaskFactory::create_go_task(&queue, &executor,
                                                   [] { ADD_FAILURE() << "it has no thread"; });
    task->set_callback([&](WFGoTask* done) {
      state = done->get_state();
      ended.add();
    });
    task->start();
  };
  run();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(state, WFT_STATE_ABORTED);
  EXPECT_EQ(queue.init(), 0);
  run();
  ASSERT_TRUE(ended.wait_for(2));
}

TEST(Executor, RunsFunctionsAndCallbacksOnItsOwnThreads) {
  Own own(1);
  std::thread::id function_on;
  std::thread::id callback_on;
  const workflow::WorkerPool* pool = nullptr;
  Tally ended;
  WFGoTask* task = WFTaskFactory::create_go_task(&own.queue, &own.executor, [&] {
    function_on = std::this_thread::get_id();
    pool = own_pool();
  });
  task->set_callback([&](WFGoTask* done) {
    EXPECT_EQ(done->get_state(), WFT_STATE_SUCCESS);
    callback_on = std::this_thread::get_id();
    ended.add();
  });
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(function_on, callback_on);
  EXPECT_NE(pool, nullptr);
  EXPECT_NE(pool, library_compute());
  EXPECT_NE(pool, handlers());
}

TEST(Executor, PassesArgumentsAndTimeLimitsOn) {
  Own own(1);
  int sum = 1;
  Tally ended;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(
      3600, 0, &own.queue, &own.executor, [](int n, int& to) { to += n; }, 41, std::ref(sum));
  task->set_callback([&ended](WFGoTask*) { ended.add(); });
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(sum, 42);
}

TEST(Executor, OneThreadBeginsTheTasksOfAQueueInOrder) {
  Own own(1);
  constexpr int kTasks = 1000;
  std::vector<int> order;
  for (int i = 0; i < kTasks; i++) {
    own.go([&order, i] { order.push_back(i); });
  }
  ASSERT_TRUE(own.succeeded.wait_for(kTasks));
  std::vector<int> expected(kTasks);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

// Queue i holds more than queue i + 1: while there is something in all of them they take turns
// exactly, and each keeps its order.
TEST(Executor, AHundredUnequalQueuesTakeTurns) {
  constexpr size_t kQueues = 100;
  Own own(1);
  std::vector<std::unique_ptr<ExecQueue>> queues;
  std::vector<std::pair<size_t, size_t>> order;
  size_t total = 0;
  own.hold();
  for (size_t queue = 0; queue < kQueues; queue++) {
    queues.push_back(std::make_unique<ExecQueue>());
    ASSERT_EQ(queues.back()->init(), 0);
    for (size_t i = 0; i < 1 + 3 * (kQueues - queue); i++) {
      WFGoTask* task = WFTaskFactory::create_go_task(
          queues.back().get(), &own.executor, [&order, queue, i] { order.emplace_back(i, queue); });
      task->set_callback([&own](WFGoTask* done) { own.add(done); });
      task->start();
      total++;
    }
  }
  own.open();
  ASSERT_TRUE(own.succeeded.wait_for(total + 1));
  ASSERT_EQ(order.size(), total);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Executor, QueuesOfManyThreadsAllMakeProgress) {
  constexpr size_t kQueues = 100;
  Own own(3);
  std::array<ExecQueue, kQueues> queues;
  std::array<std::atomic<int>, kQueues> runs{};
  std::vector<std::jthread> starters;
  std::atomic<bool> enough{false};
  std::atomic<size_t> started{0};
  for (ExecQueue& queue : queues) {
    ASSERT_EQ(queue.init(), 0);
  }
  // The first queues are flooded without end until the last have been served.
  for (int thread = 0; thread < 2; thread++) {
    starters.emplace_back([&] {
      while (!enough) {
        for (size_t queue = 0; queue < 3; queue++) {
          WFGoTask* task = WFTaskFactory::create_go_task(&queues[queue], &own.executor,
                                                         [&runs, queue] { runs[queue]++; });
          task->set_callback([&own](WFGoTask* done) { own.add(done); });
          task->start();
          started++;
        }
        // Floods, but lets the memory of the machine be.
        while (started - own.succeeded.count() > 10'000 && !enough) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (int i = 0; i < 20; i++) {
    for (size_t queue = 3; queue < kQueues; queue++) {
      WFGoTask* task = WFTaskFactory::create_go_task(&queues[queue], &own.executor,
                                                     [&runs, queue] { runs[queue]++; });
      task->set_callback([&own](WFGoTask* done) { own.add(done); });
      task->start();
      started++;
    }
  }
  EXPECT_TRUE(test_support::eventually([&] {
    return std::all_of(runs.begin() + 3, runs.end(), [](const auto& n) { return n == 20; });
  }));
  enough = true;
  starters.clear();  // joins them
  EXPECT_TRUE(own.succeeded.wait_for(started));
}

TEST(Executor, DeinitAbortsWhatIsQueuedAndWaitsForWhatRuns) {
  Own own(2);
  own.hold();
  own.hold();
  for (int i = 0; i < 100; i++) {
    own.go([] { ADD_FAILURE() << "it has begun"; });
  }
  std::thread opener([&own] { own.open_during_deinit(); });
  own.executor.deinit();
  EXPECT_EQ(own.succeeded.count(), 2u);
  EXPECT_EQ(own.aborted.count(), 100u);
  opener.join();
}

TEST(Executor, TasksStartedAfterDeinitAreAborted) {
  Own own(1);
  own.executor.deinit();
  own.executor.deinit();
  WFGoTask* task = own.create([] { ADD_FAILURE() << "it has begun"; });
  const workflow::WorkerPool* on = nullptr;
  task->set_callback([&](WFGoTask* done) {
    on = own_pool();
    own.add(done);
  });
  task->start();
  ASSERT_TRUE(own.aborted.wait_for(1));
  EXPECT_EQ(on, handlers());
  errno = 0;
  EXPECT_EQ(own.executor.increase_thread(), -1);
  EXPECT_EQ(errno, ECANCELED);
  errno = 0;
  EXPECT_EQ(own.executor.decrease_thread(), -1);
  EXPECT_EQ(errno, ECANCELED);
}

TEST(Executor, TasksThatCallbacksStartDuringDeinitAreAborted) {
  Own own(1);
  own.hold();
  WFGoTask* task = own.create([] { ADD_FAILURE() << "it has begun"; });
  task->set_callback([&own](WFGoTask* done) {
    own.add(done);
    own.go([] { ADD_FAILURE() << "it has begun"; });
    series_of(done)->push_back(own.create([] { ADD_FAILURE() << "it has begun"; }));
  });
  task->start();
  std::thread opener([&own] { own.open_during_deinit(); });
  own.executor.deinit();
  opener.join();
  EXPECT_EQ(own.succeeded.count(), 1u);
  EXPECT_TRUE(own.aborted.wait_for(3));
}

TEST(Executor, WorksAgainAfterAnotherInit) {
  Own own(1);
  for (size_t round = 1; round <= 20; round++) {
    own.go([] {});
    ASSERT_TRUE(own.succeeded.wait_for(round));
    own.executor.deinit();
    ASSERT_EQ(own.executor.init(1 + round % 3), 0);
  }
}

// The task finds the threads that the executor has when it starts.
TEST(Executor, TasksMadeBeforeInitOrDeinitRunAfterTheNextInit) {
  ExecQueue queue;
  Executor executor;
  Tally ran;
  const auto create = [&] {
    return WFTaskFactory::create_go_task(&queue, &executor, [&ran] { ran.add(); });
  };
  WFGoTask* first = create();
  ASSERT_EQ(queue.init(), 0);
  ASSERT_EQ(executor.init(1), 0);
  WFGoTask* second = create();
  first->start();
  ASSERT_TRUE(ran.wait_for(1));
  executor.deinit();
  queue.deinit();
  ASSERT_EQ(queue.init(), 0);
  ASSERT_EQ(executor.init(1), 0);
  second->start();
  ASSERT_TRUE(ran.wait_for(2));
}

TEST(Executor, DeinitOnItsOwnThreadLeavesTheRestToAnother) {
  Own own(2);
  own.hold();
  Tally ended;
  own.go([&] {
    own.executor.deinit();
    ended.add();
  });
  for (int i = 0; i < 10; i++) {
    own.go([] {});  // queued or not when deinit() comes
  }
  ASSERT_TRUE(ended.wait_for(1));
  own.go([] { ADD_FAILURE() << "it has begun"; });
  own.open();
  EXPECT_TRUE(
      test_support::eventually([&] { return own.succeeded.count() + own.aborted.count() == 13; }));
  ASSERT_EQ(own.executor.init(1), 0);
  const size_t before = own.succeeded.count();
  own.go([] {});
  EXPECT_TRUE(own.succeeded.wait_for(before + 1));
}

TEST(Executor, MayBeDestroyedByItsLastCallback) {
  for (int round = 0; round < 100; round++) {
    Tally destroyed;
    ExecQueue queue;
    queue.init();
    Executor* executor = new Executor;
    ASSERT_EQ(executor->init(2), 0);
    WFGoTask* task = WFTaskFactory::create_go_task(&queue, executor, [] {});
    task->set_callback([&, executor](WFGoTask*) {
      delete executor;
      destroyed.add();
    });
    task->start();
    ASSERT_TRUE(destroyed.wait_for(1));
  }
}

// A handler starts the task; it may still be at it when the task has ended and nobody is left.
TEST(Executor, MayBeDestroyedAsSoonAsItsLastCallbackHasRun) {
  for (int round = 0; round < 300; round++) {
    Tally ended;
    ExecQueue queue;
    queue.init();
    auto executor = std::make_unique<Executor>();
    ASSERT_EQ(executor->init(1), 0);
    WFGoTask* task = WFTaskFactory::create_go_task(&queue, executor.get(), [] {});
    task->set_callback([&ended](WFGoTask*) { ended.add(); });
    SeriesWork* series =
        Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0, nullptr), nullptr);
    series->push_back(task);
    series->start();
    ASSERT_TRUE(ended.wait_for(1));
    executor.reset();
  }
}

TEST(Executor, DeinitInACallbackOfAHandler) {
  Own own(1);
  own.hold();
  for (int i = 0; i < 10; i++) {
    own.go([] {});  // begins if the thread is let go before deinit() comes
  }
  Tally ended;
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    own.executor.deinit();
    EXPECT_EQ(own.aborted.count() + own.succeeded.count(), 11u);
    ended.add();
  })->start();
  own.open();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Executor, DeinitOnAThreadOfAnotherExecutor) {
  Own own(1);
  Own other(1);
  own.hold();
  own.go([] {});
  other.go([&own] { own.executor.deinit(); });
  own.open();
  EXPECT_TRUE(other.succeeded.wait_for(1));
  EXPECT_EQ(own.succeeded.count() + own.aborted.count(), 2u);
}

TEST(ExecQueue, MayBeEmptiedAndUsedAgain) {
  Own own(1);
  own.go([] {});
  ASSERT_TRUE(own.succeeded.wait_for(1));
  own.queue.deinit();
  own.queue.deinit();
  own.go([] { ADD_FAILURE() << "it has no queue"; });
  ASSERT_TRUE(own.aborted.wait_for(1));
  ASSERT_EQ(own.queue.init(), 0);
  own.go([] {});
  EXPECT_TRUE(own.succeeded.wait_for(2));
}

// The library's own, in the same shape ----------------------------------------------------------

class ComputeExecutor : public testing::Test {
 protected:
  // One thread, so that the order is exact.
  static void SetUpTestSuite() { workflow::Runtime::configure({.compute_threads = 1}); }
};

TEST_F(ComputeExecutor, RunsOnTheLibrarysComputeThreads) {
  ExecQueue* queue = WFGlobal::get_exec_queue("queue");
  Executor* executor = WFGlobal::get_compute_executor();
  EXPECT_EQ(queue, WFGlobal::get_exec_queue("queue"));
  EXPECT_NE(queue, WFGlobal::get_exec_queue("other"));
  EXPECT_EQ(executor, WFGlobal::get_compute_executor());
  Tally ran;
  const workflow::WorkerPool* pool = nullptr;
  WFTaskFactory::create_go_task(queue, executor, [&] {
    pool = own_pool();
    ran.add();
  })->start();
  ASSERT_TRUE(ran.wait_for(1));
  EXPECT_EQ(pool, library_compute());
}

TEST_F(ComputeExecutor, ItsQueuesAreThoseOfTheSameNames) {
  Tally held;
  Tally opened;
  Tally ran;
  WFTaskFactory::create_go_task("gate", [&] {
    held.add();
    opened.wait_for(1);
  })->start();
  ASSERT_TRUE(held.wait_for(1));
  std::string order;
  for (const char* name : {"a", "b"}) {
    for (int i = 0; i < 2; i++) {
      const std::string letter = name + std::to_string(i);
      const auto function = [&, letter] {
        order += letter;
        ran.add();
      };
      WFGoTask* task =
          i == 0 ? WFTaskFactory::create_go_task(name, function)
                 : WFTaskFactory::create_go_task(WFGlobal::get_exec_queue(name),
                                                 WFGlobal::get_compute_executor(), function);
      task->start();
    }
  }
  opened.add();
  ASSERT_TRUE(ran.wait_for(4));
  EXPECT_EQ(order, "a0b0a1b1");
}

TEST_F(ComputeExecutor, ItsInitAndDeinitDoNothing) {
  Executor* executor = WFGlobal::get_compute_executor();
  ExecQueue* queue = WFGlobal::get_exec_queue("queue");
  executor->deinit();
  queue->deinit();
  EXPECT_EQ(queue->init(), 0);
  Tally ran;
  WFTaskFactory::create_go_task(queue, executor, [&] { ran.add(); })->start();
  EXPECT_TRUE(ran.wait_for(1));
}

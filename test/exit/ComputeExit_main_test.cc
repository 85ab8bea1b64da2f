#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "kernel/ComputePool.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/ExitKit.h"
#include "support/Tally.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// What happens when a process ends while computations are outstanding, on the library's threads and
// on a user's.

using namespace exit_kit;

namespace {

ExecQueue static_queue;
Executor static_executor;  // constructed before the library, so it is destroyed after it

void start(WFGoTask* task) {
  task->set_callback(outcomes().callback());
  task->start();
}

// Waits until the library stops.
void wait_for_stop() {
  while (!workflow::Runtime::current().stopping()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Waits until nothing begins any more on the threads of which the caller is one.
void wait_for_end_of_pool() {
  const auto* pool =
      static_cast<const workflow::ComputePool*>(workflow::ThreadContext::current().pool);
  while (!pool->is_abandoned()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// One function that runs until its executor ends, and ten that wait in the queue.
void fill(ExecQueue& queue, Executor& executor) {
  static test_support::Tally& begun = *new test_support::Tally;
  start(WFTaskFactory::create_go_task(&queue, &executor, [] {
    begun.add();
    wait_for_end_of_pool();
  }));
  begun.wait_for(1);
  for (int i = 0; i < 5; i++) {
    start(WFTaskFactory::create_go_task(&queue, &executor, [] {}));
    start(WFTaskFactory::create_timedgo_task(3600, 0, &queue, &executor, [] {}));
  }
}

void leave_static_executor() {
  static_queue.init();
  static_executor.init(1);
  fill(static_queue, static_executor);
  say_outcomes_at_the_end();
}

void leave_younger_static_executor() {
  WFFacilities::usleep(1);
  static ExecQueue queue;
  static Executor executor;  // constructed after the library, so it is destroyed before it
  queue.init();
  executor.init(1);
  fill(queue, executor);
  say_outcomes_at_the_end();
}

void leave_executor_for_ever() {
  static ExecQueue& queue = *new ExecQueue;
  static Executor& executor = *new Executor;
  queue.init();
  executor.init(1);
  fill(queue, executor);
  say_outcomes_at_the_end();
}

void use_executor_after_the_library() {
  static_queue.init();
  static_executor.init(1);
  last_word.word = [] {
    start(WFTaskFactory::create_go_task(WFGlobal::get_exec_queue("queue"),
                                        WFGlobal::get_compute_executor(), [] {}));
    ExecQueue queue;
    Executor executor;
    queue.init();
    errno = 0;
    say(executor.init(1) == -1 && errno == ECANCELED ? "refused" : "not refused");
    start(WFTaskFactory::create_go_task(&queue, &executor, [] {}));
    start(WFTaskFactory::create_timedgo_task(1, 0, "queue", [] {}));
    start(WFTaskFactory::create_timedgo_task(0, -1, "queue", [] {}));
    say(outcomes().text());
  };
}

void exit_on_an_executor() {
  static_queue.init();
  static_executor.init(1);
  say_outcomes_at_the_end();
  WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {
    for (int i = 0; i < 10; i++) {
      start(WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {}));
    }
    std::exit(0);
  })->start();
  wait_for_exit();
}

void deinit_on_an_executor() {
  static_queue.init();
  static_executor.init(2);
  say_outcomes_at_the_end();
  static test_support::Tally& begun = *new test_support::Tally;
  start(WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {
    begun.add();
    wait_for_stop();
    static_executor.deinit();
  }));
  begun.wait_for(1);
}

// The executor of tasks that the stop aborts is destroyed in one more aborted callback.
// `start_last` starts the task of that callback, which calls what it is given.
void delete_executor(void (*start_last)(Executor*, const std::function<void()>&)) {
  static_queue.init();
  auto* const executor = new Executor;
  executor->init(1);
  say_outcomes_at_the_end();
  static test_support::Tally& begun = *new test_support::Tally;
  start(WFTaskFactory::create_go_task(&static_queue, executor, [] {
    begun.add();
    wait_for_stop();
  }));
  begun.wait_for(1);
  for (int i = 0; i < 5; i++) {
    start(WFTaskFactory::create_go_task(&static_queue, executor, [] {}));
    if (i == 2) {
      start_last(executor, [executor] { delete executor; });
    }
    start(WFTaskFactory::create_timedgo_task(3600, 0, &static_queue, executor, [] {}));
  }
}

void delete_executor_on_a_handler() {
  delete_executor([](Executor*, const std::function<void()>& end) {
    WFTaskFactory::create_timer_task(3600, 0, [end](WFTimerTask* task) {
      outcomes().add(task);
      end();
    })->start();
  });
}

void delete_executor_on_its_thread() {
  delete_executor([](Executor* executor, const std::function<void()>& end) {
    WFGoTask* task = WFTaskFactory::create_go_task(&static_queue, executor, [] {});
    task->set_callback([end](WFGoTask* done) {
      outcomes().add(done);
      end();
    });
    task->start();
  });
}

// Its executor is destroyed with the other static objects, by the very thread that runs its
// function.
void deinit_and_exit_on_an_executor() {
  static_queue.init();
  static_executor.init(2);
  say_outcomes_at_the_end();
  WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {
    static_executor.deinit();
    start(WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {}));
    std::exit(0);
  })->start();
  wait_for_exit();
}

// A function whose wait ends because the library stops goes on, and may count for another task.
void wait_on_a_computing_thread() {
  static std::atomic<int>& counted = *new std::atomic<int>(0);
  static std::atomic<int>& ended = *new std::atomic<int>(0);
  static test_support::Tally& begun = *new test_support::Tally;
  constexpr int kCounters = 8;
  for (int i = 0; i < kCounters; i++) {
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, [](WFCounterTask*) { ended++; });
    counter->start();
    WFTaskFactory::create_go_task("queue", [counter] {
      begun.add();
      WFFacilities::usleep(1'000'000'000);
      counter->count();
      counted++;
    })->start();
  }
  last_word.word = [] {
    say(std::to_string(counted) + " counted, " + std::to_string(ended) + " ended");
  };
  begun.wait_for(kCounters);
}

void leave_limits() {
  static test_support::Tally& begun = *new test_support::Tally;
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.compute_threads = 1;
  WORKFLOW_library_init(&settings);
  start(WFTaskFactory::create_timedgo_task(3600, 0, "queue", [] {
    begun.add();
    wait_for_stop();
  }));
  begun.wait_for(1);
  for (int i = 0; i < 10; i++) {
    start(WFTaskFactory::create_timedgo_task(3600, 0, "queue", [] {}));
    start(WFTaskFactory::create_go_task("queue", [] {}));
  }
  say_outcomes_at_the_end();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"static", leave_static_executor},
    {"younger-static", leave_younger_static_executor},
    {"for-ever", leave_executor_for_ever},
    {"after-the-library", use_executor_after_the_library},
    {"exit", exit_on_an_executor},
    {"deinit", deinit_on_an_executor},
    {"deinit-exit", deinit_and_exit_on_an_executor},
    {"delete-on-handler", delete_executor_on_a_handler},
    {"delete-on-its-thread", delete_executor_on_its_thread},
    {"waits", wait_on_a_computing_thread},
    {"limits", leave_limits},
};

const std::string kOneRan = "11 called: 1 succeeded, 10 aborted\n";

}  // namespace

TEST(ComputeExit, ExecutorsMayOutliveTheLibrary) {
  EXPECT_EQ(play("static"), kOneRan);
}

TEST(ComputeExit, ExecutorsMayEndBeforeTheLibrary) {
  EXPECT_EQ(play("younger-static"), kOneRan);
}

TEST(ComputeExit, ExecutorsNeedNotBeEnded) {
  EXPECT_EQ(play("for-ever"), kOneRan);
}

TEST(ComputeExit, WithoutTheLibraryExecutorsRefuseAndTasksAreAborted) {
  EXPECT_EQ(play("after-the-library"), "refused\n4 called: 3 aborted, 1 failed\n");
}

TEST(ComputeExit, ExitMayBeCalledOnAnExecutor) {
  EXPECT_EQ(play("exit"), "10 called: 10 aborted\n");
}

TEST(ComputeExit, AnExecutorMayBeEndedOnItsThreadMeanwhile) {
  EXPECT_EQ(play("deinit"), "1 called: 1 succeeded\n");
}

TEST(ComputeExit, AnExecutorMayBeEndedByTheThreadThatExits) {
  EXPECT_EQ(play("deinit-exit"), "1 called: 1 aborted\n");
}

TEST(ComputeExit, AnExecutorMayBeDestroyedInAnAbortedCallback) {
  for (int i = 0; i < exit_kit::times(10); i++) {
    EXPECT_EQ(play("delete-on-handler"), "12 called: 1 succeeded, 11 aborted\n");
    EXPECT_EQ(play("delete-on-its-thread"), "12 called: 1 succeeded, 11 aborted\n");
  }
}

TEST(ComputeExit, FunctionsWhoseWaitsItEndsMayCountForAbortedTasks) {
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(play("waits"), "8 counted, 8 ended\n");
  }
}

TEST(ComputeExit, LimitsDoNotDelayIt) {
  EXPECT_EQ(play("limits"), "21 called: 1 succeeded, 20 aborted\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "support/ChildProcess.h"
#include "support/Tally.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// What happens when a process ends while computations are outstanding, on the library's threads and
// on a user's. Each test runs this program again as a child, which plays the scenario named in the
// environment and ends; what it sees on the way out it writes to stdout, which is the test's pipe.

namespace {

constexpr const char* kScenarioVariable = "WORKFLOW_EXIT_SCENARIO";

// The child's side ------------------------------------------------------------------------------

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

// Counts how tasks end. Lives until after the last static destructor.
struct Outcomes {
  std::function<void(WFGoTask*)> callback() {
    return [this](WFGoTask* task) {
      if (task->get_state() == WFT_STATE_SUCCESS) {
        succeeded++;
      } else if (task->get_state() == WFT_STATE_ABORTED && task->get_error() == 0) {
        aborted++;
      } else if (task->get_error() == ETIMEDOUT) {
        timed_out++;
      }
      called++;
    };
  }
  std::string text() const {
    return std::to_string(called) + " called: " + std::to_string(succeeded) + " succeeded, " +
           std::to_string(aborted) + " aborted, " + std::to_string(timed_out) + " timed out";
  }
  std::atomic<int> called{0};
  std::atomic<int> succeeded{0};
  std::atomic<int> aborted{0};
  std::atomic<int> timed_out{0};
};

Outcomes& outcomes() {
  static Outcomes& outcomes = *new Outcomes;
  return outcomes;
}

// Constructed before the library is used and before every executor: destroyed after them.
class LastWord {
 public:
  ~LastWord() {
    if (word) {
      word();
    }
  }
  std::function<void()> word;
};

LastWord last_word;
ExecQueue static_queue;
Executor static_executor;  // constructed before the library, so it is destroyed after it

void say_outcomes_at_the_end() {
  last_word.word = [] { say(outcomes().text()); };
}

void start(WFGoTask* task) {
  task->set_callback(outcomes().callback());
  task->start();
}

// One function that runs for 20 ms more, so that most likely the exit comes meanwhile (nothing
// tells), and ten that wait in the queue.
void fill(ExecQueue& queue, Executor& executor) {
  static test_support::Tally begun;
  start(WFTaskFactory::create_go_task(&queue, &executor, [] {
    begun.add();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
  for (;;) {
    ::pause();
  }
}

void deinit_on_an_executor() {
  static_queue.init();
  static_executor.init(2);
  say_outcomes_at_the_end();
  static test_support::Tally begun;
  start(WFTaskFactory::create_go_task(&static_queue, &static_executor, [] {
    begun.add();
    // The exit has most likely begun by then; nothing tells.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    static_executor.deinit();
  }));
  begun.wait_for(1);
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
  for (;;) {
    ::pause();
  }
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
  static test_support::Tally begun;
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.compute_threads = 1;
  WORKFLOW_library_init(&settings);
  start(WFTaskFactory::create_timedgo_task(3600, 0, "queue", [] {
    begun.add();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }));
  begun.wait_for(1);
  for (int i = 0; i < 10; i++) {
    start(WFTaskFactory::create_timedgo_task(3600, 0, "queue", [] {}));
    start(WFTaskFactory::create_go_task("queue", [] {}));
  }
  say_outcomes_at_the_end();
}

struct Scenario {
  const char* name;
  void (*play)();
};

constexpr Scenario kScenarios[] = {
    {"static", leave_static_executor},
    {"younger-static", leave_younger_static_executor},
    {"for-ever", leave_executor_for_ever},
    {"after-the-library", use_executor_after_the_library},
    {"exit", exit_on_an_executor},
    {"deinit", deinit_on_an_executor},
    {"deinit-exit", deinit_and_exit_on_an_executor},
    {"waits", wait_on_a_computing_thread},
    {"limits", leave_limits},
};

// The test's side -------------------------------------------------------------------------------

std::string play(const char* scenario) {
  const test_support::ChildResult result = test_support::run_self(
      {std::string(kScenarioVariable) + "=" + scenario}, std::chrono::seconds(100));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

const std::string kOneRan = "11 called: 1 succeeded, 10 aborted, 0 timed out\n";

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
  EXPECT_EQ(play("after-the-library"), "refused\n4 called: 0 succeeded, 3 aborted, 0 timed out\n");
}

TEST(ComputeExit, ExitMayBeCalledOnAnExecutor) {
  EXPECT_EQ(play("exit"), "10 called: 0 succeeded, 10 aborted, 0 timed out\n");
}

TEST(ComputeExit, AnExecutorMayBeEndedOnItsThreadMeanwhile) {
  EXPECT_EQ(play("deinit"), "1 called: 1 succeeded, 0 aborted, 0 timed out\n");
}

TEST(ComputeExit, AnExecutorMayBeEndedByTheThreadThatExits) {
  EXPECT_EQ(play("deinit-exit"), "1 called: 0 succeeded, 1 aborted, 0 timed out\n");
}

TEST(ComputeExit, FunctionsWhoseWaitsItEndsMayCountForAbortedTasks) {
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(play("waits"), "8 counted, 8 ended\n");
  }
}

TEST(ComputeExit, LimitsDoNotDelayIt) {
  EXPECT_EQ(play("limits"), "21 called: 1 succeeded, 20 aborted, 0 timed out\n");
}

int main(int argc, char** argv) {
  const char* name = std::getenv(kScenarioVariable);
  for (const Scenario& scenario : kScenarios) {
    if (name && std::string_view(name) == scenario.name) {
      scenario.play();
      return 0;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

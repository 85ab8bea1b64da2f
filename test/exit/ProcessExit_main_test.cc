#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "factory/TimerTask.h"
#include "kernel/BlockingScope.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/RaceKit.h"
#include "support/ChildProcess.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

// What happens when a process ends while tasks are outstanding. Each test runs this program again
// as a child, which plays the scenario named in the environment and ends; what it sees on the way
// out it writes to stdout, which is the test's pipe.

namespace {

constexpr const char* kScenarioVariable = "WORKFLOW_EXIT_SCENARIO";

// The child's side ------------------------------------------------------------------------------

// Counts how timers end. Lives until after the last static destructor.
class Outcomes {
 public:
  timer_callback_t callback() {
    return [this](WFTimerTask* task) { add(task); };
  }
  void add(const WFTimerTask* task) {
    if (task->get_state() == WFT_STATE_SUCCESS) {
      succeeded++;
    } else if (task->get_state() == WFT_STATE_ABORTED && task->get_error() == 0) {
      aborted++;
    } else if (task->get_error() == ECANCELED) {
      cancelled++;
    }
    off_handlers += workflow::ThreadContext::current().pool == nullptr;
    called++;
  }
  std::string text() const {
    return std::to_string(called) + " called: " + std::to_string(succeeded) + " expired, " +
           std::to_string(cancelled) + " cancelled, " + std::to_string(aborted) + " aborted";
  }

  std::atomic<int> called{0};
  std::atomic<int> succeeded{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> aborted{0};
  std::atomic<int> off_handlers{0};  // callbacks on other threads than the handlers
};

Outcomes& outcomes() {
  static Outcomes& outcomes = *new Outcomes;
  return outcomes;
}

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

// Runs what a scenario left for it when the library has stopped: it is constructed before the
// library is used, so that it is destroyed after it.
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

WFTimerTask* never(timer_callback_t callback) {
  return WFTaskFactory::create_timer_task("never", -1, 0, std::move(callback));
}

void say_outcomes_at_the_end() {
  last_word.word = [] { say(outcomes().text()); };
}

void start_outstanding_timers() {
  constexpr int kTimers = 100'000;
  std::vector<std::atomic<int>>& calls = *new std::vector<std::atomic<int>>(kTimers);
  for (int i = 0; i < kTimers; i++) {
    const auto callback = [&calls, i](WFTimerTask* task) {
      calls[static_cast<size_t>(i)]++;
      outcomes().add(task);
    };
    WFTimerTask* task = nullptr;
    switch (i % 4) {
      case 0:
        task = WFTaskFactory::create_timer_task(-1, 0, callback);
        break;
      case 1:
        task = WFTaskFactory::create_timer_task(3600 + i, 0, callback);
        break;
      case 2:
        task = WFTaskFactory::create_timer_task("one name", -1, 0, callback);
        break;
      default:
        task = WFTaskFactory::create_timer_task("name " + std::to_string(i), 3600, 0, callback);
    }
    task->start();
  }
  const int64_t end_of_main_ns = workflow::monotonic_ns();
  last_word.word = [&calls, end_of_main_ns] {
    for (const std::atomic<int>& each : calls) {
      if (each != 1) {
        say("a callback ran " + std::to_string(each) + " times");
      }
    }
    const int64_t took_ns = workflow::monotonic_ns() - end_of_main_ns;
    say(outcomes().text());
    say(workflow::NamedTimerTask::registry().empty() ? "no name left" : "names left");
    say("off handlers: " + std::to_string(outcomes().off_handlers));
    say("took_us=" + std::to_string(took_ns / workflow::kNsPerUs));
    delete &calls;
  };
}

void start_timers_that_start_timers() {
  for (int i = 0; i < 1000; i++) {
    never([](WFTimerTask* task) {
      outcomes().add(task);
      WFTaskFactory::create_timer_task(0, 0, outcomes().callback())->start();
      never(outcomes().callback())->start();
      series_of(task)->push_back(never(outcomes().callback()));
    })->start();
  }
  say_outcomes_at_the_end();
}

void start_series() {
  for (int i = 0; i < 100; i++) {
    SeriesWork* series =
        Workflow::create_series_work(never(outcomes().callback()), [](const SeriesWork*) {
          static std::atomic<int> ended{0};
          if (++ended == 100) {
            say("series ended");
          }
        });
    for (int k = 0; k < 9; k++) {
      series->push_back(never(outcomes().callback()));
    }
    series->start();
  }
  say_outcomes_at_the_end();
}

// After the library has stopped.
void use_the_stopped_library() {
  WFTaskFactory::create_timer_task(0, 0, outcomes().callback())->start();
  WFTaskFactory::create_timer_task(3600, 0, outcomes().callback())->start();
  never(outcomes().callback())->start();
  WFTimerTask* cancelled = never(outcomes().callback());
  if (WFTaskFactory::cancel_by_name("never") != 1) {
    say("the cancel was not counted");
  }
  cancelled->start();
  never(outcomes().callback())->dismiss();
  WFGoTask* go = WFTaskFactory::create_go_task("queue", [] { say("computed"); });
  go->set_callback([](WFGoTask* task) {
    say(task->get_state() == WFT_STATE_ABORTED ? "go task aborted" : "go task not aborted");
  });
  go->start();
  say(workflow::NamedTimerTask::registry().empty() ? "no name left" : "names left");
  say(outcomes().text());
}

void start_from_static_destructor() {
  WFTaskFactory::create_timer_task(0, 0, nullptr)->start();
  last_word.word = use_the_stopped_library;
}

void start_chains_from_static_destructor() {
  WFTaskFactory::create_timer_task(0, 0, nullptr)->start();
  last_word.word = [] {
    constexpr int kLinks = 100'000;
    SeriesWork* series = Workflow::create_series_work(never(outcomes().callback()), nullptr);
    for (int i = 1; i < kLinks; i++) {
      series->push_back(never(outcomes().callback()));
    }
    series->start();
    int left = kLinks;
    timer_callback_t next = [&](WFTimerTask* task) {
      outcomes().add(task);
      if (--left > 0) {
        WFTaskFactory::create_timer_task(0, 0, next)->start();
      }
    };
    WFTaskFactory::create_timer_task(0, 0, next)->start();
    say(outcomes().text());
  };
}

void use_nothing() {
  last_word.word = [] { say("nothing happened"); };
}

// Everything was begun by the static constructor below.
void wait_for_static_constructor() {
  while (outcomes().succeeded < 1) {
    std::this_thread::yield();
  }
}

void exit_on_another_thread() {
  never(outcomes().callback())->start();
  say_outcomes_at_the_end();
  std::thread([] { std::exit(0); }).detach();
  for (;;) {
    ::pause();
  }
}

void exit_in_a_callback() {
  for (int i = 0; i < 100; i++) {
    never(outcomes().callback())->start();
  }
  say_outcomes_at_the_end();
  WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask*) { std::exit(0); })->start();
  for (;;) {
    ::pause();
  }
}

void exit_in_the_only_handler() {
  workflow::Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  exit_in_a_callback();
}

void exit_in_a_go_task() {
  for (int i = 0; i < 100; i++) {
    never(outcomes().callback())->start();
  }
  say_outcomes_at_the_end();
  WFTaskFactory::create_go_task("queue", [] { std::exit(0); })->start();
  for (;;) {
    ::pause();
  }
}

// A thousand callbacks, some of which block until all have begun.
void wait_for_each_other(bool lend) {
  constexpr int kTimers = 1000;
  static test_support::Tally begun;
  for (int i = 0; i < kTimers; i++) {
    never([lend, i](WFTimerTask* task) {
      begun.add();
      if (i % 200 == 0) {
        std::unique_ptr<workflow::BlockingScope> scope;
        if (lend) {
          scope = std::make_unique<workflow::BlockingScope>();
        }
        if (!begun.wait_for(kTimers, std::chrono::seconds(10))) {
          say("the others did not begin");
        }
      }
      outcomes().add(task);
    })->start();
  }
  say_outcomes_at_the_end();
}

void block_telling() {
  workflow::Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  wait_for_each_other(true);
}

void block_untold() {
  workflow::Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  wait_for_each_other(false);
}

void race_through_exit() {
  test_support::TestRandom random(test_support::test_seed());
  const auto race = std::make_shared<race::TimerRace>(race::TimerRace::Options{
      .seed = test_support::test_seed(), .threads = 3, .steps = 200, .stopped_meanwhile = true});
  last_word.word = [race] {
    const std::string problem = race->finish();
    say(problem.empty() ? "all is well" : problem);
  };
  race->start();
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(8000)));
}

struct Scenario {
  const char* name;
  void (*play)();
};

constexpr Scenario kScenarios[] = {
    {"outstanding", start_outstanding_timers},
    {"restart", start_timers_that_start_timers},
    {"series", start_series},
    {"static-destructor", start_from_static_destructor},
    {"chains", start_chains_from_static_destructor},
    {"nothing", use_nothing},
    {"static-constructor", wait_for_static_constructor},
    {"other-thread", exit_on_another_thread},
    {"callback", exit_in_a_callback},
    {"only-handler", exit_in_the_only_handler},
    {"go-task", exit_in_a_go_task},
    {"block-telling", block_telling},
    {"block-untold", block_untold},
    {"race", race_through_exit},
};

std::string_view scenario_name() {
  const char* name = std::getenv(kScenarioVariable);
  return name ? name : "";
}

// Constructed after last_word.
class UsesLibraryEarly {
 public:
  UsesLibraryEarly() {
    if (scenario_name() == "static-constructor") {
      say_outcomes_at_the_end();
      WFTaskFactory::create_timer_task(0, 0, outcomes().callback())->start();
      never(outcomes().callback())->start();
    }
  }
};

const UsesLibraryEarly uses_library_early;

// The test's side -------------------------------------------------------------------------------

std::string play(const char* scenario, const std::string& environment = "UNUSED=") {
  const test_support::ChildResult result = test_support::run_self(
      {std::string(kScenarioVariable) + "=" + scenario, environment}, std::chrono::seconds(100));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

}  // namespace

TEST(ProcessExit, OutstandingTimersAreAbortedOnceAndPromptly) {
  const std::string output = play("outstanding");
  EXPECT_NE(output.find("100000 called: 0 expired, 0 cancelled, 100000 aborted\nno name left\n"),
            std::string::npos)
      << output;
  EXPECT_EQ(output.find("times"), std::string::npos) << output;
  const size_t at = output.find("took_us=");
  ASSERT_NE(at, std::string::npos);
  const int64_t took_us = std::stoll(output.substr(at + 8));
  std::printf("exit with 100,000 timers took %lld us\n", static_cast<long long>(took_us));
  EXPECT_LT(took_us, test_support::kSanitized ? 20'000'000 : 1'000'000);
}

TEST(ProcessExit, AbortedCallbacksRunOnHandlers) {
  const std::string output = play("outstanding");
  EXPECT_NE(output.find("off handlers: 0\n"), std::string::npos) << output;
}

TEST(ProcessExit, TimersStartedByAbortedCallbacksAreAborted) {
  EXPECT_EQ(play("restart"), "4000 called: 0 expired, 0 cancelled, 4000 aborted\n");
}

TEST(ProcessExit, SeriesRunToTheirEnd) {
  EXPECT_EQ(play("series"), "series ended\n1000 called: 0 expired, 0 cancelled, 1000 aborted\n");
}

TEST(ProcessExit, StaticDestructorsMayStillStartTasks) {
  EXPECT_EQ(play("static-destructor"),
            "go task aborted\nno name left\n4 called: 0 expired, 1 cancelled, 3 aborted\n");
}

TEST(ProcessExit, ChainsStartedAfterTheStopUseConstantStack) {
  EXPECT_EQ(play("chains"), "200000 called: 0 expired, 0 cancelled, 200000 aborted\n");
}

TEST(ProcessExit, WithoutAnyUse) {
  EXPECT_EQ(play("nothing"), "nothing happened\n");
}

TEST(ProcessExit, StaticConstructorsMayStartTasks) {
  EXPECT_EQ(play("static-constructor"), "2 called: 1 expired, 0 cancelled, 1 aborted\n");
}

TEST(ProcessExit, ExitMayBeCalledOnAnyApplicationThread) {
  EXPECT_EQ(play("other-thread"), "1 called: 0 expired, 0 cancelled, 1 aborted\n");
}

TEST(ProcessExit, ExitMayBeCalledInACallback) {
  const std::string all_aborted = "100 called: 0 expired, 0 cancelled, 100 aborted\n";
  EXPECT_EQ(play("callback"), all_aborted);
  EXPECT_EQ(play("only-handler"), all_aborted);
  EXPECT_EQ(play("go-task"), all_aborted);
}

TEST(ProcessExit, AbortedCallbacksMayWaitForEachOther) {
  EXPECT_EQ(play("block-telling"), "1000 called: 0 expired, 0 cancelled, 1000 aborted\n");
}

TEST(ProcessExit, AbortedCallbacksMayWaitForEachOtherWithoutTelling) {
  EXPECT_EQ(play("block-untold"), "1000 called: 0 expired, 0 cancelled, 1000 aborted\n");
}

TEST(ProcessExit, InTheMiddleOfARace) {
  const uint64_t first = test_support::test_seed();
  const auto count = static_cast<uint64_t>(test_support::env_number("WORKFLOW_RACE_ROUNDS", 20));
  for (uint64_t seed = first; seed < first + count; seed++) {
    const std::string text = std::to_string(seed);
    const std::string output = play("race", "WORKFLOW_TEST_SEED=" + text);
    ASSERT_NE(output.find("all is well\n"), std::string::npos) << "seed " << text << ": " << output;
  }
}

int main(int argc, char** argv) {
  for (const Scenario& scenario : kScenarios) {
    if (scenario_name() == scenario.name) {
      scenario.play();
      return 0;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

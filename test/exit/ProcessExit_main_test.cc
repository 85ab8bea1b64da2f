#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "factory/TimerTask.h"
#include "kernel/BlockingScope.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/ExitKit.h"
#include "support/OnPoller.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "support/TimerRace.h"
#include "workflow/WFTaskFactory.h"

// What happens when a process ends while tasks are outstanding.

using namespace exit_kit;

namespace {

// The child's side ------------------------------------------------------------------------------

WFTimerTask* never(timer_callback_t callback) {
  return WFTaskFactory::create_timer_task("never", -1, 0, std::move(callback));
}

std::atomic<int> off_handlers{0};  // callbacks on other threads than the handlers

void start_outstanding_timers() {
  constexpr int kTimers = 100'000;
  std::vector<std::atomic<int>>& calls = *new std::vector<std::atomic<int>>(kTimers);
  for (int i = 0; i < kTimers; i++) {
    const auto callback = [&calls, i](WFTimerTask* task) {
      calls[static_cast<size_t>(i)]++;
      off_handlers += workflow::ThreadContext::current().pool == nullptr;
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
  exit_kit::begin_exit([&calls] {
    for (const std::atomic<int>& each : calls) {
      if (each != 1) {
        say("a callback ran " + std::to_string(each) + " times");
      }
    }
    say(outcomes().text());
    say(workflow::NamedTimerTask::registry().empty() ? "no name left" : "names left");
    say("off handlers: " + std::to_string(off_handlers));
    delete &calls;
  });
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
  wait_for_exit();
}

void exit_in_a_callback() {
  for (int i = 0; i < 100; i++) {
    never(outcomes().callback())->start();
  }
  say_outcomes_at_the_end();
  WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask*) { std::exit(0); })->start();
  wait_for_exit();
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
  wait_for_exit();
}

// A thousand callbacks, some of which block until all have begun.
void wait_for_each_other(bool lend) {
  constexpr int kTimers = 1000;
  static test_support::Tally& begun = *new test_support::Tally;
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

// A callback that a poller runs itself is long when the process ends, so that another thread leads
// the poller meanwhile. What the callback starts at last ends on a handler.
void block_on_a_poller(test_support::Tally& begun) {
  test_support::start_on_poller([&begun] {
    test_support::Tally replaced;
    WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { replaced.add(); })->start();
    replaced.wait_for(1);
    test_support::Tally aborted;
    never([&](WFTimerTask*) { aborted.add(); })->start();
    begun.add();
    aborted.wait_for(1);  // by the stop, which ends all timers from then on
    WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask* task) {
      off_handlers += workflow::ThreadContext::current().pool == nullptr;
      outcomes().add(task);
    })->start();
  });
}

void block_on_pollers(void (*exit)()) {
  static test_support::Tally& begun = *new test_support::Tally;
  workflow::Runtime::configure({.poller_threads = 1, .handler_threads = 4});
  last_word.word = [] {
    say(outcomes().text());
    say("off handlers: " + std::to_string(off_handlers));
  };
  for (size_t blocked = 1; blocked <= 2; blocked++) {
    block_on_a_poller(begun);
    begun.wait_for(blocked);
  }
  exit();
}

void block_on_pollers_until_main_returns() {
  block_on_pollers([] {});
}

void block_on_pollers_until_one_exits() {
  block_on_pollers([] {
    test_support::start_on_poller([] { std::exit(0); });
    wait_for_exit();
  });
}

void race_through_exit() {
  test_support::TestRandom random(test_support::test_seed());
  const auto race = std::make_shared<race::TimerRace>(
      0, nullptr, race::TimerRace::Options{.threads = 3, .steps = 200, .exits_meanwhile = true});
  last_word.word = [race] {
    const std::string problem = race->finish();
    say(problem.empty() ? "all is well" : problem);
  };
  race::pause_us(random.below(8000));
}

constexpr exit_kit::Scenario kScenarios[] = {
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
    {"pollers", block_on_pollers_until_main_returns},
    {"pollers-exit", block_on_pollers_until_one_exits},
    {"race", race_through_exit},
};

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

}  // namespace

TEST(ProcessExit, OutstandingTimersAreAbortedOnceAndPromptly) {
  // The timers are an hour away. On a busy machine 100,000 callbacks take longer than they should.
  EXPECT_EQ(exit_kit::play_promptly("outstanding", {}, std::chrono::seconds(20)),
            "100000 called: 100000 aborted\nno name left\noff handlers: 0\n");
}

TEST(ProcessExit, AbortedCallbacksRunOnHandlers) {
  const std::string output = play("outstanding");
  EXPECT_NE(output.find("off handlers: 0\n"), std::string::npos) << output;
}

TEST(ProcessExit, TimersStartedByAbortedCallbacksAreAborted) {
  EXPECT_EQ(play("restart"), "4000 called: 4000 aborted\n");
}

TEST(ProcessExit, SeriesRunToTheirEnd) {
  EXPECT_EQ(play("series"), "series ended\n1000 called: 1000 aborted\n");
}

TEST(ProcessExit, StaticDestructorsMayStillStartTasks) {
  EXPECT_EQ(play("static-destructor"),
            "go task aborted\nno name left\n4 called: 3 aborted, 1 cancelled\n");
}

TEST(ProcessExit, ChainsStartedAfterTheStopUseConstantStack) {
  EXPECT_EQ(play("chains"), "200000 called: 200000 aborted\n");
}

TEST(ProcessExit, WithoutAnyUse) {
  EXPECT_EQ(play("nothing"), "nothing happened\n");
}

TEST(ProcessExit, StaticConstructorsMayStartTasks) {
  EXPECT_EQ(play("static-constructor"), "2 called: 1 succeeded, 1 aborted\n");
}

TEST(ProcessExit, ExitMayBeCalledOnAnyApplicationThread) {
  EXPECT_EQ(play("other-thread"), "1 called: 1 aborted\n");
}

TEST(ProcessExit, ExitMayBeCalledInACallback) {
  const std::string all_aborted = "100 called: 100 aborted\n";
  EXPECT_EQ(play("callback"), all_aborted);
  EXPECT_EQ(play("only-handler"), all_aborted);
  EXPECT_EQ(play("go-task"), all_aborted);
}

TEST(ProcessExit, AbortedCallbacksMayWaitForEachOther) {
  EXPECT_EQ(play("block-telling"), "1000 called: 1000 aborted\n");
}

TEST(ProcessExit, AbortedCallbacksMayWaitForEachOtherWithoutTelling) {
  EXPECT_EQ(play("block-untold"), "1000 called: 1000 aborted\n");
}

TEST(ProcessExit, WaitsForCallbacksOnThreadsThatLedPollers) {
  const std::string both = "2 called: 2 aborted\noff handlers: 0\n";
  EXPECT_EQ(play("pollers"), both);
  EXPECT_EQ(play("pollers-exit"), both);
}

TEST(ProcessExit, InTheMiddleOfARace) {
  const uint64_t first = test_support::test_seed();
  const auto count = static_cast<uint64_t>(test_support::env_number("WORKFLOW_RACE_ROUNDS", 20));
  for (uint64_t seed = first; seed < first + count; seed++) {
    const std::string text = std::to_string(seed);
    const std::string output = play("race", {"WORKFLOW_TEST_SEED=" + text});
    ASSERT_NE(output.find("all is well\n"), std::string::npos) << "seed " << text << ": " << output;
  }
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

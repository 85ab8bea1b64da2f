#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "support/ExitKit.h"
#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

// Coroutines that are suspended when the process ends.

using namespace exit_kit;
using namespace std::chrono_literals;

namespace {

constexpr int kEach = 500;

std::atomic<int> begun{0};
std::atomic<int> aborted{0};
std::atomic<int> destroyed{0};

struct Local {
  Local() { begun++; }
  ~Local() { destroyed++; }
  Local(const Local&) = delete;
  Local& operator=(const Local&) = delete;
};

WFCo<WFEnd> asleep() {
  const Local local;
  const WFEnd end = co_await wf::sleep(1h);
  aborted += end.state == WFT_STATE_ABORTED;
  co_return end;
}
WFCo<> child_asleep() {
  const Local local;
  EXPECT_FALSE(co_await asleep());
}
WFCo<> group_asleep() {
  const Local local;
  auto all = co_await wf::all(asleep(), asleep());
  EXPECT_FALSE(std::get<0>(all));
  // One of these may find that it has lost.
  auto first = co_await wf::any(wf::sleep(1h), wf::sleep(1h));
  EXPECT_LT(first.index, 2u);
}
WFCo<> scope_asleep() {
  const Local local;
  const auto body = [](WFScope& scope) -> WFCo<> {
    scope.start(asleep);
    EXPECT_FALSE(co_await asleep());
  };
  co_await wf::scope(body);
}
WFCo<> line_asleep() {
  const Local local;
  const WFEnd held = co_await wf::hold("exit holds");
  if (held) (void)co_await wf::sleep(1h);
  aborted++;
}

void report() {
  say(std::to_string(aborted) + " aborted");
  say(begun == destroyed ? "all destroyed" : "some left");
}

void leave_them_asleep() {
  for (int i = 0; i < kEach; i++) {
    wf::task(asleep)->start();
    wf::task(child_asleep)->start();
    wf::task(group_asleep)->start();
    wf::task(scope_asleep)->start();
    wf::task(line_asleep)->start();
    SeriesWork* const series = Workflow::create_series_work(wf::task(asleep), nullptr);
    series->push_back(wf::task(asleep));
    series->start();
  }
  begin_exit(report);
}

// Takes no notice of how its waits end.
WFCo<> sleep_for_ever() {
  const Local local;
  for (;;)
    (void)co_await wf::sleep(1h);
}

void leave_one_that_never_ends() {
  wf::task(sleep_for_ever)->start();
  begin_exit(report);
}

std::atomic<bool> computes{false};
std::atomic<bool> was_left{false};
std::atomic<int> timed_out{0};
test_support::Tally& called_back = *new test_support::Tally;

struct Lent {
  Lent() { begun++; }
  ~Lent() {
    was_left = was_left || computes;
    destroyed++;
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  int value = 0;
};

// Waits for a function that runs on after the end of its scope.
WFCo<> lend() {
  Lent lent;
  const auto compute = [&lent] {
    computes = true;
    WFScope::current().cancel(ETIMEDOUT);
    std::this_thread::sleep_for(20ms);  // the exit begins meanwhile
    lent.value++;
    computes = false;
  };
  WFGoTask* const task = WFTaskFactory::create_go_task("queue", compute);
  task->set_callback([](WFGoTask*) { called_back.add(); });
  const WFEnd end = co_await task;
  timed_out += end.error == ETIMEDOUT && lent.value == 1;
}

void leave_a_function_that_runs() {
  WFTaskFactory::create_scope_task(wf::task(lend), nullptr)->start();
  EXPECT_TRUE(called_back.wait_for(1));
  begin_exit([] {
    say(std::to_string(timed_out) + " timed out");
    say(was_left ? "left" : "waited for");
    say(begun == destroyed ? "all destroyed" : "some left");
  });
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"asleep", leave_them_asleep},
    {"for ever", leave_one_that_never_ends},
    {"lends", leave_a_function_that_runs},
};

}  // namespace

TEST(CoroutineExit, WhatSleepsIsToldAndItsFramesAreGone) {
  // asleep, a child, two and two of a group, two of a scope, one in line, two in a series.
  EXPECT_EQ(play_promptly("asleep"), std::to_string(kEach * 9) + " aborted\nall destroyed\n");
}

TEST(CoroutineExit, OneThatTakesNoNoticeIsDestroyed) {
  EXPECT_EQ(play_promptly("for ever"), "0 aborted\nall destroyed\n");
}

TEST(CoroutineExit, AFunctionReturnsBeforeTheFrameThatItUsesIsGone) {
  EXPECT_EQ(play_promptly("lends"), "1 timed out\nwaited for\nall destroyed\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

// Waits for ever, which run() reports with who waits for whom.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "workflow/WFFacilities.h"
#include "workflow/WFFuture.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

constexpr uint64_t kDeadlockSeeds = 100;

bool has(const WFSimulationResult& result, const std::string& text) {
  return result.description.find(text) != std::string::npos;
}

WFTimerTask* timer(const std::string& name, WFTimer::Callback callback) {
  return WFTimer::create(std::chrono::seconds(1), {name}, std::move(callback));
}

// The number of the thread that is in the callback of that timer, as the description says it.
std::string thread_in(const WFSimulationResult& result, const std::string& name) {
  const std::string callback = ", in the callback of timer \"" + name + "\"";
  const size_t end = result.description.find(callback);
  const size_t begin = end == std::string::npos ? end : result.description.rfind("  ", end);
  if (begin == std::string::npos) {
    ADD_FAILURE() << "nobody is in that callback: " << result.description;
    return "";
  }
  return result.description.substr(begin + 2, end - begin - 2);
}

}  // namespace

TEST(SimulatedDeadlock, TwoCallbacksThatWaitForEachOther) {
  for (uint64_t seed = 1; seed <= kDeadlockSeeds; seed++) {
    WFSimulation simulation(seed);
    WFFacilities::WaitGroup both(2);
    WFTimerHandle handles[2];
    const auto wait_for = [&](int other) {
      return [&, other](WFTimerTask*) {
        both.done();
        both.wait();  // or the first would cancel the second
        handles[other].cancel_and_wait();
      };
    };
    WFTimerTask* tasks[] = {timer("first", wait_for(1)), timer("second", wait_for(0))};
    for (int i = 0; i < 2; i++) {
      handles[i] = WFTimer::handle_of(tasks[i]);
      tasks[i]->start();
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_EQ(result.outcome, WFSimulationResult::DEADLOCK) << "seed " << seed;
    const std::string first = thread_in(result, "first");
    const std::string second = thread_in(result, "second");
    EXPECT_NE(first, second);
    EXPECT_TRUE(has(result, first +
                                ", in the callback of timer \"first\", waits in cancel_and_wait() "
                                "for timer \"second\", which " +
                                second + " runs\n"))
        << result.description;
    EXPECT_TRUE(has(result, second +
                                ", in the callback of timer \"second\", waits in cancel_and_wait() "
                                "for timer \"first\", which " +
                                first + " runs\n"))
        << result.description;
    EXPECT_TRUE(has(result, "simulation of seed " + std::to_string(seed) + ": deadlock in run()"));
    // It cannot be stopped either, and says the same.
    const WFSimulationResult stopped = simulation.stop();
    EXPECT_EQ(stopped.outcome, WFSimulationResult::DEADLOCK);
    EXPECT_EQ(thread_in(stopped, "first"), first);
  }
}

TEST(SimulatedDeadlock, ACallbackThatWaitsForATimerBehindItself) {
  WFSimulation simulation(1);
  WFTimerHandle handle;
  WFTimerTask* first = timer("first", [&](WFTimerTask*) { handle.cancel_and_wait(); });
  WFTimerTask* second = WFTimer::create(std::chrono::seconds(1), nullptr);
  SeriesWork* series = Workflow::create_series_work(first, nullptr);
  series->push_back(second);
  handle = WFTimer::handle_of(second);
  series->start();
  const WFSimulationResult result = simulation.run();
  EXPECT_EQ(result.outcome, WFSimulationResult::DEADLOCK);
  EXPECT_TRUE(has(result,
                  ", in the callback of timer \"first\", waits in cancel_and_wait() for a timer "
                  "without a name"))
      << result.description;
  EXPECT_TRUE(has(result, "which was not started\n")) << result.description;
}

TEST(SimulatedDeadlock, ATickThatWaitsForAGroup) {
  WFSimulation simulation(3);
  WFFacilities::WaitGroup never(1);
  WFTimerPeriod period;
  period.every = std::chrono::seconds(1);
  WFTimerOptions options;
  options.name = "sensor";
  options.tag = 7;
  WFTimerTask* task = WFTimer::create_periodic(
      period, options, [&](const WFTimerTick&) { never.wait(); }, nullptr);
  task->start();
  const WFSimulationResult result = simulation.run();
  EXPECT_EQ(result.outcome, WFSimulationResult::DEADLOCK);
  EXPECT_TRUE(has(result, ", in a tick of timer \"sensor\" (tag 7), waits in WaitGroup::wait()\n"))
      << result.description;
  // The caller may help, and go on.
  never.done();
  simulation.run_for(std::chrono::seconds(2));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("sensor"), 1);
  const WFSimulationResult after = simulation.run();
  EXPECT_TRUE(after.ok()) << after.description;
}

TEST(SimulatedDeadlock, FuturesThatNobodyKeeps) {
  WFSimulation simulation(4);
  WFPromise<int> promise;
  WFTaskFactory::create_go_task("queue", [&] { promise.get_future().get(); })->start();
  WFSimulationResult result = simulation.run();
  EXPECT_EQ(result.outcome, WFSimulationResult::DEADLOCK);
  EXPECT_TRUE(has(result, " waits in a wait of WFFuture\n")) << result.description;
  promise.set_value(1);
  result = simulation.run();
  EXPECT_TRUE(result.ok()) << result.description;
}

// It passes by itself.
TEST(SimulatedDeadlock, IsNoneThatATimeoutEnds) {
  WFSimulation simulation(5);
  WFFacilities::WaitGroup never(1);
  std::future_status status = std::future_status::ready;
  timer("first", [&](WFTimerTask*) { status = never.wait_for(std::chrono::hours(1)); })->start();
  WFSimulationResult result = simulation.run_for(std::chrono::minutes(1));
  EXPECT_TRUE(result.ok()) << result.description;
  result = simulation.run();
  EXPECT_TRUE(result.ok()) << result.description;
  EXPECT_EQ(status, std::future_status::timeout);
}

// The report also says in what a spawned thread waits.
TEST(SimulatedDeadlock, OfAThreadOfTheTest) {
  WFSimulation simulation(6);
  WFFacilities::WaitGroup group(1);
  simulation.spawn([&] { group.wait(); });
  WFSimulationResult result = simulation.run();
  EXPECT_EQ(result.outcome, WFSimulationResult::DEADLOCK);
  EXPECT_TRUE(has(result, "(application) waits in WaitGroup::wait()\n")) << result.description;
  group.done();
  result = simulation.run();
  EXPECT_TRUE(result.ok()) << result.description;
}

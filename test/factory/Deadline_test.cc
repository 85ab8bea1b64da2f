// Deadlines over timers and what is made of them; the time is moved by hand.

#include <gtest/gtest.h>

#include <chrono>

#include "DeadlineProbes.h"
#include "workflow/WFGraphTask.h"

using Deadline = probes::DeadlineTest;
using probes::LogTask;
using std::chrono::milliseconds;

TEST_F(Deadline, EndsTheTaskThatWaits) {
  start(limited(timer("a", 1000), 10));
  pass(9);
  EXPECT_EQ(text(), "");
  pass(1);
  EXPECT_EQ(text(), "a!D!");
  EXPECT_TRUE(series_ended());
}

TEST_F(Deadline, LeavesAloneWhatEndsInTime) {
  start(limited(timer("a", 5), 10));
  pass(5);
  EXPECT_EQ(text(), "a+D+");
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline()) << "the deadline is still outstanding";
}

TEST_F(Deadline, TellsTheRestWithoutWaiting) {
  WFDeadlineTask* task = limited(timer("a", 4), 10);
  *task->sub_series() << timer("b", 20) << new LogTask(&log_, "c") << timer("d", 20)
                      << timer("e", 0);
  start(task);
  pass(10);
  EXPECT_EQ(text(), "a+b!cd!e!D!");
}

TEST_F(Deadline, CountsFromItsOwnStart) {
  SeriesWork* series = Workflow::create_series_work(timer("a", 100), nullptr);
  *series << limited(timer("b", 9), 10) << limited(timer("c", 11), 10);
  series->start();
  pass(200);
  EXPECT_EQ(text(), "a+b+D+c!D!");
}

TEST_F(Deadline, StartedAlone) {
  limited(timer("a", 1000), 10)->start();
  pass(10);
  EXPECT_EQ(text(), "a!D!");
}

TEST_F(Deadline, OfASeries) {
  SeriesWork* inside =
      Workflow::create_series_work(timer("a", 5), [this](const SeriesWork*) { log_.add("s"); });
  *inside << timer("b", 50);
  start(with_deadline(inside, milliseconds(10), noting<WFDeadlineTask>("D")));
  pass(10);
  EXPECT_EQ(text(), "a+b!sD!");
}

// Under a clock that is moved by hand, points of time are its own.
TEST_F(Deadline, AtAPointOfTime) {
  using Time = std::chrono::steady_clock::time_point;
  SeriesWork* series = Workflow::create_series_work(timer("a", 5000), nullptr);
  *series << with_deadline(timer("b", 3'600'000), Time(milliseconds(60'000)),
                           noting<WFDeadlineTask>("D"))
          << with_deadline(timer("c", 1), Time(milliseconds(1000)), noting<WFDeadlineTask>("E"))
          << with_deadline(timer("d", 1), Time::max(), noting<WFDeadlineTask>("F"));
  series->start();
  pass(59'999);
  EXPECT_EQ(text(), "a+");
  pass(2);
  EXPECT_EQ(text(), "a+b!D!c!E!d+F+");
}

// The clock of the last deadline counts, also if that one has been removed.
TEST_F(Deadline, ADelayGoesByTheClockOfTheLastDeadline) {
  WFScopeTask* task = WFTaskFactory::create_deadline_task(
      timer("a", 100'000), WFTimerDue(std::chrono::hours(1), WF_CLOCK_WALL),
      noting<WFScopeTask>("D"));
  const WFScope scope = task->scope();
  start(task);
  EXPECT_TRUE(scope.set_deadline(WFTimerDue(milliseconds(-1), WF_CLOCK_MONOTONIC)));
  EXPECT_TRUE(scope.set_deadline(milliseconds(5)));
  WFManualClock::set_wall(std::chrono::system_clock::time_point(std::chrono::seconds(0)));
  pass(5);
  EXPECT_EQ(text(), "a!D!");
}

TEST_F(Deadline, OfNoTimeLetsNothingWait) {
  start(limited(timer("a", 0), 0));
  pass(0);
  EXPECT_EQ(text(), "a!D!");
}

TEST_F(Deadline, NegativeIsNone) {
  start(limited(timer("a", 1'000'000), -1));
  pass(999'999);
  EXPECT_EQ(text(), "");
  pass(1);
  EXPECT_EQ(text(), "a+D+");
}

TEST_F(Deadline, ReachesParallelsModulesAndGraphs) {
  ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
  for (int i = 0; i < 3; i++) {
    SeriesWork* branch = Workflow::create_series_work(timer("a", 1000), nullptr);
    *branch << timer("b", 1000);
    parallel->add_series(branch);
  }
  start(limited(parallel, 10));
  pass(10);
  EXPECT_EQ(log_.sorted(), "!!!!!!!Daaabbb");

  log_.clear();
  WFModuleTask* module = WFTaskFactory::create_module_task(timer("m", 1000), nullptr);
  start(limited(module, 10));
  pass(10);
  EXPECT_EQ(text(), "m!D!");

  log_.clear();
  WFGraphTask* graph = WFTaskFactory::create_graph_task(noting<WFGraphTask>("g"));
  WFGraphNode& first = graph->create_graph_node(timer("h", 1000));
  WFGraphNode& second = graph->create_graph_node(timer("i", 1000));
  first-- > second;
  start(limited(graph, 10));
  pass(10);
  EXPECT_EQ(text(), "h!i!g+D!");
}

TEST_F(Deadline, OfManyTimersEndsAll) {
  constexpr int kTimers = 1000;
  ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
  for (int i = 0; i < kTimers; i++) {
    parallel->add_series(Workflow::create_series_work(timer("", i < 10 ? 5 : 1000), nullptr));
  }
  start(limited(parallel, 10));
  pass(10);
  EXPECT_EQ(text(), std::string(10, '+') + std::string(kTimers - 10, '!') + "D!");
}

TEST_F(Deadline, TheOuterOneEndsWhatIsInTheInnerOne) {
  WFDeadlineTask* inner = limited(timer("a", 1000), 500, "I");
  WFDeadlineTask* outer = limited(inner, 10, "O");
  *outer->sub_series() << timer("b", 1000);
  start(outer);
  pass(10);
  EXPECT_EQ(text(), "a!I!b!O!");
}

TEST_F(Deadline, TheInnerOneLeavesTheOuterOneItsTime) {
  WFDeadlineTask* outer = limited(limited(timer("a", 1000), 10, "I"), 500, "O");
  *outer->sub_series() << timer("b", 400) << limited(timer("c", 1000), 1000, "J");
  start(outer);
  pass(500);
  EXPECT_EQ(text(), "a!I!b+c!J!O!");
}

TEST_F(Deadline, StartedInOneThatHasPassed) {
  WFDeadlineTask* outer = limited(timer("a", 1000), 10, "O");
  *outer->sub_series() << limited(timer("b", 1), 500, "I");
  start(outer);
  pass(10);
  EXPECT_EQ(text(), "a!b!I!O!");
}

TEST_F(Deadline, EndsARepeater) {
  int created = 0;
  WFRepeaterTask* repeater = WFTaskFactory::create_repeater_task(
      [&](WFRepeaterTask*) {
        created++;
        return timer("t", 4);
      },
      noting<WFRepeaterTask>("r"));
  start(limited(repeater, 10));
  pass(10);
  EXPECT_EQ(text(), "t+t+t!r!D!");
  EXPECT_EQ(created, 3);
}

// Such a task cancels its series when it ends, so the repeater does not go on after it.
TEST_F(Deadline, EndsARepeaterWhoseTaskWaitsForASignal) {
  int error = 0;
  WFRepeaterTask* repeater = WFTaskFactory::create_repeater_task(
      [](WFRepeaterTask*) {
        return WFTaskFactory::create_conditional("Deadline repeater",
                                                 WFTaskFactory::create_empty_task());
      },
      [&error](WFRepeaterTask* task) { error = task->get_error(); });
  start(limited(repeater, 10));
  pass(10);
  EXPECT_EQ(error, ETIMEDOUT);
}

TEST_F(Deadline, OfAnEmptyTaskIsInTime) {
  start(limited(new LogTask(&log_, "a"), 10));
  pass(0);
  EXPECT_EQ(text(), "aD+");
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
}

TEST_F(Deadline, IsTheNamesBusinessUntilItPasses) {
  WFTimerTask* named = WFTimer::create(milliseconds(1000), {"Deadline"}, noting<WFTimerTask>("n"));
  start(limited(named, 10));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("Deadline"), 1);
  pass(0);
  EXPECT_EQ(text(), "n-D+");
}

TEST_F(Deadline, TakesTheNameAndTheHandleTellsTheTruth) {
  WFTimerTask* named = WFTimer::create(milliseconds(1000), {"Deadline"}, noting<WFTimerTask>("n"));
  const WFTimerHandle handle = WFTimer::handle_of(named);
  start(limited(named, 10));
  pass(10);
  EXPECT_EQ(text(), "n!D!");
  EXPECT_EQ(WFTimer::count("Deadline"), 0u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("Deadline"), 0);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
}

TEST_F(Deadline, CancelledBeforeItsStartStaysCancelled) {
  WFTimerTask* later = timer("b", 1000);
  const WFTimerHandle handle = WFTimer::handle_of(later);
  WFDeadlineTask* task = limited(timer("a", 1000), 10);
  *task->sub_series() << later;
  start(task);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  pass(10);
  EXPECT_EQ(text(), "a!b-D!");
}

TEST_F(Deadline, RescheduledTimersStillEnd) {
  WFTimerTask* inside = timer("a", 5);
  const WFTimerHandle handle = WFTimer::handle_of(inside);
  start(limited(inside, 10));
  EXPECT_EQ(handle.reschedule(milliseconds(100)), WFTimerMove::kWon);
  pass(10);
  EXPECT_EQ(text(), "a!D!");
}

TEST_F(Deadline, EndsPeriodicTimers) {
  WFTimerPeriod period;
  period.every = milliseconds(4);
  WFTimerTask* ticking = WFTimer::create_periodic(
      period, WFTimerOptions(), [this](const WFTimerTick&) { log_.add("."); },
      noting<WFTimerTask>("p"));
  const WFTimerHandle handle = WFTimer::handle_of(ticking);
  start(limited(ticking, 10));
  pass(10);
  EXPECT_EQ(text(), "..p!D!");
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
}

TEST_F(Deadline, ExtendedFromInside) {
  WFDeadlineTask* task = limited(timer("a", 5), 10);
  *task->sub_series() << new LogTask(&log_, "b", [this](LogTask* self) {
    *series_of(self) << timer("c", 100) << timer("d", 100);
  });
  start(task);
  pass(10);
  EXPECT_EQ(text(), "a+bc!d!D!");
}

TEST_F(Deadline, OfACancelledInsideDropsTheRest) {
  WFDeadlineTask* task = limited(timer("a", 1000), 10);
  *task->sub_series() << timer("b", 1000);
  SeriesWork* inside = task->sub_series();
  start(task);
  inside->cancel();
  pass(10);
  EXPECT_EQ(text(), "a!D!");
}

TEST_F(Deadline, DismissedFreesItsInside) {
  WFDeadlineTask* task = limited(new LogTask(&log_, "a"), 10);
  *task->sub_series() << limited(new LogTask(&log_, "b"), 10);
  EXPECT_EQ(LogTask::alive(), 2);
  task->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(text(), "");
}

TEST_F(Deadline, DroppedWithItsSeries) {
  SeriesWork* series = Workflow::create_series_work(timer("a", 1), nullptr);
  *series << limited(new LogTask(&log_, "b"), 10);
  series->cancel();
  series->start();
  pass(10);
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(text(), "");
}

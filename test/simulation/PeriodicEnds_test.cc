// What ends a periodic timer, against its ticks: under every interleaving that many seeds find.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>

#include "ScopedSeries.h"
#include "factory/TimerTask.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::nanoseconds;

constexpr uint64_t kPeriodicEndsSeeds = 400;
constexpr int64_t kPeriodNs = 100;

struct PeriodicOutcome {
  int callbacks = 0;
  int state = WFT_STATE_UNDEFINED;
  int error = 0;
};

WFTimerTask* create(const char* name, bool overlap, PeriodicOutcome& outcome,
                    std::function<void(const WFTimerTick&)> tick) {
  WFTimerPeriod period;
  period.every = nanoseconds(kPeriodNs);
  period.overlap = overlap;
  WFTimerOptions options;
  if (*name) {
    options.name = name;
  }
  return WFTimer::create_periodic(period, options, std::move(tick), [&outcome](WFTimerTask* task) {
    outcome.callbacks++;
    outcome.state = task->get_state();
    outcome.error = task->get_error();
  });
}

void expect_ended(const PeriodicOutcome& outcome, int state, int error) {
  EXPECT_EQ(outcome.callbacks, 1);
  EXPECT_EQ(outcome.state, state);
  EXPECT_EQ(outcome.error, error);
}

void run(WFSimulation& simulation) {
  const WFSimulationResult result = simulation.run();
  EXPECT_TRUE(result.ok()) << result.description;
}

}  // namespace

// With one handler, mostly, the second tick waits for its turn until the first has returned.
// Virtual time does not pass while anything can run: what a thread was about to do when the timer
// ended, it does at that time.
TEST(PeriodicEnds, ATickThatWaitsForItsTurnWhenItsTimerIsCancelledDoesNotBegin) {
  for (const char* name : {"a", ""}) {
    for_each_seed(kPeriodicEndsSeeds, [name](uint64_t seed) {
      WFSimulationOptions options;
      options.handler_threads = 1;
      WFSimulation simulation(seed, options);
      PeriodicOutcome outcome;
      int64_t ended_ns = INT64_MAX;
      WFTimerTask* task = create(name, true, outcome, [&](const WFTimerTick&) {
        EXPECT_LE(simulation.now_ns(), ended_ns);
        simulation.sleep_for(150);
      });
      const WFTimerHandle handle = WFTimer::handle_of(task);
      task->start();
      simulation.spawn([&] {
        simulation.sleep_for(220);
        EXPECT_EQ(
            *name ? WFTaskFactory::cancel_by_name(name) : handle.cancel() == WFTimerCancel::kWon,
            1);
        ended_ns = simulation.now_ns();
      });
      run(simulation);
      expect_ended(outcome, WFT_STATE_SYS_ERROR, ECANCELED);
    });
  }
}

TEST(PeriodicEnds, ATickThatWaitsForItsTurnWhenOneEndsTheTimerDoesNotBegin) {
  for (const char* name : {"a", ""}) {
    for_each_seed(kPeriodicEndsSeeds, [name](uint64_t seed) {
      WFSimulationOptions options;
      options.handler_threads = 1;
      WFSimulation simulation(seed, options);
      PeriodicOutcome outcome;
      int64_t ended_ns = INT64_MAX;
      create(name, true, outcome, [&](const WFTimerTick& tick) {
        EXPECT_LE(simulation.now_ns(), ended_ns);
        simulation.sleep_for(350);
        tick.end();
        ended_ns = std::min(ended_ns, simulation.now_ns());
      })->start();
      run(simulation);
      expect_ended(outcome, WFT_STATE_SUCCESS, 0);
    });
  }
}

TEST(PeriodicEnds, AScopeThatEndedBeforeTheEndByATickDecides) {
  for (const char* name : {"a", ""}) {
    for (const bool overlap : {false, true}) {
      for_each_seed(kPeriodicEndsSeeds, [name, overlap](uint64_t seed) {
        WFSimulation simulation(seed);
        PeriodicOutcome outcome;
        workflow::Ref<workflow::DeadlineScope> scope;
        WFTimerTask* task = create(name, overlap, outcome, [&](const WFTimerTick& tick) {
          if (tick.number == 0) {
            scope->cancel(ETIMEDOUT);
            tick.end();
          }
        });
        auto* const series = new ScopedSeries(task);
        scope = series->scope();
        series->start();
        run(simulation);
        expect_ended(outcome, WFT_STATE_SYS_ERROR, ETIMEDOUT);
      });
    }
  }
}

TEST(PeriodicEnds, TheEndByATickMeetsTheStopAndACancel) {
  for_each_seed(kPeriodicEndsSeeds, [](uint64_t seed) {
    for (const char* name : {"a", ""}) {
      for (const bool overlap : {false, true}) {
        WFSimulation simulation(seed);
        PeriodicOutcome outcome;
        bool won = false;
        WFTimerTask* task = create(name, overlap, outcome, [&](const WFTimerTick& tick) {
          EXPECT_EQ(outcome.callbacks, 0);
          if (seed % 2) {
            simulation.sleep_for(120);
          }
          tick.end();
        });
        const WFTimerHandle handle = WFTimer::handle_of(task);
        auto* const series = new ScopedSeries(task);
        series->start();
        simulation.spawn([&] {
          simulation.sleep_for(seed % 3 * 60 + 100);
          won = handle.cancel() == WFTimerCancel::kWon;
        });
        if (seed % 5 < 3) {
          simulation.run_for(seed % 5 * 100 + 100);
        }
        const WFSimulationResult result = simulation.stop();
        ASSERT_TRUE(result.ok()) << result.description;
        EXPECT_EQ(outcome.callbacks, 1);
        EXPECT_EQ(won, outcome.error == ECANCELED);
        EXPECT_TRUE(won || outcome.state == WFT_STATE_SUCCESS ||
                    outcome.state == WFT_STATE_ABORTED);
        EXPECT_TRUE(workflow::NamedTimerTask::registry().empty());
      }
    }
  });
}

// A tick that ends its timer takes the name first, and then the timer from its queue.
TEST(PeriodicEnds, NoMoveByHandleSucceedsAfterACancelWasTooLate) {
  size_t late = 0;
  for (const char* name : {"a", ""}) {
    for (const bool overlap : {false, true}) {
      for_each_seed(kPeriodicEndsSeeds, [&late, name, overlap](uint64_t seed) {
        WFSimulation simulation(seed);
        PeriodicOutcome outcome;
        WFTimerTask* task =
            create(name, overlap, outcome, [](const WFTimerTick& tick) { tick.end(); });
        const WFTimerHandle handle = WFTimer::handle_of(task);
        task->start();
        simulation.spawn([&] {
          simulation.sleep_for(kPeriodNs);
          if (handle.cancel() == WFTimerCancel::kTooLate) {
            late++;
            EXPECT_NE(handle.reschedule(nanoseconds(kPeriodNs)), WFTimerMove::kWon);
          }
        });
        run(simulation);
        EXPECT_EQ(outcome.callbacks, 1);
      });
    }
  }
  EXPECT_GT(late, 0u);
}

TEST(PeriodicEnds, WhoHasWaitedForADroppedOneMayUseItsNameAgain) {
  for_each_seed(kPeriodicEndsSeeds, [](uint64_t seed) {
    WFSimulation simulation(seed);
    PeriodicOutcome outcome;
    WFTimerTask* task = create("a", false, outcome, [](const WFTimerTick&) {});
    const WFTimerHandle handle = WFTimer::handle_of(task);
    simulation.spawn([&] {
      handle.cancel_and_wait();
      EXPECT_EQ(WFTimer::count("a"), 0u);
    });
    simulation.spawn([task] { task->dismiss(); });
    run(simulation);
    EXPECT_EQ(outcome.callbacks, 0);
  });
}

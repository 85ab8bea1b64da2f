#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ManualTime.h"
#include "support/Sanitizers.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFCron.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/Workflow.h"

using probes::advance;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::TimerOutcomes;

namespace {

WFTimerPeriod every(nanoseconds duration, WFTimerPace pace = WF_TIMER_SKIP) {
  WFTimerPeriod period;
  period.every = duration;
  period.pace = pace;
  return period;
}

WFTimerOptions named(const std::string& name) {
  WFTimerOptions options;
  options.name = name;
  return options;
}

// What ticks saw. Outlives the timers.
class Ticks {
 public:
  struct Seen {
    int64_t at_ns;
    uint64_t number;
    uint64_t missed;
    nanoseconds late;
  };

  WFTimer::Tick record(std::function<void(const WFTimerTick&)> more = nullptr) {
    return [this, more = std::move(more)](const WFTimerTick& tick) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        seen_.push_back({WFManualClock::now_ns() - begin_ns_, tick.number, tick.missed, tick.late});
      }
      if (more) {
        more(tick);
      }
    };
  }

  std::vector<Seen> all() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }
  size_t size() const { return all().size(); }
  std::vector<int64_t> seconds_seen() const {
    std::vector<int64_t> result;
    for (const Seen& tick : all()) {
      EXPECT_EQ(tick.at_ns % 1'000'000'000, 0);
      result.push_back(tick.at_ns / 1'000'000'000);
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  const int64_t begin_ns_ = WFManualClock::now_ns();
};

class PeriodicTimer : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(WFManualClock::install(), 0); }

  // Ended by its handle when the test is over.
  WFTimerHandle start(const WFTimerPeriod& period, WFTimer::Tick tick,
                      const WFTimerOptions& options = {}) {
    WFTimerTask* task =
        WFTimer::create_periodic(period, options, std::move(tick), outcomes_.callback());
    handles_.push_back(WFTimer::handle_of(task));
    task->start();
    return handles_.back();
  }

  void TearDown() override {
    for (const WFTimerHandle& handle : handles_) {
      handle.cancel_and_wait();
    }
    EXPECT_TRUE(outcomes_.wait_for(handles_.size()));
  }

  void expect_ended(int state, int error) {
    EXPECT_TRUE(outcomes_.wait_for(1));
    EXPECT_EQ(outcomes_.size(), 1u);
    EXPECT_EQ(outcomes_.count(state, error), 1u);
  }

  TimerOutcomes outcomes_;
  Ticks ticks_;

 private:
  std::vector<WFTimerHandle> handles_;
};

}  // namespace

TEST_F(PeriodicTimer, TicksAtEachMultipleOfItsPeriod) {
  start(every(seconds(10)), ticks_.record());
  advance(seconds(35));
  EXPECT_EQ(ticks_.seconds_seen(), (std::vector<int64_t>{10, 20, 30}));
  const auto seen = ticks_.all();
  for (size_t i = 0; i < seen.size(); i++) {
    EXPECT_EQ(seen[i].number, i);
    EXPECT_EQ(seen[i].missed, 0u);
    EXPECT_EQ(seen[i].late, nanoseconds(0));
  }
  EXPECT_EQ(outcomes_.size(), 0u);
}

TEST_F(PeriodicTimer, TheFirstTickMayBeAtAnotherTime) {
  WFTimerPeriod period = every(seconds(10));
  period.first = seconds(0);
  start(period, ticks_.record());
  advance(seconds(25));
  EXPECT_EQ(ticks_.seconds_seen(), (std::vector<int64_t>{0, 10, 20}));
}

TEST_F(PeriodicTimer, DoesNotDrift) {
  const int64_t periods = test_support::kSanitized ? 2'000 : 10'000;
  std::atomic<int64_t> ticks{0};
  std::atomic<int64_t> late{0};
  const nanoseconds period(333'333'333);
  const int64_t begin_ns = WFManualClock::now_ns();
  std::atomic<int64_t> last_ns{0};
  start(every(period), [&](const WFTimerTick& tick) {
    ticks++;
    late += tick.late.count();
    last_ns = WFManualClock::now_ns();
  });
  advance(period * periods);
  EXPECT_EQ(ticks, periods);
  EXPECT_EQ(late, 0);
  EXPECT_EQ(last_ns - begin_ns, (period * periods).count());
}

TEST_F(PeriodicTimer, CancelledByItsHandleItTicksNoMore) {
  const WFTimerHandle handle = start(every(seconds(1)), ticks_.record());
  advance(seconds(2));
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  expect_ended(WFT_STATE_SYS_ERROR, ECANCELED);
  EXPECT_NE(handle.cancel(), WFTimerCancel::kWon);
  advance(seconds(5));
  EXPECT_EQ(ticks_.size(), 2u);
}

TEST_F(PeriodicTimer, CancelledByItsNameItTicksNoMore) {
  start(every(seconds(1)), ticks_.record(), named("tick"));
  advance(seconds(2));
  EXPECT_EQ(WFTimer::count("tick"), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("tick"), 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("tick"), 0);
  expect_ended(WFT_STATE_SYS_ERROR, ECANCELED);
  advance(seconds(5));
  EXPECT_EQ(ticks_.size(), 2u);
}

TEST_F(PeriodicTimer, CancelledInsideATickItEndsWithThatTick) {
  for (const bool by_name : {false, true}) {
    WFTimerHandle handle;
    Ticks ticks;
    TimerOutcomes outcomes;
    WFTimerTask* task = WFTimer::create_periodic(
        every(seconds(1)), named("inside"), ticks.record([&](const WFTimerTick& tick) {
          if (tick.number == 2) {
            if (by_name) {
              EXPECT_EQ(WFTaskFactory::cancel_by_name("inside"), 1);
            } else {
              EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
              EXPECT_NE(handle.cancel(), WFTimerCancel::kWon);
            }
            EXPECT_EQ(outcomes.size(), 0u);
          }
        }),
        outcomes.callback());
    handle = WFTimer::handle_of(task);
    task->start();
    advance(seconds(9));
    EXPECT_TRUE(outcomes.wait_for(1));
    EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
    EXPECT_EQ(ticks.size(), 3u);
    EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kDone);
  }
}

TEST_F(PeriodicTimer, ATickCannotWaitForItsOwnTimer) {
  WFTimerHandle handle;
  WFTimerCancel answer = WFTimerCancel::kWon;
  handle = start(every(seconds(1)), [&](const WFTimerTick&) { answer = handle.cancel_and_wait(); });
  advance(seconds(1));
  expect_ended(WFT_STATE_SYS_ERROR, ECANCELED);
  EXPECT_EQ(answer, WFTimerCancel::kWouldDeadlock);
}

TEST_F(PeriodicTimer, ATickMayEndIt) {
  for (const WFTimerOptions& options : {WFTimerOptions(), named("ends")}) {
    Ticks ticks;
    TimerOutcomes outcomes;
    WFTimer::create_periodic(every(seconds(1)), options, ticks.record([](const WFTimerTick& tick) {
      if (tick.number == 1) {
        tick.end();
        tick.end();
      }
    }),
                             outcomes.callback())
        ->start();
    advance(seconds(9));
    EXPECT_TRUE(outcomes.wait_for(1));
    EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 1u);
    EXPECT_EQ(ticks.size(), 2u);
  }
}

TEST_F(PeriodicTimer, WhatCameFirstInATickDecides) {
  WFTimerHandle handle;
  handle = start(every(seconds(1)), [&](const WFTimerTick& tick) {
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
    tick.end();
  });
  advance(seconds(1));
  expect_ended(WFT_STATE_SYS_ERROR, ECANCELED);
}

TEST_F(PeriodicTimer, IsOutstandingWhileItTicks) {
  start(every(seconds(1)), ticks_.record([](const WFTimerTick&) {
    EXPECT_EQ(WFTimer::count("seen"), 1u);
    EXPECT_EQ(WFTimer::list("seen", 2).at(0).stage, WFTimerStage::kTicking);
  }),
        named("seen"));
  advance(seconds(1));
  EXPECT_EQ(ticks_.size(), 1u);
  EXPECT_EQ(WFTimer::list("seen", 2).at(0).stage, WFTimerStage::kWaiting);
  EXPECT_EQ(WFTimer::list("seen", 2).at(0).remaining, seconds(1));
}

TEST_F(PeriodicTimer, ReschedulingMovesTheNextTickAndThoseAfterIt) {
  const WFTimerHandle handle = start(every(seconds(10)), ticks_.record());
  advance(seconds(12));
  EXPECT_EQ(handle.reschedule(seconds(3)), WFTimerMove::kWon);
  EXPECT_EQ(handle.remaining(), seconds(3));
  advance(seconds(20));
  EXPECT_EQ(ticks_.seconds_seen(), (std::vector<int64_t>{10, 15, 25}));
  EXPECT_EQ(handle.reschedule(seconds(100)), WFTimerMove::kWon);
  advance(seconds(110));
  EXPECT_EQ(ticks_.seconds_seen(), (std::vector<int64_t>{10, 15, 25, 132, 142}));
}

TEST_F(PeriodicTimer, APeriodThatIsNotPositiveIsRefused) {
  for (const nanoseconds period : {nanoseconds(0), nanoseconds(-1)}) {
    start(every(period), ticks_.record());
  }
  EXPECT_TRUE(outcomes_.wait_for(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, EINVAL), 2u);
  EXPECT_EQ(ticks_.size(), 0u);
}

TEST_F(PeriodicTimer, OneThatNeverTicksLeavesTheNameToOthers) {
  start(every(seconds(1)), ticks_.record(), named("job"));
  WFTimerOptions options = named("job");
  options.policy = WF_TIMER_REPLACE;
  Ticks others;
  start(every(seconds(0)), others.record(), options);
  const auto never = WFCron::parse("0 0 30 2 *");
  ASSERT_TRUE(never);
  WFTimer::create_cron(*never, options, others.record(), outcomes_.callback())->start();
  EXPECT_TRUE(outcomes_.wait_for(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, EINVAL), 2u);
  advance(seconds(2));
  EXPECT_EQ(ticks_.size(), 2u);
  EXPECT_EQ(WFTimer::count("job"), 1u);
}

TEST_F(PeriodicTimer, ItsSeriesGoesOnWhenItHasEnded) {
  bool went_on = false;
  test_support::Tally done;
  WFTimerTask* task =
      WFTimer::create_periodic(every(seconds(1)), {}, ticks_.record([](const WFTimerTick& tick) {
        if (tick.number == 1) tick.end();
      }),
                               outcomes_.callback());
  SeriesWork* series = Workflow::create_series_work(task, [&](const SeriesWork*) { done.add(); });
  series->push_back(WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) { went_on = true; }));
  series->start();
  advance(seconds(5));
  EXPECT_TRUE(done.wait_for(1));
  EXPECT_TRUE(went_on);
  EXPECT_EQ(ticks_.size(), 2u);
}

TEST_F(PeriodicTimer, DismissedItIsGone) {
  const auto captured = std::make_shared<int>(0);
  WFTimerTask* task = WFTimer::create_periodic(
      every(seconds(1)), named("gone"), [captured](const WFTimerTick&) {}, nullptr);
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->dismiss();
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
  EXPECT_EQ(WFTimer::count("gone"), 0u);
}

TEST_F(PeriodicTimer, WhoWaitedForItMayFreeWhatTicksUse) {
  const auto captured = std::make_shared<int>(0);
  WFTimerTask* task = WFTimer::create_periodic(
      every(seconds(1)), {}, [captured](const WFTimerTick&) {}, nullptr);
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->start();
  advance(seconds(3));
  EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWon);
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_F(PeriodicTimer, KeepRefusesASecondOneOfItsName) {
  start(every(seconds(1)), ticks_.record(), named("single"));
  WFTimerOptions options = named("single");
  options.policy = WF_TIMER_KEEP;
  Ticks others;
  start(every(seconds(1)), others.record(), options);
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, EEXIST), 1u);
  advance(seconds(2));
  EXPECT_EQ(ticks_.size(), 2u);
  EXPECT_EQ(others.size(), 0u);
}

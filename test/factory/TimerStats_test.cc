// Each case is a process of its own, as the counters are those of the process.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "factory/TimerCounters.h"
#include "kernel/Runtime.h"
#include "support/Eventually.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/WFTimerStats.h"

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::Item;
using test_support::Tally;
using test_support::TimerOutcomes;
using workflow::Runtime;
using workflow::TimerCounters;

namespace {

// What was counted since.
class Since {
 public:
  uint64_t operator()(uint64_t WFTimerStats::*member) const {
    return WFTimerStats::snapshot().*member - before_.*member;
  }

 private:
  const WFTimerStats before_ = WFTimerStats::snapshot();
};

}  // namespace

TEST(TimerStats, EachEndIsCountedOnce) {
  const Since since;
  TimerOutcomes outcomes;
  WFTimer::create(milliseconds(1), outcomes.callback())->start();
  WFTimerTask* cancelled = WFTimer::create(hours(1), {"stats"}, outcomes.callback());
  cancelled->start();
  WFTimer::create(hours(1), {"stats", WF_TIMER_KEEP}, outcomes.callback())->start();
  WFTimer::create(hours(1), nullptr)->dismiss();
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(since(&WFTimerStats::outstanding), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("stats"), 1);
  EXPECT_TRUE(outcomes.wait_for(3));
  EXPECT_EQ(since(&WFTimerStats::created), 4u);
  EXPECT_EQ(since(&WFTimerStats::fired), 1u);
  EXPECT_EQ(since(&WFTimerStats::failed), 1u);
  EXPECT_EQ(since(&WFTimerStats::cancelled), 1u);
  EXPECT_EQ(since(&WFTimerStats::dropped), 1u);
  EXPECT_EQ(since(&WFTimerStats::aborted), 0u);
  EXPECT_EQ(since(&WFTimerStats::outstanding), 0u);
}

TEST(TimerStats, ReschedulesAndTicksAreCounted) {
  const Since since;
  TimerOutcomes outcomes;
  WFTimerPeriod period;
  period.every = milliseconds(1);
  WFTimerOptions options;
  options.name = "ticks";
  WFTimerTask* task = WFTimer::create_periodic(
      period, options,
      [](const WFTimerTick& tick) {
        if (tick.number == 2) {
          tick.end();
        }
      },
      outcomes.callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  EXPECT_EQ(handle.reschedule(milliseconds(2)), WFTimerMove::kWon);
  EXPECT_EQ(WFTimer::reschedule("ticks", milliseconds(3)), 1u);
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_NE(handle.cancel_and_wait(),
            WFTimerCancel::kWouldDeadlock);  // until the callback has returned
  EXPECT_EQ(handle.reschedule(milliseconds(1)), WFTimerMove::kDone);
  EXPECT_EQ(since(&WFTimerStats::rescheduled), 2u);
  EXPECT_EQ(since(&WFTimerStats::ticks), 3u);
  EXPECT_EQ(since(&WFTimerStats::fired), 1u);
}

// It was due at no time.
TEST(TimerStats, TheEndOfAPeriodicTimerIsNoLatenessAndNoLongCallback) {
  const WFTimerStats before = WFTimerStats::snapshot();
  const Since since;
  TimerOutcomes outcomes;
  WFTimerPeriod period;
  period.every = milliseconds(1);
  const auto until_the_third = [](const WFTimerTick& tick) {
    if (tick.number == 2) tick.end();
  };
  const auto begin = std::chrono::steady_clock::now();
  nanoseconds ticks_took{};
  WFTimer::create_periodic(period, {}, until_the_third, [&](WFTimerTask* task) {
    ticks_took = std::chrono::steady_clock::now() - begin;
    std::this_thread::sleep_for(ticks_took + milliseconds(20));  // longer than any tick
    outcomes.add(0, task);
  })->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 1u);
  EXPECT_EQ(since(&WFTimerStats::fired), 1u);
  EXPECT_EQ(since(&WFTimerStats::ticks), 3u);
  const WFTimerStats stats = WFTimerStats::snapshot();
  EXPECT_EQ(stats.lateness.count - before.lateness.count, 3u);
  EXPECT_LE(stats.longest_callback, ticks_took);
}

TEST(TimerStats, KnowHowLateAndHowLongCallbacksAre) {
  TimerOutcomes outcomes;
  const WFTimerStats before = WFTimerStats::snapshot();
  const auto begin = std::chrono::steady_clock::now();
  WFTimer::create(milliseconds(1), [&outcomes](WFTimerTask* task) {
    std::this_thread::sleep_for(milliseconds(20));  // is what it is about
    outcomes.add(0, task);
  })->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  // Counted after the callback, one after the other.
  WFTimerStats stats;
  EXPECT_TRUE(test_support::eventually([&] {
    stats = WFTimerStats::snapshot();
    return stats.lateness.count != before.lateness.count &&
           stats.longest_callback >= milliseconds(20);
  }));
  EXPECT_LE(stats.longest_callback, std::chrono::steady_clock::now() - begin);
  EXPECT_EQ(stats.lateness.count, before.lateness.count + 1);
  EXPECT_GE(stats.lateness.max, stats.lateness.quantile(0.5));
}

TEST(TimerStats, KnowHowLongWorkWaitsForAHandler) {
  constexpr size_t kRound = 16;  // of these batches, one is measured
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = 1;
  WORKFLOW_library_init(&settings);
  Tally entered, released, left;
  size_t posted = 0;
  // All threads are blocked, so whatever is posted waits until the pool grows by one more.
  while (WFTimerStats::snapshot().longest_handler_wait < milliseconds(1)) {
    ASSERT_LT(posted, 4 * kRound);
    for (size_t i = 0; i < kRound; i++) {
      posted++;
      Runtime::current().handlers().post(new Item([&] {
        entered.add();
        EXPECT_TRUE(released.wait_for(1));
        left.add();
      }));
    }
    ASSERT_TRUE(entered.wait_for(posted));
  }
  released.add();
  EXPECT_TRUE(left.wait_for(posted));
}

TEST(TimerStats, QuantilesAreAtMostAQuarterTooMuch) {
  test_support::TestRandom random(test_support::test_seed());
  std::vector<int64_t> values;
  for (int i = 0; i < 10'000; i++) {
    const auto value =
        static_cast<int64_t>(std::exp(static_cast<double>(random.below(1'000'000)) / 1e6 * 30.0));
    values.push_back(value);
    TimerCounters::add_callback(value, 0);
  }
  std::sort(values.begin(), values.end());
  const WFTimerStats::Lateness late = WFTimerStats::snapshot().lateness;
  ASSERT_EQ(late.count, values.size());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto reported = static_cast<double>(late.quantile(q).count());
    EXPECT_GE(reported, std::floor(exact)) << q;
    EXPECT_LE(reported, exact * 1.25 + 1) << q;
    EXPECT_EQ(late.percentile(q), late.quantile(q)) << q;
  }
  EXPECT_EQ(late.quantile(1).count(), values.back());
}

TEST(TimerStats, QuantilesOfNoCallbacksAreZero) {
  EXPECT_EQ(WFTimerStats::Lateness().quantile(0.99), nanoseconds(0));
}

TEST(TimerStats, PrometheusTextHasCumulativeBuckets) {
  WFTimerStats stats;
  stats.created = 7;
  stats.fired = 3;
  stats.longest_callback = milliseconds(1500);
  stats.lateness.count = 3;
  stats.lateness.sum = seconds(2);
  stats.lateness.buckets[10 * 4] = 1;      // 1024 ns and a little more
  stats.lateness.buckets[20 * 4 + 3] = 2;  // some 2 ms
  const std::string text = stats.to_prometheus("x");
  for (const char* line :
       {"# TYPE x_created_total counter\nx_created_total 7\n", "x_ended_total{how=\"fired\"} 3\n",
        "x_longest_callback_seconds 1.5\n", "x_lateness_seconds_bucket{le=\"1.024e-06\"} 0\n",
        "x_lateness_seconds_bucket{le=\"4.096e-06\"} 1\n",
        "x_lateness_seconds_bucket{le=\"0.001048576\"} 1\n",
        "x_lateness_seconds_bucket{le=\"0.004194304\"} 3\n",
        "x_lateness_seconds_bucket{le=\"+Inf\"} 3\n", "x_lateness_seconds_sum 2\n",
        "x_lateness_seconds_count 3\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.back(), '\n');
}

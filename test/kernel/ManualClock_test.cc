#include "kernel/ManualClock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernel/Runtime.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace workflow {
namespace {

// Several handlers may run such timers at once, if one gets no processor for long.
class ClockTimer : public TimerNode, public Runnable {
 public:
  ClockTimer(Runtime& runtime, std::vector<int64_t>& fired) : runtime_(runtime), fired_(fired) {}
  ~ClockTimer() override = default;

  void left_queue(bool, RunnableList& finished) override { finished.push_back(this); }
  void run_queued() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    fired_.push_back(runtime_.clock().now_ns());
  }

 private:
  static inline std::mutex mutex_;
  Runtime& runtime_;
  std::vector<int64_t>& fired_;
};

class OwnRuntime {
 public:
  OwnRuntime()
      : runtime_(
            {.poller_threads = 3, .handler_threads = 1, .compute_threads = 1, .clock = &clock_}) {
    EXPECT_TRUE(runtime_.start());
  }
  ~OwnRuntime() { runtime_.stop(); }
  ManualClock& clock() { return clock_; }
  Runtime& get() { return runtime_; }

 private:
  ManualClock clock_;
  Runtime runtime_;
};

TEST(ManualClock, TimeStandsStillUntilMoved) {
  OwnRuntime runtime;
  std::vector<int64_t> fired;
  ClockTimer timer(runtime.get(), fired);
  runtime.get().poller(0).timers().start(&timer, 1000);
  runtime.clock().advance(runtime.get(), 999);
  EXPECT_TRUE(fired.empty());
  runtime.clock().advance(runtime.get(), 1);
  EXPECT_EQ(fired, std::vector<int64_t>{1000});
}

TEST(ManualClock, TimersOfAllPollersCompleteInDeadlineOrderAtTheirDeadlines) {
  OwnRuntime runtime;
  std::vector<int64_t> fired;
  std::vector<std::unique_ptr<ClockTimer>> timers;
  std::vector<int64_t> expected;
  std::mt19937 random(1);
  for (size_t i = 0; i < 100; i++) {
    timers.push_back(std::make_unique<ClockTimer>(runtime.get(), fired));
    const int64_t delay_ns = static_cast<int64_t>(random() % 1000);
    expected.push_back(delay_ns);
    runtime.get().poller(i % 3).timers().start(timers.back().get(), delay_ns);
  }
  runtime.clock().advance(runtime.get(), 1000);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(fired, expected);
  EXPECT_EQ(runtime.clock().now_ns(), 1000);
}

TEST(ManualClock, NextDeadlineIsOneStep) {
  OwnRuntime runtime;
  std::vector<int64_t> fired;
  ClockTimer first(runtime.get(), fired);
  ClockTimer second(runtime.get(), fired);
  ClockTimer never(runtime.get(), fired);
  runtime.get().poller(0).timers().start(&second, 20);
  runtime.get().poller(1).timers().start(&first, 10);
  runtime.get().poller(2).timers().start(&never, kNever);
  EXPECT_TRUE(runtime.clock().advance_to_next_deadline(runtime.get()));
  EXPECT_EQ(fired, std::vector<int64_t>{10});
  EXPECT_TRUE(runtime.clock().advance_to_next_deadline(runtime.get()));
  EXPECT_EQ(fired, (std::vector<int64_t>{10, 20}));
  EXPECT_FALSE(runtime.clock().advance_to_next_deadline(runtime.get()));
  EXPECT_EQ(runtime.clock().now_ns(), 20);
  EXPECT_EQ(PollerTimers::cancel(&never), PollerTimers::Cancel::kTaken);
}

// The cases below share the process's runtime if they are run in one process, so each starts by
// installing and takes time as it finds it.
void install() {
  WFManualClock::install();
}

TEST(WFManualClock, CallbacksThatStartTimersAreFollowedThroughTheAdvance) {
  install();
  const int64_t start_ns = WFManualClock::now_ns();
  std::vector<int64_t> fired;
  std::function<void(WFTimerTask*)> again = [&](WFTimerTask*) {
    fired.push_back(WFManualClock::now_ns() - start_ns);
    if (fired.size() < 5) {
      WFTaskFactory::create_timer_task(60, 0, again)->start();
    }
  };
  WFTaskFactory::create_timer_task(60, 0, again)->start();
  WFManualClock::advance(300 * kNsPerSec);
  std::vector<int64_t> expected;
  for (int64_t i = 1; i <= 5; i++) {
    expected.push_back(i * 60 * kNsPerSec);
  }
  EXPECT_EQ(fired, expected);
}

TEST(WFManualClock, ComputeTasksAndTheirSeriesAreWaitedFor) {
  install();
  int value = 0;
  WFTimerTask* timer = WFTaskFactory::create_timer_task(1, 0, nullptr);
  SeriesWork* series = Workflow::create_series_work(timer, nullptr);
  for (int i = 0; i < 10; i++) {
    series->push_back(WFTaskFactory::create_go_task("queue", [&value] { value++; }));
    series->push_back(WFTaskFactory::create_timer_task(1, 0, nullptr));
  }
  series->start();
  WFManualClock::advance(3 * kNsPerSec);
  EXPECT_EQ(value, 3);
  while (WFManualClock::advance_to_next_deadline()) {
  }
  EXPECT_EQ(value, 10);
}

TEST(WFManualClock, CancelledTimersNeedNoTime) {
  install();
  const int64_t start_ns = WFManualClock::now_ns();
  int state = WFT_STATE_UNDEFINED;
  WFTaskFactory::create_timer_task("ManualClock.cancelled", 3600, 0, [&](WFTimerTask* task) {
    state = task->get_state();
  })->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("ManualClock.cancelled"), 1);
  WFManualClock::advance(0);
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(WFManualClock::now_ns(), start_ns);
}

// What a callback waits for may come due later: time goes on meanwhile.
TEST(WFManualClock, ACallbackMayWaitForALaterDeadline) {
  install();
  int64_t woken_ns = 0;
  const int64_t start_ns = WFManualClock::now_ns();
  WFTaskFactory::create_timer_task(1, 0, [&](WFTimerTask*) {
    WFFacilities::sleep_for(std::chrono::seconds(5));
    woken_ns = WFManualClock::now_ns();
  })->start();
  WFManualClock::advance(std::chrono::seconds(10));
  EXPECT_GE(woken_ns - start_ns, 6'000'000'000);
}

TEST(WFManualClock, CallbacksThatWaitForEachOtherAllRun) {
  install();
  constexpr int kTimers = 100;
  WFFacilities::WaitGroup all(kTimers);
  std::atomic<int> ends{0};
  for (int i = 0; i < kTimers; i++) {
    WFTaskFactory::create_timer_task(1, 0, [&](WFTimerTask*) {
      all.done();
      all.wait();
      ends++;
    })->start();
  }
  WFManualClock::advance(kNsPerSec);
  EXPECT_EQ(ends, kTimers);
}

TEST(WFManualClock, ACallbackThatThrowsEndsTheProcess) {
  const auto throw_in_callback = [] {
    install();
    WFTaskFactory::create_timer_task(1, 0, [](WFTimerTask*) {
      throw std::runtime_error("thrown in a callback");
    })->start();
    try {
      WFManualClock::advance(kNsPerSec);
    } catch (const std::runtime_error&) {
      std::fprintf(stderr, "caught\n");
    }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(throw_in_callback(), testing::KilledBySignal(SIGABRT), "thrown in a callback");
}

TEST(WFManualClock, CannotBeInstalledOnceTheLibraryHasStarted) {
  install();
  WFManualClock::advance(0);
  errno = 0;
  EXPECT_EQ(WFManualClock::install(), -1);
  EXPECT_EQ(errno, EBUSY);
}

}  // namespace
}  // namespace workflow

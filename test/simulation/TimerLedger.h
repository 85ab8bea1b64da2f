#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "factory/CounterTask.h"
#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// A simulation, and what was promised to and seen of each timer made in it.
//
// close() stops the simulation and asserts the protocol:
//   - each dispatched timer's callback ran exactly once, each other's never;
//   - a timer that succeeded did so exactly at its deadline (virtual time does not pass while
//     anything can run), and none was aborted unless the stop came first;
//   - the counts that cancel calls returned are the number of timers that ended ECANCELED, plus
//     those cancelled and then never dispatched;
//   - no name and no deadline is left.
class TimerLedger {
 public:
  // As a delay: the timer does not expire.
  static constexpr int64_t kNever = -1;

  struct Record {
    int callbacks = 0;
    int state = WFT_STATE_UNDEFINED;
    int error = 0;
    int64_t delay_ns = 0;
    int64_t started_ns = -1;  // unknown when a series dispatches it
    bool dispatched = true;
  };

  explicit TimerLedger(uint64_t seed) : simulation_(seed) {}
  TimerLedger(uint64_t seed, const WFSimulationOptions& options) : simulation_(seed, options) {}

  WFSimulation& simulation() { return simulation_; }

  // A timer of that name, or without a name if it is empty. By default it is taken for dispatched.
  WFTimerTask* create(const std::string& name, int64_t delay_ns,
                      std::function<void(WFTimerTask*)> then = nullptr) {
    Record& record = records_.emplace_back();
    record.delay_ns = delay_ns;
    const auto callback = [this, &record, then = std::move(then)](WFTimerTask* task) {
      saw(record, task);
      if (then) then(task);
    };
    WFTimerTask* task;
    if (name.empty())
      task = WFTaskFactory::create_timer_task(seconds(delay_ns), nanoseconds(delay_ns), callback);
    else
      task = WFTaskFactory::create_timer_task(name, seconds(delay_ns), nanoseconds(delay_ns),
                                              callback);
    task->user_data = &record;
    return task;
  }

  static Record& record_of(WFTimerTask* task) { return *static_cast<Record*>(task->user_data); }

  void start(WFTimerTask* task) {
    record_of(task).started_ns = simulation_.now_ns();
    task->start();
  }
  void create_and_start(const std::string& name, int64_t delay_ns,
                        std::function<void(WFTimerTask*)> then = nullptr) {
    start(create(name, delay_ns, std::move(then)));
  }
  void dismiss(WFTimerTask* task) {
    record_of(task).dispatched = false;
    task->dismiss();
  }
  int cancel(const std::string& name) { return counted(WFTaskFactory::cancel_by_name(name)); }
  int cancel(const std::string& name, size_t max) {
    const int n = WFTaskFactory::cancel_by_name(name, max);
    EXPECT_LE(n, static_cast<int>(max));
    return counted(n);
  }

  WFTimerCancel cancel(const WFTimerHandle& handle) {
    const WFTimerCancel verdict = handle.cancel();
    counted(verdict == WFTimerCancel::kWon);
    return verdict;
  }
  WFTimerCancel cancel_and_wait(const WFTimerHandle& handle) {
    const WFTimerCancel verdict = handle.cancel_and_wait();
    counted(verdict == WFTimerCancel::kWon);
    return verdict;
  }
  // One thread at a time for each timer, and never to 0: so it is noted before the timer expires.
  WFTimerMove reschedule(const WFTimerHandle& handle, Record& record, int64_t delay_ns) {
    const WFTimerMove verdict = handle.reschedule(std::chrono::nanoseconds(delay_ns));
    if (verdict == WFTimerMove::kWon) {
      record.delay_ns = delay_ns;
      record.started_ns = record.started_ns < 0 ? -1 : simulation_.now_ns();
    }
    return verdict;
  }

  int cancelled() const { return cancelled_; }
  size_t ended(int state) const {
    size_t n = 0;
    for (const Record& record : records_)
      n += record.state == state;
    return n;
  }
  std::deque<Record>& records() { return records_; }

  // Runs until nothing can happen any more. By then each timer that was cancelled has its callback.
  void run() {
    const WFSimulationResult result = simulation_.run();
    EXPECT_TRUE(result.ok()) << result.description;
    check_counts();
  }

  void close() {
    stopping_ = true;
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    for (const Record& record : records_) {
      EXPECT_EQ(record.callbacks, record.dispatched ? 1 : 0)
          << "timer " << (&record - &records_.front());
    }
    check_counts();
    EXPECT_TRUE(workflow::NamedTimerTask::registry().empty());
    EXPECT_TRUE(workflow::NamedCounterTask::registry().empty());
    workflow::Runtime& runtime = workflow::Runtime::current();
    for (size_t i = 0; i < runtime.poller_count(); i++)
      EXPECT_EQ(runtime.poller(i).timers().size(), 0u);
  }

 private:
  static constexpr int64_t kSecond = 1000000000;
  static time_t seconds(int64_t delay_ns) { return delay_ns < 0 ? -1 : delay_ns / kSecond; }
  static long nanoseconds(int64_t delay_ns) { return delay_ns < 0 ? 0 : delay_ns % kSecond; }

  int counted(int n) {
    EXPECT_GE(n, 0);
    cancelled_ += n;
    return n;
  }

  void check_counts() {
    int ended_cancelled = 0;
    int never_dispatched = 0;
    for (const Record& record : records_) {
      ended_cancelled += record.state == WFT_STATE_SYS_ERROR && record.error == ECANCELED;
      never_dispatched += !record.dispatched;
    }
    EXPECT_GE(cancelled_, ended_cancelled);
    EXPECT_LE(cancelled_, ended_cancelled + never_dispatched);
  }

  void saw(Record& record, WFTimerTask* task) {
    record.callbacks++;
    record.state = task->get_state();
    record.error = task->get_error();
    switch (record.state) {
      case WFT_STATE_SUCCESS:
        if (record.started_ns >= 0) {
          EXPECT_EQ(simulation_.now_ns(), record.started_ns + record.delay_ns);
        }
        break;
      case WFT_STATE_SYS_ERROR:
        EXPECT_EQ(record.error, ECANCELED);
        break;
      default:
        EXPECT_EQ(record.state, WFT_STATE_ABORTED);
        EXPECT_TRUE(stopping_);
    }
  }

  WFSimulation simulation_;
  std::deque<Record> records_;
  int cancelled_ = 0;
  bool stopping_ = false;
};

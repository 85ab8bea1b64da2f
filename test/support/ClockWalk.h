#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "kernel/ManualClock.h"
#include "support/TestSeed.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace test_support {

// Tasks that start each other at random on a manual clock, and an account of when each ran: a timer
// at its deadline, and what follows it at the same time. The clock of the calling thread's runtime
// must be `clock`.
class ClockWalk {
 public:
  ClockWalk(workflow::ManualClock& clock, uint64_t seed, int tasks)
      : clock_(clock), seed_(seed), left_(tasks) {}

  // Whether somebody may move time during the call. Then nobody knows the deadline exactly, and
  // time may move once more after such a timer was posted, so nothing follows it.
  enum class Time { kStands, kMayMove };

  void start(int count, Time time) {
    for (int i = 0; i < count; i++) {
      start_timer(time, i % 2 == 1);
    }
  }

  // To be called while nobody moves time. Returns what is wrong; empty if nothing.
  std::string account() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (problem_.empty() && !due_.empty() && *due_.begin() <= clock_.now_ns()) {
      return "due at " + std::to_string(*due_.begin()) + " and not called back at " +
             std::to_string(clock_.now_ns());
    }
    return problem_;
  }

  size_t ended() const { return ended_.load(); }
  size_t started() const { return started_.load(); }

 private:
  static constexpr uint64_t kLongest = 3;
  static constexpr int64_t kFar = 1'000'000;  // later than anything that a test waits for

  // `is_moved`: moves it to its time after the start. Such a timer is queued although it may be
  // due, so the poller wakes to end it.
  void start_timer(Time time, bool is_moved = false) {
    if (left_.fetch_sub(1) <= 0) return;
    const uint64_t number = started_++;
    TestRandom random(seed_, number);
    const auto delay_ns = static_cast<int64_t>(random.below(kLongest + 1));
    const int64_t due_ns = clock_.now_ns() + delay_ns;
    const bool exact = time == Time::kStands;
    if (exact) {
      const std::lock_guard<std::mutex> lock(mutex_);
      due_.insert(due_ns);
    }
    const auto end = [this, due_ns, exact, number](WFTimerTask* task) {
      end_timer(task, due_ns, exact);
      if (exact) {
        go_on(series_of(task), TestRandom(seed_ + 1, number));
      }
    };
    WFTimerTask* const timer =
        WFTaskFactory::create_timer_task(0, static_cast<long>(is_moved ? kFar : delay_ns), end);
    const WFTimerHandle handle = is_moved ? WFTimer::handle_of(timer) : WFTimerHandle();
    timer->start();
    if (is_moved) {
      const WFTimerMove move = handle.reschedule(std::chrono::nanoseconds(delay_ns));
      // If time may move, it may have reached even kFar before the timer was moved.
      require(move == WFTimerMove::kWon || (!exact && clock_.now_ns() >= kFar),
              "a timer is not moved", due_ns);
    }
  }

  void end_timer(WFTimerTask* task, int64_t due_ns, bool exact) {
    ended_++;
    require(task->get_state() == WFT_STATE_SUCCESS, "a timer has failed", due_ns);
    if (exact) {
      expect_time(due_ns, "a timer");
      const std::lock_guard<std::mutex> lock(mutex_);
      due_.erase(due_.find(due_ns));
    } else {
      require(clock_.now_ns() >= due_ns, "a timer is early", due_ns);
    }
  }

  // What a callback does.
  void go_on(SeriesWork* series, TestRandom random) {
    const int64_t now_ns = clock_.now_ns();
    switch (random.below(6)) {
      case 0:
        break;
      case 1:
        start(2, Time::kStands);
        break;
      case 2:
        series->push_back(WFTaskFactory::create_go_task("walk", [this, now_ns] {
          expect_time(now_ns, "a computation");
          start(1, Time::kStands);
        }));
        series->push_back(WFTaskFactory::create_empty_task());
        break;
      case 3: {
        const auto sleep_ns = static_cast<int64_t>(1 + random.below(kLongest));
        WFFacilities::sleep_for(std::chrono::nanoseconds(sleep_ns));
        expect_time(now_ns + sleep_ns, "a callback that has slept");
        start(1, Time::kStands);
        break;
      }
      case 4:
        start_timer(Time::kStands, true);
        break;
      default:
        start(1, Time::kStands);
    }
    series->push_back(WFTaskFactory::create_empty_task());
  }

  void expect_time(int64_t expected_ns, const char* what) {
    const int64_t now_ns = clock_.now_ns();
    require(now_ns == expected_ns, what, expected_ns);
  }

  void require(bool holds, const char* what, int64_t expected_ns) {
    if (!holds) {
      const std::lock_guard<std::mutex> lock(mutex_);
      problem_ = std::string(what) + ": expected at " + std::to_string(expected_ns) + ", now " +
                 std::to_string(clock_.now_ns());
    }
  }

  workflow::ManualClock& clock_;
  const uint64_t seed_;
  std::atomic<int> left_;
  std::atomic<size_t> started_{0};
  std::atomic<size_t> ended_{0};
  mutable std::mutex mutex_;
  std::multiset<int64_t> due_;  // of the timers whose deadlines are known
  std::string problem_;
};

}  // namespace test_support

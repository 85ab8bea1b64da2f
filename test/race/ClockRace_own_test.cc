#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/ShiftedClocks.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Clock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Threads that create, start, cancel and reschedule timers of all clocks at random, while another
// one sets the wall clock and suspends the system; then an account of every timer:
//
// 1. The callback of each timer ran once.
// 2. At most one call, by handle or by name, reported that it ended the timer. One did if, and only
//    if, the outcome is ECANCELED.
// 3. A timer that was never rescheduled did not expire before its clock had shown its deadline.
// 4. Once the clocks are past all deadlines, every timer has ended: it expired, was cancelled, or
//    was ABORTED because the library stopped.

namespace race {
namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;
using workflow::ClockId;
using workflow::kNsPerMs;
using workflow::kNsPerSec;
using workflow::Runtime;

class ClockRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kTimers = 30;  // of each thread
  static constexpr int64_t kLongest = 3 * kNsPerMs;

  // If `is_stopped`, the runtime is stopped meanwhile. Otherwise the clocks end what is left.
  ClockRound(uint64_t number, Runtime* runtime, bool is_stopped)
      : Round(number, runtime), is_stopped_(is_stopped) {
    shifted_clocks::reset();
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
    start_thread([this] { set_clocks(); });
  }

  std::string finish() override {
    join_threads();
    if (!is_stopped_) {
      shifted_clocks::boottime_shift_ns += kNsPerSec;
      shifted_clocks::wall_shift_ns = highest_wall_shift_ns_ += kNsPerSec;
      shifted_clocks::signal();
    }
    if (!ended_.wait_for(timers_.size())) {
      return "callbacks are missing: " + std::to_string(ended_.count()) + " ended";
    }
    for (size_t i = 0; i < timers_.size(); i++) {
      const Timer& timer = timers_[i];
      const bool cancelled =
          timer.state == WFT_STATE_SYS_ERROR && timer.error == ECANCELED && timer.won == 1;
      const bool plain = timer.error == 0 && timer.won == 0 &&
                         timer.state == (timer.aborted ? WFT_STATE_ABORTED : WFT_STATE_SUCCESS);
      if (timer.callbacks != 1 || timer.early || !(cancelled || plain) ||
          (timer.aborted && !is_stopped_)) {
        return "timer " + std::to_string(i) + " of clock " + std::to_string(timer.clock) +
               ": callbacks " + std::to_string(timer.callbacks) + ", state " +
               std::to_string(timer.state) + ", error " + std::to_string(timer.error) + ", won " +
               std::to_string(timer.won) + ", early " + std::to_string(timer.early);
      }
    }
    return "";
  }

  size_t outcomes(int state) const override {
    return static_cast<size_t>(
        std::count_if(timers_.begin(), timers_.end(),
                      [state](const Timer& timer) { return timer.state == state; }));
  }

 private:
  struct Timer {
    WFTimerClock clock = WF_CLOCK_MONOTONIC;
    bool moved = false;  // may be rescheduled
    int64_t due_ns = 0;  // by its clock, at the earliest, if it is not moved
    WFTimerHandle handle;
    std::atomic<bool> is_shared{false};
    std::atomic<int> won{0};
    std::atomic<int> callbacks{0};
    std::atomic<bool> early{false};
    std::atomic<bool> aborted{false};
    int state = 0;
    int error = 0;
  };

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = 0; i < kTimers; i++) {
      start(thread * kTimers + i, random);
      for (uint64_t n = random.below(4); n > 0; n--) {
        disturb(random);
      }
      if (random.one_in(4)) {
        // Lets deadlines come while the clocks are set.
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
      }
    }
  }

  static int64_t now_ns(WFTimerClock clock) {
    return workflow::system_clock().now_ns_on(static_cast<ClockId>(clock));
  }

  static int64_t unshifted_wall_ns() {
    static const auto read =
        test_support::real_function<int(clockid_t, struct timespec*)>("clock_gettime");
    struct timespec now {};
    read(CLOCK_REALTIME, &now);
    return now.tv_sec * kNsPerSec + now.tv_nsec;
  }

  static WFTimerDue due_of(WFTimerClock clock, bool deadline, int64_t ns) {
    if (!deadline) return {nanoseconds(ns), clock};
    const nanoseconds at(now_ns(clock) + ns);
    switch (clock) {
      case WF_CLOCK_BOOTTIME:
        return WFBootClock::time_point(at);
      case WF_CLOCK_WALL:
        return std::chrono::system_clock::time_point(at);
      default:
        return std::chrono::steady_clock::time_point(at);
    }
  }

  void start(size_t i, TestRandom& random) {
    Timer& timer = timers_[i];
    timer.clock = static_cast<WFTimerClock>(random.below(3));
    timer.moved = random.one_in(2);
    const bool deadline = random.one_in(2);
    const int64_t ns = random.between(deadline ? -kNsPerMs : 0, kLongest);
    const WFTimerDue due = due_of(timer.clock, deadline, ns);
    // A wall clock that is set back before the start makes a delay end at an earlier date.
    timer.due_ns = deadline                       ? due.ns()
                   : timer.clock == WF_CLOCK_WALL ? 0
                                                  : now_ns(timer.clock) + ns;
    const auto called = [this, &timer](WFTimerTask* ended) { end(timer, ended); };
    WFTimerTask* const task = WFTimer::create(due, {name_of(i)}, called);
    timer.handle = WFTimer::handle_of(task);
    timer.is_shared = random.one_in(3);
    task->start();
    timer.is_shared = true;
  }

  std::string name_of(size_t i) const { return std::to_string(i); }

  void disturb(TestRandom& random) {
    const size_t i = random.below(timers_.size());
    Timer& timer = timers_[i];
    if (!timer.is_shared) return;
    const int64_t ns = random.between(0, kLongest);
    switch (random.below(6)) {
      case 0:
        timer.won += timer.handle.cancel() == WFTimerCancel::kWon;
        break;
      case 1:
        timer.won += WFTaskFactory::cancel_by_name(name_of(i));
        break;
      case 2:
        EXPECT_GE(timer.handle.remaining().value_or(nanoseconds(0)), nanoseconds(0));
        break;
      default:
        if (timer.moved) {
          move(timer, i, due_of(timer.clock, random.one_in(2), ns), random.one_in(2));
        }
    }
    EXPECT_NE(timer.handle.reschedule(due_of(WFTimerClock((timer.clock + 1) % 3), true, ns)),
              WFTimerMove::kWon);
  }

  void move(const Timer& timer, size_t i, const WFTimerDue& due, bool by_name) const {
    if (by_name) {
      EXPECT_LE(WFTimer::reschedule(name_of(i), due), 1u);
    } else {
      EXPECT_NE(timer.handle.reschedule(due), WFTimerMove::kOtherClock);
    }
  }

  void end(Timer& timer, const WFTimerTask* task) {
    timer.callbacks++;
    timer.state = task->get_state();
    timer.error = task->get_error();
    timer.aborted = timer.state == WFT_STATE_ABORTED;
    if (timer.state == WFT_STATE_SUCCESS && !timer.moved) {
      // The most that the clock can have shown so far.
      const int64_t shown_ns = timer.clock == WF_CLOCK_WALL
                                   ? unshifted_wall_ns() + highest_wall_shift_ns_
                                   : now_ns(timer.clock);
      timer.early = shown_ns < timer.due_ns;
    }
    ended_.add();
  }

  void set_clocks() {
    TestRandom random(test_support::test_seed(), number() * 10 + 9);
    for (int i = 0; i < 40; i++) {
      if (random.one_in(4)) {
        const int64_t slept_ns = random.between(0, kNsPerMs);
        shifted_clocks::boottime_shift_ns += slept_ns;
        set_wall(shifted_clocks::wall_shift_ns + slept_ns);
      } else {
        set_wall(random.between(-kFurthestNs, kFurthestNs));
      }
      shifted_clocks::signal();
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(100)));
    }
  }

  void set_wall(int64_t shift_ns) {
    if (shift_ns > highest_wall_shift_ns_) {
      highest_wall_shift_ns_ = shift_ns;
    }
    shifted_clocks::wall_shift_ns = shift_ns;
  }

  // How far from what it is the wall clock is set.
  static constexpr int64_t kFurthestNs = 2 * kNsPerMs;

  const bool is_stopped_;
  std::array<Timer, kThreads * kTimers> timers_{};
  std::atomic<int64_t> highest_wall_shift_ns_{0};
  test_support::Tally ended_;
};

TEST(ClockRace, EveryTimerEndsOnceTheClocksArePastAllDeadlines) {
  const uint64_t count = rounds(200);
  TestRandom random(test_support::test_seed());
  Totals totals;
  for (uint64_t number = 0; number < count; number++) {
    RandomRuntime runtime(random);
    ClockRound round(number, runtime.get(), false);
    ASSERT_EQ(round.finish(), "") << "round " << number;
    runtime.stop();
    totals.add(round);
  }
  totals.print();
  expect_each_side_won(totals, count);
  EXPECT_EQ(totals.aborted, 0u);
}

TEST(ClockRace, StoppedMeanwhile) {
  const uint64_t count = rounds(200);
  const Enough enough = each_outcome(count);
  EXPECT_TRUE(enough(run_stopped_rounds(count, 6000, begin<ClockRound>(true), enough)));
}

}  // namespace
}  // namespace race

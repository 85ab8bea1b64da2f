#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Threads that share the handles of timers and cancel, wait for, reschedule and ask about them at
// random, while these are started, dismissed, cancelled by name and expire; then an account of
// every timer and of every verdict:
//
// 1. The callback of a started timer ran once, that of a dropped one never.
// 2. At most one call reported that it won. It did so if, and only if, the outcome is ECANCELED.
// 3. When a call returned DONE, or cancel_and_wait() returned, the callback had returned or the
//    timer had been dropped.
// 4. No timer expired before the time set by the last reschedule that won.
// 5. After a call of a thread had returned RUNNING or DONE, no later call of that thread won.
// 6. A timer that was refused at its creation ended with the error that get_error() returned then,
//    and no call won against it.

namespace race {
namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;
using workflow::Runtime;

class HandleRound final : public Round {
 public:
  static constexpr size_t kThreads = 4;
  static constexpr size_t kTimers = 24;

  HandleRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    TestRandom random(test_support::test_seed(), number * 10 + 9);
    keeper_ = WFTimer::create(nanoseconds(-1), {name_of(kTimers)}, nullptr);
    for (size_t i = 0; i < kTimers; i++) {
      create(i, random);
    }
    keeper_->dismiss();
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
  }
  std::string finish() override {
    join_threads();
    for (Timer& timer : timers_) {
      check(timer, timer.handle.cancel_and_wait());
    }
    std::string wrong = problem();
    for (size_t i = 0; i < kTimers && wrong.empty(); i++) {
      wrong = account(timers_[i]);
      if (!wrong.empty()) {
        wrong = "timer " + std::to_string(i) + (timers_[i].named ? ", named: " : ": ") + wrong;
      }
    }
    return wrong;
  }
  size_t outcomes(int state) const override {
    size_t n = 0;
    for (const Timer& timer : timers_) {
      n += timer.over && timer.state == state;
    }
    return n;
  }

 private:
  struct Timer {
    WFTimerTask* task = nullptr;
    WFTimerHandle handle;
    bool named = false;
    bool dropped = false;           // instead of started, by its owner
    int announced = 0;              // the error that it was refused with
    std::atomic<bool> gone{false};  // dropped, or over
    std::atomic<bool> over{false};  // at the end of the callback
    std::atomic<int> callbacks{0};
    std::atomic<int> won{0};
    int state = 0;
    int error = 0;
    int64_t ended_ns = 0;
    int64_t not_before_ns = 0;  // of the owner, who alone reschedules; see rule 4
  };

  std::string name_of(size_t i) const {
    return "handle " + std::to_string(number()) + "." + std::to_string(i);
  }

  void create(size_t i, TestRandom& random) {
    Timer& timer = timers_[i];
    timer.named = random.one_in(2);
    const nanoseconds delay = random.one_in(4)   ? nanoseconds(-1)
                              : random.one_in(6) ? nanoseconds(0)
                                                 : nanoseconds(random.below(300'000));
    const auto callback = [this, &timer](WFTimerTask* task) {
      timer.callbacks++;
      timer.state = task->get_state();
      timer.error = task->get_error();
      timer.ended_ns = workflow::monotonic_ns();
      require(timer.handle.cancel() == WFTimerCancel::kTooLate, "not running in its callback");
      if (timer.callbacks == 1 && timer.state == WFT_STATE_SUCCESS) {
        require(timer.handle.cancel_and_wait() == WFTimerCancel::kWouldDeadlock,
                "waits for itself");
      }
      timer.over = true;
      timer.gone = true;
    };
    if (random.one_in(8)) {
      // By a name that the round keeps, or, without a name, by its nanoseconds.
      timer.task = timer.named ? WFTimer::create(delay, {name_of(kTimers), WF_TIMER_KEEP}, callback)
                               : WFTaskFactory::create_timer_task(0, -1, callback);
      timer.announced = timer.task->get_error();
      require(timer.announced == (timer.named ? EEXIST : EINVAL), "not refused");
    } else {
      timer.task = timer.named ? WFTimer::create(delay, {name_of(i)}, callback)
                               : WFTimer::create(delay, callback);
    }
    timer.handle = WFTimer::handle_of(timer.task);
    timer.dropped = random.one_in(6);
  }

  void run(size_t thread) {
    std::array<bool, kTimers> told_late{};
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t step = 0; step < 60; step++) {
      const size_t i = random.below(kTimers);
      Timer& timer = timers_[i];
      if (i % kThreads == thread && timer.task) {
        begin(timer);
      } else if (i % kThreads == thread && random.one_in(4)) {
        cancel(timer, told_late[i]);
      } else if (i % kThreads == thread) {
        reschedule(timer, nanoseconds(random.below(400'000)), told_late[i]);
      } else {
        meddle(i, timer, random, told_late[i]);
      }
    }
    for (size_t i = thread; i < kTimers; i += kThreads) {
      if (timers_[i].task) {
        begin(timers_[i]);
      }
    }
  }

  void begin(Timer& timer) {
    WFTimerTask* const task = timer.task;
    timer.task = nullptr;
    if (timer.dropped) {
      timer.gone = true;  // set before, so that no call reports it too early
      task->dismiss();
    } else {
      task->start();
    }
  }

  void reschedule(Timer& timer, nanoseconds delay, bool& told_late) {
    const int64_t now_ns = workflow::monotonic_ns();
    const WFTimerMove verdict = timer.handle.reschedule(delay);
    look_back(verdict, told_late);
    if (verdict == WFTimerMove::kWon) {
      timer.not_before_ns = now_ns + delay.count();
    } else {
      require(verdict != WFTimerMove::kDone || timer.gone, "done, says reschedule, and it is not");
    }
  }

  void cancel(Timer& timer, bool& told_late) {
    const WFTimerCancel verdict = timer.handle.cancel();
    look_back(verdict, told_late);
    check(timer, verdict);
  }

  void meddle(size_t i, Timer& timer, TestRandom& random, bool& told_late) {
    switch (random.below(5)) {
      case 0:
        if (timer.named) {
          timer.won += WFTaskFactory::cancel_by_name(name_of(i));
        }
        break;
      case 1:
        cancel(timer, told_late);
        break;
      case 2:
        if (timer.callbacks > 0) {  // it was started: who waits for a start may wait for a thread
          check(timer, timer.handle.cancel_and_wait());
          require(timer.gone, "cancel_and_wait returns before the end");
        }
        break;
      case 3: {
        const auto remaining = timer.handle.remaining();
        require(!remaining || remaining->count() >= 0, "negative time remains");
        break;
      }
      default:
        std::this_thread::yield();
    }
  }

  template <class Verdict>  // WFTimerCancel or WFTimerMove
  void look_back(Verdict verdict, bool& told_late) {
    require(verdict != Verdict::kWon || !told_late, "won after it was too late");
    told_late = told_late || verdict == Verdict::kTooLate || verdict == Verdict::kDone;
  }

  void check(Timer& timer, WFTimerCancel verdict) {
    timer.won += verdict == WFTimerCancel::kWon;
    require(verdict != WFTimerCancel::kDone || timer.gone, "done, says cancel, and it is not");
    require(verdict != WFTimerCancel::kNoTimer, "unknown");
  }

  static std::string account(const Timer& timer) {
    if (timer.callbacks != (timer.dropped ? 0 : 1)) {
      return "called " + std::to_string(timer.callbacks) + " times";
    }
    if (timer.won > 1) return "cancelled " + std::to_string(timer.won) + " times";
    if (timer.dropped) return "";
    if (timer.announced != 0) {
      const bool is_true = timer.state == WFT_STATE_SYS_ERROR && timer.error == timer.announced;
      return is_true && timer.won == 0 ? "" : "not what it announced";
    }
    const bool cancelled = timer.state == WFT_STATE_SYS_ERROR && timer.error == ECANCELED;
    if ((timer.won == 1) != cancelled) {
      return std::to_string(timer.won) + " won, and the state is " + std::to_string(timer.state);
    }
    if (timer.state == WFT_STATE_SUCCESS && timer.ended_ns < timer.not_before_ns) {
      return "expired " + std::to_string(timer.not_before_ns - timer.ended_ns) + " ns early";
    }
    return "";
  }

  std::array<Timer, kTimers> timers_;
  WFTimerTask* keeper_ = nullptr;  // of a name, while timers are created
};

}  // namespace

TEST(HandleRace, EveryVerdictIsTrue) {
  const uint64_t count = rounds(2000);
  const Totals totals = run_rounds(count, begin<HandleRound>());
  expect_each_side_won(totals, count / 10);
  EXPECT_LE(totals.aborted, count / 10);
}

TEST(HandleRace, StoppedMeanwhile) {
  const uint64_t count = rounds(400);
  const Enough enough = each_outcome(count / 10);
  EXPECT_TRUE(enough(run_stopped_rounds(count, 240, begin<HandleRound>(), enough)));
}

}  // namespace race

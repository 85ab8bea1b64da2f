#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Periodic timers of some ten microseconds that tick while threads cancel them by handle and by
// name, reschedule and list them, ticks end them and the library stops; then an account of each:
//
// 1. Its callback ran once, and after it no tick; no two ticks at once, unless they may overlap.
// 2. At most one call reported that it won. It did so if, and only if, the outcome is ECANCELED.
// 3. SUCCESS only if a tick ended it, ABORTED only if the library stopped.

namespace race {
namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;
using workflow::Runtime;

class PeriodicRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kTimers = 12;

  PeriodicRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    TestRandom random(test_support::test_seed(), number * 10 + 9);
    for (size_t i = 0; i < kTimers; i++) {
      start(i, random);
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
  }

  std::string finish() override {
    join_threads();
    for (Timer& timer : timers_) {
      timer.won += timer.handle.cancel_and_wait() == WFTimerCancel::kWon;
    }
    for (size_t i = 0; i < kTimers; i++) {
      const std::string wrong = account(timers_[i]);
      if (!wrong.empty()) {
        return "timer " + std::to_string(i) + (timers_[i].named ? ", named: " : ": ") + wrong;
      }
    }
    return "";
  }

  size_t outcomes(int state) const override {
    size_t n = 0;
    for (const Timer& timer : timers_) {
      n += timer.state == state;
    }
    return n;
  }

 private:
  struct Timer {
    WFTimerHandle handle;
    bool named = false;
    bool overlap = false;
    uint64_t ended_by = 0;  // this tick; 0: none
    std::atomic<bool> ended{false};
    std::atomic<int> running{0};
    std::atomic<int> callbacks{0};
    std::atomic<int> won{0};
    std::atomic<const char*> wrong{nullptr};
    int state = -1;
    int error = 0;
  };

  std::string name_of(size_t i) const {
    return "periodic " + std::to_string(number()) + "." + std::to_string(i);
  }

  void start(size_t i, TestRandom& random) {
    Timer& timer = timers_[i];
    timer.named = random.one_in(2);
    timer.overlap = random.one_in(2);
    timer.ended_by = random.one_in(3) ? 1 + random.below(6) : 0;
    WFTimerPeriod period;
    period.every = nanoseconds(1000 + random.below(60'000));
    period.pace = static_cast<WFTimerPace>(random.below(4));
    period.overlap = timer.overlap;
    if (random.one_in(3)) {
      period.first = nanoseconds(0);  // due when it is started
    }
    WFTimerOptions options;
    if (timer.named) {
      options.name = name_of(i);
    }
    WFTimerTask* task = WFTimer::create_periodic(
        period, options, [&timer](const WFTimerTick& tick) { on_tick(timer, tick); },
        [&timer](WFTimerTask* ended) {
          timer.callbacks++;
          if (timer.running > 0) {
            timer.wrong = "the callback while a tick runs";
          }
          timer.state = ended->get_state();
          timer.error = ended->get_error();
        });
    timer.handle = WFTimer::handle_of(task);
    task->start();
  }

  static void on_tick(Timer& timer, const WFTimerTick& tick) {
    if (timer.running++ > 0 && !timer.overlap) {
      timer.wrong = "two ticks at once";
    }
    if (timer.callbacks > 0) {
      timer.wrong = "a tick after the callback";
    }
    if (tick.late.count() < 0) {
      timer.wrong = "a tick before its time";
    }
    if (tick.number % 3 == 1) {
      std::this_thread::yield();
    }
    if (timer.ended_by > 0 && tick.number + 1 >= timer.ended_by) {
      timer.ended = true;
      tick.end();
    }
    timer.running--;
  }

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t step = 0; step < 40; step++) {
      const size_t i = random.below(kTimers);
      Timer& timer = timers_[i];
      switch (random.below(10)) {
        case 0:
          timer.won += timer.handle.cancel() == WFTimerCancel::kWon;
          break;
        case 1:
          if (timer.named) {
            timer.won += WFTaskFactory::cancel_by_name(name_of(i));
          }
          break;
        case 2:
        case 3:
          timer.handle.reschedule(nanoseconds(random.below(100'000)));
          break;
        case 4:
          WFTimer::count_prefix("periodic ");
          break;
        case 5:
          if (timer.callbacks > 0) {  // a wait for others' ends would be the end of the race
            timer.handle.cancel_and_wait();
          }
          break;
        default:
          std::this_thread::sleep_for(
              std::chrono::microseconds(random.below(30)));  // let them tick
      }
    }
  }

  std::string account(const Timer& timer) const {
    if (timer.wrong) return timer.wrong.load();
    if (timer.callbacks != 1) return "called " + std::to_string(timer.callbacks) + " times";
    const bool cancelled = timer.state == WFT_STATE_SYS_ERROR && timer.error == ECANCELED;
    if (timer.won > 1 || (timer.won == 1) != cancelled) {
      return std::to_string(timer.won) + " won, and the state is " + std::to_string(timer.state);
    }
    if (timer.state == WFT_STATE_SUCCESS && !timer.ended) return "ended by no tick";
    if (timer.state == WFT_STATE_ABORTED && !is_stopped_meanwhile()) return "aborted";
    return "";
  }

  std::array<Timer, kTimers> timers_;
};

}  // namespace

TEST(PeriodicRace, EveryVerdictIsTrue) {
  const uint64_t count = rounds(1000);
  const Totals totals = run_rounds(count, begin<PeriodicRound>());
  expect_each_side_won(totals, count / 10);
  EXPECT_LE(totals.aborted, count / 10);
}

TEST(PeriodicRace, StoppedMeanwhile) {
  const uint64_t count = rounds(400);
  const Enough enough = each_outcome(count / 10);
  EXPECT_TRUE(enough(run_stopped_rounds(count, 240, begin<PeriodicRound>(), enough)));
}

}  // namespace race

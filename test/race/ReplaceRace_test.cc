#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Threads that create timers of one name, each of which replaces those before it, while these are
// started, dismissed, cancelled by name and expire; then an account:
//
// 1. The callback of a started timer ran once, that of a dropped one never.
// 2. When all have been created at most one has the name.
// 3. In calm rounds, where nothing else ends them, exactly one has it, and it was never free.
// 4. Cancels by name reported no more timers than ended with ECANCELED or were dropped.

namespace race {
namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;
using workflow::Runtime;

class ReplaceRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 20;

  ReplaceRound(uint64_t number, Runtime* runtime)
      : Round(number, runtime), calm_(!runtime && number % 2 == 0) {
    if (calm_) {
      begin(timers_[0], nanoseconds(-1), false);
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
  }
  std::string finish() override {
    join_threads();
    const size_t left = WFTimer::count(name_);
    told_ += WFTaskFactory::cancel_by_name(name_);
    const bool all_ended = ended_.wait_for(started_);
    if (!all_ended) {
      return std::to_string(started_) + " started, " + std::to_string(ended_.count()) + " ended";
    }
    if (left > 1 || (calm_ && left != 1)) return std::to_string(left) + " have the name";
    if (was_free_) return "the name was free";
    return account();
  }
  size_t outcomes(int state) const override {
    size_t n = 0;
    for (const Timer& timer : timers_) {
      n += timer.callbacks > 0 && timer.state == state;
    }
    return n;
  }

 private:
  struct Timer {
    bool started = false;
    bool dropped = false;
    std::atomic<int> callbacks{0};
    int state = 0;
    int error = 0;
  };

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = 0; i < kEach; i++) {
      Timer& timer = timers_[1 + thread * kEach + i];
      const bool expires = !calm_ && random.one_in(2);
      begin(timer, nanoseconds(expires ? static_cast<int64_t>(random.below(30'000)) : -1),
            !calm_ && random.one_in(5));
      if (calm_) {
        was_free_ = was_free_ || WFTimer::count(name_) == 0;
      } else if (random.one_in(6)) {
        told_ += WFTaskFactory::cancel_by_name(name_, 1 + random.below(2));
      } else if (random.one_in(3)) {  // else hardly any would live until it expires
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(60)));
      }
    }
  }

  void begin(Timer& timer, nanoseconds delay, bool drop) {
    WFTimerTask* const task =
        WFTimer::create(delay, {name_, WF_TIMER_REPLACE}, [this, &timer](WFTimerTask* ending) {
          timer.callbacks++;
          timer.state = ending->get_state();
          timer.error = ending->get_error();
          ended_.add();
        });
    if (drop) {
      timer.dropped = true;
      task->dismiss();
    } else {
      timer.started = true;
      started_++;
      task->start();
    }
  }

  std::string account() const {
    int cancelled_or_dropped = 0;
    for (size_t i = 0; i < timers_.size(); i++) {
      const Timer& timer = timers_[i];
      if (timer.callbacks != (timer.started ? 1 : 0)) {
        return "timer " + std::to_string(i) + " called " + std::to_string(timer.callbacks) +
               " times";
      }
      cancelled_or_dropped += timer.dropped || (timer.started && timer.error == ECANCELED);
    }
    if (told_ > cancelled_or_dropped) {
      return std::to_string(told_) + " told, of " + std::to_string(cancelled_or_dropped);
    }
    return "";
  }

  const bool calm_;
  const std::string name_ = "replaced " + std::to_string(number());
  std::vector<Timer> timers_ = std::vector<Timer>(1 + kThreads * kEach);
  test_support::Tally ended_;
  std::atomic<size_t> started_{0};
  std::atomic<int> told_{0};
  std::atomic<bool> was_free_{false};
};

TEST(ReplaceRace, OneOfTheNameStays) {
  const uint64_t count = rounds(1000);
  const Totals totals = run_rounds(count, begin<ReplaceRound>());
  expect_each_side_won(totals, count / 10);
  EXPECT_LE(totals.aborted, count / 10);
}

TEST(ReplaceRace, StoppedMeanwhile) {
  const uint64_t count = rounds(300);
  const Enough enough = each_outcome(count / 10);
  EXPECT_TRUE(enough(run_stopped_rounds(count, 240, begin<ReplaceRound>(), enough)));
}

}  // namespace
}  // namespace race

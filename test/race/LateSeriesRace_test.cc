#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFCoroutine.h"

// A task is started alone and comes back again and again. Threads ask for its series and push to
// it, while the tasks that it waits for begin, ask, too, and end. Then the task ends, or its series
// is cancelled. The account:
//
// 1. All were told of the same series, which ended once.
// 2. The task ended once, and by the cancel if there was one.
// 3. What was pushed has run once if nothing was cancelled. Nothing is left.

namespace race {
namespace {

using test_support::TestRandom;
using workflow::Runtime;

class LateSeriesRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 3;

  LateSeriesRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    cancels_ = number % 2 == 0;
    if (number % 4 < 2) {
      auto* const coroutine = wf::task(&LateSeriesRound::repeat, this);
      task_ = coroutine;
      coroutine->start();
    } else {
      auto* const repeater = WFTaskFactory::create_repeater_task(
          [this](WFRepeaterTask*) { return may_end_ ? nullptr : next(); },
          [this](WFRepeaterTask* ended) {
            require((ended->get_error() == ECANCELED) == cancels_, "the repeater ended otherwise");
            ended_.add();
          });
      task_ = repeater;
      repeater->start();
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
  }
  std::string finish() override {
    join_threads();
    // The coroutine or repeater, its series, and what was pushed to it.
    const size_t all = 2 + kThreads * kEach;
    if (!ended_.wait_for(all)) return std::to_string(ended_.count()) + " have ended";
    if (ended_.count() != all) return "something has ended twice";
    if (!cancels_ && called_back_ != kThreads * kEach) return "something was dropped";
    return problem();
  }
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? called_back_.load()
           : state == WFT_STATE_SYS_ERROR ? kThreads * kEach - called_back_
                                          : 0;
  }

 private:
  // Counts its end when it is destroyed.
  class Ending {
   public:
    explicit Ending(test_support::Tally& ended) : ended_(ended) {}
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;
    ~Ending() { ended_.add(); }

   private:
    test_support::Tally& ended_;
  };

  SeriesWork* found(const SubTask* task) {
    SeriesWork* const series = series_of(task);
    SeriesWork* first = nullptr;
    require(series_.compare_exchange_strong(first, series) || first == series, "another series");
    return series;
  }

  // What the task waits for next.
  SubTask* next() {
    const bool asks = random_.one_in(4);
    const auto ask = [this, asks](const SubTask* ended) {
      if (asks) found(ended);
    };
    if (random_.one_in(2)) return WFTaskFactory::create_counter_task(0, ask);
    return WFTaskFactory::create_timer_task(std::chrono::microseconds(random_.below(30)), ask);
  }
  WFCo<> repeat() {
    const Ending ending(ended_);
    while (!may_end_) {
      SubTask* const task = next();
      (void)co_await task;
    }
  }

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = 0; i < kEach; i++) {
      pause_us(random.below(40));
      const auto ending = std::make_shared<Ending>(ended_);
      SubTask* const pushed =
          WFTaskFactory::create_counter_task(0, [this, ending](WFCounterTask* task) {
            found(task);
            called_back_++;
          });
      if (random.one_in(2)) {
        found(task_)->push_front(pushed);
      } else {
        found(task_)->push_back(pushed);
      }
    }
    if (++threads_ended_ < kThreads) return;
    // No other thread needs the series any more.
    SeriesWork* const series = found(task_);
    series->set_callback([this](const SeriesWork*) { ended_.add(); });
    if (cancels_) {
      series->cancel();
    } else {
      may_end_ = true;
    }
  }

  TestRandom random_{test_support::test_seed(), number()};  // used by the task alone
  bool cancels_ = false;
  SubTask* task_ = nullptr;
  test_support::Tally ended_;
  std::atomic<SeriesWork*> series_{nullptr};
  std::atomic<size_t> threads_ended_{0};
  std::atomic<bool> may_end_{false};
  std::atomic<size_t> called_back_{0};
};

TEST(LateSeriesRace, ThereIsOneSeries) {
  const Totals totals = run_rounds(rounds(1000), begin<LateSeriesRound>());
  EXPECT_GT(totals.succeeded, 0u);
}

}  // namespace
}  // namespace race

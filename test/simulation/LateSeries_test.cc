// The series of a task that was started alone and comes back, under every interleaving that many
// seeds find: threads ask for it and push to it while that task waits, runs or changes from one to
// the other, the tasks that it waits for ask, too, and the last thread may cancel the series.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>

#include "support/Seeds.h"
#include "support/TestSeed.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFSimulation.h"

namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;

// The task that comes back runs only at even times.
class LateSeriesRun {
 public:
  explicit LateSeriesRun(uint64_t seed)
      : random_(seed), is_repeater_(seed % 2 == 0), cancels_(seed / 2 % 3 == 0) {
    WFSimulationOptions options;
    options.handler_threads = 1 + static_cast<int>(seed / 6 % 3);
    simulation_.emplace(seed, options);
  }

  void run() {
    if (is_repeater_) {
      task_ = WFTaskFactory::create_repeater_task(
          [this](WFRepeaterTask*) { return may_end_ ? nullptr : next(); },
          [this](WFRepeaterTask* repeater) {
            EXPECT_EQ(repeater->get_error(), cancels_ ? ECANCELED : 0);
            ends_++;
          });
      static_cast<WFRepeaterTask*>(task_)->start();
    } else {
      auto* const coroutine = wf::task(&LateSeriesRun::repeat, this);
      task_ = coroutine;
      coroutine->start();
    }
    for (int i = 0; i < kThreads; i++) {
      const nanoseconds pause(random_.below(12));
      const bool to_front = random_.one_in(2);
      simulation_->spawn([this, pause, to_front] { push(pause, to_front); });
    }
    const WFSimulationResult result = simulation_->run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_EQ(ends_, 1);
    EXPECT_EQ(series_ends_, 1);
    if (cancels_) {
      EXPECT_LE(rounds_, last_round_);
    } else {
      EXPECT_EQ(pushed_ended_, kThreads);
    }
    EXPECT_TRUE(simulation_->stop().ok());
  }

 private:
  static constexpr int kThreads = 3;

  // Counts when the frame is destroyed.
  struct Ending {
    ~Ending() { ends++; }
    int& ends;
  };

  bool waits_for_sure() const { return simulation_->now_ns() % 2 == 1; }

  SeriesWork* found(const SubTask* task) {
    SeriesWork* const series = series_of(task);
    if (!series_) {
      series_ = series;
    }
    EXPECT_EQ(series, series_);
    return series;
  }

  // What the task waits for next.
  SubTask* next() {
    rounds_++;
    if (random_.one_in(8)) found(task_);
    if (random_.one_in(3)) return wf::task(&LateSeriesRun::wait_twice, this);
    return timer();
  }
  WFTimerTask* timer() {
    const nanoseconds pause(2 * random_.below(3));
    const bool asks = random_.one_in(4);
    return WFTaskFactory::create_timer_task(pause, [this, asks](WFTimerTask* ended) {
      if (asks) found(ended);
    });
  }
  WFCo<> wait_twice() {
    WFTimerTask* const first = timer();
    (void)co_await first;
    SeriesWork* const series = co_await wf::own_series();
    EXPECT_EQ(series, found(task_));
    WFTimerTask* const second = timer();
    (void)co_await second;
  }
  WFCo<> repeat() {
    const Ending ending{ends_};
    while (!may_end_) {
      SubTask* const task = next();
      (void)co_await task;
    }
  }

  void push(nanoseconds pause, bool to_front) {
    simulation_->sleep_for(pause);
    const bool waits = waits_for_sure();
    SeriesWork* const series = found(task_);
    const int rounds = rounds_;
    auto* const pushed = WFTaskFactory::create_counter_task(
        0, [this, rounds, precedes = waits && to_front](WFCounterTask* ended) {
          found(ended);
          pushed_ended_++;
          EXPECT_TRUE(!precedes || rounds_ == rounds) << rounds;
        });
    if (to_front) {
      series->push_front(pushed);
    } else {
      series->push_back(pushed);
    }
    if (++threads_ended_ < kThreads) return;
    // No other thread needs the series any more.
    series->set_callback([this](const SeriesWork*) { series_ends_++; });
    if (cancels_) {
      series->cancel();
      last_round_ = rounds_ + (waits ? 0 : 1);
    } else {
      may_end_ = true;
    }
  }

  TestRandom random_;
  const bool is_repeater_;
  const bool cancels_;
  std::optional<WFSimulation> simulation_;
  SubTask* task_ = nullptr;
  SeriesWork* series_ = nullptr;
  int rounds_ = 0;
  int threads_ended_ = 0;
  bool may_end_ = false;
  int last_round_ = 0;  // that may begin although the series is cancelled
  int ends_ = 0;
  int series_ends_ = 0;
  int pushed_ended_ = 0;
};

TEST(LateSeriesProtocol, ThereIsOneSeriesThatBehavesLikeAnyOther) {
  for_each_seed(kSeeds, [](uint64_t seed) { LateSeriesRun(seed).run(); });
}

}  // namespace

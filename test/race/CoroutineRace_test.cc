#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFCoroutine.h"

// Threads that start coroutines which wait in many ways, while these are cancelled by name, by
// their scope and by their series, and run into deadlines; then an account:
//
// 1. Each series ended once, with all of its coroutines ended or dropped.
// 2. Every local object of a coroutine was destroyed.
// 3. No guard had two holders, and no resource of the pool was lost.

namespace race {
namespace {

using std::chrono::nanoseconds;
using test_support::TestRandom;
using workflow::Runtime;

class CoroutineRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 8;
  static constexpr size_t kResources = 2;

  CoroutineRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
  }
  std::string finish() override {
    join_threads();
    // Some sleep for ever, and may begin to do so now.
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    while (!ended_.wait_for(kThreads * kEach, std::chrono::milliseconds(1)) &&
           std::chrono::steady_clock::now() < give_up) {
      WFTaskFactory::cancel_by_name(name_);
    }
    if (ended_.count() != kThreads * kEach) return std::to_string(ended_.count()) + " series ended";
    if (frames_ != 0) return std::to_string(frames_) + " frames are left";
    if (overlap_) return "the guard had two holders";
    if (aborted_ == 0 && taken_ != 0) return std::to_string(taken_) + " resources are lost";
    return problem();
  }
  size_t outcomes(int state) const override {
    const std::atomic<size_t>& count = state == WFT_STATE_SUCCESS   ? succeeded_
                                       : state == WFT_STATE_ABORTED ? aborted_
                                                                    : failed_;
    return count;
  }

 private:
  // What a coroutine has in its frame: it counts until the frame is gone.
  class Counted {
   public:
    explicit Counted(std::atomic<int>& count) : count_(count) { now = ++count_; }
    ~Counted() { count_--; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    int now;

   private:
    std::atomic<int>& count_;
  };

  void note(const WFEnd& end) {
    std::atomic<size_t>& count = end                              ? succeeded_
                                 : end.state == WFT_STATE_ABORTED ? aborted_
                                                                  : failed_;
    count++;
  }

  WFCo<> doze(int64_t ns) {
    const Counted frame(frames_);
    const WFEnd end = co_await wf::sleep(name_, nanoseconds(ns));
    note(end);
  }
  WFCo<> hold() {
    const Counted frame(frames_);
    auto held = co_await wf::hold(name_);
    note(held);
    if (!held) co_return;
    const WFReleaseGuard release(name_);
    const Counted holder(holders_);
    if (holder.now > 1) overlap_ = true;
    co_await doze(1000);
  }
  WFCo<> take() {
    const Counted frame(frames_);
    auto taken = co_await wf::take(pool_);
    note(taken);
    if (!taken) co_return;
    const WFPostResource back(pool_, *taken.value);
    const Counted resource(taken_);
    require(resource.now <= static_cast<int>(kResources), "a resource has two owners");
    co_await doze(1000);
  }
  WFCo<> compute() {
    const Counted frame(frames_);
    int local = 0;
    const auto function = [&local] { return ++local; };
    auto result = co_await wf::go("race", function);
    note(result);
    require(result.value.value_or(0) == local, "a function came too late");
  }
  WFCo<> wander(uint64_t way) {
    const Counted frame(frames_);
    switch (way % 6) {
      case 0: {
        auto all = co_await wf::all(doze(2000), hold(), take());
        static_cast<void>(all);
        break;
      }
      case 1: {
        auto ended = co_await wf::any(doze(3000), hold(), compute());
        static_cast<void>(ended);
        break;
      }
      case 2: {
        auto end = co_await wf::within(std::chrono::microseconds(20), take());
        static_cast<void>(end);
        break;
      }
      case 3: {
        const auto body = [this](WFScope& scope) -> WFCo<> {
          scope.start(&CoroutineRound::hold, this);
          scope.start(&CoroutineRound::doze, this, 2000);
          co_await compute();
        };
        co_await wf::scope(body);
        break;
      }
      case 4:
        co_await take();
        break;
      default:
        co_await doze(-1);
        break;
    }
  }

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = 0; i < kEach; i++) {
      WFScopeTask* const task = WFTaskFactory::create_scope_task(
          wf::task(&CoroutineRound::wander, this, random.below(6)), nullptr);
      SeriesWork* const inside = task->sub_series();
      inside->push_back(wf::task(&CoroutineRound::wander, this, random.below(6)));
      if (random.one_in(4)) {
        inside->push_back(WFTaskFactory::create_timer_task(
            0, 0, [](WFTimerTask* timer) { series_of(timer)->cancel(); }));
        inside->push_back(wf::task(&CoroutineRound::wander, this, random.below(6)));
      }
      const WFScope scope = task->scope();
      Workflow::start_series_work(task, [this](const SeriesWork*) { ended_.add(); });
      if (random.one_in(3)) {
        scope.cancel();
      } else if (random.one_in(3)) {
        WFTaskFactory::cancel_by_name(name_, 1 + random.below(3));
      } else {
        scope.set_deadline(std::chrono::microseconds(random.below(200)));
      }
    }
  }

  const std::string name_ = "coroutine race " + std::to_string(number());
  WFResourcePool pool_{kResources};
  test_support::Tally ended_;
  std::atomic<int> frames_{0};
  std::atomic<int> holders_{0};
  std::atomic<int> taken_{0};
  std::atomic<bool> overlap_{false};
  std::atomic<size_t> succeeded_{0};
  std::atomic<size_t> failed_{0};
  std::atomic<size_t> aborted_{0};
};

TEST(CoroutineRace, NothingIsLost) {
  const uint64_t count = rounds(100);
  const Totals totals = run_rounds(count, begin<CoroutineRound>());
  expect_each_side_won(totals, count / 10);
}

TEST(CoroutineRace, StoppedMeanwhile) {
  const uint64_t count = rounds(50) / 2;
  const auto enough = [](const Totals& totals) {
    return totals.succeeded > 0 && totals.failed > 0 && totals.aborted > 0;
  };
  const Totals totals = run_stopped_rounds(count, 240, begin<CoroutineRound>(), enough);
  EXPECT_TRUE(enough(totals));
}

}  // namespace
}  // namespace race

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "kernel/ManualClock.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/ClockWalk.h"
#include "support/RaceKit.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"

// Threads that move a manual clock, and one that starts timers meanwhile; then an account: each
// timer ran, none too early, and those that a callback or a computation has started ran exactly at
// their deadlines.

namespace race {
namespace {

using test_support::ClockWalk;
using test_support::TestRandom;
using workflow::ManualClock;
using workflow::Runtime;
using workflow::ThreadContext;

class ManualClockRound final : public Round {
 public:
  static constexpr int kTasks = 60;

  explicit ManualClockRound(uint64_t number, Runtime* = nullptr)
      : Round(number), walk_(clock_, test_support::test_seed() + number, kTasks) {
    TestRandom random(test_support::test_seed(), number);
    runtime_.emplace(Runtime::Options{.poller_threads = static_cast<int>(random.between(1, 3)),
                                      .handler_threads = static_cast<int>(random.between(1, 4)),
                                      .compute_threads = static_cast<int>(random.between(1, 3)),
                                      .clock = &clock_});
    require(runtime_->start(), "the runtime does not start");
    ThreadContext::current().runtime = &*runtime_;
    walk_.start(4, ClockWalk::Time::kStands);
    ThreadContext::current().runtime = nullptr;
    for (uint64_t i = 0; i < 2; i++) {
      start_thread([this, i] { move(i); });
    }
    start_thread([this] { start_timers(); });
    start_thread([this] { change_threads(); });
  }

  std::string finish() override {
    join_threads();
    while (clock_.advance_to_next_deadline(*runtime_)) {
    }
    require(walk_.ended() == walk_.started(), "timers have not ended");
    const std::string account = walk_.account();
    runtime_->stop();
    return account.empty() ? problem() : account;
  }

  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS ? walk_.ended() : 0;
  }

 private:
  void move(uint64_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (int i = 0; i < 10; i++) {
      if (random.one_in(4)) {
        clock_.advance_to_next_deadline(*runtime_);
      } else {
        clock_.advance(*runtime_, random.between(0, 10));
      }
    }
  }

  void start_timers() {
    ThreadContext::current().runtime = &*runtime_;
    for (int i = 0; i < 5; i++) {
      walk_.start(2, ClockWalk::Time::kMayMove);
    }
    ThreadContext::current().runtime = nullptr;
  }

  // Each wakes handlers, which find nothing to do.
  void change_threads() {
    ThreadContext::current().runtime = &*runtime_;
    for (int i = 0; i < 5; i++) {
      require(runtime_->handlers().increase_threads() == 0, "there is no thread");
      require(runtime_->handlers().decrease_threads() == 0, "the last thread ends");
    }
    ThreadContext::current().runtime = nullptr;
  }

  ManualClock clock_;
  ClockWalk walk_;
  std::optional<Runtime> runtime_;
};

}  // namespace

TEST(ManualClockRace, TimeStandsWhileAnythingRuns) {
  const Totals totals = run_rounds(rounds(400), begin<ManualClockRound>());
  EXPECT_GT(totals.succeeded, totals.tasks / 2);
}

}  // namespace race

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/OnPoller.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// A poller whose rounds follow each other closely runs what they finish on its own thread. These
// facts hold on whatever thread a callback runs; the stream of timers makes it the poller's.

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using workflow::Runtime;
using workflow::ThreadContext;

class RunToCompletion : public testing::Test {
 protected:
  RunToCompletion() {
    Runtime::configure({.poller_threads = 1, .handler_threads = 4, .compute_threads = 1});
  }
  ~RunToCompletion() override { stop_stream(); }

  // Timers that expire every 100 us, each started by the last one's callback.
  void start_stream() {
    streaming_ = true;
    stream_ended_ = std::make_unique<WFFacilities::WaitGroup>(1);
    next();
    while (polled_ < 100) {
      std::this_thread::sleep_for(1ms);  // lets the stream get going in real time
    }
  }
  void stop_stream() {
    if (streaming_.exchange(false)) {
      stream_ended_->wait();
    }
  }

  std::atomic<int> polled_{0};  // callbacks of the stream that ran on a poller's thread

 private:
  void next() {
    WFTaskFactory::create_timer_task(100, [this](WFTimerTask*) {
      polled_ += ThreadContext::current().running_for != nullptr;
      if (streaming_) {
        next();
      } else {
        stream_ended_->done();
      }
    })->start();
  }

  std::atomic<bool> streaming_{false};
  std::unique_ptr<WFFacilities::WaitGroup> stream_ended_;
};

void run_on_poller(const std::function<void()>& body) {
  WFFacilities::WaitGroup ran(1);
  test_support::start_on_poller([&] {
    body();
    ran.done();
  });
  ran.wait();
}

}  // namespace

TEST_F(RunToCompletion, ABlockedCallbackDelaysNoOtherTimer) {
  start_stream();
  run_on_poller([] {
    std::atomic<bool> expired{false};
    WFTaskFactory::create_timer_task(10'000, [&](WFTimerTask*) { expired = true; })->start();
    // Blocks without telling, until a timer of the very same poller has been served.
    while (!expired) {
      std::this_thread::sleep_for(1ms);
    }
  });
}

// Without a deadline: the callback ends only when others have run what is behind it. That is a
// timer of the same poller, and what the same round has finished. Rounds follow until a leader has
// run such a callback.
TEST_F(RunToCompletion, ACallbackThatComputesHoldsUpNothing) {
  start_stream();
  constexpr int kTimers = 6;
  std::atomic<bool> computes{false};
  while (!computes) {
    std::atomic<int> arrived{0};
    std::atomic<bool> expired{false};
    WFFacilities::WaitGroup left(kTimers + 1);
    run_on_poller([&] {
      const auto due = Clock::now() + 5ms;
      for (int i = 0; i < kTimers; i++) {
        WFTimer::create(due, [&](WFTimerTask*) {
          arrived++;
          if (ThreadContext::current().running_for && !computes.exchange(true)) {
            while (arrived < kTimers || !expired) {
            }
          }
          left.done();
        })->start();
      }
      WFTimer::create(due + 10ms, [&](WFTimerTask*) {
        expired = true;
        left.done();
      })->start();
    });
    left.wait();
    EXPECT_EQ(arrived, kTimers);
  }
}

TEST_F(RunToCompletion, AWaitThatTellsIsReplacedAtOnce) {
  start_stream();
  run_on_poller([] {
    WFFacilities::WaitGroup expired(1);
    WFTaskFactory::create_timer_task(1'000, [&](WFTimerTask*) { expired.done(); })->start();
    expired.wait();
  });
}

TEST_F(RunToCompletion, WhatABlockedCallbackHeldUpIsHandedOver) {
  start_stream();
  for (int round = 0; round < 3; round++) {
    run_on_poller([] {
      // All due at once, so that one round finishes them together; each waits for all the others.
      constexpr int kTimers = 3;
      std::atomic<int> arrived{0};
      WFFacilities::WaitGroup left(kTimers);
      for (int i = 0; i < kTimers; i++) {
        WFTaskFactory::create_timer_task(2'000, [&](WFTimerTask*) {
          arrived++;
          while (arrived < kTimers) {
            std::this_thread::sleep_for(100us);
          }
          left.done();
        })->start();
      }
      left.wait();
    });
  }
}

// The callbacks of one round, all of which sleep for a moment without telling, are shared out. The
// thread of the poller must not run them one after the other, although they need little of a
// processor.
TEST_F(RunToCompletion, CallbacksThatSleepAreHandedOver) {
  start_stream();
  constexpr int kTimers = 60;
  std::atomic<int> on_poller{0};
  WFFacilities::WaitGroup left(kTimers);
  run_on_poller([&] {
    const auto due = Clock::now() + 5ms;
    for (int i = 0; i < kTimers; i++) {
      WFTimer::create(due, [&](WFTimerTask*) {
        on_poller += ThreadContext::current().running_for != nullptr;
        std::this_thread::sleep_for(800us);
        left.done();
      })->start();
    }
  });
  left.wait();
  EXPECT_LT(on_poller, kTimers / 4);
}

TEST_F(RunToCompletion, OneHandlerKeepsCallbacksOnThatThread) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1, .compute_threads = 1});
  WFFacilities::WaitGroup all(2'000);
  std::atomic<int> elsewhere{0};
  for (int i = 0; i < 2'000; i++) {
    WFTaskFactory::create_timer_task(static_cast<unsigned>(i) * 50, [&](WFTimerTask*) {
      elsewhere += ThreadContext::current().running_for != nullptr;
      all.done();
    })->start();
  }
  all.wait();
  EXPECT_EQ(elsewhere, 0);
}

TEST(RunToCompletionDeathTest, ACallbackOnThePollersThreadMayExit) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Runtime::configure({.poller_threads = 1, .handler_threads = 4, .compute_threads = 1});
        WFTaskFactory::create_timer_task(1000, 0, nullptr)->start();
        test_support::start_on_poller([] { std::exit(7); });
        std::this_thread::sleep_for(60s);  // the callback ends the process before
      },
      testing::ExitedWithCode(7), "");
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/Simulation.h"
#include "kernel/ThreadContext.h"
#include "support/Loopback.h"
#include "support/TempDir.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Timers whose time has come when they are started: they have expired then, and wait for a handler.

namespace {

using namespace std::chrono_literals;
using test_support::Tally;
using test_support::TimerOutcomes;
using workflow::Runtime;
using workflow::ThreadContext;

// The calling thread is inside a start().
thread_local bool starting = false;

void start(WFTimerTask* task) {
  starting = true;
  task->start();
  starting = false;
}

// A runtime of its own with one handler; more only if that gets no processor for long.
class DueTimer : public testing::Test {
 protected:
  explicit DueTimer(int handlers = 1)
      : runtime_({.poller_threads = 1, .handler_threads = handlers, .compute_threads = 1}) {
    EXPECT_TRUE(runtime_.start());
    ThreadContext::current().runtime = &runtime_;
  }
  ~DueTimer() override {
    stop();
    ThreadContext::current().runtime = nullptr;
    EXPECT_EQ(nested_, 0) << "a callback ran inside start()";
  }

  timer_callback_t callback() {
    return [this](WFTimerTask* task) {
      nested_ += starting;
      outcomes_.add(0, task);
    };
  }

  void stop() {
    if (!stopped_) {
      stopped_ = true;
      runtime_.stop();
    }
  }

  // Runs the function on the handler, and waits for it.
  static void on_handler(const std::function<void()>& function) {
    Tally ran;
    WFTimer::create(0s, [&](WFTimerTask*) {
      function();
      ran.add();
    })->start();
    ASSERT_TRUE(ran.wait_for(1));
  }

  Runtime runtime_;
  bool stopped_ = false;
  TimerOutcomes outcomes_;
  std::atomic<int> nested_{0};
};

class DueTimerOfTwoHandlers : public DueTimer {
 protected:
  DueTimerOfTwoHandlers() : DueTimer(2) {}
};

// Each kind of time that has come.
std::vector<WFTimerDue> due_times() {
  return {0s,
          {0s, WF_CLOCK_WALL},
          {0s, WF_CLOCK_BOOTTIME},
          WFTimer::steady_now(),
          WFTimer::steady_now() - 1h,
          WFBootClock::now() - 1h,
          WFTimer::wall_now() - 24h,
          std::chrono::system_clock::from_time_t(-1)};
}

TEST_F(DueTimer, SucceedsWhateverSaysThatItIsDue) {
  size_t n = 0;
  for (const WFTimerDue& due : due_times()) {
    WFTimer::create(due, callback())->start();
    WFTimer::create(due, {"name"}, callback())->start();
    n += 2;
  }
  ASSERT_TRUE(outcomes_.wait_for(n));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SUCCESS, 0), n);
  EXPECT_EQ(WFTimer::count("name"), 0u);
}

TEST_F(DueTimer, NeverEntersTheQueueOfAPoller) {
  on_handler([&] {
    for (const WFTimerDue& due : due_times()) {
      WFTimer::create(due, callback())->start();
      EXPECT_EQ(runtime_.poller(0).timers().size(), 0u);
    }
  });
  EXPECT_TRUE(outcomes_.wait_for(due_times().size()));
}

TEST_F(DueTimer, CannotBeCancelledOrMovedOnceItIsStarted) {
  on_handler([&] {
    std::vector<WFTimerTask*> tasks = {WFTimer::create(0s, callback()),
                                       WFTimer::create(0s, {"name"}, callback())};
    for (WFTimerTask* task : tasks) {
      const WFTimerHandle handle = WFTimer::handle_of(task);
      start(task);
      EXPECT_NE(handle.reschedule(1h), WFTimerMove::kWon);
      EXPECT_FALSE(handle.remaining().has_value());
      EXPECT_NE(handle.cancel(), WFTimerCancel::kWon);
    }
    EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
    EXPECT_EQ(WFTimer::reschedule("name", 1h), 0u);
    EXPECT_EQ(WFTimer::count("name"), 0u);
  });
  ASSERT_TRUE(outcomes_.wait_for(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SUCCESS, 0), 2u);
}

TEST_F(DueTimer, CancelledBeforeItsStartIsCancelled) {
  WFTimerTask* const unnamed = WFTimer::create(0s, callback());
  EXPECT_EQ(WFTimer::handle_of(unnamed).cancel(), WFTimerCancel::kWon);
  WFTimerTask* const named = WFTimer::create(0s, {"name"}, callback());
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  on_handler([&] {
    start(unnamed);
    start(named);
  });
  ASSERT_TRUE(outcomes_.wait_for(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 2u);
}

TEST_F(DueTimer, PutOffBeforeItsStartIsNotDue) {
  WFTimerTask* const task = WFTimer::create(0s, callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  EXPECT_EQ(handle.reschedule(1h), WFTimerMove::kWon);
  task->start();
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  ASSERT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_F(DueTimer, OfAPassedDeadlineEndsWithIt) {
  Tally ended;
  SeriesWork* const series = Workflow::create_series_work(WFTimer::create(1h, callback()), nullptr);
  series->push_back(WFTimer::create(0s, callback()));
  with_deadline(series, 1ms, [&](WFDeadlineTask*) { ended.add(); })->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ETIMEDOUT), 2u);
}

// In virtual time, because a second handler would help one that gets no processor for long, and
// might be the faster of both.
TEST(DueTimerSimulated, ADeadlineThatPassesWhileItWaitsForAHandlerIsTooLate) {
  for (uint64_t seed = 1; seed <= 50; seed++) {
    workflow::Simulation simulation(seed, {.handler_threads = 1});
    int timer_state = -1;
    int deadline_state = -1;
    WFTimer::create(0s, [&](WFTimerTask*) {
      const auto note = [&](WFTimerTask* task) { timer_state = task->get_state(); };
      with_deadline(WFTimer::create(0s, note), 1ms, [&](WFDeadlineTask* task) {
        deadline_state = task->get_state();
      })->start();
      // The one handler stays busy until the poller has taken the deadline out of its queue.
      simulation.sleep_for(workflow::WorkerPool::kStarvedNs / 2);
      EXPECT_EQ(simulation.runtime().poller(0).timers().size(), 0u);
      EXPECT_EQ(timer_state, -1);
    })->start();
    EXPECT_EQ(simulation.run().outcome, workflow::Simulation::Outcome::kQuiet);
    EXPECT_EQ(timer_state, WFT_STATE_SUCCESS);
    EXPECT_EQ(deadline_state, WFT_STATE_SUCCESS);
  }
}

TEST_F(DueTimer, AChainOfThemLetsAllOthersGoOn) {
  const test_support::TempDir directory;
  const std::string path = directory.path("file");
  WFHttpServer server([](WFHttpTask*) {});
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  Tally others;
  std::atomic<bool> all_others{false};
  // It goes on until all others have had their turns.
  std::function<void(WFTimerTask*)> chain = [&](WFTimerTask* task) {
    if (!all_others) {
      series_of(task)->push_back(WFTimer::create(0s, chain));
    }
  };
  Tally ended;
  std::function<void()> alone = [&] {
    if (!all_others) {
      WFTimer::create(0s, [&](WFTimerTask*) { alone(); })->start();
    } else {
      ended.add();
    }
  };
  Workflow::start_series_work(WFTimer::create(0s, chain), [&](const SeriesWork*) { ended.add(); });
  alone();
  const auto had_turn = [&](auto*) { others.add(); };
  for (int ms = 1; ms <= 5; ms++) {
    WFTimer::create(ms * 1ms, had_turn)->start();  // it expires in the poller
  }
  WFTimer::create(WFTimer::wall_now() + 5ms, had_turn)->start();
  WFGoTask* const go = WFTaskFactory::create_go_task("queue", [] {});
  go->set_callback(had_turn);
  go->start();
  WFTaskFactory::create_pwrite_task(path, "x", 1, 0, had_turn)->start();
  WFTaskFactory::create_counter_task(0, had_turn)->start();
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
  WFTaskFactory::create_http_task(url, 0, 0, [&](WFHttpTask* task) {
    EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
    had_turn(task);
  })->start();
  EXPECT_TRUE(others.wait_for(10));
  EXPECT_EQ(ended.count(), 0u);
  all_others = true;
  EXPECT_TRUE(ended.wait_for(2));
  server.stop();
}

TEST_F(DueTimer, IsWaitedForInACallbackOfTheOneHandler) {
  on_handler([&] {
    WFFacilities::usleep(0);
    WFFacilities::async_usleep(0).wait();
    WFTimerTask* const task = WFTimer::create(0s, callback());
    const WFTimerHandle handle = WFTimer::handle_of(task);
    start(task);
    EXPECT_NE(handle.cancel_and_wait(), WFTimerCancel::kWon);
    EXPECT_EQ(outcomes_.count(WFT_STATE_SUCCESS, 0), 1u);
  });
}

// What follows in a series, when its task ends inside a callback, is not the end of that thread's
// turn: the callback may wait for it, and another handler has to come.
TEST_F(DueTimerOfTwoHandlers, InASeriesThatGoesOnInsideACallbackDoesNotWaitForThat) {
  WFCounterTask* const counter = WFTaskFactory::create_counter_task(1, nullptr);
  Tally ran;
  SeriesWork* const series = Workflow::create_series_work(counter, nullptr);
  series->push_back(WFTimer::create(0s, [&](WFTimerTask*) { ran.add(); }));
  series->start();
  while (!runtime_.handlers().idle()) {
    std::this_thread::yield();
  }
  // Until the pool, which was just started, is not supervised any more: its supervisor would find
  // the timer, too, and nothing tells that it has gone to sleep.
  std::this_thread::sleep_for(50ms);
  on_handler([&] {
    counter->count();
    EXPECT_TRUE(ran.wait_for(1));
  });
}

TEST_F(DueTimer, AfterTheStopIsAborted) {
  stop();
  WFTimer::create(0s, callback())->start();
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_.count(WFT_STATE_ABORTED, 0), 1u);
}

TEST_F(DueTimer, PeriodicTicksAtOnce) {
  size_t ended = 0;
  for (const bool overlap : {false, true}) {
    std::atomic<int> ticks{0};
    WFTimerPeriod period;
    period.every = 1h;
    period.first = WFTimer::wall_now() - 90min;  // the second tick is due, too, the third is not
    period.pace = WF_TIMER_BURST;
    period.overlap = overlap;
    WFTimerTask* const task = WFTimer::create_periodic(
        period, {.name = "name"},
        [&](const WFTimerTick& tick) {
          nested_ += starting;
          EXPECT_GE(tick.late, tick.number == 0 ? 90min : 30min);
          ticks++;
          if (tick.number == 1) {
            tick.end();
          }
        },
        callback());
    on_handler([&] { start(task); });
    ASSERT_TRUE(outcomes_.wait_for(++ended));
    EXPECT_EQ(outcomes_.count(WFT_STATE_SUCCESS, 0), ended);
    // An overlapping tick that comes late to its thread is ended by the one after it.
    EXPECT_GE(ticks, overlap ? 1 : 2);
    EXPECT_LE(ticks, 2);
  }
}

TEST_F(DueTimer, PeriodicThatIsDueCanBeCancelled) {
  WFTimerPeriod period;
  period.every = 1h;
  period.first = 0s;
  WFTimerTask* const task = WFTimer::create_periodic(period, {}, nullptr, callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  on_handler([&] {
    start(task);
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  });
  ASSERT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

}  // namespace

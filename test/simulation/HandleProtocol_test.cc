// Handles of timers under every interleaving that many seeds find: see TimerLedger for what is
// asserted of each scenario beside its own.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "TimerLedger.h"
#include "support/Seeds.h"

namespace {

TEST(HandleProtocol, CancelMeetsCancelByNameAndTimeout) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    std::vector<WFTimerHandle> handles;
    for (int64_t delay_ns : {0, 100, 100}) {
      WFTimerTask* task = ledger.create("a", delay_ns);
      handles.push_back(WFTimer::handle_of(task));
      ledger.start(task);
    }
    for (int canceller = 0; canceller < 2; canceller++) {
      ledger.simulation().spawn([&] {
        ledger.simulation().sleep_for(100);
        for (const WFTimerHandle& handle : handles) {
          ledger.cancel(handle);
        }
      });
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(100);
      ledger.cancel("a");
    });
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS) + static_cast<size_t>(ledger.cancelled()), 3u);
    ledger.close();
    for (const WFTimerHandle& handle : handles) {
      EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
    }
  });
}

// If a timer has no name, only the poller knows whether the start or the canceller came first.
TEST(HandleProtocol, CancelOfAnUnnamedOneMeetsStartAndTimeout) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    std::vector<WFTimerTask*> tasks;
    std::vector<WFTimerHandle> handles;
    for (int64_t delay_ns : {0, 100, -1}) {
      tasks.push_back(ledger.create("", delay_ns));
      handles.push_back(WFTimer::handle_of(tasks.back()));
    }
    ledger.simulation().spawn([&] {
      for (WFTimerTask* task : tasks) {
        ledger.start(task);
      }
    });
    for (int64_t at_ns : {0, 100}) {
      ledger.simulation().spawn([&, at_ns] {
        ledger.simulation().sleep_for(at_ns);
        for (const WFTimerHandle& handle : handles) {
          ledger.cancel(handle);
        }
      });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS) + static_cast<size_t>(ledger.cancelled()), 3u);
  });
}

TEST(HandleProtocol, CancelMeetsDismiss) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      WFTimerTask* task = ledger.create(name, 100);
      const WFTimerHandle handle = WFTimer::handle_of(task);
      ledger.simulation().spawn([&ledger, handle] {
        ledger.cancel(handle);
        EXPECT_NE(ledger.cancel(handle), WFTimerCancel::kWon);
        handle.remaining();
        handle.reschedule(std::chrono::nanoseconds(5));
      });
      ledger.simulation().spawn([&ledger, task] { ledger.dismiss(task); });
    }
    ledger.simulation().spawn([&] { ledger.cancel("a"); });
    ledger.run();
  });
}

TEST(HandleProtocol, CancelAndWaitReturnsAfterTheEnd) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      WFTimerTask* task = ledger.create(name, 100);
      const WFTimerHandle handle = WFTimer::handle_of(task);
      const TimerLedger::Record& record = TimerLedger::record_of(task);
      ledger.simulation().spawn([&ledger, task] { ledger.start(task); });
      for (int64_t at_ns : {0, 100}) {
        ledger.simulation().spawn([&, handle, at_ns] {
          ledger.simulation().sleep_for(at_ns);
          EXPECT_NE(ledger.cancel_and_wait(handle), WFTimerCancel::kWouldDeadlock);
          EXPECT_EQ(record.callbacks, 1);
          EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
        });
      }
    }
    ledger.run();
  });
}

TEST(HandleProtocol, WaitingForOneAnotherInsideCallbacksLendsTheThread) {
  for_each_seed(kSeeds / 4, [](uint64_t seed) {
    TimerLedger ledger(seed, {.poller_threads = 1, .handler_threads = 1});
    WFTimerTask* waited = ledger.create("", 100);
    const WFTimerHandle handle = WFTimer::handle_of(waited);
    const TimerLedger::Record& record = TimerLedger::record_of(waited);
    ledger.start(waited);
    for (int64_t delay_ns : {0, 100, 100}) {
      ledger.create_and_start("", delay_ns, [&](WFTimerTask*) {
        ledger.cancel_and_wait(handle);
        EXPECT_EQ(record.callbacks, 1);
      });
    }
    ledger.run();
    ledger.close();
  });
}

TEST(HandleProtocol, RescheduleMeetsTimeoutAndCancel) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      WFTimerTask* task = ledger.create(name, 100);
      const WFTimerHandle handle = WFTimer::handle_of(task);
      TimerLedger::Record& record = TimerLedger::record_of(task);
      ledger.start(task);
      ledger.simulation().spawn([&, handle] {
        for (int64_t delay_ns : {200, 40, 60, 1000, 3}) {
          ledger.simulation().sleep_for(50);
          ledger.reschedule(handle, record, delay_ns);
        }
      });
      ledger.simulation().spawn([&, handle] {
        ledger.simulation().sleep_for(190);
        ledger.cancel(handle);
      });
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(100);
      ledger.cancel("a");
    });
    ledger.run();
  });
}

// A move that finds the timer gone from its queue, while it has its name still.
TEST(HandleProtocol, TooLateIsNeverFollowedByWon) {
  size_t late = 0;
  for_each_ledger<TimerLedger>(kSeeds, [&late](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      WFTimerTask* task = ledger.create(name, 100);
      const WFTimerHandle handle = WFTimer::handle_of(task);
      TimerLedger::Record& record = TimerLedger::record_of(task);
      ledger.start(task);
      ledger.simulation().spawn([&, handle] {
        ledger.simulation().sleep_for(100);
        if (ledger.reschedule(handle, record, 50) == WFTimerMove::kTooLate) {
          late++;
          EXPECT_NE(ledger.cancel(handle), WFTimerCancel::kWon);
        }
      });
      ledger.simulation().spawn([&, handle] {
        ledger.simulation().sleep_for(100);
        if (ledger.cancel(handle) == WFTimerCancel::kTooLate) {
          EXPECT_NE(ledger.reschedule(handle, record, 50), WFTimerMove::kWon);
        }
      });
    }
    ledger.run();
  });
  EXPECT_GT(late, 0u);
}

// It is refused because of its nanoseconds, and everybody comes too late.
TEST(HandleProtocol, ARefusedTimerEndsAsAnnouncedWhateverItMeets) {
  for_each_seed(kSeeds / 2, [](uint64_t seed) {
    int error = 0;
    int callbacks = 0;
    WFSimulation simulation(seed);
    auto* task = WFTaskFactory::create_timer_task("a", 0, -1, [&](WFTimerTask* ended) {
      error = ended->get_error();
      callbacks++;
    });
    const WFTimerHandle handle = WFTimer::handle_of(task);
    simulation.spawn([&] { task->start(); });
    simulation.spawn([&] { EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 0); });
    for (int i = 0; i < 2; i++) {
      simulation.spawn([&] {
        EXPECT_NE(handle.reschedule(std::chrono::seconds(1)), WFTimerMove::kWon);
        EXPECT_NE(handle.cancel_and_wait(), WFTimerCancel::kWon);
        EXPECT_EQ(callbacks, 1);
      });
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_EQ(error, EINVAL);
  });
}

TEST(HandleProtocol, RescheduleMeetsStart) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    WFTimerTask* task = ledger.create("a", 1000);
    const WFTimerHandle handle = WFTimer::handle_of(task);
    TimerLedger::Record& record = TimerLedger::record_of(task);
    ledger.simulation().spawn([&] { task->start(); });
    ledger.simulation().spawn(
        [&] { EXPECT_EQ(handle.reschedule(std::chrono::nanoseconds(7)), WFTimerMove::kWon); });
    ledger.run();
    EXPECT_EQ(record.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ledger.simulation().now_ns(), 7);
  });
}

TEST(HandleProtocol, RescheduleByNameMeetsTheEndOfOthersOfTheName) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    std::vector<WFTimerHandle> handles;
    for (int i = 0; i < 80; i++) {  // more than one chunk
      WFTimerTask* task = ledger.create("a", i % 3 ? 1000 : 50, [&](WFTimerTask* ended) {
        const int64_t now_ns = ledger.simulation().now_ns();
        EXPECT_TRUE(ended->get_state() != WFT_STATE_SUCCESS || now_ns <= 50 || now_ns >= 550);
      });
      handles.push_back(WFTimer::handle_of(task));
      task->start();
    }
    size_t moved = 0;
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(50);
      moved = WFTimer::reschedule("a", std::chrono::nanoseconds(500));
    });
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(50);
      for (size_t i = 60; i < 70; i++) {
        ledger.cancel(handles[i]);
      }
      ledger.cancel("a", 5);
    });
    ledger.run();
    EXPECT_GE(moved, 30u);
  });
}

TEST(HandleProtocol, StopMeetsEverything) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    std::vector<WFTimerHandle> handles;
    for (const char* name : {"a", "", "a", ""}) {
      WFTimerTask* task = ledger.create(name, TimerLedger::kNever);
      handles.push_back(WFTimer::handle_of(task));
      ledger.simulation().spawn([&ledger, task] { ledger.start(task); });
    }
    ledger.simulation().spawn([&] {
      ledger.cancel(handles[0]);
      ledger.cancel(handles[1]);
      handles[2].reschedule(std::chrono::hours(1));
      ledger.cancel("a");
    });
    ledger.close();
    for (const WFTimerHandle& handle : handles) {
      EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
    }
  });
}

TEST(HandleProtocol, ReplaceLeavesOne) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    int expired = 0;
    int cancelled = 0;
    for (int thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&] {
        WFTimer::create(std::chrono::nanoseconds(100), {"r", WF_TIMER_REPLACE},
                        [&](WFTimerTask* task) {
                          expired += task->get_state() == WFT_STATE_SUCCESS;
                          cancelled += task->get_error() == ECANCELED;
                        })
            ->start();
      });
    }
    ledger.run();
    EXPECT_EQ(expired, 1);
    EXPECT_EQ(cancelled, 2);
  });
}

TEST(HandleProtocol, WhatIsBeingStartedRemains) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      WFTimerTask* task = ledger.create(name, 100);
      const WFTimerHandle handle = WFTimer::handle_of(task);
      ledger.simulation().spawn([&ledger, task] { ledger.start(task); });
      // Time moves only when no thread can go on.
      ledger.simulation().spawn([handle] { EXPECT_TRUE(handle.remaining()); });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS), 2u);
  });
}

// When the wait has returned, the waiter may free what the destruction of the callback uses.
TEST(HandleProtocol, AWaitReturnsWhenADroppedTimerHasDestroyedWhatItHadCaptured) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulation simulation(seed);
    bool destroyed = false;
    WFTimerHandle handle;
    std::shared_ptr<void> captured(&destroyed, [&](void*) {
      EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWouldDeadlock);  // for itself
      simulation.sleep_for(100);
      destroyed = true;
    });
    WFTimerTask* task =
        WFTimer::create(std::chrono::hours(1), {"a"}, [captured](WFTimerTask*) { ADD_FAILURE(); });
    captured.reset();
    handle = WFTimer::handle_of(task);
    simulation.spawn([=] { task->dismiss(); });
    simulation.spawn([&] {
      EXPECT_NE(handle.cancel_and_wait(), WFTimerCancel::kWouldDeadlock);
      EXPECT_TRUE(destroyed);
      EXPECT_EQ(WFTimer::count("a"), 0u);
    });
    EXPECT_TRUE(simulation.run().ok());
    EXPECT_TRUE(simulation.stop().ok());
  });
}

// System threads may have a simulation each, and their locks keep out only their own threads.
TEST(HandleProtocol, SimulationsBesideEachOtherShareNoSlots) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([] {
      for (uint64_t seed = 1; seed <= kSeeds / 10; seed++) {
        WFSimulation simulation(seed);
        int won = 0;
        int canceled = 0;
        for (int timer = 0; timer < 10; timer++) {
          WFTimerTask* task = WFTimer::create(std::chrono::hours(1), [&](WFTimerTask* self) {
            canceled += self->get_error() == ECANCELED;
          });
          const WFTimerHandle handle = WFTimer::handle_of(task);
          simulation.spawn([task] { task->start(); });
          simulation.spawn([&won, handle] { won += handle.cancel() == WFTimerCancel::kWon; });
        }
        EXPECT_TRUE(simulation.run().ok());
        EXPECT_EQ(won, 10);
        EXPECT_EQ(canceled, 10);
        EXPECT_TRUE(simulation.stop().ok());
      }
    });
  }
  threads.clear();  // joins them
}

}  // namespace

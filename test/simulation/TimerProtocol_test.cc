// The timer protocol under every interleaving that many seeds find: see TimerLedger for what is
// asserted of each scenario beside its own.

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "TimerLedger.h"
#include "support/Seeds.h"

namespace {

TEST(TimerProtocol, TimeoutMeetsCancel) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (int64_t delay_ns : {0, 100, 100}) {
      ledger.create_and_start("a", delay_ns);
    }
    for (int canceller = 0; canceller < 2; canceller++) {
      ledger.simulation().spawn([&] {
        ledger.simulation().sleep_for(100);
        ledger.cancel("a", 1);
        ledger.cancel("a");
      });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS) + static_cast<size_t>(ledger.cancelled()), 3u);
  });
}

TEST(TimerProtocol, StartMeetsCancel) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    std::vector<WFTimerTask*> timers;
    for (int i = 0; i < 4; i++) {
      timers.push_back(ledger.create("a", i % 2 ? 0 : TimerLedger::kNever));
    }
    for (size_t half = 0; half < 2; half++) {
      ledger.simulation().spawn([&, half] {
        ledger.start(timers[half]);
        ledger.start(timers[half + 2]);
      });
      ledger.simulation().spawn([&] { ledger.cancel("a", 2); });
    }
    ledger.run();
  });
}

TEST(TimerProtocol, DueTimersOfOneThreadRunInTheOrderOfTheirStarts) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options;
    options.poller_threads = 1 + static_cast<int>(seed % 2);
    options.handler_threads = 1;
    options.spurious_wakeups = false;  // nor a second handler, for which one may seem starved
    TimerLedger ledger(seed, options);
    // Timers that expire, and those of other threads, may come in between.
    ledger.create_and_start("a", 10);
    std::vector<int> order[2];
    for (size_t thread = 0; thread < 2; thread++) {
      ledger.simulation().spawn([&, thread] {
        for (int i = 0; i < 5; i++) {
          ledger.create_and_start(i % 2 ? "a" : "", 0, [&order, thread, i](WFTimerTask*) {
            order[thread].push_back(i);
          });
        }
      });
    }
    ledger.run();
    for (const std::vector<int>& each : order) {
      EXPECT_EQ(each, (std::vector<int>{0, 1, 2, 3, 4}));
    }
    ledger.close();
  });
}

// From the end of its start on, whoever cancels is too late, however long the handlers take.
TEST(TimerProtocol, ADueTimerHasExpiredWhenItsStartReturns) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (const char* name : {"a", ""}) {
      ledger.simulation().spawn([&, name] {
        WFTimerTask* const task = ledger.create(name, 0);
        const WFTimerHandle handle = WFTimer::handle_of(task);
        ledger.start(task);
        EXPECT_EQ(ledger.cancel(name), 0);
        EXPECT_NE(handle.reschedule(std::chrono::nanoseconds(10)), WFTimerMove::kWon);
        EXPECT_NE(ledger.cancel(handle), WFTimerCancel::kWon);
      });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS), 2u);
  });
}

TEST(TimerProtocol, ChainsOfDueTimersMeetCancelAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options;
    options.handler_threads = 1 + static_cast<int>(seed % 3);
    TimerLedger ledger(seed, options);
    int left = 12;
    bool ended = false;
    std::function<void(WFTimerTask*)> extend = [&](WFTimerTask* task) {
      if (left-- > 0) **task << ledger.create(left % 2 ? "a" : "", 0, extend);
    };
    Workflow::start_series_work(ledger.create("a", 0, extend),
                                [&ended](const SeriesWork*) { ended = true; });
    ledger.create_and_start("a", 0, [&](WFTimerTask*) { ledger.create_and_start("a", 0); });
    for (int canceller = 0; canceller < 2; canceller++) {
      ledger.simulation().spawn([&] {
        ledger.cancel("a", 1);
        ledger.cancel("a");
      });
    }
    if (seed % 3) {
      ledger.run();
      EXPECT_TRUE(ended);
    } else {
      ledger.simulation().run_for(0);
    }
    ledger.close();
    EXPECT_TRUE(ended);
  });
}

TEST(TimerProtocol, CancelTakesTheOldest) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    std::vector<WFTimerTask*> timers;
    for (int i = 0; i < 4; i++) {
      timers.push_back(ledger.create("a", TimerLedger::kNever));
    }
    ledger.simulation().spawn([&] {
      for (size_t i = 4; i-- > 0;) {
        ledger.start(timers[i]);
      }
    });
    ledger.simulation().spawn([&] { EXPECT_EQ(ledger.cancel("a", 1), 1); });
    ledger.simulation().spawn([&] { EXPECT_EQ(ledger.cancel("a", 2), 2); });
    ledger.run();
    ledger.close();
    for (size_t i = 0; i < 4; i++) {
      EXPECT_EQ(ledger.records()[i].state, i < 3 ? WFT_STATE_SYS_ERROR : WFT_STATE_ABORTED);
    }
  });
}

TEST(TimerProtocol, DismissMeetsCancel) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    std::vector<WFTimerTask*> timers;
    for (int i = 0; i < 4; i++) {
      timers.push_back(ledger.create("a", 0));
    }
    ledger.simulation().spawn([&] {
      ledger.dismiss(timers[0]);
      ledger.start(timers[1]);
      ledger.dismiss(timers[2]);
      ledger.start(timers[3]);
    });
    ledger.simulation().spawn([&] { ledger.cancel("a", 2); });
    ledger.simulation().spawn([&] { ledger.cancel("a"); });
    ledger.run();
  });
}

TEST(TimerProtocol, StopMeetsStartTimeoutAndCancel) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    for (int64_t delay_ns : {int64_t{0}, int64_t{50}, TimerLedger::kNever}) {
      ledger.create_and_start("a", delay_ns);
      ledger.simulation().spawn([&, delay_ns] {
        ledger.simulation().sleep_for(50);
        ledger.create_and_start("a", delay_ns);
        ledger.create_and_start("", delay_ns);
      });
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(50);
      ledger.cancel("a", 3);
    });
    ledger.simulation().run_for(seed % 2 ? 50 : 0);
    ledger.close();
    ledger.create_and_start("a", 0);
    EXPECT_EQ(ledger.records().back().callbacks, 1);
    EXPECT_EQ(ledger.records().back().state, WFT_STATE_ABORTED);
  });
}

TEST(TimerProtocol, CallbacksCreateTheirNameAgain) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    int left = 12;
    std::function<void(WFTimerTask*)> again = [&](WFTimerTask*) {
      if (left-- > 0) ledger.create_and_start("a", left % 3 ? 0 : TimerLedger::kNever, again);
    };
    ledger.create_and_start("a", 0, again);
    ledger.create_and_start("a", TimerLedger::kNever, again);
    for (int canceller = 0; canceller < 2; canceller++) {
      ledger.simulation().spawn([&] {
        for (int i = 0; i < 3; i++) {
          ledger.cancel("a");
        }
      });
    }
    ledger.run();
    ledger.close();
  });
}

TEST(TimerProtocol, OneCancelTakesOnlyWhatWasCreatedBefore) {
  for_each_seed(kSeeds / 10, [](uint64_t seed) {
    TimerLedger ledger(seed);
    // More than one hold of the name's lock takes, so that callbacks run in between.
    constexpr int kTimers = 150;
    std::function<void(WFTimerTask*)> again = [&](WFTimerTask* task) {
      if (task->get_error() == ECANCELED) ledger.create_and_start("a", TimerLedger::kNever, again);
    };
    for (int i = 0; i < kTimers; i++) {
      ledger.create_and_start("a", TimerLedger::kNever, again);
    }
    ledger.simulation().spawn([&] { EXPECT_EQ(ledger.cancel("a"), kTimers); });
    ledger.run();
    EXPECT_EQ(ledger.records().size(), size_t{2 * kTimers});
    ledger.close();
  });
}

TEST(TimerProtocol, CallbacksCancelEachOther) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    for (int i = 0; i < 3; i++) {
      ledger.create_and_start("a", i * 10, [&](WFTimerTask*) {
        ledger.cancel("b", 1);
        ledger.cancel("a");
      });
      ledger.create_and_start("b", i * 10, [&](WFTimerTask*) {
        ledger.cancel("a", 1);
        ledger.cancel("b", 1);
      });
    }
    ledger.run();
  });
}

TEST(TimerProtocol, SeriesOfTimersIsCancelledWhileItRuns) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    const bool cancels = seed % 4 != 0;
    bool ended = false;
    SeriesWork* series = Workflow::create_series_work(
        ledger.create("a", 10), [&ended](const SeriesWork*) { ended = true; });
    // Keeps the series running until its canceller is done with it. By name: it may be dropped.
    series->push_back(WFTaskFactory::create_counter_task("gate", 1, nullptr));
    for (int i = 0; i < 3; i++) {
      series->push_back(ledger.create("b", 0));
    }
    WFTimerTask* late = ledger.create("b", 0);
    ledger.simulation().spawn([&, series, late] {
      ledger.simulation().sleep_for(10);
      series->push_back(late);
      if (cancels) series->cancel();
      WFTaskFactory::count_by_name("gate");
    });
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(10);
      ledger.cancel("a");
      ledger.cancel("b", 2);
    });
    series->start();
    if (cancels) {
      // The first runs, and the gate ends after the cancel: the others are dropped.
      for (size_t i = 1; i < 5; i++) {
        ledger.records()[i].dispatched = false;
      }
    }
    ledger.run();
    EXPECT_TRUE(ended);
    ledger.close();
  });
}

TEST(TimerProtocol, CallbacksExtendTheirSeries) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    int left = 10;
    bool ended = false;
    std::function<void(WFTimerTask*)> extend = [&](WFTimerTask* task) {
      if (left-- > 0) **task << ledger.create(left % 2 ? "a" : "b", left % 3 ? 0 : 20, extend);
    };
    WFTimerTask* first = ledger.create("a", 0, extend);
    Workflow::start_series_work(first, [&ended](const SeriesWork*) { ended = true; });
    for (const char* name : {"a", "b"}) {
      ledger.simulation().spawn([&, name] {
        ledger.cancel(name);
        ledger.simulation().sleep_for(20);
        ledger.cancel(name, 1);
      });
    }
    ledger.run();
    EXPECT_TRUE(ended);
    EXPECT_EQ(ledger.records().size(), 11u);
    ledger.close();
  });
}

TEST(TimerProtocol, ParallelEndsOnceAllItsTimersHave) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    int ended = 0;
    ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork*) {
      ended++;
      EXPECT_EQ(ledger.ended(WFT_STATE_UNDEFINED), 0u);
    });
    for (int branch = 0; branch < 3; branch++) {
      SeriesWork* series = Workflow::create_series_work(ledger.create("a", branch * 10), nullptr);
      series->push_back(ledger.create(branch ? "b" : "", 10));
      parallel->add_series(series);
    }
    parallel->start();
    ledger.simulation().spawn([&] {
      ledger.cancel("a", 2);
      ledger.simulation().sleep_for(10);
      ledger.cancel("b");
    });
    ledger.run();
    EXPECT_EQ(ended, 1);
  });
}

TEST(TimerProtocol, GoTasksCreateAndCancelTimers) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options;
    options.compute_threads = 2;
    TimerLedger ledger(seed, options);
    int computed = 0;
    int called = 0;
    for (int i = 0; i < 4; i++) {
      WFGoTask* task = WFTaskFactory::create_go_task(i % 2 ? "odd" : "even", [&, i] {
        computed++;
        ledger.create_and_start("a", i * 5);
        ledger.cancel("a", 1);
      });
      task->set_callback([&](WFGoTask* done) {
        called++;
        EXPECT_EQ(done->get_state(), WFT_STATE_SUCCESS);
        **done << ledger.create("a", 5);
      });
      task->start();
    }
    ledger.run();
    EXPECT_EQ(computed, 4);
    EXPECT_EQ(called, 4);
    ledger.close();
  });
}

TEST(TimerProtocol, StopMeetsGoTasks) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TimerLedger ledger(seed);
    int called = 0;
    for (int i = 0; i < 4; i++) {
      ledger.simulation().spawn([&] {
        WFGoTask* task =
            WFTaskFactory::create_go_task("queue", [&] { ledger.create_and_start("a", 5); });
        task->set_callback([&](WFGoTask*) { called++; });
        task->start();
      });
    }
    ledger.close();
    EXPECT_EQ(called, 4);
  });
}

TEST(TimerProtocol, CountersAreCountedByTimers) {
  for_each_ledger<TimerLedger>(kSeeds, [](TimerLedger& ledger) {
    int named = 0;
    int anonymous = 0;
    WFTaskFactory::create_counter_task("n", 3, [&](WFCounterTask*) { named++; })->start();
    WFCounterTask* counter =
        WFTaskFactory::create_counter_task(3, [&](WFCounterTask*) { anonymous++; });
    for (int i = 0; i < 3; i++) {
      ledger.create_and_start("a", i % 2 * 10, [&, counter](WFTimerTask*) {
        counter->count();
        WFTaskFactory::count_by_name("n");
      });
    }
    ledger.simulation().spawn([&] { ledger.cancel("a", 2); });
    ledger.simulation().spawn([&, counter] { counter->start(); });
    ledger.run();
    EXPECT_EQ(named, 1);
    EXPECT_EQ(anonymous, 1);
    EXPECT_EQ(WFTaskFactory::count_by_name("n"), 0);
  });
}

TEST(TimerProtocol, AnythingMeetsAnything) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options;
    options.poller_threads = 1 + static_cast<int>(seed % 2);
    options.handler_threads = 1 + static_cast<int>(seed % 3);
    TimerLedger ledger(seed, options);
    const char* const names[] = {"a", "b"};
    for (uint64_t thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&, thread] {
        std::mt19937_64 random(seed * 3 + thread);
        for (int step = 0; step < 6; step++) {
          const std::string name = names[random() % 2];
          const int64_t delay_ns = static_cast<int64_t>(random() % 3) * 10;
          switch (random() % 6) {
            case 0:
              ledger.create_and_start(name, random() % 8 ? delay_ns : TimerLedger::kNever);
              break;
            case 1:
              ledger.create_and_start(name, delay_ns, [&ledger, name](WFTimerTask*) {
                ledger.create_and_start(name, 0);
                ledger.cancel(name, 1);
              });
              break;
            case 2:
              ledger.dismiss(ledger.create(name, delay_ns));
              break;
            case 3:
              ledger.cancel(name);
              break;
            case 4:
              ledger.cancel(name, 1 + random() % 2);
              break;
            default:
              ledger.simulation().sleep_for(delay_ns);
          }
        }
      });
    }
    if (seed % 4) {
      ledger.run();
    } else {
      ledger.simulation().run_for(static_cast<int64_t>(seed % 5) * 10);
    }
    ledger.close();
  });
}

// Names, queues and counters leave nothing behind that would change the next run.
uint64_t trace_of_timers(uint64_t seed) {
  TimerLedger ledger(seed);
  for (int i = 0; i < 6; i++) {
    ledger.create_and_start(i % 2 ? "a" : "b", i * 5, [&](WFTimerTask*) { ledger.cancel("a", 1); });
    WFTaskFactory::create_go_task("queue", [&] { ledger.create_and_start("b", 5); })->start();
    ledger.simulation().spawn([&] { ledger.cancel("b", 2); });
  }
  ledger.run();
  ledger.close();
  return ledger.simulation().trace_hash();
}

TEST(TimerProtocol, TheSameSeedReplaysTheSameSchedule) {
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 0; seed < 50; seed++) {
    hashes.push_back(trace_of_timers(seed));
  }
  for (uint64_t seed = 50; seed-- > 0;) {
    EXPECT_EQ(trace_of_timers(seed), hashes[seed]) << "seed " << seed;
  }
}

}  // namespace

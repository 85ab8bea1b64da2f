// Computations with time limits, and pools that come, go and change, under every interleaving that
// many seeds find: see ComputeLedger for what is asserted of each task beside a scenario's own.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "ComputeLedger.h"
#include "support/Seeds.h"
#include "workflow/WFAlgoTaskFactory.h"
#include "workflow/WFFacilities.h"

namespace {

constexpr int64_t kNoLimit = ComputeLedger::kNoLimit;

using Place = ComputeLedger::Place;
using WaitGroup = WFFacilities::WaitGroup;

WFSimulationOptions threads(int compute_threads) {
  WFSimulationOptions options;
  options.compute_threads = compute_threads;
  return options;
}

TEST(ComputeProtocol, TimeoutMeetsEndOfFunction) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed, threads(4));
    for (const int64_t duration_ns : {99, 100, 100, 101}) {
      ledger.create_and_start({}, 100, duration_ns);
    }
    ledger.run();
    EXPECT_EQ(ledger.records()[0].state, WFT_STATE_SUCCESS);
    EXPECT_EQ(ledger.records()[3].state, WFT_STATE_SYS_ERROR);
    ledger.close();
  });
}

TEST(ComputeProtocol, TimeoutMeetsBeginOfFunction) {
  for_each_ledger<ComputeLedger>(kSeeds, [](ComputeLedger& ledger) {
    ledger.create_and_start({}, kNoLimit, 100);
    for (const int64_t duration_ns : {0, 0, 50}) {
      ledger.create_and_start({}, 100, duration_ns);
    }
    ledger.create_and_start({}, 99, 0);
    ledger.create_and_start({}, kNoLimit, 0);
    ledger.run();
    EXPECT_EQ(ledger.records()[4].state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(ledger.records()[4].begun, 0);
    EXPECT_EQ(ledger.records()[5].state, WFT_STATE_SUCCESS);
  });
}

TEST(ComputeProtocol, ALimitOfZeroMeetsTheStart) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed, threads(2));
    for (int thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&ledger, thread] {
        ledger.create_and_start({}, 0, thread % 2);
        ledger.create_and_start({}, 0, 0);
      });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_ABORTED), 0u);
    ledger.close();
  });
}

TEST(ComputeProtocol, StopMeetsTimeoutAndEndOfFunction) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed, threads(2));
    for (int i = 0; i < 5; i++) {
      ledger.create_and_start({}, i == 3 ? 50 : 100, i % 2 ? 100 : 50);
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(50);
      ledger.create_and_start({}, 50, 50);
      ledger.create_and_start({}, 0, 0);
      ledger.create_and_start({}, kNoLimit, 0);
    });
    ledger.simulation().run_for(static_cast<int64_t>(seed % 3) * 50);
    ledger.close();
    ledger.create_and_start({}, 100, 0);
    EXPECT_EQ(ledger.records().back().callbacks, 1);
    EXPECT_EQ(ledger.records().back().state, WFT_STATE_ABORTED);
  });
}

TEST(ComputeProtocol, SeriesGoOnAtTheTimeout) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed, threads(3));
    int ended = 0;
    for (int i = 0; i < 3; i++) {
      WFGoTask* first = ledger.create({}, 10, 10 + i % 2);
      SeriesWork* series =
          Workflow::create_series_work(first, [&ended](const SeriesWork*) { ended++; });
      series->push_back(ledger.create({.name = "other"}, 5, 5));
      series->push_back(ledger.create({}, kNoLimit, 1));
      ComputeLedger::record_of(first).started_ns = ledger.simulation().now_ns();
      series->start();
    }
    ledger.run();
    EXPECT_EQ(ended, 3);
    ledger.close();
  });
}

// The function asks for its series while its task ends.
TEST(ComputeProtocol, FunctionsLookForTheirSeriesAroundTheTimeout) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulation simulation(seed, threads(2));
    int ended = 0;
    for (int i = 0; i < 2; i++) {
      WFGoTask* task = WFTaskFactory::create_timedgo_task(0, 10, "queue", nullptr);
      WFTaskFactory::reset_go_task(task, [&simulation, task] {
        simulation.sleep_for(10);
        series_of(task);
      });
      task->set_callback([&ended](WFGoTask*) { ended++; });
      task->start();
    }
    EXPECT_TRUE(simulation.stop().ok());
    EXPECT_EQ(ended, 2);
  });
}

TEST(ComputeProtocol, DismissedOnesNeverBegin) {
  for_each_ledger<ComputeLedger>(kSeeds / 4, [](ComputeLedger& ledger) {
    for (int thread = 0; thread < 2; thread++) {
      ledger.simulation().spawn([&] {
        ledger.create_and_start({}, 10, 10);
        ledger.dismiss(ledger.create({}, 0, 0));
        WFGoTask* first = ledger.create({}, 5, 1);
        WFGoTask* second = ledger.create({}, kNoLimit, 1);
        SeriesWork* series = Workflow::create_series_work(first, nullptr);
        series->push_back(second);
        ComputeLedger::record_of(first).dispatched = false;
        ComputeLedger::record_of(second).dispatched = false;
        series->cancel();
        series->start();
      });
    }
    ledger.run();
  });
}

// Executors ---------------------------------------------------------------------------------------

TEST(ComputeProtocol, DeinitMeetsStart) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed);
    OwnThreads own(1 + seed % 2);
    for (int thread = 0; thread < 2; thread++) {
      ledger.simulation().spawn([&, thread] {
        ledger.create_and_start(own.place(), kNoLimit, 0);
        ledger.create_and_start(own.place(), 10, thread * 10);
        ledger.simulation().sleep_for(10);
        ledger.create_and_start(own.place(), 0, 0);
        ledger.create_and_start(own.place(), kNoLimit, 5);
      });
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(static_cast<int64_t>(seed % 3) * 5);
      ledger.may_abort();
      own.executor().deinit();
    });
    ledger.run();
    ledger.close();
  });
}

TEST(ComputeProtocol, DeinitOnAnyThreadMeetsStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed);
    OwnThreads own(1 + seed % 3);
    ledger.may_abort();
    const auto deinit = [&own] { own.executor().deinit(); };
    ledger.create_and_start(own.place(), 5, 5);
    switch (seed % 4) {
      case 0:
        ledger.create_and_start(own.place(), kNoLimit, 5, deinit);
        break;
      case 1:
        ledger.create_and_start({}, kNoLimit, 5, deinit);
        break;
      case 2:
        WFTaskFactory::create_timer_task(0, 5, [&](WFTimerTask*) { deinit(); })->start();
        break;
      default:
        ledger.simulation().spawn([&] {
          ledger.simulation().sleep_for(5);
          deinit();
        });
    }
    ledger.create_and_start(own.place(), kNoLimit, 0);
    ledger.simulation().run_for(static_cast<int64_t>(seed % 5) * 2);
    ledger.close();
  });
}

// Whoever started the last task may still be inside start().
TEST(ComputeProtocol, AnExecutorIsDestroyedAsSoonAsItsLastCallbackRan) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed);
    OwnThreads own(1 + seed % 2);
    ledger.simulation().spawn([&] {
      WaitGroup ended(2);
      for (int i = 0; i < 2; i++) {
        SeriesWork* series =
            Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 5, nullptr),
                                         [&ended](const SeriesWork*) { ended.done(); });
        series->push_back(ledger.create(own.place(), i == 0 ? 10 : kNoLimit, 0));
        series->start();
      }
      ended.wait();
      own.destroy();
    });
    ledger.run();
    ledger.close();
  });
}

TEST(ComputeProtocol, AnExecutorIsUsedAgain) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed);
    OwnThreads own(1);
    ledger.may_abort();
    ledger.simulation().spawn([&] {
      for (int round = 0; round < 3; round++) {
        WFGoTask* later = ledger.create(own.place(), 10, 0);
        ledger.create_and_start(own.place(), 5, 5);
        ledger.create_and_start(own.place(), kNoLimit, 0);
        own.executor().deinit();
        EXPECT_EQ(own.executor().init(1), 0);
        ledger.start(later);
      }
    });
    ledger.run();
    ledger.close();
  });
}

// A computation that has begun may still come after a later one when both write down that they
// have: no more of them than there are other threads.
TEST(ComputeProtocol, AQueueOfTwoExecutorsKeepsItsOrder) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    constexpr size_t kTasks = 12;
    ComputeLedger ledger(seed);
    ledger.may_abort();
    OwnThreads own(1);
    OwnThreads other(1 + seed % 2);
    const size_t other_threads = 1 + seed % 2;
    const Place places[] = {own.place(),
                            {.queue = own.place().queue, .executor = other.place().executor}};
    std::vector<size_t> order;
    ledger.simulation().spawn([&] {
      std::mt19937_64 random(seed);
      for (size_t i = 0; i < kTasks; i++) {
        ledger.create_and_start(places[random() % 4 == 0], kNoLimit, 0, [&, i] {
          order.push_back(i);
          ledger.simulation().sleep_for(static_cast<int64_t>(i % 3));
        });
        if (random() % 4 == 0) {
          ledger.simulation().sleep_for(1);
        }
      }
    });
    ledger.run();
    for (auto task = order.begin(); task != order.end(); ++task) {
      const auto overtaken =
          std::count_if(task, order.end(), [task](size_t later) { return later < *task; });
      EXPECT_LE(static_cast<size_t>(overtaken), other_threads) << "task " << *task;
    }
    ledger.close();
  });
}

// Pools that change -------------------------------------------------------------------------------

TEST(ComputeProtocol, GrowingAndShrinkingMeetPosting) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    ComputeLedger ledger(seed, threads(2));
    OwnThreads own(2);
    workflow::ComputePool& pool = workflow::Runtime::current().compute();
    for (int thread = 0; thread < 2; thread++) {
      ledger.simulation().spawn([&, thread] {
        for (int i = 0; i < 4; i++) {
          ledger.create_and_start(thread ? own.place() : Place{}, kNoLimit, i % 2);
          ledger.create_and_start({.name = "other"}, 1, i % 3);
        }
      });
      ledger.simulation().spawn([&, thread] {
        std::mt19937_64 random(seed * 2 + static_cast<uint64_t>(thread));
        int more = 0;
        for (int i = 0; i < 5; i++) {
          if (random() % 2) {
            EXPECT_EQ(pool.increase_threads(), 0);
            EXPECT_EQ(own.executor().increase_thread(), 0);
            more++;
          } else if (more > -1 || thread == 0) {
            more -= pool.decrease_threads() == 0;
            own.executor().decrease_thread();
          }
        }
      });
    }
    ledger.run();
    EXPECT_EQ(ledger.ended(WFT_STATE_ABORTED), 0u);
    ledger.simulation().run_for(workflow::WorkerPool::kSpareNs * 3);
    EXPECT_EQ(pool.thread_count(), pool.configured_threads());
    ledger.close();
  });
}

TEST(ComputeProtocol, AParallelSortMeetsStop) {
  for_each_seed(kSeeds / 20, [](uint64_t seed) {
    constexpr int kGrain =
        static_cast<int>(workflow::ParallelSortTask<WFSortTask<int>, std::less<int>>::kGrain);
    WFSimulation simulation(seed, threads(3));
    std::vector<int> values;
    for (int i = 0; i < 3 * kGrain; i++) {
      values.push_back(3 * kGrain - i);
    }
    int state = WFT_STATE_UNDEFINED;
    int callbacks = 0;
    WFAlgoTaskFactory::create_psort_task("sort", values.data(), values.data() + values.size(),
                                         [&](WFSortTask<int>* task) {
                                           state = task->get_state();
                                           callbacks++;
                                         })
        ->start();
    for (uint64_t i = 0; i < seed % 40; i++) {
      WFSimulation::point();
    }
    EXPECT_TRUE(simulation.stop().ok());
    EXPECT_EQ(callbacks, 1);
    EXPECT_EQ(std::is_sorted(values.begin(), values.end()), state == WFT_STATE_SUCCESS);
    EXPECT_TRUE(state == WFT_STATE_SUCCESS || state == WFT_STATE_ABORTED);
  });
}

TEST(ComputeProtocol, AnythingMeetsAnything) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options = threads(1 + static_cast<int>(seed % 2));
    options.handler_threads = 1 + static_cast<int>(seed % 3);
    ComputeLedger ledger(seed, options);
    OwnThreads own(1 + seed % 2);
    ledger.may_abort();
    for (uint64_t thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&, thread] {
        std::mt19937_64 random(seed * 3 + thread);
        for (int step = 0; step < 6; step++) {
          const Place place = random() % 2 ? own.place() : Place{};
          const int64_t limit_ns = random() % 4 ? static_cast<int64_t>(random() % 3) * 5 : kNoLimit;
          const int64_t duration_ns = static_cast<int64_t>(random() % 3) * 5;
          switch (random() % 6) {
            case 0:
              ledger.create_and_start(place, limit_ns, duration_ns, [&ledger, limit_ns] {
                ledger.create_and_start({}, limit_ns, 5);
              });
              break;
            case 1:
              ledger.dismiss(ledger.create(place, limit_ns, duration_ns));
              break;
            case 2:
              ledger.simulation().sleep_for(duration_ns);
              break;
            case 3: {
              SeriesWork* series =
                  Workflow::create_series_work(ledger.create(place, limit_ns, 5), nullptr);
              series->push_back(ledger.create({}, limit_ns, duration_ns));
              series->start();
              break;
            }
            default:
              ledger.create_and_start(place, limit_ns, duration_ns);
          }
        }
      });
    }
    if (seed % 3 == 0) {
      ledger.simulation().spawn([&] {
        ledger.simulation().sleep_for(static_cast<int64_t>(seed % 4) * 5);
        own.executor().deinit();
      });
    }
    if (seed % 4) {
      ledger.run();
    } else {
      ledger.simulation().run_for(static_cast<int64_t>(seed % 5) * 5);
    }
    ledger.close();
  });
}

}  // namespace

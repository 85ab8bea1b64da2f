// Series, parallels, graphs, modules, repeaters and dynamic tasks under every interleaving that
// many seeds find: see RandomStructure for what is asserted.

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "kernel/Runtime.h"
#include "support/RandomStructure.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

using test_support::RandomStructure;
using test_support::TestRandom;

namespace {

WFSimulationOptions options_of(uint64_t seed) {
  WFSimulationOptions options;
  options.poller_threads = 1 + static_cast<int>(seed % 2);
  options.handler_threads = 1 + static_cast<int>(seed % 3);
  options.compute_threads = 1 + static_cast<int>(seed % 2);
  return options;
}

// Until the structure has ended: whenever nothing can happen any more, its counters are counted.
void run_to_the_end(WFSimulation& simulation, RandomStructure& structure) {
  do {
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
  } while (structure.release() > 0);
  EXPECT_TRUE(structure.ended());
}

void close(WFSimulation& simulation, const RandomStructure& structure) {
  const WFSimulationResult result = simulation.stop();
  ASSERT_TRUE(result.ok()) << result.description;
  EXPECT_EQ(structure.account(), "");
}

TEST(StructureProtocol, EverythingRunsOnce) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    RandomStructure structure({.seed = seed, .cancels = false});
    WFSimulation simulation(seed, options_of(seed));
    structure.build();
    structure.start();
    run_to_the_end(simulation, structure);
    close(simulation, structure);
  });
}

// While callbacks run, somebody looks at what their threads have still to do, and gives it to the
// handler threads.
TEST(StructureProtocol, WhatIsLeftIsGivenAway) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    RandomStructure structure({.seed = seed, .gates = 1});
    WFSimulation simulation(seed, options_of(seed));
    workflow::ExposedWork& exposed = workflow::Runtime::current().stall_watch().exposed();
    exposed.enable();
    structure.build();
    simulation.spawn([&] {
      for (int looks = 0; looks < 40; looks++) {
        exposed.look();
        if (looks % 8 == 0) {
          simulation.sleep_for(1000);
        }
      }
      structure.open_gate();
    });
    structure.start();
    run_to_the_end(simulation, structure);
    close(simulation, structure);
  });
}

TEST(StructureProtocol, CallbacksCancel) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    RandomStructure structure({.seed = seed});
    WFSimulation simulation(seed, options_of(seed));
    structure.build();
    structure.start();
    run_to_the_end(simulation, structure);
    close(simulation, structure);
  });
}

TEST(StructureProtocol, OtherThreadsCancel) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    RandomStructure structure({.seed = seed, .gates = 2});
    WFSimulation simulation(seed, options_of(seed));
    structure.build();
    for (uint64_t thread = 0; thread < 2; thread++) {
      simulation.spawn([&, thread] {
        TestRandom random(seed, thread);
        for (int i = 0; i < 2; i++) {
          simulation.sleep_for(random.between(0, 20'000));
          structure.cancel(random.below(100));
        }
        structure.open_gate();
      });
    }
    structure.start();
    run_to_the_end(simulation, structure);
    close(simulation, structure);
  });
}

TEST(StructureProtocol, StructuresOnSeveralThreads) {
  for_each_seed(kSeeds / 2, [](uint64_t seed) {
    std::deque<RandomStructure> structures;
    WFSimulation simulation(seed, options_of(seed));
    for (uint64_t i = 0; i < 3; i++) {
      RandomStructure& structure =
          structures.emplace_back(RandomStructure::Options{.seed = seed, .stream = i, .depth = 2});
      structure.build();
      simulation.spawn([&structure] { structure.start(); });
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    for (RandomStructure& structure : structures) {
      run_to_the_end(simulation, structure);
    }
    for (const RandomStructure& structure : structures) {
      close(simulation, structure);
    }
  });
}

TEST(StructureProtocol, StoppedMeanwhile) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    RandomStructure structure({.seed = seed});
    RandomStructure late({.seed = seed, .stream = 1, .depth = 2});
    WFSimulation simulation(seed, options_of(seed));
    structure.build();
    late.build();
    simulation.spawn([&] { structure.start(); });
    simulation.spawn([&] {
      simulation.sleep_for(static_cast<int64_t>(seed % 5) * 5'000);
      late.start();
    });
    simulation.run_for(static_cast<int64_t>(seed % 7) * 4'000);
    close(simulation, structure);
    EXPECT_EQ(late.account(), "");
  });
}

TEST(StructureProtocol, StartedAfterTheStop) {
  for_each_seed(kSeeds / 2, [](uint64_t seed) {
    RandomStructure structure({.seed = seed});
    WFSimulation simulation(seed, options_of(seed));
    ASSERT_TRUE(simulation.stop().ok());
    structure.build();
    structure.start();
    EXPECT_EQ(structure.account(), "");
  });
}

TEST(StructureProtocol, DismissFreesAll) {
  for_each_seed(kSeeds / 2, [](uint64_t seed) {
    RandomStructure structure({.seed = seed});
    WFSimulation simulation(seed, options_of(seed));
    structure.build();
    structure.dismiss();
    close(simulation, structure);
  });
}

// Two threads push to a series while its tasks end, and a repeater comes back: a task that is
// queued alone is popped, or moved into the list, at any moment.
TEST(StructureProtocol, ThreadsPushToASeriesThatRuns) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulation simulation(seed, options_of(seed));
    constexpr int kAnywhere = 9;
    std::vector<int> order;
    const auto task = [&order](unsigned int target, int number) {
      return WFTaskFactory::create_counter_task(
          target, [&order, number](WFCounterTask*) { order.push_back(number); });
    };
    // The series cannot end before the second thread has pushed everything and counts.
    WFCounterTask* const first = task(1, 0);
    WFCounterTask* const second = task(1, 4);
    int next = 2;
    WFRepeaterTask* const repeater = WFTaskFactory::create_repeater_task(
        [&](WFRepeaterTask*) -> SubTask* { return next < 4 ? task(0, next++) : nullptr; }, nullptr);
    bool ended = false;
    SeriesWork* const series =
        Workflow::create_series_work(first, [&](const SeriesWork*) { ended = true; });
    series->push_back(repeater);
    series->push_back(second);
    series->start();
    simulation.spawn([&] {
      if (seed % 2 == 0) series->push_front(task(0, 1));
      first->count();
    });
    simulation.spawn([&] {
      series->push_back(task(0, 5));
      series->push_front(task(0, kAnywhere));
      series->push_back(task(0, 6));
      second->count();
    });
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_TRUE(ended);
    EXPECT_EQ(std::erase(order, kAnywhere), 1U);
    const std::vector<int> usual = {0, 2, 3, 4, 5, 6};
    EXPECT_EQ(order, seed % 2 == 0 ? (std::vector<int>{0, 1, 2, 3, 4, 5, 6}) : usual);
    EXPECT_TRUE(simulation.stop().ok());
  });
}

}  // namespace

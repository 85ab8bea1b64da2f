// Series, parallels, graphs, modules, repeaters and dynamic tasks under every interleaving that
// many seeds find: see RandomStructure for what is asserted.

#include <gtest/gtest.h>

#include <deque>

#include "support/RandomStructure.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"

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

}  // namespace

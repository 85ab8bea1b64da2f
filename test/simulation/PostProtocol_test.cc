// How items reach a poller, under every interleaving that many seeds find: what was posted runs, in
// order, also if the poller stops meanwhile, and the poller is settled only when it has run.

#include <gtest/gtest.h>

#include <cstdint>

#include "kernel/Poller.h"
#include "kernel/Runtime.h"
#include "kernel/Simulation.h"
#include "support/PostLedger.h"
#include "support/Seeds.h"
#include "support/TestSeed.h"

namespace {

using test_support::PostLedger;
using test_support::TestRandom;
using workflow::Simulation;

constexpr size_t kPosters = 2;

void play_posts(uint64_t seed, bool stops) {
  Simulation simulation(seed, {.handler_threads = 1});
  PostLedger ledger(simulation.runtime().poller(0), kPosters, seed,
                    [&simulation](TestRandom& random) {
                      // Sometimes as long as a round has for posted items.
                      simulation.sleep_for(random.between(1, 1'200'000));
                    });
  for (size_t poster = 0; poster < kPosters; poster++) {
    simulation.spawn([&ledger, poster] { ledger.post(poster); });
  }
  simulation.spawn([&ledger] {
    for (int i = 0; i < 5; i++) {
      ledger.look();
    }
  });
  if (stops) {
    TestRandom random(seed, kPosters);
    simulation.run_for(random.between(0, 5'000'000));
  } else {
    EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
    EXPECT_EQ(ledger.ran(), PostLedger::most(kPosters));
  }
  EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
  EXPECT_EQ(simulation.run().outcome, Simulation::Outcome::kQuiet);
  ledger.close();
}

TEST(PostProtocol, WhatIsPostedRunsInOrder) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_posts(seed, false); });
}

TEST(PostProtocol, WhatIsTakenWhileThePollerStopsRuns) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_posts(seed, true); });
}

}  // namespace

#include "race/WaitingRace.h"

#include <gtest/gtest.h>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"

using race::rounds;
using race::WaitingRace;
using workflow::Runtime;

namespace {

void run_waiting_rounds(uint64_t count, const WaitingRace::Options& options) {
  const race::Totals totals = race::run_rounds(count, race::begin<WaitingRace>(options));
  EXPECT_GT(totals.succeeded, totals.tasks / 2);
}

}  // namespace

TEST(WaitingRace, ManyThreads) {
  run_waiting_rounds(rounds(200), {.threads = 4, .steps = 200});
}

TEST(WaitingRace, ShortRoundsOfTwoThreads) {
  run_waiting_rounds(rounds(2000), {.threads = 2, .steps = 20});
}

TEST(WaitingRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  run_waiting_rounds(rounds(400), {.threads = 3, .steps = 100});
}

// The runtime stops at any moment, and the threads go on: what still waits then is aborted.
TEST(WaitingRace, StoppedMeanwhile) {
  const WaitingRace::Options options{.threads = 3, .steps = 60};
  const uint64_t count = rounds(300);
  EXPECT_GT(race::run_stopped_rounds(count, 3000, race::begin<WaitingRace>(options)).aborted,
            count);
}

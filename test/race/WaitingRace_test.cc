#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/Rounds.h"
#include "race/WaitingRaceKit.h"
#include "support/TestSeed.h"

using race::rounds;
using race::WaitingRace;
using test_support::TestRandom;
using workflow::Runtime;
using workflow::ThreadContext;

namespace {

void run_rounds(uint64_t count, WaitingRace::Options options) {
  options.seed = test_support::test_seed();
  size_t tasks = 0;
  size_t succeeded = 0;
  for (options.round = 0; options.round < count; options.round++) {
    WaitingRace race(options);
    race.start();
    ASSERT_EQ(race.finish(), "");
    tasks += race.tasks();
    succeeded += race.outcomes(WFT_STATE_SUCCESS);
  }
  std::printf("%zu tasks, %zu succeeded\n", tasks, succeeded);
  EXPECT_GT(succeeded, tasks / 2);
}

}  // namespace

TEST(WaitingRace, ManyThreads) {
  run_rounds(rounds(200), {.threads = 4, .steps = 200});
}

TEST(WaitingRace, ShortRoundsOfTwoThreads) {
  run_rounds(rounds(2000), {.threads = 2, .steps = 20});
}

TEST(WaitingRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  run_rounds(rounds(400), {.threads = 3, .steps = 100});
}

// The runtime stops at any moment, and the threads go on: what still waits then is aborted.
TEST(WaitingRace, StoppedMeanwhile) {
  const uint64_t count = rounds(300);
  TestRandom random(test_support::test_seed());
  size_t aborted = 0;
  for (uint64_t round = 0; round < count; round++) {
    Runtime runtime({.poller_threads = 1 + static_cast<int>(random.below(3)),
                     .handler_threads = 1 + static_cast<int>(random.below(4)),
                     .compute_threads = 1});
    ASSERT_TRUE(runtime.start());
    WaitingRace race({.seed = test_support::test_seed(),
                      .round = round,
                      .threads = 3,
                      .steps = 60,
                      .runtime = &runtime,
                      .stopped_meanwhile = true});
    race.start();
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
    runtime.stop();
    ASSERT_EQ(race.finish(), "");
    ThreadContext::current().runtime = nullptr;
    aborted += race.outcomes(WFT_STATE_ABORTED);
  }
  EXPECT_GT(aborted, count);
}

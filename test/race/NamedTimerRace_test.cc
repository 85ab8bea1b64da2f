#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "race/RaceKit.h"
#include "race/Rounds.h"
#include "support/TestSeed.h"

using race::rounds;
using race::TimerRace;
using test_support::TestRandom;
using workflow::Runtime;
using workflow::ThreadContext;

namespace {

void run_rounds(uint64_t count, TimerRace::Options options) {
  options.seed = test_support::test_seed();
  size_t timers = 0;
  size_t succeeded = 0;
  size_t cancelled = 0;
  for (options.round = 0; options.round < count; options.round++) {
    TimerRace race(options);
    race.start();
    ASSERT_EQ(race.finish(), "");
    timers += race.timers();
    succeeded += race.outcomes(WFT_STATE_SUCCESS);
    cancelled += race.outcomes(WFT_STATE_SYS_ERROR);
  }
  std::printf("%zu timers: %zu expired, %zu cancelled\n", timers, succeeded, cancelled);
  // It was a race: each side won a good many.
  EXPECT_GT(succeeded, timers / 20);
  EXPECT_GT(cancelled, timers / 20);
}

}  // namespace

TEST(NamedTimerRace, ManyThreads) {
  run_rounds(rounds(200), {.threads = 4, .steps = 200});
}

TEST(NamedTimerRace, ShortRoundsOfTwoThreads) {
  run_rounds(rounds(2000), {.threads = 2, .steps = 30, .longest_delay_us = 30});
}

TEST(NamedTimerRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  run_rounds(rounds(400), {.threads = 3, .steps = 100});
}

// The runtime stops at any moment, and the threads go on: what they start then is aborted.
TEST(NamedTimerRace, StoppedMeanwhile) {
  const uint64_t count = rounds(300);
  TestRandom random(test_support::test_seed());
  size_t aborted = 0;
  for (uint64_t round = 0; round < count; round++) {
    Runtime runtime({.poller_threads = 1 + static_cast<int>(random.below(3)),
                     .handler_threads = 1 + static_cast<int>(random.below(4)),
                     .compute_threads = 1});
    ASSERT_TRUE(runtime.start());
    TimerRace race({.seed = test_support::test_seed(),
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

#include <gtest/gtest.h>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/TimerRace.h"

using race::rounds;
using race::TimerRace;
using workflow::Runtime;

namespace {

void run_timer_rounds(uint64_t count, const TimerRace::Options& options) {
  const race::Totals totals = race::run_rounds(count, race::begin<TimerRace>(options));
  race::expect_each_side_won(totals, totals.tasks / 20);
}

}  // namespace

TEST(NamedTimerRace, ManyThreads) {
  run_timer_rounds(rounds(200), {.threads = 4, .steps = 200});
}

TEST(NamedTimerRace, ShortRoundsOfTwoThreads) {
  run_timer_rounds(rounds(2000), {.threads = 2, .steps = 30, .longest_delay_us = 30});
}

TEST(NamedTimerRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1});
  run_timer_rounds(rounds(400), {.threads = 3, .steps = 100});
}

// The runtime stops at any moment, and the threads go on: what they start then is aborted.
TEST(NamedTimerRace, StoppedMeanwhile) {
  const TimerRace::Options options{.threads = 3, .steps = 60};
  const uint64_t count = rounds(300);
  EXPECT_GT(race::run_stopped_rounds(count, 3000, race::begin<TimerRace>(options)).aborted, count);
}

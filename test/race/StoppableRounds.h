#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>

#include "kernel/Runtime.h"
#include "workflow/WFTaskState.h"

namespace race {

// `count` rounds of a race of timers, in the process's runtime or, if that is to be stopped
// meanwhile, each in one of its own. A Round(number, runtime or null) begins when it is made;
// finish() says what is wrong, or nothing; outcomes(state) how many timers ended so.
template <class Round>
void run_stoppable_rounds(uint64_t count, bool stopped_meanwhile) {
  using workflow::Runtime;
  size_t succeeded = 0;
  size_t cancelled = 0;
  size_t aborted = 0;
  for (uint64_t number = 0; number < count; number++) {
    std::unique_ptr<Runtime> runtime;
    if (stopped_meanwhile) {
      runtime = std::make_unique<Runtime>(
          Runtime::Options{.poller_threads = 2, .handler_threads = 2, .compute_threads = 1});
      ASSERT_TRUE(runtime->start());
    }
    Round round(number, runtime.get());
    if (runtime) {
      std::this_thread::sleep_for(std::chrono::microseconds(number % 7 * 40));  // at any moment
      runtime->stop();
    }
    ASSERT_EQ(round.finish(), "") << "round " << number;
    succeeded += round.outcomes(WFT_STATE_SUCCESS);
    cancelled += round.outcomes(WFT_STATE_SYS_ERROR);
    aborted += round.outcomes(WFT_STATE_ABORTED);
  }
  std::printf("%zu succeeded, %zu cancelled, %zu aborted\n", succeeded, cancelled, aborted);
  // It was a race: each side won a good many.
  EXPECT_GT(succeeded, count / 10);
  EXPECT_GT(cancelled, count / 10);
  EXPECT_EQ(aborted > count / 10, stopped_meanwhile);
}

}  // namespace race

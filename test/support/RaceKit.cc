#include "support/RaceKit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "kernel/ThreadContext.h"
#include "support/Sanitizers.h"
#include "workflow/WFTask.h"

namespace race {

using test_support::TestRandom;
using workflow::ThreadContext;

uint64_t rounds(uint64_t many) {
  return static_cast<uint64_t>(test_support::env_number(
      "WORKFLOW_RACE_ROUNDS", static_cast<int64_t>(many / (test_support::kSanitized ? 4 : 2))));
}

void pause_us(uint64_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

size_t Round::tasks() const {
  return outcomes(WFT_STATE_SUCCESS) + outcomes(WFT_STATE_SYS_ERROR) + outcomes(WFT_STATE_ABORTED);
}

void Round::enter() const {
  ThreadContext::current().runtime = runtime_;
}

void Round::start_thread(std::function<void()> body) {
  threads_.emplace_back([this, body = std::move(body)] {
    enter();
    body();
  });
}

void Round::join_threads() {
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void Round::require(bool holds, std::string_view what) {
  if (!holds) {
    const workflow::MutexLock lock(mutex_);
    if (problem_.empty()) {
      problem_ = what;
    }
  }
}

std::string Round::problem() const {
  const workflow::MutexLock lock(mutex_);
  return problem_;
}

void Totals::add(const Round& round) {
  tasks += round.tasks();
  succeeded += round.outcomes(WFT_STATE_SUCCESS);
  failed += round.outcomes(WFT_STATE_SYS_ERROR);
  aborted += round.outcomes(WFT_STATE_ABORTED);
}

void Totals::print() const {
  std::printf("%zu tasks: %zu succeeded, %zu failed, %zu aborted\n", tasks, succeeded, failed,
              aborted);
}

Enough each_outcome(size_t many) {
  return [many](const Totals& totals) {
    return std::min({totals.succeeded, totals.failed, totals.aborted}) > many;
  };
}

bool goes_on(uint64_t rounds_done, uint64_t count, const Totals& totals, const Enough& enough) {
  return rounds_done < count || (enough && !enough(totals) && rounds_done < 20 * count);
}

namespace {

// `longest_us`: see run_stopped_rounds().
Totals run(uint64_t count, std::optional<uint64_t> longest_us, const Begin& begin,
           const Enough& enough) {
  Totals totals;
  for (uint64_t number = 0; goes_on(number, count, totals, enough); number++) {
    TestRandom random(test_support::test_seed(), ~number);
    std::optional<RandomRuntime> runtime;
    if (longest_us) {
      runtime.emplace(random);
    }
    const std::unique_ptr<Round> round = begin(number, runtime ? runtime->get() : nullptr);
    if (runtime) {
      pause_us(random.below(*longest_us));
      runtime->stop();
    }
    const std::string problem = round->finish();
    if (!problem.empty() || testing::Test::HasFailure()) {
      ADD_FAILURE() << "round " << number << ": " << problem;
      break;
    }
    totals.add(*round);
  }
  totals.print();
  return totals;
}

}  // namespace

Totals run_rounds(uint64_t count, const Begin& begin, const Enough& enough) {
  return run(count, std::nullopt, begin, enough);
}

Totals run_stopped_rounds(uint64_t count, uint64_t longest_us, const Begin& begin,
                          const Enough& enough) {
  return run(count, longest_us, begin, enough);
}

void expect_each_side_won(const Totals& totals, size_t many) {
  EXPECT_GT(totals.succeeded, many);
  EXPECT_GT(totals.failed, many);
}

RandomRuntime::RandomRuntime(TestRandom& random)
    : runtime_({.poller_threads = 1 + static_cast<int>(random.below(3)),
                .handler_threads = 1 + static_cast<int>(random.below(4)),
                .compute_threads = 1 + static_cast<int>(random.below(3))}) {
  EXPECT_TRUE(runtime_.start());
  ThreadContext::current().runtime = &runtime_;
}

RandomRuntime::~RandomRuntime() {
  ThreadContext::current().runtime = nullptr;
}

}  // namespace race

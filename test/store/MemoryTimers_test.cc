#include "store/MemoryTimers.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>

namespace {

using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::ListRequest;
using workflow::MemoryTimers;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

// The time that this thread has spent on a processor.
int64_t thread_cpu_ns() {
  struct timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

void schedule(MemoryTimers& timers, const std::string& name, int64_t due_us) {
  ScheduleRequest request;
  request.spec.name = name;
  request.spec.kind = "kind";
  request.due_us = due_us;
  StoreFailure failure;
  timers.carry_out(request, failure);
  EXPECT_EQ(failure.error, 0);
}

// Runs the one timer that is due now, and lets it fail.
void fail(MemoryTimers& timers) {
  ClaimRequest claim;
  claim.kinds = {{"kind", 1, 1}};
  claim.lease_us = 1000;
  timers.carry_out(claim);
  ASSERT_EQ(claim.claimed.size(), 1u);
  FinishRequest finish;
  finish.run = claim.claimed[0].run;
  finish.how = FinishRequest::How::kFailed;
  timers.carry_out(finish);
  EXPECT_TRUE(finish.accepted);
}

ListRequest failed_ones(const MemoryTimers& timers) {
  ListRequest list;
  list.max = 10;
  list.failed_only = true;
  timers.carry_out(list);
  return list;
}

// A walk over all of them would take tens of times longer than to store them, and the search for
// one takes a hundredth of that.
TEST(MemoryTimersCost, AThousandListsOfFailedTimersTakeLessThanStoringManyOthers) {
  MemoryTimers timers(0);
  schedule(timers, "timer 555", 0);
  fail(timers);
  const int64_t begun = thread_cpu_ns();
  for (int i = 100'000; i < 200'000; i++) {
    schedule(timers, "timer " + std::to_string(i), 1'000'000);
  }
  const int64_t stored = thread_cpu_ns();
  for (int i = 0; i < 1000; i++) {
    const ListRequest list = failed_ones(timers);
    ASSERT_EQ(list.timers.size(), 1u);
    EXPECT_FALSE(list.more);
  }
  EXPECT_LT(thread_cpu_ns() - stored, stored - begun);
}

}  // namespace

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "support/CpuTime.h"
#include "support/Sanitizers.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

// A process that has used all of its threads and has nothing to do.

namespace {

constexpr int kMany = 1000;

void use_all_threads() {
  WFFacilities::WaitGroup group(3 * kMany);
  for (int i = 0; i < kMany; i++) {
    WFTaskFactory::create_timer_task("timer", 0, 1'000'000, [&group](WFTimerTask*) {
      group.done();
    })->start();
    WFTaskFactory::create_go_task("queue", [&group] { group.done(); })->start();
    char byte = 0;
    WFFileIOTask* read = WFTaskFactory::create_pread_task("/proc/self/exe", &byte, 1, 0, nullptr);
    read->set_callback([&group](WFFileIOTask*) { group.done(); });
    WFFacilities::WaitGroup is_read(1);
    Workflow::start_series_work(read, [&is_read](const SeriesWork*) { is_read.done(); });
    is_read.wait();
  }
  // It waits all the time.
  WFTaskFactory::create_timer_task("an hour", 3600, 0, nullptr)->start();
  group.wait();
}

}  // namespace

// It really sleeps for 10 s, because it is about what a thread does that wakes once in a while.
TEST(IdleProcess, UsesNoProcessorAtAll) {
  if (test_support::kSanitized) GTEST_SKIP() << "a sanitizer has threads of its own";
  use_all_threads();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // threads that are not needed end
  const int64_t before_us = test_support::cpu_us();
  std::this_thread::sleep_for(std::chrono::seconds(10));
  const int64_t used_us = test_support::cpu_us() - before_us;
  std::printf("%lld us of 10 s\n", static_cast<long long>(used_us));
  EXPECT_LT(used_us, 5000);  // 0.0 %, rounded
  EXPECT_EQ(WFTaskFactory::cancel_by_name("an hour"), 1);
}

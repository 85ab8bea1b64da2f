#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "workflow/WFFacilities.h"

// Waits, sleeps and go tasks that the end of the process finds at work.

namespace {

// Made before the library starts, so destroyed after it has stopped: looks at what has happened by
// then and ends the process with the number of what is missing.
class AfterStop {
 public:
  explicit AfterStop(int expected) : expected_(expected) {}
  ~AfterStop() {
    std::fprintf(stderr, "seen %d of %d.\n", seen.load(), expected_);
    std::fflush(stderr);
    std::_Exit(seen == expected_ ? 0 : 1);
  }

  static inline std::atomic<int> seen{0};

 private:
  const int expected_;
};

class ShutdownWaits : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

constexpr unsigned int kHourUs = 3'600'000'000;

void exit_with_sleepers() {
  static const AfterStop after(3);
  WFFacilities::WaitGroup started(3);
  for (int i = 0; i < 2; i++) {
    WFTaskFactory::create_timer_task(0u, [&started](WFTimerTask*) {
      started.done();
      WFFacilities::usleep(kHourUs);
      AfterStop::seen++;
    })->start();
  }
  WFFacilities::go("queue", [&started] {
    started.done();
    WFFacilities::usleep(kHourUs);
    AfterStop::seen++;
  });
  started.wait();
  std::exit(3);
}

void exit_with_queued_go_tasks() {
  constexpr int kTasks = 1000;
  static const AfterStop after(kTasks);
  WFFacilities::WaitGroup started(1);
  // Holds nothing back: while it sleeps its thread is lent, so every task runs or is aborted.
  WFFacilities::go("queue", [&started] {
    started.done();
    WFFacilities::usleep(kHourUs);
  });
  started.wait();
  for (int i = 0; i < kTasks; i++) {
    WFGoTask* task = WFTaskFactory::create_go_task("queue", [] {});
    task->set_callback([](WFGoTask* done) {
      AfterStop::seen +=
          done->get_state() == WFT_STATE_SUCCESS || done->get_state() == WFT_STATE_ABORTED;
    });
    task->start();
  }
  std::exit(3);
}

// Its destructor runs after the library has stopped.
struct LateUser {
  ~LateUser() {
    WFFacilities::usleep(kHourUs);
    WFFuture<void> future = WFFacilities::async_usleep(kHourUs);
    AfterStop::seen += future.wait_for(std::chrono::nanoseconds(0)) == std::future_status::ready;
    WFTaskFactory::create_timer_task(0u, [](WFTimerTask* task) {
      AfterStop::seen += task->get_state() == WFT_STATE_ABORTED;
    })->start();
    WFGoTask* task = WFTaskFactory::create_go_task("queue", [] { AfterStop::seen -= 100; });
    task->set_callback(
        [](WFGoTask* done) { AfterStop::seen += done->get_state() == WFT_STATE_ABORTED; });
    task->start();
  }
};

void exit_with_late_user() {
  static const AfterStop after(3);
  static const LateUser late;
  WFFacilities::usleep(1);
  std::exit(3);
}

}  // namespace

TEST_F(ShutdownWaits, SleepersAreWoken) {
  EXPECT_EXIT(exit_with_sleepers(), testing::ExitedWithCode(0), "seen 3 of 3");
}

TEST_F(ShutdownWaits, QueuedGoTasksEndOnce) {
  EXPECT_EXIT(exit_with_queued_go_tasks(), testing::ExitedWithCode(0), "seen 1000 of 1000");
}

TEST_F(ShutdownWaits, AfterwardsNothingWaitsAndEverythingIsAborted) {
  EXPECT_EXIT(exit_with_late_user(), testing::ExitedWithCode(0), "seen 3 of 3");
}

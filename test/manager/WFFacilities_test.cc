#include "workflow/WFFacilities.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "FutureStatus.h"
#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFSimulation.h"

using manager_test::kReady;
using manager_test::kTimeout;
using test_support::kPatience;
using test_support::Tally;
using workflow::kNsPerMs;
using workflow::kNsPerSec;
using workflow::monotonic_ns;

TEST(Usleep, SleepsAsLongAsAskedAndNotEarly) {
  for (const unsigned int us : {0u, 1u, 1000u, 50'000u}) {
    const int64_t begin_ns = monotonic_ns();
    WFFacilities::usleep(us);
    EXPECT_GE(monotonic_ns() - begin_ns, us * 1000L);
    EXPECT_LT(monotonic_ns() - begin_ns, us * 1000L + 10 * kNsPerSec);
  }
}

TEST(Usleep, AsyncIsReadyInTime) {
  const int64_t begin_ns = monotonic_ns();
  WFFuture<void> slow = WFFacilities::async_usleep(30'000);
  WFFuture<void> slower = WFFacilities::async_usleep(60'000'000);
  EXPECT_EQ(slower.wait_for(std::chrono::milliseconds(1)), kTimeout);
  slow.get();
  EXPECT_GE(monotonic_ns() - begin_ns, 30 * kNsPerMs);
  // Nobody waits for the slower one: its timer is aborted at exit.
}

TEST(Go, RunsWithItsArguments) {
  Tally ran;
  int sum = 0;
  WFFacilities::go(
      "queue",
      [&ran](int a, int& result) {
        result += a;
        ran.add();
      },
      5, std::ref(sum));
  ASSERT_TRUE(ran.wait_for(1));
  EXPECT_EQ(sum, 5);
}

TEST(WaitGroup, ZeroOrLessDoesNotBlock) {
  for (const int n : {0, -1, -1000}) {
    WFFacilities::WaitGroup group(n);
    group.wait();
    EXPECT_EQ(group.wait(-1), kReady);
    EXPECT_EQ(group.wait(0), kReady);
  }
}

TEST(WaitGroup, WaitsUntilAllAreDone) {
  WFFacilities::WaitGroup group(3);
  group.done();
  group.done();
  EXPECT_EQ(group.wait(0), kTimeout);
  EXPECT_EQ(group.wait(1), kTimeout);
  group.done();
  EXPECT_EQ(group.wait(0), kReady);
  group.wait();
  group.wait();
}

TEST(WaitGroup, AddsMore) {
  WFFacilities::WaitGroup group(1);
  group.add(2);
  group.done();
  EXPECT_EQ(group.wait(0), kTimeout);
  group.add(-2);
  EXPECT_EQ(group.wait(0), kReady);
  group.add(1);
  EXPECT_EQ(group.wait(0), kTimeout);
  group.done();
  group.wait();
}

TEST(WaitGroup, TimedWaitIsNotEarlyAndEndsWhenDone) {
  WFFacilities::WaitGroup group(1);
  const int64_t begin_ns = monotonic_ns();
  EXPECT_EQ(group.wait(20), kTimeout);
  EXPECT_GE(monotonic_ns() - begin_ns, 20 * kNsPerMs);
  std::thread finisher([&group] { group.done(); });
  EXPECT_EQ(group.wait(60'000), kReady);
  EXPECT_LT(monotonic_ns() - begin_ns, std::chrono::nanoseconds(kPatience).count());
  finisher.join();
}

TEST(WaitGroup, WakesEveryWaiter) {
  WFFacilities::WaitGroup group(1);
  std::vector<std::jthread> waiters;
  for (int i = 0; i < 4; i++) {
    waiters.emplace_back([&group, i] { i % 2 ? group.wait() : (void)group.wait(60'000); });
  }
  group.done();
  waiters.clear();  // joins them
}

TEST(WaitGroup, MayDieAsSoonAsWaitReturns) {
  for (int round = 0; round < 2000; round++) {
    std::vector<std::jthread> threads;
    {
      WFFacilities::WaitGroup group(2);
      for (int i = 0; i < 2; i++) {
        threads.emplace_back([&group] { group.done(); });
      }
      group.wait();
    }
    threads.clear();  // joins them
  }
}

TEST(WaitGroup, MayDieAsSoonAsWaitReturnsInTheWakeOfGoTasks) {
  for (int round = 0; round < 5000; round++) {
    WFFacilities::WaitGroup group(1);
    WFFacilities::go("queue", [&group] { group.done(); });
    group.wait();
  }
}

TEST(FacilitiesInSimulation, SleepsTakeVirtualTime) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    WFSimulation simulation(seed);
    int64_t slept_ns = 0;
    simulation.spawn([&] {
      const int64_t begin_ns = simulation.now_ns();
      for (int i = 0; i < 10; i++) {
        WFFacilities::usleep(3'600'000'000);
      }
      slept_ns = simulation.now_ns() - begin_ns;
    });
    EXPECT_TRUE(simulation.run().ok());
    EXPECT_EQ(slept_ns, 36'000 * kNsPerSec);
  }
}

TEST(FacilitiesInSimulation, TimedWaitsTakeVirtualTime) {
  WFSimulation simulation(1);
  simulation.spawn([&] {
    WFPromise<int> promise;
    WFFuture<int> future = promise.get_future();
    WFFacilities::WaitGroup group(1);
    EXPECT_EQ(future.wait_for(std::chrono::hours(1)), kTimeout);
    EXPECT_EQ(simulation.now_ns(), 3600 * kNsPerSec);
    EXPECT_EQ(group.wait(1000), kTimeout);
    EXPECT_EQ(simulation.now_ns(), 3601 * kNsPerSec);
  });
  EXPECT_TRUE(simulation.run().ok());
}

TEST(FacilitiesInSimulation, AWaiterThatIsSlowToWakeIsNotHeldByALaterAdd) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    WFSimulation simulation(seed);
    WFFacilities::WaitGroup group(1);
    bool awake = false;
    simulation.spawn([&] {
      group.wait();
      awake = true;
    });
    // Until the only thing left is the wait.
    EXPECT_FALSE(simulation.run().ok());
    group.done();
    group.add(1);
    EXPECT_TRUE(simulation.run().ok());
    EXPECT_TRUE(awake);
  }
}

TEST(FacilitiesInSimulation, WaitsEndUnderEverySchedule) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    WFSimulation simulation(seed);
    int got = 0;
    simulation.spawn([&] {
      // On this stack: they die while the others may still be returning.
      WFFacilities::WaitGroup group(3);
      WFPromise<int> promise;
      WFFuture<int> future = promise.get_future();
      simulation.spawn([&group] { group.done(); });
      WFFacilities::go("queue", [&group] { group.done(); });
      WFTaskFactory::create_timer_task(10u, [&](WFTimerTask*) {
        WFFacilities::usleep(5);
        promise.set_value(7);
        group.done();
      })->start();
      group.wait();
      got = future.get();
    });
    const WFSimulationResult result = simulation.run();
    EXPECT_TRUE(result.ok()) << result.description;
    EXPECT_EQ(got, 7);
  }
}

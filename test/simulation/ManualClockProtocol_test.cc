// The manual clock under every interleaving that many seeds find: time may be moved by the thread
// that calls advance(), and by the last handler that has nothing more to do. Each timer runs at its
// deadline, and time stands while anything is posted or runs (ManualClock, invariants 2 and 3).

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kernel/FiberScheduler.h"
#include "kernel/ManualClock.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/ClockWalk.h"
#include "support/Seeds.h"
#include "support/TestSeed.h"

namespace {

using test_support::ClockWalk;
using test_support::TestRandom;
using workflow::FiberScheduler;
using workflow::ManualClock;
using workflow::Runtime;
using workflow::ThreadContext;

// The library on virtual threads, and on a clock that moves by hand instead of by itself.
class ManualSimulation {
 public:
  ManualSimulation(uint64_t seed, TestRandom& random)
      : outer_context_(ThreadContext::current()), scheduler_(seed, {}), walk_(clock_, seed, 30) {
    ThreadContext::current() = ThreadContext();
    runtime_.emplace(Runtime::Options{.poller_threads = static_cast<int>(random.between(1, 2)),
                                      .handler_threads = static_cast<int>(random.between(1, 3)),
                                      .compute_threads = static_cast<int>(random.between(1, 2)),
                                      .clock = &clock_});
    ThreadContext::current().runtime = &*runtime_;
    EXPECT_TRUE(runtime_->start());
  }
  ~ManualSimulation() {
    runtime_->stop();
    runtime_.reset();
    ThreadContext::current() = outer_context_;
  }

  ManualClock& clock() { return clock_; }
  Runtime& runtime() { return *runtime_; }
  FiberScheduler& scheduler() { return scheduler_; }
  ClockWalk& walk() { return walk_; }

 private:
  const ThreadContext outer_context_;
  FiberScheduler scheduler_;
  ManualClock clock_;
  ClockWalk walk_;
  std::optional<Runtime> runtime_;
};

TEST(ManualClockProtocol, EachTimerRunsAtItsDeadlineAndTimeStandsMeanwhile) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TestRandom random(seed);
    ManualSimulation simulation(seed, random);
    ClockWalk& walk = simulation.walk();
    walk.start(4, ClockWalk::Time::kStands);
    for (bool more = true; more;) {
      if (random.one_in(2)) {
        more = simulation.clock().advance_to_next_deadline(simulation.runtime());
      } else {
        simulation.clock().advance(simulation.runtime(), random.between(0, 6));
      }
      ASSERT_EQ(walk.account(), "");
    }
    EXPECT_EQ(walk.ended(), walk.started());
    EXPECT_GE(walk.ended(), 4U);
  });
}

TEST(ManualClockProtocol, CallsOfSeveralThreadsMoveTimeOneAfterTheOther) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TestRandom random(seed);
    ManualSimulation simulation(seed, random);
    ClockWalk& walk = simulation.walk();
    walk.start(4, ClockWalk::Time::kStands);
    std::vector<FiberScheduler::ThreadId> movers;
    for (int i = 0; i < 2; i++) {
      movers.push_back(simulation.scheduler().spawn("mover", [&simulation] {
        ThreadContext::current().runtime = &simulation.runtime();
        simulation.clock().advance(simulation.runtime(), 5);
      }));
    }
    walk.start(2, ClockWalk::Time::kMayMove);
    for (FiberScheduler::ThreadId mover : movers) {
      simulation.scheduler().join(mover);
    }
    ASSERT_EQ(walk.account(), "");
    EXPECT_EQ(simulation.clock().now_ns(), 10);
    while (simulation.clock().advance_to_next_deadline(simulation.runtime())) {
    }
    ASSERT_EQ(walk.account(), "");
    EXPECT_EQ(walk.ended(), walk.started());
  });
}

}  // namespace

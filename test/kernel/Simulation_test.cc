#include "kernel/Simulation.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

namespace workflow {
namespace {

using Outcome = Simulation::Outcome;

// A timer that posts itself to the handlers, as the library's timer tasks do.
class SimulatedTimer : public TimerNode, public Runnable {
 public:
  SimulatedTimer(int id, std::vector<std::pair<int, int64_t>>& fired) : id_(id), fired_(fired) {}
  ~SimulatedTimer() override = default;

  void left_queue(bool stopped, RunnableList& finished) override {
    stopped_ = stopped;
    finished.push_back(this);
  }
  void run_queued() override { fired_.emplace_back(id_, Runtime::current().clock().now_ns()); }
  bool stopped() const { return stopped_; }

 private:
  const int id_;
  std::vector<std::pair<int, int64_t>>& fired_;
  bool stopped_ = false;
};

class Function : public Runnable {
 public:
  explicit Function(std::function<void()> body) : body_(std::move(body)) {}
  ~Function() override = default;
  void run_queued() override { body_(); }

 private:
  std::function<void()> body_;
};

TEST(Simulation, TimersFireAtTheirDeadlinesInVirtualTime) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    Simulation simulation(seed, {});
    std::vector<std::pair<int, int64_t>> fired;
    SimulatedTimer late(2, fired);
    SimulatedTimer soon(1, fired);
    simulation.runtime().own_poller().timers().start(&late, 3600 * kNsPerSec);
    simulation.runtime().own_poller().timers().start(&soon, 1);
    EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
    const std::vector<std::pair<int, int64_t>> expected = {{1, 1}, {2, 3600 * kNsPerSec}};
    EXPECT_EQ(fired, expected) << "seed " << seed;
  }
}

TEST(Simulation, RunForAdvancesTimeByExactlySoMuch) {
  Simulation simulation(1, {});
  std::vector<std::pair<int, int64_t>> fired;
  SimulatedTimer timer(1, fired);
  simulation.runtime().own_poller().timers().start(&timer, 100);
  simulation.run_for(99);
  EXPECT_EQ(simulation.now_ns(), 99);
  EXPECT_TRUE(fired.empty());
  simulation.run_for(1);
  EXPECT_EQ(simulation.now_ns(), 100);
  EXPECT_EQ(fired.size(), 1u);
}

TEST(Simulation, StopEndsTimersThatNeverExpire) {
  for (uint64_t seed = 0; seed < 1000; seed++) {
    Simulation simulation(seed, {});
    std::vector<std::pair<int, int64_t>> fired;
    SimulatedTimer timer(1, fired);
    EXPECT_EQ(simulation.runtime().own_poller().timers().start(&timer, kNever),
              PollerTimers::Start::kQueued);
    EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
    EXPECT_TRUE(fired.empty());
    EXPECT_EQ(simulation.stop().outcome, Outcome::kQuiet) << "seed " << seed;
    EXPECT_EQ(fired.size(), 1u) << "seed " << seed;
    EXPECT_TRUE(timer.stopped());
    SimulatedTimer later(2, fired);
    EXPECT_EQ(simulation.runtime().own_poller().timers().start(&later, 1),
              PollerTimers::Start::kStopped);
  }
}

TEST(Simulation, HandlersRunSideBySideInOrdersThatTheSeedDecides) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 200; seed++) {
    Simulation simulation(seed, {});
    std::vector<int> order;
    std::vector<std::unique_ptr<Function>> items;
    for (int i = 0; i < 3; i++) {
      items.push_back(std::make_unique<Function>([&order, i] {
        schedule_point();
        order.push_back(i);
      }));
      simulation.runtime().handlers().post(items.back().get());
    }
    EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
    ASSERT_EQ(order.size(), 3u);
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), 4u);
}

TEST(Simulation, ComputeQueuesRunInside) {
  Simulation simulation(7, {});
  int done = 0;
  Function item([&done] { done++; });
  ComputePool& compute = simulation.runtime().compute();
  EXPECT_TRUE(compute.post(compute.queue("q"), &item));
  EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
  EXPECT_EQ(done, 1);
}

TEST(Simulation, FindsAPairOfMutexesTakenInOppositeOrders) {
  Mutex a;
  Mutex b;
  int deadlocks = 0;
  for (uint64_t seed = 0; seed < 100; seed++) {
    Simulation simulation(seed, {});
    simulation.spawn([&] {
      MutexLock first(a);
      MutexLock second(b);
    });
    simulation.spawn([&] {
      MutexLock first(b);
      MutexLock second(a);
    });
    const Simulation::Result result = simulation.run();
    if (result.outcome == Outcome::kDeadlock) {
      deadlocks++;
      EXPECT_NE(result.description.find("seed " + std::to_string(seed)), std::string::npos);
      EXPECT_NE(result.description.find("waits for a mutex that"), std::string::npos)
          << result.description;
    }
    EXPECT_EQ(simulation.stop().outcome, result.outcome);
  }
  EXPECT_GT(deadlocks, 5);
  EXPECT_LT(deadlocks, 95);
}

TEST(Simulation, ABlockedThreadIsADeadlockUntilItIsHelped) {
  Simulation simulation(3, {});
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  simulation.spawn([&] {
    MutexLock lock(mutex);
    while (!ready) {
      changed.wait(mutex);
    }
  });
  EXPECT_EQ(simulation.run().outcome, Outcome::kDeadlock);
  {
    MutexLock lock(mutex);
    ready = true;
    changed.notify_one();
  }
  EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
}

TEST(Simulation, ALivelockEndsAtTheStepLimit) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    Simulation simulation(seed, {.max_steps = 10'000});
    simulation.spawn([] {
      for (;;) {
        schedule_point();
      }
    });
    const Simulation::Result result = simulation.run();
    EXPECT_EQ(result.outcome, Outcome::kStepLimit);
    EXPECT_NE(result.description.find("step limit"), std::string::npos);
    EXPECT_EQ(simulation.stop().outcome, Outcome::kStepLimit);
  }
}

// A queue whose reader looks at the flag without the lock that guards the notification.
class LossyMailbox {
 public:
  void put() {
    {
      MutexLock lock(mutex_);
      full_ = true;
    }
    changed_.notify_one();
  }
  void get() {
    mutex_.lock();
    const bool full = full_;
    mutex_.unlock();
    if (!full) {
      // The wake-up is lost when put() runs here.
      MutexLock lock(mutex_);
      changed_.wait(mutex_);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool full_ = false;
};

TEST(Simulation, FindsALostWakeUp) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 200 && found == 0; seed++) {
    Simulation simulation(seed, {});
    LossyMailbox mailbox;
    simulation.spawn([&] { mailbox.get(); });
    simulation.spawn([&] { mailbox.put(); });
    if (simulation.run().outcome == Outcome::kDeadlock) {
      found = seed;
    }
    simulation.stop();
  }
  EXPECT_GT(found, 0u);
}

// Steps, hash and time after a bustle of timers, handlers and threads.
struct Trace {
  uint64_t steps;
  uint64_t hash;
  bool operator==(const Trace&) const = default;
};

Trace trace_of(uint64_t seed) {
  Simulation simulation(seed, {.poller_threads = 2, .handler_threads = 3, .compute_threads = 2});
  std::vector<std::pair<int, int64_t>> fired;
  std::vector<std::unique_ptr<SimulatedTimer>> timers;
  for (int i = 0; i < 20; i++) {
    timers.push_back(std::make_unique<SimulatedTimer>(i, fired));
  }
  int cancelled = 0;
  for (int thread = 0; thread < 4; thread++) {
    simulation.spawn([&, thread] {
      for (size_t i = 0; i < 5; i++) {
        SimulatedTimer* timer = timers[static_cast<size_t>(thread) * 5 + i].get();
        simulation.runtime().own_poller().timers().start(timer, static_cast<int64_t>(i) * 100);
        simulation.sleep_for(150);
        if (PollerTimers::cancel(timer) == PollerTimers::Cancel::kTaken) {
          cancelled++;
        }
      }
    });
  }
  EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
  EXPECT_EQ(fired.size() + static_cast<size_t>(cancelled), 20u);
  EXPECT_EQ(simulation.stop().outcome, Outcome::kQuiet);
  return {simulation.steps(), simulation.trace_hash()};
}

TEST(Simulation, TheSameSeedReplaysTheSameSchedule) {
  std::vector<Trace> forwards;
  std::set<uint64_t> distinct;
  for (uint64_t seed = 0; seed < 100; seed++) {
    forwards.push_back(trace_of(seed));
    distinct.insert(forwards.back().hash);
  }
  EXPECT_GE(distinct.size(), 99u);
  // In another order, with other addresses.
  std::vector<std::unique_ptr<char[]>> litter;
  for (uint64_t seed = 100; seed-- > 0;) {
    litter.push_back(std::make_unique<char[]>(1 + seed * 77));
    EXPECT_EQ(trace_of(seed), forwards[seed]) << "seed " << seed;
  }
}

TEST(Simulation, ExceptionsAndErrnoStayWithTheirThread) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    Simulation simulation(seed, {});
    int right = 0;
    for (int thread = 1; thread <= 3; thread++) {
      simulation.spawn([&right, thread] {
        for (int i = 0; i < 10; i++) {
          errno = thread;
          try {
            throw std::runtime_error(std::to_string(thread));
          } catch (const std::runtime_error& error) {
            schedule_point();
            if (errno == thread && std::stoi(error.what()) == thread) {
              right++;
            }
          }
        }
      });
    }
    EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
    EXPECT_EQ(right, 30);
  }
}

TEST(Simulation, WaitsWakeSpuriouslyUnlessToldOtherwise) {
  const auto wakeups_with = [](bool spurious) {
    int wakeups = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
      Simulation simulation(seed, {.spurious_wakeups = spurious});
      Mutex mutex;
      CondVar changed;
      bool end = false;
      simulation.spawn([&] {
        MutexLock lock(mutex);
        while (!end) {
          changed.wait(mutex);
          wakeups++;
        }
      });
      simulation.spawn([&] {
        for (int i = 0; i < 2000; i++) {
          schedule_point();
        }
        MutexLock lock(mutex);
        end = true;
        changed.notify_all();
      });
      EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
    }
    return wakeups;
  };
  EXPECT_LE(wakeups_with(false), 20);
  EXPECT_GT(wakeups_with(true), 20);
}

TEST(Simulation, ATimedWaitEndsAtItsDeadline) {
  Simulation simulation(5, {});
  Mutex mutex;
  CondVar never;
  int64_t woken_ns = 0;
  simulation.spawn([&] {
    MutexLock lock(mutex);
    while (never.wait_until(mutex, 12'345)) {
    }
    woken_ns = simulation.now_ns();
  });
  EXPECT_EQ(simulation.run().outcome, Outcome::kQuiet);
  EXPECT_EQ(woken_ns, 12'345);
}

TEST(SimulationDeathTest, RecursiveLockingIsReported) {
  EXPECT_DEATH(
      {
        Simulation simulation(1, {});
        Mutex mutex;
        VirtualScheduler::current()->lock(&mutex);
        VirtualScheduler::current()->lock(&mutex);
      },
      "locks a mutex that it holds already");
}

TEST(SimulationDeathTest, UnlockingWhatIsNotLockedIsReported) {
  EXPECT_DEATH(
      {
        Simulation simulation(1, {});
        Mutex mutex;
        VirtualScheduler::current()->unlock(&mutex);
      },
      "unlocks a mutex that is not locked");
}

TEST(SimulationDeathTest, AMainThreadThatBlocksForEverIsReported) {
  EXPECT_DEATH(
      {
        Simulation simulation(99, {});
        Mutex mutex;
        CondVar never;
        MutexLock lock(mutex);
        for (;;) {
          never.wait(mutex);
        }
      },
      "seed 99.*main thread is blocked for ever");
}

}  // namespace
}  // namespace workflow

// Coroutines under every interleaving that many seeds find: they sleep, wait in groups and in line,
// while others cancel them by name, by their scope and by their series, and the library stops.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "support/Seeds.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFSimulation.h"

namespace {

using std::chrono::nanoseconds;

struct CoroutineLedger {
  int frames = 0;  // begun and not destroyed
  int begun = 0;
  int ended = 0;  // of those that start() has begun
  int dropped = 0;
  bool overlap = false;  // the guard had two holders
  int holders = 0;
};

class CountedFrame {
 public:
  explicit CountedFrame(CoroutineLedger& ledger) : ledger_(ledger) { ledger_.frames++; }
  ~CountedFrame() { ledger_.frames--; }
  CountedFrame(const CountedFrame&) = delete;
  CountedFrame& operator=(const CountedFrame&) = delete;

 private:
  CoroutineLedger& ledger_;
};

class HeldGuard {
 public:
  explicit HeldGuard(CoroutineLedger& ledger) : ledger_(ledger) {
    ledger_.overlap |= ++ledger_.holders > 1;
  }
  ~HeldGuard() { ledger_.holders--; }
  HeldGuard(const HeldGuard&) = delete;
  HeldGuard& operator=(const HeldGuard&) = delete;

 private:
  CoroutineLedger& ledger_;
};

WFCo<WFEnd> doze(CoroutineLedger& ledger, int ns) {
  const CountedFrame frame(ledger);
  const WFEnd end = co_await wf::sleep("doze", nanoseconds(ns));
  co_return end;
}

WFCo<> hold_a_little(CoroutineLedger& ledger) {
  const CountedFrame frame(ledger);
  auto held = co_await wf::hold("simulated guard");
  if (!held) co_return;
  const WFReleaseGuard release("simulated guard");
  const HeldGuard holder(ledger);
  (void)co_await wf::sleep(nanoseconds(10));
}

WFCo<> wander(CoroutineLedger& ledger, uint64_t seed) {
  const CountedFrame frame(ledger);
  switch (seed % 5) {
    case 0: {
      auto both = co_await wf::all(doze(ledger, 50), doze(ledger, 100));
      static_cast<void>(both);
      break;
    }
    case 1: {
      auto first = co_await wf::any(doze(ledger, 50), doze(ledger, 50), hold_a_little(ledger));
      static_cast<void>(first);
      break;
    }
    case 2: {
      auto end = co_await wf::within(nanoseconds(50), doze(ledger, 50));
      static_cast<void>(end);
      break;
    }
    case 3: {
      const auto body = [&ledger](WFScope& scope) -> WFCo<> {
        scope.start(hold_a_little, std::ref(ledger));
        scope.start(doze, std::ref(ledger), 50);
        (void)co_await doze(ledger, 20);
      };
      co_await wf::scope(body);
      break;
    }
    default: {
      int computed = 0;
      const auto compute = [&computed] { return ++computed; };
      auto result = co_await wf::go("simulated queue", compute);
      EXPECT_EQ(result.value.value_or(0), computed);
      break;
    }
  }
  co_await hold_a_little(ledger);
}

// A scope task around a series of two wanderers; another thread ends it in one way or another.
void run_wanderers(uint64_t seed, bool stops) {
  CoroutineLedger ledger;
  {
    WFSimulation simulation(seed);
    bool done = false;
    WFScopeTask* const task = WFTaskFactory::create_scope_task(
        wf::task(wander, std::ref(ledger), seed), [&](WFScopeTask*) { done = true; });
    SeriesWork* const inside = task->sub_series();
    inside->push_back(wf::task(wander, std::ref(ledger), seed / 5));
    const WFScope scope = task->scope();
    simulation.spawn([task] { task->start(); });
    simulation.spawn([&] { wf::task(wander, std::ref(ledger), seed / 25)->start(); });
    simulation.spawn([&, seed] {
      simulation.sleep_for(static_cast<int64_t>(seed % 7) * 20);
      switch (seed / 7 % 3) {
        case 0:
          scope.cancel();
          break;
        case 1:
          WFTaskFactory::cancel_by_name("doze");
          break;
        default:
          if (!done) inside->cancel();
          break;
      }
    });
    if (!stops) {
      const WFSimulationResult result = simulation.run();
      ASSERT_TRUE(result.ok()) << result.description;
      EXPECT_TRUE(done);
      EXPECT_EQ(ledger.frames, 0);
    } else {
      simulation.run_for(nanoseconds(static_cast<int64_t>(seed % 11) * 10));
    }
    const WFSimulationResult stopped = simulation.stop();
    ASSERT_TRUE(stopped.ok()) << stopped.description;
  }
  EXPECT_EQ(ledger.frames, 0);
  EXPECT_FALSE(ledger.overlap);
}

TEST(CoroutineProtocol, EveryFrameIsDestroyedHoweverItEnds) {
  run_wanderers(25634, false);  // found a guard that nobody released
  for_each_seed(1000, [](uint64_t seed) { run_wanderers(seed, false); });
}

TEST(CoroutineProtocol, EveryFrameIsDestroyedWhenTheLibraryStops) {
  for_each_seed(1000, [](uint64_t seed) { run_wanderers(seed, true); });
}

// While a coroutine waits for a task, two other threads ask for its series at the same time, which
// is made then, and push a task in front. Both run before the coroutine goes on.
TEST(CoroutineProtocol, WhatIsPushedInFrontRunsBeforeTheCoroutineGoesOn) {
  for_each_seed(1000, [](uint64_t seed) {
    WFSimulation simulation(seed);
    WFCounterTask* const awaited = WFTaskFactory::create_counter_task(2, nullptr);
    int pushed = 0;
    bool waits = false, went_on = false;
    const auto wait = [&]() -> WFCo<> {
      waits = true;
      static_cast<void>(co_await awaited);
      EXPECT_EQ(pushed, 2);
      went_on = true;
    };
    wf::task(wait)->start();
    simulation.run_for(nanoseconds(1));
    ASSERT_TRUE(waits);
    for (int i = 0; i < 2; i++) {
      simulation.spawn([&, awaited] {
        series_of(awaited)->push_front(
            WFTaskFactory::create_counter_task(0, [&](WFCounterTask*) { pushed++; }));
        awaited->count();
      });
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_TRUE(went_on);
    EXPECT_TRUE(simulation.stop().ok());
  });
}

}  // namespace

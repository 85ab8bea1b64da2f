// Each kind of wait of a coroutine, ended in each way: by what it waits for, by its scope, by a
// deadline, by the stop of the library, and by a series that is cancelled, which destroys the
// frames where they wait. First each way alone, while the coroutine waits; then several at any
// moment.

#include "support/CoroutineWaits.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "support/Seeds.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFSimulation.h"

namespace {

using test_support::local_wait_kinds;
using test_support::WaitKind;
using test_support::WaitPlace;
using namespace std::chrono_literals;

enum Way { kBrought, kCanceled, kTimedOut, kStopped, kDropped, kWays };
constexpr const char* kWayNames[] = {"brought", "cancelled", "timed out", "stopped", "dropped"};

// A coroutine that waits in a scope of its own, in a simulation.
class SimulatedWait {
 public:
  SimulatedWait(const WaitKind& kind, uint64_t seed) : simulation_(seed), place_(kind, "place") {
    task_ = WFTaskFactory::create_scope_task(wf::task(&WaitPlace::stay, &place_),
                                             [this](WFScopeTask*) { is_over_ = true; });
    scope_ = task_->scope();
  }

  void start() { task_->start(); }
  void go(Way way) {
    switch (way) {
      case kBrought:
        return place_.bring();
      case kCanceled:
        return place_.cancel(scope_);
      case kTimedOut:
        return place_.set_deadline(scope_, std::chrono::nanoseconds(50));
      case kStopped:
        return stop();
      default:
        return place_.drop();
    }
  }
  // In virtual time: long enough for everything that nothing keeps waiting.
  void run() { simulation_.run_for(1ms); }
  void stop() {
    place_.note_stop();
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << result.description;
  }
  // Brings what may still be waited for, and compares the account.
  void close(const std::string& what) {
    place_.bring();
    run();
    ASSERT_TRUE(is_over_) << what << " waits for ever";
    ASSERT_EQ(place_.problem(), "") << what;
    std::optional<bool> is_back;
    const auto look = [&]() -> WFCo<> { is_back = co_await place_.nothing_is_lost(); };
    wf::task(look)->start();
    simulation_.run_for(1min);
    ASSERT_EQ(is_back, true) << what << ": lost";
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << what << ": " << result.description;
  }

  WFSimulation& simulation() { return simulation_; }
  WaitPlace& place() { return place_; }
  bool is_over() const { return is_over_; }

 private:
  WFSimulation simulation_;
  WaitPlace place_;
  WFScopeTask* task_ = nullptr;
  WFScope scope_;
  bool is_over_ = false;
};

std::optional<WFEnd> end_of(const WaitKind& kind, Way way) {
  constexpr WFEnd kEnds[] = {{},
                             {WFT_STATE_SYS_ERROR, ECANCELED},
                             {WFT_STATE_SYS_ERROR, ETIMEDOUT},
                             {WFT_STATE_ABORTED, 0}};
  if (!kind.bring) return WFEnd{WFT_STATE_SUCCESS, 0};
  if (way == kDropped) return std::nullopt;
  return way == kBrought ? kind.brought : kEnds[way];
}

// The coroutine waits. Then one thing happens, and nothing else.
void end_in_one_way(const WaitKind& kind, Way way, uint64_t seed) {
  const std::string what = std::string(kind.name) + ", " + kWayNames[way];
  SimulatedWait wait(kind, seed);
  wait.start();
  wait.run();
  ASSERT_EQ(wait.is_over(), !kind.bring) << what;
  wait.go(way);
  if (way != kStopped) wait.run();
  if (way == kDropped) {
    ASSERT_EQ(wait.is_over(), !kind.bring) << what << ": was interrupted";
    wait.place().bring();
    wait.run();
  }
  ASSERT_TRUE(wait.is_over()) << what << ": still waits";
  ASSERT_EQ(wait.place().ended, end_of(kind, way)) << what;
  if (kind.bring && way > kBrought && way < kDropped) {
    ASSERT_EQ(wait.place().again, end_of(kind, way)) << what << ", the next wait";
  }
  if (way == kStopped) {
    ASSERT_EQ(wait.place().problem(), "") << what;
  } else {
    wait.close(what);
  }
}

TEST(CoroutineWaitKinds, EachEndsInEachWay) {
  for (const WaitKind& kind : local_wait_kinds()) {
    for (int way = 0; way < kWays; way++) {
      for (uint64_t seed = 1; seed <= 2 && !HasFatalFailure(); seed++)
        end_in_one_way(kind, static_cast<Way>(way), seed);
    }
  }
}

TEST(CoroutineWaitKinds, LosersOfAnyAreGoneWhenItReturns) {
  for (const WaitKind& kind : local_wait_kinds()) {
    if (!kind.bring) continue;  // it wins
    for (uint64_t seed = 1; seed <= 2; seed++) {
      WFSimulation simulation(seed);
      WaitPlace place(kind, "place");
      std::optional<bool> is_gone;
      const auto run = [&]() -> WFCo<> { is_gone = co_await place.lose(); };
      wf::task(run)->start();
      simulation.run_for(1ms);
      ASSERT_EQ(is_gone, true) << kind.name;
      ASSERT_EQ(place.ended, (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED})) << kind.name;
      const WFSimulationResult stopped = simulation.stop();
      ASSERT_TRUE(stopped.ok()) << stopped.description;
    }
  }
}

// Two of the ways are gone by other threads, each at some moment: before the wait has begun, while
// it begins, while it ends.
void end_in_two_ways(uint64_t seed) {
  const std::span<const WaitKind> kinds = local_wait_kinds();
  const WaitKind& kind = kinds[seed % kinds.size()];
  const auto ways = static_cast<unsigned>(seed / kinds.size() % 25);
  const Way one = static_cast<Way>(ways % 5);
  const Way other = static_cast<Way>(ways / 5);
  const std::string what =
      std::string(kind.name) + ", " + kWayNames[one] + " and " + kWayNames[other];
  SimulatedWait wait(kind, seed);
  const auto go_at = [&wait](Way way, int64_t ns) {
    if (way == kStopped) return;
    wait.simulation().spawn([&wait, way, ns] {
      if (ns > 0) wait.simulation().sleep_for(ns);
      wait.go(way);
    });
  };
  wait.simulation().spawn([&wait] { wait.start(); });
  go_at(one, static_cast<int64_t>(seed / 7 % 3) * 25);
  go_at(other, static_cast<int64_t>(seed / 11 % 3) * 25);
  if (one == kStopped || other == kStopped) {
    wait.simulation().run_for(std::chrono::nanoseconds(seed / 13 % 4 * 25));
    wait.stop();
    ASSERT_TRUE(wait.is_over()) << what;
    ASSERT_EQ(wait.place().problem(), "") << what;
  } else {
    wait.run();
    wait.close(what);
  }
}

TEST(CoroutineWaitKinds, EachEndsAtAnyMoment) {
  for_each_seed(local_wait_kinds().size() * 25 * 2, end_in_two_ways);
}

}  // namespace

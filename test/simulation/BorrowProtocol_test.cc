// Coroutines that lend their variables to computations, around the moment when these return: their
// limit passes, their scope ends, their series is cancelled and the library stops at that moment.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "support/Seeds.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFSimulation.h"

namespace {

using std::chrono::nanoseconds;

struct BorrowLedger {
  BorrowLedger(uint64_t seed, const WFSimulationOptions& options) : simulation(seed, options) {}

  WFSimulation simulation;
  int frames = 0;
  int went_on = 0;
};

// A variable of a coroutine, and what happened to the task that it waits for.
class LentVariable {
 public:
  explicit LentVariable(BorrowLedger& ledger) : ledger_(ledger) { ledger_.frames++; }
  LentVariable(const LentVariable&) = delete;
  LentVariable& operator=(const LentVariable&) = delete;
  ~LentVariable() {
    EXPECT_FALSE(runs_) << "the function outlives the frame";
    ledger_.frames--;
  }

  // Its function runs until the time 10 or 11.
  WFGoTask* borrower(int64_t limit_ns, int64_t duration_ns) {
    const auto function = [this, duration_ns] {
      runs_ = true;
      ledger_.simulation.sleep_for(duration_ns);
      runs_ = false;
    };
    WFGoTask* const task =
        WFTaskFactory::create_timedgo_task(nanoseconds(limit_ns), "queue", function);
    task->set_callback([this](WFGoTask*) { callbacks_++; });
    return task;
  }
  void check() {
    EXPECT_FALSE(runs_);
    EXPECT_EQ(callbacks_, 1);
    ledger_.went_on++;
  }

 private:
  BorrowLedger& ledger_;
  bool runs_ = false;
  int callbacks_ = 0;
};

// A parallel of one task that is in no series.
class BareBranch final : public ParallelTask {
 public:
  explicit BareBranch(SubTask* task) : ParallelTask(&task_, 1), task_(task) {}

 private:
  SubTask* done() override { return delete_and_next(); }

  SubTask* task_;
};

// Waits for a computation in one of some ways.
WFCo<> lend(BorrowLedger& ledger, int way, int64_t limit_ns) {
  LentVariable variable(ledger);
  WFGoTask* const task = variable.borrower(limit_ns, 10 + way % 2);
  switch (way) {
    case 0:
    case 1: {
      const WFEnd end = co_await task;
      EXPECT_TRUE(end || end.state == WFT_STATE_ABORTED || end.error == ETIMEDOUT);
      break;
    }
    case 2: {
      const WFEnd end = co_await wf::within(nanoseconds(10), task);
      EXPECT_TRUE(end || end.error == ETIMEDOUT || end.error == ECANCELED);
      break;
    }
    case 3: {
      WFGraphTask* const graph = WFTaskFactory::create_graph_task(nullptr);
      graph->create_graph_node(task);
      (void)co_await graph;
      break;
    }
    default:
      (void)co_await new BareBranch(task);
      break;
  }
  variable.check();
}

// A coroutine that runs alone, and two in a series in a scope, which another thread ends.
void run_lenders(uint64_t seed, bool stops) {
  WFSimulationOptions options;
  options.compute_threads = 3;
  BorrowLedger ledger(seed, options);
  const auto way = [seed](uint64_t divisor) { return static_cast<int>(seed / divisor % 5); };
  const int64_t limit_ns = seed % 3 == 0 ? 20 : 10;
  bool done = false;
  WFScopeTask* const task = WFTaskFactory::create_scope_task(
      wf::task(lend, std::ref(ledger), way(1), limit_ns), [&done](WFScopeTask*) { done = true; });
  SeriesWork* const inside = task->sub_series();
  inside->push_back(wf::task(lend, std::ref(ledger), way(5), limit_ns));
  const WFScope scope = task->scope();
  const bool cancels_series = seed / 7 % 2 == 0;
  ledger.simulation.spawn([task] { task->start(); });
  ledger.simulation.spawn([&] { wf::task(lend, std::ref(ledger), way(25), limit_ns)->start(); });
  ledger.simulation.spawn([&] {
    ledger.simulation.sleep_for(10);
    if (cancels_series) {
      if (!done) inside->cancel();
    } else {
      scope.cancel(ETIMEDOUT);
    }
  });
  if (!stops) {
    const WFSimulationResult result = ledger.simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_TRUE(done);
    EXPECT_EQ(ledger.frames, 0);
    EXPECT_GE(ledger.went_on, cancels_series ? 1 : 3);
  } else {
    ledger.simulation.run_for(nanoseconds(10));
  }
  const WFSimulationResult stopped = ledger.simulation.stop();
  ASSERT_TRUE(stopped.ok()) << stopped.description;
  EXPECT_EQ(ledger.frames, 0);
}

TEST(BorrowProtocol, NoFrameGoesBeforeTheFunctionThatUsesIt) {
  for_each_seed(kSeeds, [](uint64_t seed) { run_lenders(seed, false); });
}

TEST(BorrowProtocol, NoFrameGoesBeforeTheFunctionWhenTheLibraryStops) {
  for_each_seed(kSeeds, [](uint64_t seed) { run_lenders(seed, true); });
}

}  // namespace

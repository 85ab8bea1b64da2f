// What begins without memory although nobody could be told that there is none: series that were
// cancelled before, and the ring for files.

#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "kernel/FileIo.h"
#include "kernel/Runtime.h"
#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "workflow/WFTaskFactory.h"

namespace {

using test_support::Tally;

constexpr long kAll = 1'000'000'000;

// Runs start() while all allocations fail, until `ended` counts one.
template <class START>
void start_without_memory(const Tally& ended, START start) {
  fault::counts_here = true;
  fault::arm(1, kAll);
  start();
  EXPECT_TRUE(ended.wait_for(1));
  fault::disarm();
  fault::counts_here = false;
}

class CancelledSeriesMemory : public testing::Test {
 protected:
  void SetUp() override {
    Tally first;  // so that the library runs
    F::create_timer_task(0, 0, [&first](WFTimerTask*) { first.add(); })->start();
    ASSERT_TRUE(first.wait_for(1));
  }

  using F = WFTaskFactory;

  // Its task never runs.
  SubTask* task() {
    return F::create_dynamic_task([this](WFDynamicTask*) -> SubTask* {
      ran_ = true;
      return nullptr;
    });
  }
  SeriesWork* cancelled(series_callback_t callback) {
    SeriesWork* const series = Workflow::create_series_work(task(), std::move(callback));
    series->cancel();
    return series;
  }

  std::atomic<bool> ran_{false};
};

TEST_F(CancelledSeriesMemory, BeginsAlone) {
  Tally ended;
  SeriesWork* const series = cancelled([&ended](const SeriesWork*) { ended.add(); });
  start_without_memory(ended, [series] { series->start(); });
  EXPECT_FALSE(ran_);
}

TEST_F(CancelledSeriesMemory, BeginsInAParallel) {
  Tally ended;
  SeriesWork* const all[2] = {cancelled(nullptr), cancelled(nullptr)};
  ParallelWork* const parallel =
      Workflow::create_parallel_work(all, 2, [&ended](const ParallelWork*) { ended.add(); });
  start_without_memory(ended, [parallel] { parallel->start(); });
  EXPECT_FALSE(ran_);
}

TEST_F(CancelledSeriesMemory, BeginsInAScope) {
  Tally ended;
  WFScopeTask* const scope =
      F::create_scope_task(cancelled(nullptr), [&ended](WFScopeTask*) { ended.add(); });
  start_without_memory(ended, [scope] { scope->start(); });
  EXPECT_FALSE(ran_);
}

TEST_F(CancelledSeriesMemory, BeginsInAModule) {
  Tally ended;
  WFModuleTask* const module =
      F::create_module_task(task(), [&ended](const WFModuleTask*) { ended.add(); });
  module->sub_series()->cancel();
  start_without_memory(ended, [module] { module->start(); });
  EXPECT_FALSE(ran_);
}

// The cancelled node cancels the one that depends on it.
TEST_F(CancelledSeriesMemory, BeginsInAGraph) {
  Tally ended;
  WFGraphTask* const graph = F::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
  SubTask* const first = task();
  graph->create_graph_node(first).precede(graph->create_graph_node(task()));
  series_of(first)->cancel();
  start_without_memory(ended, [graph] { graph->start(); });
  EXPECT_FALSE(ran_);
}

TEST(FileRingMemory, WithoutMemoryThreadsDoIt) {
  using workflow::FileBackend;
  long failed = 1;
  for (long n = 1; failed > 0; n++) {
    workflow::FileIo files(workflow::Runtime::current().handlers(),
                           {.backend = FileBackend::kRing});
    fault::counts_here = true;
    fault::arm(n);
    const FileBackend backend = files.backend();
    failed = fault::disarm();
    fault::counts_here = false;
    if (failed > 0) {
      EXPECT_EQ(backend, FileBackend::kThreads) << "allocation " << n;
    }
    files.refuse();
    files.stop();
  }
}

}  // namespace

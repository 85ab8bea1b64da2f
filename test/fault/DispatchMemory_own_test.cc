// What begins without memory although nobody could be told that there is none: series that were
// cancelled before, the ring for files, and sorting on several threads. And what cannot.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "kernel/FileIo.h"
#include "kernel/Runtime.h"
#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "workflow/WFAlgoTaskFactory.h"
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

class BareParallel final : public ParallelTask {
 public:
  using ParallelTask::ParallelTask;

 protected:
  SubTask* done() override { return delete_and_next(); }
};

// Also on a thread of the user's, whom an exception would leave with a parallel that has begun in
// part.
TEST(ParallelMemoryDeathTest, WithoutMemoryForTheSeriesOfASubtaskTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    SubTask* tasks[2] = {WFTaskFactory::create_empty_task(), WFTaskFactory::create_empty_task()};
    SeriesWork* const series = Workflow::create_series_work(new BareParallel(tasks, 2), nullptr);
    fault::counts_here = true;
    fault::arm(2);
    series->start();
  };
  EXPECT_DEATH(start(), "bad_alloc");
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

// The parameter: how many allocations fail after the first.
class SortMemory : public testing::TestWithParam<long> {};

INSTANTIATE_TEST_SUITE_P(Failing, SortMemory, testing::Values(0, kAll), [](const auto& more) {
  return std::string(more.param == 0 ? "One" : "AllThatFollow");
});

TEST_P(SortMemory, WhatHasNoMemoryForARoundIsSortedAsOneTask) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.compute_threads = 4;
  WORKFLOW_library_init(&settings);
  long failed = 1;
  long n = 0;
  while (failed > 0) {
    std::vector<int> numbers(40'000);
    unsigned next = 1;
    for (int& number : numbers) {
      next = next * 1664525 + 1013904223;
      number = static_cast<int>(next >> 8);
    }
    int* const first = numbers.data();
    int* const last = first + numbers.size();
    Tally ended;
    WFSortTask<int>* const task =
        WFAlgoTaskFactory::create_psort_task("sort", first, last, [&](WFSortTask<int>* sorted) {
          EXPECT_EQ(sorted->get_state(), WFT_STATE_SUCCESS);
          EXPECT_EQ(sorted->get_error(), 0);
          EXPECT_EQ(sorted->get_output()->first, first);
          EXPECT_EQ(sorted->get_output()->last, last);
          ended.add();
        });
    fault::counts_here = true;
    fault::arm(++n, GetParam());
    task->start();
    ASSERT_TRUE(ended.wait_for(1));
    failed = fault::disarm();
    fault::counts_here = false;
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
    ASSERT_FALSE(HasFailure()) << "allocation " << n;
  }
  EXPECT_GT(n, 10);
}

}  // namespace

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "support/Tally.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

// Tasks that one thread begins one after the other. The callback of the first waits for
// those of the others, and says so to nobody: other threads have to run them.

namespace {

using test_support::Tally;

constexpr size_t kOthers = 6;

// The first callback that is called waits for all others, by no means of the library.
class Callbacks {
 public:
  void call() {
    if (!is_first_.exchange(false)) {
      others_.add();
      return;
    }
    first_ended_well_ = others_.wait_for(kOthers);
    ended_.add();
  }
  // Whether the first one has seen all others.
  bool ended_well() { return ended_.wait_for(1) && first_ended_well_; }

 private:
  std::atomic<bool> is_first_{true};
  std::atomic<bool> first_ended_well_{false};
  Tally others_;
  Tally ended_;
};

// A task that ends when it is dispatched.
SubTask* ends_at_once(std::function<void()> callback) {
  return WFTaskFactory::create_counter_task(
      0, [callback = std::move(callback)](WFCounterTask*) { callback(); });
}

ParallelWork* branches(Callbacks& callbacks, parallel_callback_t ended) {
  ParallelWork* const parallel = Workflow::create_parallel_work(std::move(ended));
  for (size_t i = 0; i <= kOthers; i++) {
    parallel->add_series(
        Workflow::create_series_work(ends_at_once([&callbacks] { callbacks.call(); }), nullptr));
  }
  return parallel;
}

// Runs `function` in a callback on a handler thread.
void on_a_handler(std::function<void()> function) {
  WFTaskFactory::create_timer_task(0, 0, [function = std::move(function)](WFTimerTask*) {
    function();
  })->start();
}

TEST(HeldUp, BranchesOfAParallel) {
  Callbacks callbacks;
  Tally ended;
  on_a_handler(
      [&] { branches(callbacks, [&ended](const ParallelWork*) { ended.add(); })->start(); });
  EXPECT_TRUE(callbacks.ended_well());
  EXPECT_TRUE(ended.wait_for(1));
}

// The outer loop is not in a callback: it dispatches the inner parallel.
TEST(HeldUp, BranchesAroundAParallel) {
  Callbacks callbacks;
  Tally ended;
  on_a_handler([&] {
    ParallelWork* const outer =
        Workflow::create_parallel_work([&ended](const ParallelWork*) { ended.add(); });
    ParallelWork* const inner = Workflow::create_parallel_work(nullptr);
    inner->add_series(
        Workflow::create_series_work(ends_at_once([&callbacks] { callbacks.call(); }), nullptr));
    outer->add_series(Workflow::create_series_work(inner, nullptr));
    for (size_t i = 0; i < kOthers; i++) {
      outer->add_series(
          Workflow::create_series_work(ends_at_once([&callbacks] { callbacks.call(); }), nullptr));
    }
    outer->start();
  });
  EXPECT_TRUE(callbacks.ended_well());
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(HeldUp, NodesOfAGraph) {
  Callbacks callbacks;
  Tally ended;
  on_a_handler([&] {
    WFGraphTask* const graph =
        WFTaskFactory::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
    WFGraphNode& first = graph->create_graph_node(ends_at_once([] {}));
    for (size_t i = 0; i <= kOthers; i++) {
      first-- > graph->create_graph_node(ends_at_once([&callbacks] { callbacks.call(); }));
    }
    graph->start();
  });
  EXPECT_TRUE(callbacks.ended_well());
  EXPECT_TRUE(ended.wait_for(1));
}

// The first node is the last of those that its thread has to begin. In its callback it makes others
// ready, and waits for them.
TEST(HeldUp, NodesThatACallbackMakesReady) {
  Tally others;
  Tally ended;
  on_a_handler([&] {
    WFGraphTask* const graph =
        WFTaskFactory::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
    WFCounterTask* const gate = WFTaskFactory::create_counter_task(1, nullptr);
    WFGraphNode& opened = graph->create_graph_node(gate);
    graph->create_graph_node(ends_at_once([gate, &others] {
      gate->count();
      EXPECT_TRUE(others.wait_for(kOthers));
    }));
    for (size_t i = 0; i < kOthers; i++) {
      opened-- > graph->create_graph_node(ends_at_once([&others] { others.add(); }));
    }
    graph->start();
  });
  EXPECT_TRUE(ended.wait_for(1));
}

// Each of those that are given away holds up the next ones on its own thread.
TEST(HeldUp, EachWaitsForTheNextOne) {
  static constexpr size_t kCount = 4;
  Tally begun;
  Tally ended;
  on_a_handler([&] {
    ParallelWork* const parallel =
        Workflow::create_parallel_work([&ended](const ParallelWork*) { ended.add(); });
    for (size_t i = 0; i < kCount; i++) {
      parallel->add_series(Workflow::create_series_work(ends_at_once([&begun] {
                                                          begun.add();
                                                          EXPECT_TRUE(begun.wait_for(kCount));
                                                        }),
                                                        nullptr));
    }
    parallel->start();
  });
  EXPECT_TRUE(ended.wait_for(1));
}

// Where nobody is held up, one thread does it all, in its order, before start() returns.
TEST(HeldUp, NotIfNoneTakesLong) {
  Tally ended;
  std::vector<size_t> order;
  on_a_handler([&] {
    const auto thread = std::this_thread::get_id();
    ParallelWork* const parallel =
        Workflow::create_parallel_work([&ended](const ParallelWork*) { ended.add(); });
    for (size_t i = 0; i < 100; i++) {
      parallel->add_series(Workflow::create_series_work(ends_at_once([&order, thread, i] {
                                                          if (std::this_thread::get_id() ==
                                                              thread) {
                                                            order.push_back(i);
                                                          }
                                                        }),
                                                        nullptr));
    }
    parallel->start();
    ended.add();
  });
  ASSERT_TRUE(ended.wait_for(2));
  // On a busy machine the thread may have been off its processor for longer than a look.
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_FALSE(order.empty());
}

}  // namespace

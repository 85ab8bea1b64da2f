#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

// A graph of tasks that write a letter each; its callback expects a success, and writes "z".
class GraphCancel : public testing::Test {
 protected:
  GraphCancel() {
    graph_ = WFTaskFactory::create_graph_task([this](WFGraphTask* graph) {
      EXPECT_EQ(graph->get_state(), WFT_STATE_SUCCESS);
      log_.add("z");
      ended_.add();
    });
  }

  WFGraphNode& node(const std::string& letters, LogTask::Callback callback = nullptr) {
    return graph_->create_graph_node(new LogTask(&log_, letters, std::move(callback)));
  }
  WFGraphNode& node(SubTask* task) { return graph_->create_graph_node(task); }

  static void cancel_own_series(LogTask* task) { series_of(task)->cancel(); }

  std::string run() {
    graph_->start();
    EXPECT_TRUE(ended_.wait_for(1));
    EXPECT_TRUE(probes::all_gone());
    return log_.text();
  }

  Log log_;
  Tally ended_;
  WFGraphTask* graph_;
};

}  // namespace

TEST_F(GraphCancel, OfANodeDropsTheNodesThatDependOnIt) {
  WFGraphNode& a = node("a", cancel_own_series);
  WFGraphNode& b = node("!");
  WFGraphNode& c = node("!");
  a.precede(b);
  a.precede(c);
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, OfANodeDropsThoseThatDependOnItFromFarAway) {
  WFGraphNode* last = &node("a", cancel_own_series);
  for (int i = 0; i < 100; i++) {
    WFGraphNode& next = node("!");
    last->precede(next);
    last = &next;
  }
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, OfANodeDropsWhatAlsoDependsOnOthers) {
  HeldTask* held = new HeldTask(&log_, "b");
  WFGraphNode& a = node("a", cancel_own_series);
  WFGraphNode& b = node(held);
  WFGraphNode& c = node("!");
  a.precede(c);
  b.precede(c);
  graph_->start();
  ASSERT_TRUE(held->wait_dispatched());
  held->release();
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.sorted(), "abz");
  EXPECT_EQ(log_.text().back(), 'z');
}

TEST_F(GraphCancel, OfANodeLeavesItsSiblings) {
  WFGraphNode& a = node("a");
  WFGraphNode& b = node("b", cancel_own_series);
  WFGraphNode& c = node("c");
  WFGraphNode& not_reached = node("!");
  WFGraphNode& d = node("d");
  a.precede(b);
  a.precede(c);
  b.precede(not_reached);
  c.precede(d);
  run();
  EXPECT_EQ(log_.sorted(), "abcdz");
  EXPECT_TRUE(log_.before('c', 'd'));
  EXPECT_EQ(log_.text().back(), 'z');
}

TEST_F(GraphCancel, OfANodeDropsTheRestOfItsOwnSeries) {
  node("a", [this](LogTask* task) {
    *series_of(task) << new LogTask(&log_, "!");
    series_of(task)->cancel();
  }).precede(node("!"));
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, DropsTheTasksOfWholeParallelsAndGraphs) {
  WFGraphTask* inner = WFTaskFactory::create_graph_task([this](WFGraphTask*) { log_.add("!"); });
  inner->create_graph_node(new LogTask(&log_, "!"))
      .precede(inner->create_graph_node(new LogTask(&log_, "!")));
  SeriesWork* branch = Workflow::create_series_work(new LogTask(&log_, "!"), nullptr);
  ParallelWork* parallel =
      Workflow::create_parallel_work(&branch, 1, [this](const ParallelWork*) { log_.add("!"); });
  WFGraphNode& a = node("a", cancel_own_series);
  a.precede(node(inner));
  a.precede(node(parallel));
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, OfADroppedNodesSeriesItsCallbackStillRuns) {
  LogTask* dropped = new LogTask(&log_, "!");
  WFGraphNode& b = node(dropped);
  node("a", cancel_own_series).precede(b);
  series_of(dropped)->set_callback([this](const SeriesWork* series) {
    EXPECT_TRUE(series->is_canceled());
    EXPECT_TRUE(probes::on_framework_thread());
    log_.add("b");
  });
  EXPECT_EQ(run(), "abz");
}

TEST_F(GraphCancel, OfANodeBeforeTheStartDropsItAndThoseBehindIt) {
  LogTask* dropped = new LogTask(&log_, "!");
  WFGraphNode& b = node(dropped);
  node("a").precede(b);
  b.precede(node("!"));
  series_of(dropped)->cancel();
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, OfARootBeforeTheStartDropsIt) {
  LogTask* dropped = new LogTask(&log_, "!");
  node(dropped).precede(node("!"));
  node("a");
  series_of(dropped)->cancel();
  EXPECT_EQ(run(), "az");
}

TEST_F(GraphCancel, FromAnotherThreadTheRunningTaskEndsFirst) {
  HeldTask* held = new HeldTask(&log_, "a");
  SeriesWork* series = nullptr;
  node(held).precede(node("!"));
  series = series_of(held);
  graph_->start();
  ASSERT_TRUE(held->wait_dispatched());
  series->cancel();
  EXPECT_EQ(ended_.count(), 0u);
  held->release();
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.text(), "az");
  EXPECT_TRUE(probes::all_gone());
}

// Every node of a layered graph may be cancelled at any moment: whatever comes of it, a node runs
// only if all before it did, and nothing is left.
TEST_F(GraphCancel, RacesWithTheRunningGraph) {
  constexpr size_t kLayers = 20;
  constexpr size_t kWidth = 8;
  for (unsigned round = 0; round < 200; round++) {
    Tally ended;
    std::vector<char> ran(kLayers * kWidth, 0);
    WFGraphTask* graph = WFTaskFactory::create_graph_task([](WFGraphTask*) {});
    std::vector<WFGraphNode*> nodes;
    std::vector<SeriesWork*> series;
    for (size_t i = 0; i < ran.size(); i++) {
      LogTask* task = new LogTask(&log_, "", [&ran, i](LogTask*) {
        ran[i] = 1;
        if (i < kWidth) return;
        const size_t layer_before = i / kWidth * kWidth - kWidth;
        EXPECT_TRUE(ran[layer_before + i % kWidth]);
        EXPECT_TRUE(ran[layer_before + (i + 1) % kWidth]);
      });
      nodes.push_back(&graph->create_graph_node(task));
      series.push_back(series_of(task));
    }
    for (size_t i = kWidth; i < ran.size(); i++) {
      const size_t layer_before = i / kWidth * kWidth - kWidth;
      nodes[layer_before + i % kWidth]->precede(*nodes[i]);
      nodes[layer_before + (i + 1) % kWidth]->precede(*nodes[i]);
    }
    // The graph is in a series that goes on only when the cancellers are through: it lives so long.
    WFCounterTask* gate = WFTaskFactory::create_counter_task(3, nullptr);
    graph->create_graph_node(gate);
    Workflow::start_series_work(graph, probes::counting(ended));
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 2; t++) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < 4; i++) {
          series[(round * 7 + t * 80 + i * 31) % series.size()]->cancel();
        }
        gate->count();
      });
    }
    gate->count();
    threads.clear();  // joins them
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_TRUE(probes::all_gone());
  }
  graph_->dismiss();
}

TEST_F(GraphCancel, OfTheOuterSeriesDoesNotTouchTheRunningGraph) {
  HeldTask* held = new HeldTask(&log_, "a");
  node(held).precede(node("b"));
  Tally series_ended;
  SeriesWork* outer = Workflow::create_series_work(graph_, probes::counting(series_ended));
  outer->push_back(new LogTask(&log_, "!"));
  outer->start();
  ASSERT_TRUE(held->wait_dispatched());
  outer->cancel();
  held->release();
  ASSERT_TRUE(series_ended.wait_for(1));
  EXPECT_EQ(log_.text(), "abz");
}

TEST_F(GraphCancel, OfTheOuterSeriesBeforeTheGraphDropsAllOfIt) {
  Tally series_ended;
  node("!").precede(node("!"));
  SeriesWork* outer = Workflow::create_series_work(new LogTask(&log_, "a", cancel_own_series),
                                                   probes::counting(series_ended));
  outer->push_back(graph_);
  outer->start();
  ASSERT_TRUE(series_ended.wait_for(1));
  EXPECT_EQ(log_.text(), "a");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(GraphCancel, OfADeepChainUsesConstantStack) {
  constexpr int kNodes = 100'000;
  WFGraphNode* last = &node("a", cancel_own_series);
  for (int i = 1; i < kNodes; i++) {
    WFGraphNode& next = node("!");
    last->precede(next);
    last = &next;
  }
  EXPECT_EQ(run(), "az");
}

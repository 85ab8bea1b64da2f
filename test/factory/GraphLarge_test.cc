#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

using probes::kSpread;
using probes::StackSpread;
using test_support::Tally;
using test_support::TestRandom;

// Graphs of 100,000 nodes (fewer under sanitizers): every node runs once, after all that it depends
// on, and what those wrote is seen (nothing here is atomic, so ThreadSanitizer would tell).

namespace {

constexpr size_t kNodes = test_support::kSanitized ? 20'000 : 100'000;

struct Edge {
  size_t from;
  size_t to;
};

enum class Leaf { kEmpty, kGo, kTimer };

class LargeGraph {
 public:
  explicit LargeGraph(size_t nodes) : nodes_(nodes), before_(nodes), ran_(nodes, 0) {
    graph_ = WFTaskFactory::create_graph_task([this](WFGraphTask* graph) {
      EXPECT_EQ(graph->get_state(), WFT_STATE_SUCCESS);
      for (const char times : ran_) {
        missed_ += times != 1;
      }
      ended_.add();
    });
  }

  void add_nodes(Leaf leaf) {
    for (size_t i = 0; i < ran_.size(); i++) {
      nodes_[i] = &graph_->create_graph_node(task(leaf, i));
    }
  }
  void add(const Edge& edge) {
    nodes_[edge.from]->precede(*nodes_[edge.to]);
    before_[edge.to].push_back(edge.from);
  }

  void run() {
    graph_->start();
    wait();
  }
  // In a callback, where all that ends at once runs on that very thread.
  void run_in_a_callback() {
    EXPECT_TRUE(probes::run(new probes::NotingTask(&stack_, [this](auto*) { graph_->start(); })));
    wait();
  }

  const StackSpread& stack() const { return stack_; }

 private:
  void wait() {
    ASSERT_TRUE(ended_.wait_for(1));
    EXPECT_EQ(missed_, 0u);
    EXPECT_FALSE(too_early_);
  }

  SubTask* task(Leaf leaf, size_t i) {
    switch (leaf) {
      case Leaf::kEmpty:
        return new probes::NotingTask(&stack_, [this, i](auto*) { ran(i); });
      case Leaf::kGo:
        return WFTaskFactory::create_go_task("queue", [this, i] { ran(i); });
      default:
        return WFTaskFactory::create_timer_task(0, 0, [this, i](WFTimerTask*) { ran(i); });
    }
  }

  void ran(size_t i) {
    for (const size_t before : before_[i]) {
      if (!ran_[before]) {
        too_early_ = true;
      }
    }
    ran_[i]++;
  }

  WFGraphTask* graph_;
  std::vector<WFGraphNode*> nodes_;
  std::vector<std::vector<size_t>> before_;
  std::vector<char> ran_;
  StackSpread stack_;
  size_t missed_ = 0;
  std::atomic<bool> too_early_{false};
  Tally ended_;
};

using Shape = std::function<void(LargeGraph&)>;

void large_chain(LargeGraph& graph) {
  for (size_t i = 1; i < kNodes; i++) {
    graph.add({i - 1, i});
  }
}

void fan(LargeGraph& graph) {
  for (size_t i = 1; i + 1 < kNodes; i++) {
    graph.add({0, i});
    graph.add({i, kNodes - 1});
  }
}

// 400,000 arrows, all from lower to higher in an order that has nothing to do with the order of
// creation.
void scattered(LargeGraph& graph) {
  TestRandom random(test_support::test_seed());
  std::vector<size_t> order(kNodes);
  for (size_t i = 0; i < kNodes; i++) {
    order[i] = i;
    std::swap(order[i], order[random.below(i + 1)]);
  }
  for (size_t edge = 0; edge < 4 * kNodes; edge++) {
    const size_t to = 1 + random.below(kNodes - 1);
    graph.add({order[random.below(to)], order[to]});
  }
}

// 100 layers of 1000, each node behind four of the layer before.
void layers(LargeGraph& graph) {
  constexpr size_t kWidth = 1000;
  TestRandom random(test_support::test_seed());
  for (size_t to = kWidth; to < kNodes; to++) {
    for (int i = 0; i < 4; i++) {
      graph.add({to / kWidth * kWidth - kWidth + random.below(kWidth), to});
    }
  }
}

struct Case {
  const char* name;
  Shape shape;
  Leaf leaf;
};

void PrintTo(const Case& shape, std::ostream* out) {
  *out << shape.name;
}

class GraphLarge : public testing::TestWithParam<Case> {};

}  // namespace

TEST_P(GraphLarge, RunsEveryNodeOnceInOrderOnConstantStack) {
  LargeGraph graph(kNodes);
  graph.add_nodes(GetParam().leaf);
  GetParam().shape(graph);
  graph.run();
  EXPECT_LT(graph.stack().spread(), kSpread);
}

TEST_P(GraphLarge, StartedInACallbackOnConstantStackOfTheOneHandler) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  settings.handler_threads = 1;
  settings.compute_threads = 1;
  WORKFLOW_library_init(&settings);
  LargeGraph graph(kNodes);
  graph.add_nodes(GetParam().leaf);
  GetParam().shape(graph);
  graph.run_in_a_callback();
  EXPECT_LT(graph.stack().spread(), kSpread);
}

INSTANTIATE_TEST_SUITE_P(, GraphLarge,
                         testing::Values(Case{"ChainOfEmptyTasks", large_chain, Leaf::kEmpty},
                                         Case{"ChainOfGoTasks", large_chain, Leaf::kGo},
                                         Case{"ChainOfTimers", large_chain, Leaf::kTimer},
                                         Case{"FanOfEmptyTasks", fan, Leaf::kEmpty},
                                         Case{"FanOfGoTasks", fan, Leaf::kGo},
                                         Case{"FanOfTimers", fan, Leaf::kTimer},
                                         Case{"ScatteredEmptyTasks", scattered, Leaf::kEmpty},
                                         Case{"ScatteredGoTasks", scattered, Leaf::kGo},
                                         Case{"ScatteredTimers", scattered, Leaf::kTimer},
                                         Case{"LayersOfEmptyTasks", layers, Leaf::kEmpty},
                                         Case{"LayersOfGoTasks", layers, Leaf::kGo},
                                         Case{"LayersOfTimers", layers, Leaf::kTimer}),
                         [](const auto& shape) { return std::string(shape.param.name); });

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

// A graph of tasks that write a letter each; its callback writes "z".
class Graph : public testing::Test {
 protected:
  Graph() {
    graph_ = WFTaskFactory::create_graph_task([this](WFGraphTask* graph) {
      EXPECT_TRUE(probes::on_framework_thread());
      state_ = graph->get_state();
      error_ = graph->get_error();
      log_.add("z");
      ended_.add();
    });
  }

  WFGraphNode& node(const std::string& letters, LogTask::Callback callback = nullptr) {
    return graph_->create_graph_node(new LogTask(&log_, letters, std::move(callback)));
  }
  WFGraphNode& node(SubTask* task) { return graph_->create_graph_node(task); }

  // Runs the graph and waits for its end, which must be a success; the letters in order.
  std::string run() {
    graph_->start();
    EXPECT_TRUE(ended_.wait_for(1));
    EXPECT_EQ(state_, WFT_STATE_SUCCESS);
    EXPECT_EQ(error_, 0);
    return log_.text();
  }

  // Runs a graph whose tasks depend on each other in a circle.
  void expect_deadlock() {
    graph_->start();
    ASSERT_TRUE(ended_.wait_for(1));
    EXPECT_EQ(state_, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(error_, EDEADLK);
    EXPECT_EQ(log_.text(), "z");
    EXPECT_TRUE(probes::all_gone());
  }

  Log log_;
  Tally ended_;
  WFGraphTask* graph_;
  int state_ = WFT_STATE_UNDEFINED;
  int error_ = -1;
};

// Draws an arrow from each node to the next.
template <class... Nodes>
void chain(WFGraphNode& first, WFGraphNode& second, Nodes&... others) {
  first.precede(second);
  if constexpr (sizeof...(others) > 0) {
    chain(second, others...);
  }
}

}  // namespace

// What the arrows mean --------------------------------------------------------------------

// clang-format off
TEST_F(Graph, ArrowsToTheRightChain) {
  WFGraphNode& c = node("c");
  WFGraphNode& b = node("b");
  WFGraphNode& a = node("a");
  a --> b --> c;
  EXPECT_EQ(run(), "abcz");
}

TEST_F(Graph, ArrowsToTheLeftChain) {
  WFGraphNode& a = node("a");
  WFGraphNode& b = node("b");
  WFGraphNode& c = node("c");
  c <-- b <-- a;
  EXPECT_EQ(run(), "abcz");
}

TEST_F(Graph, ArrowsOfBothKindsMeetInANode) {
  WFGraphNode& c = node("c");
  WFGraphNode& a = node("a");
  WFGraphNode& b = node("b");
  a --> c <-- b;
  const std::string letters = run();
  EXPECT_EQ(letters.substr(2), "cz");
}

TEST_F(Graph, ArrowsOfBothKindsLeaveANode) {
  WFGraphNode& b = node("b");
  WFGraphNode& a = node("a");
  WFGraphNode& c = node("c");
  WFGraphNode& d = node("d");
  b <-- a --> c --> d;
  const std::string letters = run();
  EXPECT_EQ(letters.front(), 'a');
  EXPECT_TRUE(log_.before('c', 'd'));
  EXPECT_EQ(letters.size(), 5u);
}

TEST_F(Graph, ArrowsOfBothKindsAlternate) {
  WFGraphNode& b = node("b");
  WFGraphNode& d = node("d");
  WFGraphNode& a = node("a");
  WFGraphNode& c = node("c");
  WFGraphNode& e = node("e");
  a --> b <-- c --> d <-- e;
  EXPECT_EQ(run().size(), 6u);
  EXPECT_TRUE(log_.before('a', 'b'));
  EXPECT_TRUE(log_.before('c', 'b'));
  EXPECT_TRUE(log_.before('c', 'd'));
  EXPECT_TRUE(log_.before('e', 'd'));
}

TEST_F(Graph, PrecedeAndSucceedAreTheSame) {
  WFGraphNode& c = node("c");
  WFGraphNode& b = node("b");
  WFGraphNode& a = node("a");
  a.precede(b);
  c.succeed(b);
  EXPECT_EQ(run(), "abcz");
}

TEST_F(Graph, AnArrowMayBeDrawnSeveralTimes) {
  WFGraphNode& c = node("c");
  WFGraphNode& b = node("b");
  WFGraphNode& a = node("a");
  a --> b --> c;
  a --> b;
  b <-- a;
  a --> c;
  EXPECT_EQ(run(), "abcz");
}
// clang-format on

// When nodes run --------------------------------------------------------------------------

TEST_F(Graph, ANodeWaitsForAllBeforeIt) {
  HeldTask* held[3];
  WFGraphNode& last = node("b");
  for (HeldTask*& task : held) {
    task = new HeldTask(&log_, "a");
    chain(node(task), last);
  }
  graph_->start();
  for (HeldTask* task : held) {
    EXPECT_TRUE(task->wait_dispatched());
  }
  held[2]->release();
  held[0]->release();
  // Either would be a bug that shows at once, or never.
  EXPECT_EQ(log_.text().find_first_of("bz"), std::string::npos);
  held[1]->release();
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.text(), "aaabz");
}

TEST_F(Graph, IndependentNodesRunSideBySide) {
  HeldTask* held[3];
  for (HeldTask*& task : held) {
    task = new HeldTask(&log_, "a");
    node(task);
  }
  graph_->start();
  for (HeldTask* task : held) {
    EXPECT_TRUE(task->wait_dispatched());
  }
  EXPECT_EQ(ended_.count(), 0u);
  for (HeldTask* task : held) {
    task->release();
  }
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.text(), "aaaz");
}

TEST_F(Graph, BothSidesOfADiamondRunSideBySide) {
  HeldTask* left = new HeldTask(&log_, "b");
  HeldTask* right = new HeldTask(&log_, "b");
  WFGraphNode& a = node("a");
  WFGraphNode& l = node(left);
  WFGraphNode& r = node(right);
  WFGraphNode& c = node("c");
  chain(a, l, c);
  chain(a, r, c);
  graph_->start();
  EXPECT_TRUE(left->wait_dispatched());
  EXPECT_TRUE(right->wait_dispatched());
  left->release();
  right->release();
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.text(), "abbcz");
}

TEST_F(Graph, OfOneNode) {
  node("a");
  EXPECT_EQ(run(), "az");
}

TEST_F(Graph, OfNoNodeEndsAtOnce) {
  EXPECT_EQ(run(), "z");
}

TEST_F(Graph, TasksPushedByANodeDelayThoseThatDependOnIt) {
  WFGraphNode& a = node("a", [this](LogTask* task) {
    *series_of(task) << WFTaskFactory::create_timer_task(1000u, nullptr) << new LogTask(&log_, "b");
    series_of(task)->push_front(new LogTask(&log_, "x"));
  });
  WFGraphNode& c = node("c");
  chain(a, c);
  EXPECT_EQ(run(), "axbcz");
}

TEST_F(Graph, EachNodeHasASeriesOfItsOwn) {
  std::vector<SeriesWork*> series;
  const auto note = [&series](LogTask* task) {
    EXPECT_EQ(series_of(task)->get_in_parallel(), nullptr);
    series.push_back(series_of(task));
  };
  chain(node("a", note), node("b", note));
  EXPECT_EQ(run(), "abz");
  ASSERT_EQ(series.size(), 2u);
  EXPECT_NE(series[0], series[1]);
}

TEST_F(Graph, TheSeriesOfANodeMayHaveACallbackThatRunsBeforeThoseThatDependOnIt) {
  LogTask* first = new LogTask(&log_, "a");
  WFGraphNode& a = node(first);
  WFGraphNode& c = node("c");
  chain(a, c);
  series_of(first)->set_callback([this](const SeriesWork*) { log_.add("b"); });
  EXPECT_EQ(run(), "abcz");
}

TEST_F(Graph, EveryKindOfTaskCanBeANode) {
  Log* log = &log_;
  SeriesWork* branches[2] = {series_with(log, "d"), series_with(log, "d")};
  WFGraphTask* inner = WFTaskFactory::create_graph_task([log](WFGraphTask*) { log->add("f"); });
  chain(inner->create_graph_node(new LogTask(log, "e")),
        inner->create_graph_node(new LogTask(log, "e")));
  int left = 2;
  SubTask* tasks[] = {
      WFTaskFactory::create_timer_task(1000u, [log](WFTimerTask*) { log->add("a"); }),
      WFTaskFactory::create_go_task("queue", [log] { log->add("b"); }),
      Workflow::create_parallel_work(branches, 2, nullptr),
      inner,
      WFTaskFactory::create_module_task(new LogTask(log, "g"),
                                        [log](const WFModuleTask*) { log->add("h"); }),
      WFTaskFactory::create_dynamic_task([log](WFDynamicTask*) { return new LogTask(log, "i"); }),
      WFTaskFactory::create_repeater_task(
          [log, &left](WFRepeaterTask*) { return left-- > 0 ? new LogTask(log, "j") : nullptr; },
          nullptr),
      WFTaskFactory::create_counter_task(0, [log](WFCounterTask*) { log->add("k"); }),
      WFTaskFactory::create_empty_task(),
  };
  WFGraphNode* previous = nullptr;
  for (SubTask* task : tasks) {
    WFGraphNode& next = node(task);
    if (previous) {
      chain(*previous, next);
    }
    previous = &next;
  }
  EXPECT_EQ(run(), "abddeefghijjkz");
}

// The graph as a task ---------------------------------------------------------------------

TEST_F(Graph, ItsCallbackMayExtendItsSeries) {
  graph_->set_callback(
      [this](WFGraphTask* graph) { *series_of(graph) << new LogTask(&log_, "b"); });
  node("a");
  EXPECT_TRUE(probes::run(graph_));
  EXPECT_EQ(log_.text(), "ab");
}

TEST_F(Graph, NestsAHundredDeep) {
  WFGraphTask* around = graph_;
  int ends = 0;
  for (int depth = 0; depth < 100; depth++) {
    WFGraphTask* inner = WFTaskFactory::create_graph_task([&ends](WFGraphTask*) { ends++; });
    WFGraphNode& middle = around->create_graph_node(inner);
    chain(around->create_graph_node(new LogTask(&log_, "a")), middle,
          around->create_graph_node(new LogTask(&log_, "b")));
    around = inner;
  }
  EXPECT_EQ(run(), std::string(100, 'a') + std::string(100, 'b') + "z");
  EXPECT_EQ(ends, 100);
}

TEST_F(Graph, MayBeStartedInACallback) {
  chain(node("b"), node("c"));
  EXPECT_TRUE(probes::run(new LogTask(&log_, "a", [this](LogTask*) { graph_->start(); })));
  ASSERT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(log_.text(), "abcz");
}

TEST_F(Graph, WithoutACallback) {
  node("a");
  graph_->set_callback(nullptr);
  EXPECT_TRUE(probes::run(graph_));
  EXPECT_EQ(log_.text(), "a");
}

TEST_F(Graph, DismissedItFreesAllTasksWithoutCallbacks) {
  WFGraphTask* inner = WFTaskFactory::create_graph_task([this](WFGraphTask*) { log_.add("!"); });
  inner->create_graph_node(new LogTask(&log_, "!"));
  chain(node("!"), node(inner), node("!"));
  EXPECT_EQ(LogTask::alive(), 3);
  graph_->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(Graph, OfADismissedSeriesFreesAllTasks) {
  chain(node("!"), node("!"));
  SeriesWork* series = Workflow::create_series_work(graph_, nullptr);
  series->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log_.text(), "");
}

// Circles ---------------------------------------------------------------------------------

TEST_F(Graph, ANodeThatDependsOnItselfIsADeadlock) {
  WFGraphNode& a = node("!");
  chain(a, a);
  expect_deadlock();
}

TEST_F(Graph, TwoNodesThatDependOnEachOtherAreADeadlock) {
  WFGraphNode& a = node("!");
  WFGraphNode& b = node("!");
  chain(a, b, a);
  expect_deadlock();
}

TEST_F(Graph, ACircleWithNodesBeforeAndBehindIsADeadlock) {
  node("!");
  WFGraphNode& before = node("!");
  WFGraphNode& a = node("!");
  WFGraphNode& b = node("!");
  WFGraphNode& behind = node("!");
  chain(before, a, b, a);
  chain(b, behind);
  expect_deadlock();
}

TEST_F(Graph, ABigCircleIsADeadlock) {
  WFGraphNode& first = node("!");
  WFGraphNode* last = &first;
  for (int i = 1; i < 100'000; i++) {
    WFGraphNode& next = node("!");
    chain(*last, next);
    last = &next;
  }
  chain(*last, first);
  expect_deadlock();
}

TEST_F(Graph, ADeadlockInsideASeriesLetsTheSeriesGoOn) {
  WFGraphNode& a = node("!");
  chain(a, a);
  SeriesWork* series = series_with(&log_, "a");
  series->push_back(graph_);
  series->push_back(new LogTask(&log_, "b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(error_, EDEADLK);
  EXPECT_EQ(log_.text(), "azb");
}

// A coroutine as one task among others: as a node of a graph, in a parallel, and under a deadline.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>

#include "support/Tally.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFDeadline.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

// Writes at its beginning and at its end. In between it waits for a moment or, if a mailbox is
// named, for a message to it.
WFCo<> write_both(std::string& log, const char* name, std::string mailbox) {
  log += name;
  if (mailbox.empty()) {
    (co_await wf::sleep(0ms)).check();
  } else {
    const WFEnd received = co_await wf::receive(mailbox);
    EXPECT_TRUE(received);
  }
  log += name;
}

TEST(CoroutineStructures, ANodeOfAGraphIsDoneWhenTheCoroutineHasReturned) {
  std::string log;
  Tally ended;
  WFGraphTask* const graph =
      WFTaskFactory::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
  WFGraphNode& a = graph->create_graph_node(wf::task(write_both, std::ref(log), "a", ""));
  WFGraphNode& b = graph->create_graph_node(wf::task(write_both, std::ref(log), "b", "graph"));
  WFGraphNode& c = graph->create_graph_node(wf::task(write_both, std::ref(log), "c", ""));
  a-- > b;
  b-- > c;
  graph->start();
  int message = 0;
  while (WFTaskFactory::send_by_name("graph", &message) == 0) {
    ASSERT_EQ(ended.count(), 0u);
    ended.wait_for(1, 1ms);
  }
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log, "aabbcc");
}

TEST(CoroutineStructures, AParallelEndsWhenItsCoroutinesHaveReturned) {
  std::string first;
  std::string second;
  Tally ended;
  ParallelWork* const parallel = Workflow::create_parallel_work([&](const ParallelWork*) {
    EXPECT_EQ(first, "11");
    EXPECT_EQ(second, "22");
    ended.add();
  });
  parallel->add_series(
      Workflow::create_series_work(wf::task(write_both, std::ref(first), "1", ""), nullptr));
  parallel->add_series(Workflow::create_series_work(
      wf::task(write_both, std::ref(second), "2", "parallel"), nullptr));
  parallel->start();
  int message = 0;
  while (WFTaskFactory::send_by_name("parallel", &message) == 0) {
    ASSERT_EQ(ended.count(), 0u);
    ended.wait_for(1, 1ms);
  }
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(CoroutineStructures, ADeadlineEndsWhatACoroutineWaitsFor) {
  WFEnd inner;
  bool returned = false;
  Tally ended;
  const auto child = [&inner]() -> WFCo<> { inner = co_await wf::sleep(1h); };
  const auto wait = [&]() -> WFCo<> {
    co_await child();
    returned = true;
  };
  with_deadline(wf::task(wait), 1ms, [&](WFDeadlineTask* task) {
    EXPECT_TRUE(returned);
    EXPECT_EQ(task->get_state(), WFT_STATE_SYS_ERROR);
    EXPECT_EQ(task->get_error(), ETIMEDOUT);
    ended.add();
  })->start();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(inner, (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
}

TEST(CoroutineStructures, ACoroutineMayReturnBeforeItsDeadline) {
  std::string log;
  Tally ended;
  with_deadline(wf::task(write_both, std::ref(log), "d", ""), 1h, [&](WFDeadlineTask* task) {
    EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
    EXPECT_EQ(log, "dd");
    ended.add();
  })->start();
  EXPECT_TRUE(ended.wait_for(1));
}

}  // namespace

// Deadlines over waiting tasks; the time is moved by hand.

#include <gtest/gtest.h>

#include <memory>

#include "DeadlineProbes.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"

using probes::LogTask;

namespace {

class DeadlineWaiting : public probes::DeadlineTest {
 protected:
  WFCounterTask* counter(const std::string& name, unsigned target) {
    return WFTaskFactory::create_counter_task(target, noting<WFCounterTask>(name));
  }
  WFMailboxTask* mailbox(const std::string& name) {
    return WFTaskFactory::create_mailbox_task(noting<WFMailboxTask>(name));
  }
  SubTask* log(const std::string& letters, LogTask::Callback callback = nullptr) {
    return new LogTask(&log_, letters, std::move(callback));
  }
};

}  // namespace

TEST_F(DeadlineWaiting, EndsACounterAndBearsLateCounts) {
  WFCounterTask* task = counter("c", 2);
  start(limited(task, 10));
  task->count();
  pass(10);
  EXPECT_EQ(text(), "c!D!");
  task->count();  // frees it
  EXPECT_EQ(text(), "c!D!");
}

TEST_F(DeadlineWaiting, KeepsACounterForCountsThatNeverCome) {
  const auto captured = std::make_shared<int>();
  WFCounterTask* task = counter("c", 2);
  task->set_callback([this, captured](WFCounterTask* ended) { note("c", ended); });
  start(limited(task, 10));
  pass(10);
  EXPECT_EQ(text(), "c!D!");
  EXPECT_EQ(captured.use_count(), 1) << "what the callback holds is kept, too";
}

TEST_F(DeadlineWaiting, LeavesACounterThatIsCountedInTime) {
  WFCounterTask* task = counter("c", 1);
  WFDeadlineTask* limit = limited(task, 10);
  *limit->sub_series() << counter("d", 1);
  start(limit);
  task->count();
  pass(10);
  EXPECT_EQ(text(), "c+d!D!");
}

TEST_F(DeadlineWaiting, ACounterThatWasCountedBeforeItsTurnNeedsNoTime) {
  WFCounterTask* task = counter("c", 1);
  WFDeadlineTask* limit = limited(timer("a", 100), 10);
  *limit->sub_series() << task << counter("d", 0) << counter("e", 1);
  start(limit);
  task->count();
  pass(10);
  EXPECT_EQ(text(), "a!c+d+e!D!");
}

// A timer waits, however short; what has come already is not waited for.
TEST_F(DeadlineWaiting, WhatHasComeAlreadyNeedsNoTimeAndATimerOfNoneDoes) {
  WFMailboxTask* with_message = mailbox("m");
  WFMailboxTask* without = mailbox("n");
  WFDeadlineTask* limit = limited(timer("a", 100), 10);
  *limit->sub_series() << timer("t", 0) << counter("c", 0) << with_message << timer("u", 0)
                       << without << counter("d", 1);
  start(limit);
  int message = 0;
  with_message->send(&message);
  pass(10);
  EXPECT_EQ(text(), "a!t!c+m+u!n!d!D!");
}

TEST_F(DeadlineWaiting, ADeadlineOfNoTimeHasPassedForAll) {
  WFDeadlineTask* limit = limited(timer("t", 0), 0);
  *limit->sub_series() << counter("c", 0);
  start(limit);
  pass(0);
  EXPECT_EQ(text(), "t!c+D!");
}

TEST_F(DeadlineWaiting, ANamedCounterLeavesItsName) {
  WFCounterTask* task =
      WFTaskFactory::create_counter_task("Deadline", 2, noting<WFCounterTask>("c"));
  WFCounterTask* other =
      WFTaskFactory::create_counter_task("Deadline", 2, noting<WFCounterTask>("d"));
  start(limited(task, 10));
  start(other);
  pass(10);
  EXPECT_EQ(text(), "c!D!");
  WFTaskFactory::count_by_name("Deadline", 2);
  pass(0);
  EXPECT_EQ(text(), "c!D!d+");
}

TEST_F(DeadlineWaiting, EndsAMailboxAndBearsALateMessage) {
  int message = 0;
  WFMailboxTask* task = mailbox("m");
  start(limited(task, 10));
  pass(10);
  EXPECT_EQ(text(), "m!D!");
  task->send(&message);  // frees it
}

TEST_F(DeadlineWaiting, ANamedMailboxLeavesItsMessagesToOthers) {
  int message = 0;
  void* box = nullptr;
  start(limited(WFTaskFactory::create_mailbox_task("Deadline", noting<WFMailboxTask>("m")), 10));
  start(WFTaskFactory::create_mailbox_task("Deadline", &box, noting<WFMailboxTask>("n")));
  pass(10);
  EXPECT_EQ(text(), "m!D!");
  EXPECT_EQ(WFTaskFactory::send_by_name("Deadline", &message, 1), 1);
  pass(0);
  EXPECT_EQ(text(), "m!D!n+");
  EXPECT_EQ(box, &message);
}

TEST_F(DeadlineWaiting, EndsASelectorAndBearsLateCandidates) {
  int message = 0;
  WFSelectorTask* task = WFTaskFactory::create_selector_task(3, [this](WFSelectorTask* ended) {
    EXPECT_EQ(ended->get_message(), nullptr);
    note("s", ended);
  });
  start(limited(task, 10));
  EXPECT_EQ(task->submit(nullptr), 0);
  pass(10);
  EXPECT_EQ(text(), "s!D!");
  EXPECT_EQ(task->submit(&message), 0);
  EXPECT_EQ(task->submit(nullptr), 0);
}

TEST_F(DeadlineWaiting, DropsTheTaskOfAConditionalAndWhatFollows) {
  WFConditional* task = WFTaskFactory::create_conditional(log("a"));
  WFDeadlineTask* limit = limited(task, 10);
  *limit->sub_series() << log("b");
  start(limit);
  pass(10);
  EXPECT_EQ(text(), "D!");
  EXPECT_EQ(LogTask::alive(), 0);
  task->signal(nullptr);  // frees it
}

TEST_F(DeadlineWaiting, ANamedConditionalLeavesItsName) {
  start(limited(WFTaskFactory::create_conditional("Deadline", log("a")), 10));
  pass(10);
  EXPECT_EQ(text(), "D!");
  EXPECT_EQ(WFTaskFactory::signal_by_name("Deadline", nullptr), 0);
}

TEST_F(DeadlineWaiting, AGuardGivesUpItsPlaceInTheLine) {
  start(WFTaskFactory::create_guard("Deadline", log("a")));
  WFDeadlineTask* limit = limited(WFTaskFactory::create_guard("Deadline", log("b")), 10);
  *limit->sub_series() << log("c");
  start(limit);
  start(WFTaskFactory::create_guard("Deadline", log("d")));
  pass(10);
  EXPECT_EQ(text(), "aD!");
  EXPECT_EQ(WFTaskFactory::release_guard("Deadline", nullptr), 1);
  pass(0);
  EXPECT_EQ(text(), "aD!d");
  EXPECT_EQ(WFTaskFactory::release_guard("Deadline", nullptr), 0);
}

TEST_F(DeadlineWaiting, AGuardThatNobodyHoldsIsTakenEvenWhenTheTimeIsOver) {
  WFTimerTask* inside = WFTimer::create(std::chrono::hours(1), [this](WFTimerTask* ended) {
    note("b", ended);
    WFTaskFactory::release_guard("Deadline", nullptr);
  });
  WFDeadlineTask* limit = limited(timer("a", 100), 10);
  *limit->sub_series() << WFTaskFactory::create_guard("Deadline", inside);
  start(limit);
  pass(10);
  EXPECT_EQ(text(), "a!b!D!");
  start(WFTaskFactory::create_guard("Deadline", log("c")));
  pass(0);
  EXPECT_EQ(text(), "a!b!D!c");
}

TEST_F(DeadlineWaiting, AGuardInALineThatHasPassedGivesUpItsPlace) {
  start(WFTaskFactory::create_guard("Deadline", log("a")));
  WFDeadlineTask* limit = limited(timer("t", 100), 10);
  *limit->sub_series() << WFTaskFactory::create_guard("Deadline", log("b")) << log("c");
  start(limit);
  pass(10);
  EXPECT_EQ(text(), "at!D!");
  EXPECT_EQ(WFTaskFactory::release_guard("Deadline", nullptr), 0) << "somebody is in the line";
}

TEST_F(DeadlineWaiting, GivesUpAPlaceAtAPool) {
  WFResourcePool pool(1);
  void* resource = nullptr;
  void* other = nullptr;
  start(pool.get(log("a"), &resource));
  start(limited(pool.get(log("b"), &other), 10));
  pass(10);
  EXPECT_EQ(text(), "aD!");
  pool.post(resource);
  start(pool.get(log("c"), &resource));
  pass(0);
  EXPECT_EQ(text(), "aD!c");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(DeadlineWaiting, GivesUpAPlaceAtAMessageQueue) {
  int message = 0;
  WFMessageQueue queue;
  void* got = nullptr;
  start(limited(queue.get(log("a"), &got), 10));
  pass(10);
  EXPECT_EQ(text(), "D!");
  queue.post(&message);
  EXPECT_EQ(got, nullptr);
  start(queue.get(log("b"), &got));
  pass(0);
  EXPECT_EQ(text(), "D!b");
  EXPECT_EQ(got, &message);
}

TEST_F(DeadlineWaiting, ReachesParallels) {
  WFCounterTask* task = counter("c", 1);
  WFMailboxTask* box = mailbox("m");
  ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
  parallel->add_series(Workflow::create_series_work(task, nullptr));
  parallel->add_series(Workflow::create_series_work(box, nullptr));
  parallel->add_series(Workflow::create_series_work(timer("t", 5), nullptr));
  start(limited(limited(parallel, 1000, "I"), 10, "O"));
  pass(10);
  EXPECT_EQ(log_.sorted(), "!!!!+IOcmt");
  task->count();
  box->send(nullptr);
}

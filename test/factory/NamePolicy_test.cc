#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/TimerOutcomes.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::hours;
using test_support::TimerOutcomes;

namespace {

void start_with_policy(const std::string& name, WFTimerPolicy policy, TimerOutcomes& outcomes,
                       int tag) {
  WFTimer::create(hours(1), {name, policy}, outcomes.callback(tag))->start();
}

}  // namespace

TEST(NamePolicy, AppendLetsAnyNumberShareTheName) {
  TimerOutcomes outcomes;
  for (int i = 0; i < 3; i++) {
    start_with_policy("append", WF_TIMER_APPEND, outcomes, i);
  }
  EXPECT_EQ(WFTimer::count("append"), 3u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("append"), 3);
  EXPECT_TRUE(outcomes.wait_for(3));
}

TEST(NamePolicy, ReplaceEndsTheOldOnes) {
  TimerOutcomes outcomes;
  start_with_policy("replace", WF_TIMER_APPEND, outcomes, 0);
  start_with_policy("replace", WF_TIMER_APPEND, outcomes, 1);
  start_with_policy("replace", WF_TIMER_REPLACE, outcomes, 2);
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 2u);
  EXPECT_EQ(WFTimer::count("replace"), 1u);
  start_with_policy("replace", WF_TIMER_REPLACE, outcomes, 3);
  EXPECT_TRUE(outcomes.wait_for(3));
  EXPECT_EQ(outcomes.tags().back(), 2);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("replace"), 1);
  EXPECT_TRUE(outcomes.wait_for(4));
}

TEST(NamePolicy, ReplaceIsAppliedWhenTheNewOneIsCreated) {
  TimerOutcomes outcomes;
  start_with_policy("early", WF_TIMER_APPEND, outcomes, 0);
  WFTimerTask* task = WFTimer::create(hours(1), {"early", WF_TIMER_REPLACE}, outcomes.callback(1));
  EXPECT_TRUE(outcomes.wait_for(1));
  start_with_policy("early", WF_TIMER_REPLACE, outcomes,
                    2);  // one that was not started yet is replaced, too
  task->start();
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(outcomes.tags().back(), 1);
  EXPECT_EQ(WFTimer::count("early"), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("early"), 1);
  EXPECT_TRUE(outcomes.wait_for(3));
}

TEST(NamePolicy, OneOfManyThatReplaceAtOnceStays) {
  TimerOutcomes outcomes;
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&outcomes] {
      for (int i = 0; i < kEach; i++) {
        start_with_policy("busy", WF_TIMER_REPLACE, outcomes, i);
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_TRUE(outcomes.wait_for(kThreads * kEach - 1));
  EXPECT_EQ(WFTimer::count("busy"), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("busy"), 1);
  EXPECT_TRUE(outcomes.wait_for(kThreads * kEach));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), size_t{kThreads * kEach});
}

TEST(NamePolicy, KeepRefusesTheNewOne) {
  TimerOutcomes outcomes;
  start_with_policy("keep", WF_TIMER_KEEP, outcomes, 0);
  start_with_policy("keep", WF_TIMER_KEEP, outcomes, 1);
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.tags().back(), 1);
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, EEXIST), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("keep"), 1);
  EXPECT_TRUE(outcomes.wait_for(2));
  start_with_policy("keep", WF_TIMER_KEEP, outcomes, 2);  // the name is free again
  EXPECT_EQ(WFTimer::count("keep"), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("keep"), 1);
  EXPECT_TRUE(outcomes.wait_for(3));
}

TEST(NamePolicy, ARefusedOneMayBeDismissed) {
  TimerOutcomes outcomes;
  start_with_policy("quiet", WF_TIMER_KEEP, outcomes, 0);
  WFTimer::create(hours(1), {"quiet", WF_TIMER_KEEP}, outcomes.callback(1))->dismiss();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("quiet"), 1);
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.tags().back(), 0);
}

TEST(NamePolicy, ExactlyOneOfManyThatKeepAtOnceGetsTheName) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 300; round++) {
    TimerOutcomes outcomes;
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; t++) {
      threads.emplace_back(
          [&outcomes, t] { start_with_policy("first", WF_TIMER_KEEP, outcomes, t); });
    }
    threads.clear();  // joins them
    ASSERT_TRUE(outcomes.wait_for(kThreads - 1));
    ASSERT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, EEXIST), size_t{kThreads - 1});
    ASSERT_EQ(WFTaskFactory::cancel_by_name("first"), 1);
    ASSERT_TRUE(outcomes.wait_for(kThreads));
  }
}

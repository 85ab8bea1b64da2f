#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::hours;
using test_support::TimerOutcomes;

namespace {

class TimerQuota : public testing::Test {
 protected:
  void TearDown() override {
    for (const WFTimerInfo& info : WFTimer::list("", SIZE_MAX)) {
      WFTaskFactory::cancel_by_name(info.name);
    }
    EXPECT_TRUE(outcomes_.wait_for(started_));
    EXPECT_EQ(WFTimer::count_prefix(""), 0u);
    for (const std::string& text : quotas_) {
      EXPECT_EQ(WFTimer::set_quota(text, WFTimer::kNoQuota), 0);
      EXPECT_EQ(WFTimer::set_prefix_quota(text, WFTimer::kNoQuota), 0);
    }
  }

  void set_quota(const std::string& name, size_t max) {
    quotas_.push_back(name);
    ASSERT_EQ(WFTimer::set_quota(name, max), 0);
  }
  void set_prefix_quota(const std::string& prefix, size_t max) {
    quotas_.push_back(prefix);
    ASSERT_EQ(WFTimer::set_prefix_quota(prefix, max), 0);
  }

  WFTimerTask* create(const std::string& name, WFTimerPolicy policy = WF_TIMER_APPEND) {
    WFTimerOptions options;
    options.name = name;
    options.policy = policy;
    return WFTimer::create(hours(1), options, outcomes_.callback());
  }

  void start(WFTimerTask* task) {
    started_++;
    task->start();
  }
  void start(const std::string& name) { start(create(name)); }

  bool fits(const std::string& name) {
    WFTimerTask* task = create(name);
    const bool has_room = task->get_error() == 0;
    start(task);
    return has_room;
  }

  // As many as have been refused, and no more.
  void expect_refused(size_t n) {
    EXPECT_TRUE(outcomes_.wait_for(n));
    EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, EDQUOT), n);
  }

  TimerOutcomes outcomes_;
  size_t started_ = 0;
  std::vector<std::string> quotas_;
};

}  // namespace

TEST_F(TimerQuota, OneMoreThanTheNameMayHaveIsRefused) {
  set_quota("a", 2);
  for (int i = 0; i < 3; i++) {
    start("a");
  }
  start("ab");  // another name
  expect_refused(1);
  EXPECT_EQ(WFTimer::count("a"), 2u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 2);
}

TEST_F(TimerQuota, TheErrorIsKnownAtTheCreation) {
  set_quota("full", 0);
  WFTimerTask* task = create("full");
  EXPECT_EQ(task->get_error(), EDQUOT);
  task->dismiss();
  WFTimerTask* other = create("free");
  EXPECT_EQ(other->get_error(), 0);
  other->dismiss();
}

TEST_F(TimerQuota, RoomIsBackWhenATimerHasEndedInAnyWay) {
  set_quota("one", 1);
  WFTimerTask* task = WFTimer::create(std::chrono::milliseconds(1), {"one"}, outcomes_.callback());
  start(task);
  ASSERT_TRUE(outcomes_.wait_for(1));
  create("one")->dismiss();
  task = create("one");
  const WFTimerHandle handle = WFTimer::handle_of(task);
  start(task);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  task = create("one");
  EXPECT_EQ(task->get_error(), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("one"), 1);  // has no name from now on
  EXPECT_TRUE(fits("one"));
  start(task);
  expect_refused(0);
}

TEST_F(TimerQuota, APrefixHasOneQuotaForAllItsNames) {
  set_prefix_quota("tenant/7/", 3);
  for (int i = 0; i < 5; i++) {
    start("tenant/7/" + std::to_string(i));
    start("tenant/70/" + std::to_string(i));
  }
  expect_refused(2);
  EXPECT_EQ(WFTimer::count_prefix("tenant/7/"), 3u);
  EXPECT_EQ(WFTimer::count_prefix("tenant/7"), 8u);
  EXPECT_EQ(WFTimer::count_prefix("tenant/"), 8u);
  EXPECT_EQ(WFTimer::count_prefix(""), 8u);
  EXPECT_EQ(WFTimer::count_prefix("tenant/8"), 0u);
}

TEST_F(TimerQuota, EveryQuotaThatAppliesMustHaveRoom) {
  set_prefix_quota("", 5);
  set_prefix_quota("a", 4);
  set_prefix_quota("abc", 2);
  set_quota("abcd", 1);
  EXPECT_TRUE(fits("abcd"));
  EXPECT_FALSE(fits("abcd"));  // by its own; nothing is taken of the others
  EXPECT_TRUE(fits("abce"));
  EXPECT_FALSE(fits("abcf"));  // abc
  EXPECT_TRUE(fits("abd"));
  EXPECT_TRUE(fits("a"));
  EXPECT_FALSE(fits("a"));  // a
  EXPECT_TRUE(fits("b"));
  EXPECT_FALSE(fits(""));  // all
  EXPECT_EQ(WFTaskFactory::cancel_by_name("abce"), 1);
  EXPECT_TRUE(fits("abcz"));
  EXPECT_FALSE(fits("c"));
}

TEST_F(TimerQuota, CountsThoseThatWereThereBefore) {
  for (int i = 0; i < 1000; i++) {
    start("old/" + std::to_string(i % 300));
  }
  set_prefix_quota("old/", 500);
  EXPECT_EQ(WFTimer::count_prefix("old/"), 1000u);  // they stay
  EXPECT_FALSE(fits("old/new"));
  set_prefix_quota("old/", 1001);
  EXPECT_TRUE(fits("old/new"));
  EXPECT_FALSE(fits("old/new"));
  set_prefix_quota("old/", WFTimer::kNoQuota);
  EXPECT_TRUE(fits("old/new"));
  EXPECT_EQ(WFTimer::count_prefix("old/"), 1002u);
}

TEST_F(TimerQuota, ATimerTakesThePlaceOfTheOneItReplaces) {
  set_quota("lease", 1);
  set_prefix_quota("l", 1);
  for (int i = 0; i < 100; i++) {
    start(create("lease", WF_TIMER_REPLACE));
  }
  EXPECT_TRUE(outcomes_.wait_for(99));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 99u);
  EXPECT_EQ(WFTimer::count("lease"), 1u);
  WFTimerTask* task = create("lock", WF_TIMER_REPLACE);  // replaces nothing
  EXPECT_EQ(task->get_error(), EDQUOT);
  task->dismiss();
}

// Whatever threads do, also to other quotas, none is exceeded, and nothing of one is lost.
TEST_F(TimerQuota, HoldsAgainstManyThreads) {
  constexpr size_t kNames = 16;
  constexpr size_t kMax = 3;
  constexpr size_t kMaxOfAll = 20;
  constexpr size_t kThreads = 4;
  const size_t rounds = test_support::kSanitized ? 2000 : 10'000;
  const auto name_of = [](size_t i) { return "x/" + std::to_string(i); };
  set_prefix_quota("x/", kMaxOfAll);
  for (size_t i = 0; i < kNames; i++) {
    set_quota(name_of(i), kMax);
  }
  test_support::Tally ended;
  std::atomic<bool> exceeded{false};
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      test_support::TestRandom random(test_support::test_seed(), t);
      for (size_t i = 0; i < rounds; i++) {
        const std::string name = name_of(random.below(kNames));
        WFTimerTask* task =
            WFTimer::create(std::chrono::microseconds(random.below(200)),
                            {name, random.one_in(8) ? WF_TIMER_KEEP : WF_TIMER_APPEND},
                            [&ended](WFTimerTask*) { ended.add(); });
        exceeded = exceeded || WFTimer::count(name) > kMax;
        if (random.one_in(3)) {
          task->dismiss();
          ended.add();
        } else {
          task->start();
        }
        if (random.one_in(2)) {
          WFTaskFactory::cancel_by_name(name);
        }
        if (random.one_in(64)) {
          WFTimer::set_prefix_quota("x/" + std::to_string(random.below(2)),
                                    random.one_in(2) ? WFTimer::kNoQuota : random.below(20));
        }
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_TRUE(ended.wait_for(kThreads * rounds));
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(WFTimer::count_prefix("x/"), 0u);
  for (const char* prefix : {"x/0", "x/1"}) {
    set_prefix_quota(prefix, WFTimer::kNoQuota);
  }
  size_t fitting = 0;
  for (size_t i = 0; i < kNames * kMax; i++) {
    fitting += fits(name_of(i % kNames));
  }
  EXPECT_EQ(fitting, kMaxOfAll);
}

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::TimerOutcomes;

namespace {

// When a timer was created is known in steps of some dozens of nanoseconds.
constexpr nanoseconds kSteps(100);

class TimerList : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(WFManualClock::install(), 0); }

  void TearDown() override {
    for (const WFTimerInfo& info : WFTimer::list("", SIZE_MAX)) {
      WFTaskFactory::cancel_by_name(info.name);
    }
    EXPECT_TRUE(outcomes_.wait_for(started_));
  }

  WFTimerTask* create(const std::string& name, nanoseconds delay, uint64_t tag) {
    WFTimerOptions options;
    options.name = name;
    options.tag = tag;
    return WFTimer::create(delay, options, outcomes_.callback());
  }
  void start(WFTimerTask* task) {
    started_++;
    task->start();
  }
  void start(const std::string& name, uint64_t tag = 0) { start(create(name, hours(1), tag)); }

  TimerOutcomes outcomes_;
  size_t started_ = 0;
};

std::map<uint64_t, WFTimerInfo> by_tag(const std::string& prefix) {
  std::map<uint64_t, WFTimerInfo> result;
  for (const WFTimerInfo& info : WFTimer::list(prefix, SIZE_MAX)) {
    EXPECT_TRUE(result.emplace(info.tag, info).second);
  }
  return result;
}

}  // namespace

TEST_F(TimerList, TellsNameTagStageDeadlineAndAge) {
  start(create("session/1", seconds(30), 1));
  WFManualClock::advance(nanoseconds(seconds(10)).count());
  WFTimerTask* unstarted = create("session/2", seconds(5), 2);
  start(create("session/3", seconds(-1), 3));
  WFManualClock::advance(nanoseconds(seconds(1)).count());
  auto infos = by_tag("session/");
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_EQ(infos[1].name, "session/1");
  EXPECT_EQ(infos[1].stage, WFTimerStage::kWaiting);
  EXPECT_EQ(infos[1].remaining, seconds(19));
  EXPECT_LT(std::chrono::abs(infos[1].age - seconds(11)), kSteps);
  EXPECT_EQ(infos[2].stage, WFTimerStage::kCreated);
  EXPECT_EQ(infos[2].remaining, seconds(5));
  EXPECT_LT(std::chrono::abs(infos[2].age - seconds(1)), kSteps);
  EXPECT_EQ(infos[3].remaining, nanoseconds::max());
  unstarted->dismiss();
  WFTaskFactory::cancel_by_name("session/1");
  WFTaskFactory::cancel_by_name("session/3");
  EXPECT_TRUE(outcomes_.wait_for(2));
}

TEST_F(TimerList, KnowsWhatWasRescheduled) {
  start(create("later", seconds(30), 0));
  EXPECT_EQ(WFTimer::reschedule("later", seconds(90)), 1u);
  EXPECT_EQ(WFTimer::list("later", 1).at(0).remaining, seconds(90));
  EXPECT_EQ(WFTimer::reschedule("later", seconds(3)), 1u);
  EXPECT_EQ(WFTimer::list("later", 1).at(0).remaining, seconds(3));
  WFTaskFactory::cancel_by_name("later");
  EXPECT_TRUE(outcomes_.wait_for(1));
}

TEST_F(TimerList, APrefixIsAnyBytes) {
  const std::string zeros("\0\0", 2);
  const std::string long_name(64 * 1024, 'n');
  const std::vector<std::string> names = {
      "", "a", "ab", "b", zeros, zeros + "x", "\xff\xfe", long_name, long_name + "n"};
  for (size_t i = 0; i < names.size(); i++) {
    start(names[i], i);
  }
  for (const std::string& prefix : names) {
    std::set<uint64_t> expected;
    for (size_t i = 0; i < names.size(); i++) {
      if (names[i].compare(0, prefix.size(), prefix) == 0) {
        expected.insert(i);
      }
    }
    std::set<uint64_t> listed;
    for (const auto& [tag, info] : by_tag(prefix)) {
      EXPECT_EQ(info.name, names[tag]);
      listed.insert(tag);
    }
    EXPECT_EQ(listed, expected);
    EXPECT_EQ(WFTimer::count_prefix(prefix), expected.size());
  }
}

TEST_F(TimerList, ListsNoMoreThanAsked) {
  for (int i = 0; i < 100; i++) {
    start("some/" + std::to_string(i));
  }
  EXPECT_EQ(WFTimer::list("some/", 0).size(), 0u);
  EXPECT_EQ(WFTimer::list("some/", 7).size(), 7u);
  EXPECT_EQ(WFTimer::list("some/", 1000).size(), 100u);
  size_t seen = 0;
  EXPECT_TRUE(WFTimer::for_each("some/", [&seen](const WFTimerInfo&) { return ++seen < 3; }));
  EXPECT_EQ(seen, 3u);
}

TEST_F(TimerList, AVisitMayCancelAndCreate) {
  constexpr int kTimers = 1000;
  for (int i = 0; i < kTimers; i++) {
    start("old/" + std::to_string(i));
  }
  int visited = 0;
  EXPECT_TRUE(WFTimer::for_each("old/", [&](const WFTimerInfo& info) {
    visited++;
    EXPECT_EQ(WFTaskFactory::cancel_by_name(info.name), 1);
    start("new" + info.name);
    return true;
  }));
  EXPECT_EQ(visited, kTimers);
  EXPECT_EQ(WFTimer::count_prefix("old/"), 0u);
  EXPECT_EQ(WFTimer::count_prefix("newold/"), size_t{kTimers});
}

TEST_F(TimerList, ANameWithVeryManyTimersIsListedWhole) {
  constexpr size_t kTimers = 10'000;
  for (size_t i = 0; i < kTimers; i++) {
    start("crowd", i);
    start("few/" + std::to_string(i % 500), kTimers + i);
  }
  EXPECT_EQ(by_tag("").size(), 2 * kTimers);
  EXPECT_EQ(by_tag("crow").size(), kTimers);
  EXPECT_EQ(WFTimer::count("crowd"), kTimers);
}

// While names come, go and make the tables grow: who is there all the time is seen once.
TEST_F(TimerList, SeesWhoStaysExactlyOnce) {
  constexpr size_t kStay = 2000;
  for (size_t i = 0; i < kStay; i++) {
    start(i % 2 ? "stay/" + std::to_string(i) : "stay/crowd", i);
  }
  std::atomic<bool> over{false};
  test_support::Tally ended;
  std::atomic<size_t> created{0};
  std::thread others([&] {
    test_support::TestRandom random(test_support::test_seed());
    std::vector<std::string> names;
    for (size_t i = 0; !over; i++) {
      names.push_back("stay/crowd" + std::to_string(i));
      created++;
      WFTimer::create(hours(1), {names.back()}, [&ended](WFTimerTask*) { ended.add(); })->start();
      if (random.one_in(2) && names.size() < 20'000) continue;
      std::swap(names[random.below(names.size())], names.back());
      WFTaskFactory::cancel_by_name(names.back());
      names.pop_back();
    }
    for (const std::string& name : names) {
      WFTaskFactory::cancel_by_name(name);
    }
  });
  const int rounds = test_support::kSanitized ? 10 : 50;
  for (int round = 0; round < rounds; round++) {
    std::vector<int> seen(kStay);
    EXPECT_TRUE(WFTimer::for_each("stay/", [&seen](const WFTimerInfo& info) {
      if (info.name == "stay/crowd" || info.tag > 0) {
        seen[info.tag]++;
      }
      return true;
    }));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<long>(kStay)) << round;
  }
  over = true;
  others.join();
  EXPECT_TRUE(ended.wait_for(created));
}

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "store/AlarmDesk.h"
#include "store/RedisStoreKit.h"
#include "store/StoreKit.h"
#include "store/StoreTime.h"
#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/SqliteKit.h"
#include "workflow/WFCron.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTimerStore.h"

// Clocks that are set while a store is open, and time zones with summer time: nothing begins early
// by the clock of the store, and nothing is dropped. It has a program of its own for the manual
// clock.

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using store_test::Gate;
using store_test::SeenRun;
using store_test::SeenRuns;
using store_test::StorePtr;
using testing::Values;

using Time = std::chrono::system_clock::time_point;

// For the whole program, once.
void install_clock() {
  static const int installed = WFManualClock::install();
  ASSERT_EQ(installed, 0);
}

class StoreClocks : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { install_clock(); }

  StorePtr open() {
    const std::string kind = GetParam();
    const std::string file = "sqlite:" + directory_.path("timers");
    return store_test::open_store(kind == "Memory"  ? memory_url_
                                  : kind == "Owned" ? file + "?layout=owned"
                                                    : file);
  }

  static Time now() { return WFTimer::wall_now(); }
  static void set_clock(std::chrono::nanoseconds by) {
    WFManualClock::set_wall(now() + std::chrono::duration_cast<Time::duration>(by));
  }

  // Waits until the store has begun what is due by now. The answer to the first request comes
  // before the runs of its group begin, and that to the second one after it.
  static void settle(WFTimerStore& store) {
    for (int i = 0; i < 3; i++) {
      EXPECT_TRUE(store.count("").ok());
      WFManualClock::advance(0);
    }
  }
  // Lets time pass, in steps that are far shorter than anything here lasts.
  static void pass(WFTimerStore& store, std::chrono::nanoseconds time,
                   std::chrono::nanoseconds step) {
    for (; time.count() > 0; time -= step) {
      WFManualClock::advance(std::min(time, step));
      settle(store);
    }
  }

  static void expect_none_early(const SeenRuns& runs) {
    for (const SeenRun& run : runs.all()) {
      EXPECT_GE(run.began, run.due) << run.name;
    }
  }

  test_support::FastDir directory_;
  const std::string memory_url_ = store_test::fresh_url();
};

TEST_P(StoreClocks, ATimerIsNotEarlyWhenTheClockIsSetBackAnHour) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->schedule({"tea", minutes(30), "kind"}).ok());
  pass(*store, minutes(20), minutes(5));
  set_clock(-hours(1));
  pass(*store, minutes(69), minutes(3));
  EXPECT_EQ(runs.count(), 0U);
  pass(*store, minutes(1), minutes(1));
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).began, runs.at(0).due);
  // And the store goes on.
  ASSERT_TRUE(store->schedule({"tea", minutes(1), "kind"}).ok());
  pass(*store, minutes(1), minutes(1));
  EXPECT_TRUE(runs.wait_for(2));
  expect_none_early(runs);
}

TEST_P(StoreClocks, WhatIsDueByTheNewTimeBeginsWhenTheClockIsSetForwardAnHour) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store));
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(store->schedule({"tea " + std::to_string(i), minutes(15 * i + 10), "kind"}).ok());
  }
  set_clock(hours(1));
  settle(*store);
  ASSERT_TRUE(runs.wait_for(4));
  EXPECT_EQ(runs.count(), 4U);
  pass(*store, minutes(90), minutes(5));
  ASSERT_TRUE(runs.wait_for(10));
  EXPECT_EQ(runs.count(), 10U);
  expect_none_early(runs);
  EXPECT_EQ(store->count("").count, 0U);
}

TEST_P(StoreClocks, ARunKeepsItsLeaseWhenTheClockIsSetBack) {
  SeenRuns runs;
  Gate gate;
  const StorePtr store = open();
  // Another process might take it for over.
  const bool is_owned = GetParam() == std::string("Owned");
  const StorePtr second = is_owned ? StorePtr() : open();
  WFTimerStore* const other = is_owned ? store.get() : second.get();
  const auto handler = [&](WFStoredTimer* timer) { series_of(timer)->push_back(gate.wait()); };
  store->handle("kind", runs.handler(*store, handler));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  settle(*store);
  ASSERT_TRUE(runs.wait_for(1));
  other->handle("kind", runs.handler(*other, handler));
  set_clock(-hours(1));
  pass(*store, minutes(5), seconds(5));
  settle(*other);
  EXPECT_EQ(runs.count(), 1U);
  gate.open();
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_EQ(gate.errors(), std::vector<int>{0});
  // Also past the time at which the lease had ended by the old clock.
  pass(*store, hours(2), minutes(10));
  settle(*other);
  EXPECT_EQ(runs.count(), 1U);
  EXPECT_EQ(store->stats().acknowledged, 1U);
  EXPECT_EQ(store->stats().lost, 0U);
  EXPECT_EQ(store->count("").count, 0U);
}

TEST_P(StoreClocks, ARunWhoseLeaseTheClockHasPassedIsNotDropped) {
  SeenRuns runs;
  Gate gate;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
    if (timer->attempt() == 1) {
      series_of(timer)->push_back(gate.wait());
    }
  }));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  settle(*store);
  ASSERT_TRUE(runs.wait_for(1));
  set_clock(hours(1));
  settle(*store);
  // The timer runs again, and the first run learns that its lease is gone.
  ASSERT_TRUE(runs.wait_for(2));
  EXPECT_EQ(runs.at(1).attempt, 2U);
  EXPECT_GT(runs.at(1).fence, runs.at(0).fence);
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_EQ(gate.errors(), std::vector<int>{ESTALE});
  settle(*store);
  EXPECT_EQ(store->count("").count, 0U);
  EXPECT_EQ(store->stats().lost, 1U);
  EXPECT_EQ(store->stats().acknowledged, 1U);
}

TEST_P(StoreClocks, ARecurringTimerHasOneRunForEachDateAlthoughTheClockIsSet) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store));
  WFStoreTimer timer;
  timer.name = "hourly";
  timer.due = WFStoreDue::every(hours(1));
  timer.kind = "kind";
  timer.every_missed_date = true;
  const Time first = now() + hours(1);
  ASSERT_TRUE(store->schedule(timer).ok());
  pass(*store, minutes(150), minutes(10));  // 1 and 2
  set_clock(-hours(1));                     // 2 will not come again
  pass(*store, minutes(80), minutes(10));
  EXPECT_EQ(runs.count(), 2U);
  pass(*store, minutes(20), minutes(10));  // 3
  set_clock(hours(3));                     // 4, 5 and 6 at once
  settle(*store);
  ASSERT_TRUE(runs.wait_for(6));
  for (size_t i = 0; i < 6; i++) {
    EXPECT_EQ(runs.at(i).due, first + hours(i)) << i;
  }
  expect_none_early(runs);
  EXPECT_EQ(runs.count(), 6U);
}

// Each date of the expression has one run, at that date.
void expect_dates_of(const SeenRuns& runs, const WFCron& cron, Time begin) {
  Time date = begin;
  for (const SeenRun& run : runs.all()) {
    date = *cron.next(date);
    EXPECT_EQ(run.due, date);
    EXPECT_EQ(run.began, date);
  }
}

TEST_P(StoreClocks, EachDateRunsOnceWhenSummerTimeBeginsAndEnds) {
  const auto berlin = [](const char* text) { return *WFCron::parse(text, "Europe/Berlin"); };
  // The hour that is missing in March, and is there twice in October.
  const WFCron nightly = berlin("30 2 * * *");
  const WFCron hourly = berlin("0 * * * *");
  // Noon of the Saturday before each of them.
  const int64_t saturdays[] = {1'743'246'000, 1'761'386'400};
  const size_t nights[] = {3, 3};
  for (size_t i = 0; i < 2; i++) {
    const Time begin{seconds(saturdays[i])};
    WFManualClock::set_wall(begin);
    SeenRuns by_night;
    SeenRuns by_hour;
    const StorePtr store = open();
    store->handle("nightly", by_night.handler(*store));
    store->handle("hourly", by_hour.handler(*store));
    ASSERT_TRUE(store->schedule({"nightly", nightly, "nightly"}).ok());
    ASSERT_TRUE(store->schedule({"hourly", hourly, "hourly"}).ok());
    pass(*store, hours(72), minutes(30));
    EXPECT_EQ(by_night.count(), nights[i]);
    EXPECT_EQ(by_hour.count(), 72U);
    expect_dates_of(by_night, nightly, begin);
    expect_dates_of(by_hour, hourly, begin);
    store->cancel("nightly");
    store->cancel("hourly");
  }
}

// The manual clock, on which time passes after it was read.
class PassingClock final : public workflow::Clock {
 public:
  int64_t now_ns() override { return WFManualClock::now_ns(); }
  int64_t now_ns_on(workflow::ClockId) override {
    const auto now = WFTimer::wall_now().time_since_epoch();
    if (const auto passes = std::exchange(passes_, {}); passes.count() > 0) {
      WFManualClock::advance(passes);
    }
    return std::chrono::nanoseconds(now).count();
  }
  void pass_after_next_look(std::chrono::nanoseconds time) { passes_ = time; }

 private:
  std::chrono::nanoseconds passes_{};
};

TEST(StoreAlarmClocks, AnAlarmIsNotLateAlthoughTimePassesWhileItIsSet) {
  install_clock();
  const auto desk = store_test::AlarmDesk<PassingClock>::create();
  desk->handle_something();
  desk->alarms.due_at(workflow::us_of_time(WFTimer::wall_now() + minutes(30)));
  desk->clock.pass_after_next_look(minutes(1));
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 0);
  WFManualClock::advance(minutes(29));
  EXPECT_EQ(desk->claims, 1);
}

std::string backend_of(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(Backends, StoreClocks, Values("Memory", "Sqlite", "Owned"), backend_of);

// What a store in a Redis looks for once a second, it does not here: no time passes. A message that
// was published while nobody listened is lost, so the store looks when it listens again.
TEST(RedisStoreNews, AfterAReconnectTheStoreLooksAtOnce) {
  install_clock();
  redis_test::RedisServer server;
  const std::string url = server.url() + "&namespace=app&shards=3";
  const auto listeners = [&server] {
    return redis_test::run(server.url(), {"PUBSUB", "NUMSUB", "app:news"}).value[1].int_value();
  };
  SeenRuns runs;
  const StorePtr store = store_test::open_store(url);
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->schedule({"later", hours(1), "kind"}).ok());
  ASSERT_TRUE(test_support::eventually([&] { return listeners() == 1; }));
  redis_test::run(server.url(), {"CLIENT", "KILL", "TYPE", "pubsub"});
  ASSERT_TRUE(test_support::eventually([&] { return listeners() == 0; }));
  const auto other = store_test::open_backend(url, 2);
  store_test::ask(*other, store_test::timer("earlier", other->now_us()));
  // A count claims nothing. Each lets the store notice that its connection is gone.
  ASSERT_TRUE(test_support::eventually([&] {
    EXPECT_TRUE(store->count("").ok());
    return runs.count() == 1;
  }));
  EXPECT_EQ(runs.at(0).name, "earlier");
}

}  // namespace

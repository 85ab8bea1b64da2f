#include <fcntl.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"
#include "workflow/WFTimerStore.h"

// The clock of a Redis is set while a store in it is open: nothing begins early by that clock, and
// nothing is dropped.

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using store_test::Gate;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;

using Time = std::chrono::system_clock::time_point;

// A server whose clock the test sets.
class StoreServerClock : public testing::Test {
 protected:
  StoreServerClock() : file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    set_clock(seconds(0));
    redis_test::RedisServer::Options options;
    options.environment = {std::string("LD_PRELOAD=") + REDIS_CLOCK_AHEAD,
                           "CLOCK_AHEAD_FILE=" + path_};
    server_ = std::make_unique<redis_test::RedisServer>(options);
  }

  // Sets the clock to that much ahead of the right time.
  // now() is never behind the server, so that no run counts as early that is not.
  void set_clock(seconds ahead) {
    const int64_t value = ahead.count();
    if (value > ahead_s_) {
      ahead_s_ = value;
    }
    ASSERT_EQ(::pwrite(file_.get(), &value, sizeof value, 0), ssize_t{sizeof value});
    ahead_s_ = value;
  }

  // What the clock of the server shows.
  Time now() const {
    struct timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return Time(seconds(now.tv_sec + ahead_s_) + microseconds(now.tv_nsec / 1000));
  }

  StorePtr open() const {
    return store_test::open_store(server_->url() + "&namespace=clock&shards=2");
  }

  // Notes the run, and whether it is early.
  WFTimerStore::Handler handler(SeenRuns& runs, const WFTimerStore& store,
                                std::function<void(WFStoredTimer*)> then = nullptr) {
    return [this, noted = runs.handler(store, std::move(then))](WFStoredTimer* timer) {
      early_ += now() < timer->due() ? 1 : 0;
      noted(timer);
    };
  }

  // Sets the clock, and waits until the store has noticed: at the latest when it looks next. Delays
  // are counted by the clock that it knows.
  void set_clock(seconds ahead, const WFTimerStore& store) {
    set_clock(ahead);
    ASSERT_TRUE(eventually([&] { return abs(store.now() - now()) < minutes(1); }));
  }

  // Waits until the store has run a timer that is stored now.
  void settle(WFTimerStore& store) {
    store.handle("settle", handler(settled_, store));
    const size_t before = settled_.count();
    ASSERT_TRUE(store.schedule({"settle", seconds(0), "settle"}).ok());
    ASSERT_TRUE(settled_.wait_for(before + 1));
    ASSERT_TRUE(eventually([&store] { return store.count("settle").count == 0; }));
  }

  const test_support::TempDir directory_;
  const std::string path_ = directory_.path("ahead");
  const workflow::UniqueFd file_;
  std::atomic<int64_t> ahead_s_{0};
  std::atomic<int> early_{0};
  SeenRuns settled_;
  std::unique_ptr<redis_test::RedisServer> server_;
};

TEST_F(StoreServerClock, WhatIsDueByTheNewTimeBeginsWhenTheClockIsSetForwardAnHour) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", handler(runs, *store));
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(store->schedule({"tea " + std::to_string(i), minutes(15 * i + 10), "kind"}).ok());
  }
  set_clock(hours(1), *store);
  ASSERT_TRUE(runs.wait_for(4));
  settle(*store);
  EXPECT_EQ(runs.count(), 4U);
  // Their ends have arrived: otherwise the clock would end their leases.
  ASSERT_TRUE(eventually([&store] { return store->count("tea").count == 6; }));
  set_clock(hours(3), *store);
  ASSERT_TRUE(runs.wait_for(10));
  EXPECT_EQ(early_, 0);
  EXPECT_TRUE(eventually([&store] { return store->count("").count == 0; }));
  EXPECT_EQ(runs.count(), 10U);
}

TEST_F(StoreServerClock, ATimerIsNotEarlyAndNotDroppedWhenTheClockIsSetBackAnHour) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", handler(runs, *store));
  ASSERT_TRUE(store->schedule({"tea", minutes(30), "kind"}).ok());
  set_clock(-hours(1), *store);
  settle(*store);
  // By the clock before that it would be due.
  set_clock(-minutes(20), *store);
  settle(*store);
  EXPECT_EQ(runs.count(), 0U);
  EXPECT_EQ(store->count("tea").count, 1U);
  set_clock(minutes(31), *store);
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(early_, 0);
  EXPECT_TRUE(eventually([&store] { return store->count("").count == 0; }));
  EXPECT_EQ(runs.count(), 1U);
}

TEST_F(StoreServerClock, ARunKeepsItsLeaseWhenTheClockIsSetBack) {
  SeenRuns runs;
  Gate gate;
  const StorePtr store = open();
  const StorePtr other = open();
  store->handle("kind", handler(runs, *store, [&gate](WFStoredTimer* timer) {
                  series_of(timer)->push_back(gate.wait());
                }));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  other->handle("kind", handler(runs, *other));
  set_clock(-hours(1), *other);
  settle(*other);
  EXPECT_EQ(runs.count(), 1U);
  gate.open();
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_EQ(gate.errors(), std::vector<int>{0});
  EXPECT_TRUE(eventually([&store] { return store->count("").count == 0; }));
  EXPECT_EQ(store->stats().lost, 0U);
  EXPECT_EQ(runs.count(), 1U);
}

TEST_F(StoreServerClock, ARunWhoseLeaseTheClockHasPassedIsNotDropped) {
  SeenRuns runs;
  Gate gate;
  const StorePtr store = open();
  store->handle("kind", handler(runs, *store, [&gate](WFStoredTimer* timer) {
                  if (timer->attempt() == 1) {
                    series_of(timer)->push_back(gate.wait());
                  }
                }));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  set_clock(hours(1), *store);
  // It runs again, and the first run is told that its lease is gone.
  ASSERT_TRUE(runs.wait_for(2));
  EXPECT_EQ(runs.at(1).attempt, 2U);
  EXPECT_GT(runs.at(1).fence, runs.at(0).fence);
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_EQ(gate.errors(), std::vector<int>{ESTALE});
  EXPECT_EQ(early_, 0);
  EXPECT_TRUE(eventually([&store] { return store->count("").count == 0; }));
}

}  // namespace

#include <gtest/gtest.h>
#include <time.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "store/FaultyBackend.h"
#include "store/StoreKit.h"
#include "support/Descriptors.h"
#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/SqliteKit.h"

// A process that has no descriptors left: a store that is open goes on, what fails says so, and
// nothing that was receipted is lost.

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_test::FaultyBackend;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;
using test_support::NoDescriptors;

// A store in a file, of each layout.
class StoreDescriptors : public testing::TestWithParam<workflow::SqliteLayout> {
 protected:
  static bool is_owned() { return GetParam() == workflow::SqliteLayout::kOwned; }
  std::string place() const {
    return directory_.path("timers") + (is_owned() ? "?layout=owned" : "");
  }
  std::string url() const { return "sqlite:" + place(); }

  const test_support::FastDir directory_;
};

TEST_P(StoreDescriptors, AnOpenStoreNeedsNoMore) {
  SeenRuns runs;
  const StorePtr store = store_test::open_store(url());
  store->handle("kind", runs.handler(*store));
  // Whatever is opened at the first use.
  ASSERT_TRUE(store->schedule({"first", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  const NoDescriptors none;
  for (int i = 0; i < 100; i++) {
    const std::string name = "tea " + std::to_string(i);
    ASSERT_TRUE(store->schedule({name, seconds(0), "kind"}).ok());
    ASSERT_TRUE(store->schedule({"later", hours(1), "kind"}).ok());
    EXPECT_EQ(store->cancel("later").verdict(), WFStoreVerdict::kWon);
  }
  EXPECT_TRUE(runs.wait_for(101));
}

double processor_seconds() {
  struct timespec spent = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) / 1e9;
}

// The first timer by the wall clock needs a descriptor. Until there is one the store tries again
// and again, but not without a pause.
TEST_P(StoreDescriptors, AnAlarmThatCannotBeSetKeepsNoProcessorBusy) {
  SeenRuns runs;
  const StorePtr store = store_test::open_store(url());
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->count("").ok());
  {
    const NoDescriptors none;
    ASSERT_TRUE(store->schedule({"later", hours(1), "kind"}).ok());
    const double before = processor_seconds();
    const auto began = std::chrono::steady_clock::now();
    // What is measured is what the process does in some time.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double spent = processor_seconds() - before;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    EXPECT_LT(spent, 0.4 * passed.count());
    ASSERT_TRUE(store->schedule({"now", seconds(0), "kind"}).ok());
    EXPECT_TRUE(runs.wait_for(1));
  }
  ASSERT_TRUE(store->schedule({"soon", std::chrono::milliseconds(50), "kind"}).ok());
  EXPECT_TRUE(runs.wait_for(2));
}

TEST_P(StoreDescriptors, WhatCannotBeOpenedSaysSoAndIsOpenedLater) {
  store_test::open_store(url())->schedule({"tea", hours(1), "kind"});
  {
    NoDescriptors none;
    for (int left = 0; left < 8; left++) {
      std::string message;
      std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url(), &message));
      if (!store) {
        // EIO: SQLite says of its own files only that they cannot be opened.
        EXPECT_TRUE(errno == EMFILE || errno == EIO) << errno << " " << message;
        EXPECT_NE(message, "");
      } else {
        EXPECT_EQ(store->count("tea").count, 1U);
      }
      store.reset();
      none.give_back_one();
    }
  }
  EXPECT_EQ(store_test::open_store(url())->count("tea").count, 1U);
}

TEST_P(StoreDescriptors, AStoreIsReopenedWithTheDescriptorsThatItHad) {
  FaultyBackend* faulty = nullptr;
  workflow::StoreFailure failure;
  const auto make = [&](const workflow::StoreBackendOptions& options, workflow::StoreFailure* why) {
    auto backend = std::make_unique<FaultyBackend>(
        workflow::open_sqlite_backend(place(), options, &why->error, &why->message));
    faulty = backend.get();
    return backend;
  };
  SeenRuns runs;
  const StorePtr store(workflow::StoreOpener::open({}, make, &failure));
  ASSERT_TRUE(store) << failure.message;
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  ASSERT_TRUE(store->schedule({"receipted", hours(1), "kind"}).ok());
  {
    NoDescriptors none;
    faulty->fail_next(FaultyBackend::Fault::kRefuse);
    EXPECT_EQ(store->schedule({"refused", seconds(0), "kind"}).error, EIO);
    // It is opened with the descriptors that it gave back.
    EXPECT_TRUE(eventually([&] { return store->count("receipted").count == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return store->reschedule("receipted", seconds(0)).ok(); }));
  EXPECT_TRUE(runs.wait_for(2));
  EXPECT_EQ(runs.names().back(), "receipted");
  EXPECT_EQ(store->count("refused").count, 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, StoreDescriptors, test_support::sqlite_layouts(),
                         test_support::layout_name);

TEST(StoreDescriptorsRedis, AStoreWhoseConnectionIsLostConnectsWhenThereAreDescriptors) {
  const redis_test::RedisServer server;
  SeenRuns runs;
  const StorePtr store = store_test::open_store(server.url() + "&namespace=app&shards=1");
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  ASSERT_TRUE(store->schedule({"receipted", hours(1), "kind"}).ok());
  {
    // The connections of the store are gone, but what it sees of them still takes descriptors until
    // it has closed them: those are taken then, too.
    NoDescriptors none;
    none.give_back_one();
    none.give_back_one();
    redis_test::run(server.url(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    redis_test::run(server.url(), {"CLIENT", "KILL", "TYPE", "pubsub"});
    for (int i = 0; i < 20; i++) {
      const WFStoreResult result = store->reschedule("receipted", hours(1));
      EXPECT_TRUE(result.ok() || result.error != 0);
    }
  }
  EXPECT_TRUE(eventually([&] { return store->reschedule("receipted", seconds(0)).ok(); }));
  EXPECT_TRUE(runs.wait_for(2));
}

}  // namespace

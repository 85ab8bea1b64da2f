#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/SqliteChild.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/SqliteKit.h"

// A worker that is stopped (SIGSTOP) beyond its lease and then continued, and a server that is. The
// workers are children of the test.

namespace {

using std::chrono::seconds;
using store_test::Gate;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;
using test_support::say;
using test_support::SqliteChild;
using test_support::variable;
using test_support::wait_for_exit;

WFStoreOptions short_lease() {
  WFStoreOptions options;
  options.lease = seconds(1);
  return options;
}

// Takes one timer, and works on it until its scope ends. Then it wants to acknowledge it.
void be_a_worker() {
  std::string message;
  const std::unique_ptr<WFTimerStore> store(
      WFTimerStore::open(variable("STOPPED_URL"), short_lease(), &message));
  if (!store) {
    say("error " + message);
    return;
  }
  store->handle("kind", [](WFStoredTimer* timer) {
    timer->acknowledge();
    series_of(timer)->push_back(WFTaskFactory::create_counter_task(
        1, [](WFCounterTask* task) { say("ended " + std::to_string(task->get_error())); }));
    say("began " + std::to_string(timer->attempt()));
  });
  while (store->stats().lost + store->stats().acknowledged == 0) {
    ::usleep(1000);
  }
  say("lost " + std::to_string(store->stats().lost) + " acknowledged " +
      std::to_string(store->stats().acknowledged));
  wait_for_exit();
}

class StoreStopped : public testing::TestWithParam<const char*> {
 protected:
  StoreStopped() {
    if (GetParam() == std::string("Redis")) {
      server_ = std::make_unique<redis_test::RedisServer>();
    }
  }
  std::string url() const {
    return server_ ? server_->url() + "&namespace=stopped&shards=1"
                   : "sqlite:" + directory_.path("timers");
  }

  const test_support::FastDir directory_;
  std::unique_ptr<redis_test::RedisServer> server_;
};

TEST_P(StoreStopped, TheAcknowledgementOfAWorkerStoppedBeyondItsLeaseIsRefused) {
  SeenRuns runs;
  const StorePtr store = store_test::open_store(url());
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  SqliteChild worker({"STOPPED_URL=" + url()});
  ASSERT_EQ(worker.line(), "began 1");
  worker.send(SIGSTOP);
  Gate gate;
  store->handle("kind", gate.handler(runs, *store));
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).attempt, 2U);
  worker.send(SIGCONT);
  // Two threads say so, in any order.
  std::multiset<std::string> said;
  said.insert(worker.line().value_or("nothing"));
  said.insert(worker.line().value_or("nothing"));
  EXPECT_EQ(said, (std::multiset<std::string>{"ended " + std::to_string(ESTALE),
                                              "lost 1 acknowledged 0"}));
  // The run that has the lease is not concerned.
  EXPECT_EQ(store->list("tea").timers.at(0).stage, WFStoreStage::kRunning);
  gate.open();
  EXPECT_TRUE(eventually([&] { return store->count("").count == 0; }));
  EXPECT_EQ(store->stats().acknowledged, 1U);
  EXPECT_EQ(store->stats().lost, 0U);
  EXPECT_EQ(runs.count(), 1U);
}

std::string backend_of(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(Backends, StoreStopped, testing::Values("Sqlite", "Redis"), backend_of);

TEST(StoreStoppedServer, AServerStoppedForLongerThanALeaseLosesNothing) {
  const redis_test::RedisServer server;
  SeenRuns runs;
  Gate gate;
  const StorePtr store =
      store_test::open_store(server.url() + "&namespace=stopped&shards=2", short_lease());
  store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
    if (timer->name() == "tea" && timer->attempt() == 1) {
      series_of(timer)->push_back(gate.wait());
    }
  }));
  ASSERT_TRUE(store->schedule({"tea", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  server.signal(SIGSTOP);
  // The handler learns of it before the lease is lost.
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_EQ(gate.errors(), std::vector<int>{ESTALE});
  server.signal(SIGCONT);
  ASSERT_TRUE(runs.wait_for(2));
  EXPECT_GT(runs.at(1).fence, runs.at(0).fence);
  EXPECT_TRUE(eventually([&] { return store->count("").count == 0; }));
  ASSERT_TRUE(store->schedule({"more", seconds(0), "kind"}).ok());
  EXPECT_TRUE(runs.wait_for(3));
}

}  // namespace

int main(int argc, char** argv) {
  if (!variable("STOPPED_URL").empty()) {
    be_a_worker();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "store/Naming.h"
#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"

// Stores in the master that Sentinels name.

namespace {

using redis_test::is_in_sync;
using redis_test::knows_a_replica;
using redis_test::miss_master_after;
using redis_test::RedisServer;
using redis_test::replica_of;
using redis_test::run;
using redis_test::sentinel_of;
using std::chrono::milliseconds;
using store_test::ask;
using store_test::ask_until;
using store_test::carry_out;
using store_test::kEpoch;
using store_test::names;
using store_test::Naming;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::url_of_sentinels;
using store_test::why_not;
using test_support::eventually;
using testing::HasSubstr;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::kNeverUs;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

TEST(RedisStoreSentinel, AFailoverIsFollowed) {
  RedisServer master({.on = RedisServer::On::kTcp});
  RedisServer replica(replica_of(master));
  ASSERT_TRUE(is_in_sync(replica));
  RedisServer sentinel(sentinel_of(master));
  ASSERT_TRUE(knows_a_replica(sentinel));
  const std::string url = url_of_sentinels(sentinel.address(), "&replicas=1");
  const store_test::StorePtr store = store_test::open_store(url);
  const WFStoreResult stored = store_test::schedule_until(
      *store, {"later", std::chrono::hours(1), "kind"}, {8, 1}, "replicas(1)");
  EXPECT_EQ(stored.timer / kEpoch, 0U);
  master.signal(SIGKILL);
  master.stop();
  miss_master_after(sentinel, milliseconds(500));
  WFStoreTimer now{"now", milliseconds(0), "kind"};
  now.request = WFStoreRequestId{7, 1};
  WFStoreResult second;
  ASSERT_TRUE(eventually([&] { return (second = store->schedule(now)).ok(); }));
  EXPECT_EQ(second.receipt.to_string(), "memory");  // no replica is left
  EXPECT_EQ(second.timer / kEpoch, 1U);
  store_test::SeenRuns seen;
  ASSERT_EQ(store->handle("kind", seen.handler(*store)), 0);
  ASSERT_TRUE(store->reschedule("later", milliseconds(0)).ok());
  ASSERT_TRUE(seen.wait_for(2));
  EXPECT_THAT(seen.names(), testing::UnorderedElementsAre("later", "now"));
}

TEST(RedisStoreSentinel, TheLatestChangeCounts) {
  RedisServer former({.on = RedisServer::On::kTcp});
  RedisServer present({.on = RedisServer::On::kTcp});
  Naming first;
  Naming second;
  Naming third;
  Naming fourth;
  first.name(former);
  first.epoch = 3;
  second.name(present);
  second.epoch = 4;
  third.name(former);
  third.epoch = 3;
  fourth.name(present);
  fourth.epoch = 4;
  // The store waits for three of four, so for at least one of the two that know the change.
  const auto backend = open_backend(url_of_sentinels(
      first.address() + "," + second.address() + "," + third.address() + "," + fourth.address()));
  ask(*backend, timer("a", kNeverUs));
  EXPECT_NE(run(present.url(), {"DBSIZE"}).text, "0");
  EXPECT_EQ(run(former.url(), {"DBSIZE"}).text, "0");
}

TEST(RedisStoreSentinel, OneThatAnswersIsEnough) {
  RedisServer master({.on = RedisServer::On::kTcp});
  Naming knowing;
  Naming unknowing;
  knowing.name(master);
  const std::string others = "127.0.0.1:1," + unknowing.address();
  EXPECT_EQ(why_not(url_of_sentinels(others + "," + knowing.address())), "open");
  EXPECT_EQ(why_not(url_of_sentinels(others)),
            std::to_string(EAGAIN) +
                " no Sentinel knows the master \"main\": asked were 127.0.0.1:1, " +
                unknowing.address());
}

TEST(RedisStoreSentinel, AReplicaIsNoMaster) {
  RedisServer master({.on = RedisServer::On::kTcp});
  RedisServer replica(replica_of(master));
  ASSERT_TRUE(is_in_sync(replica));
  Naming sentinel;
  sentinel.name(replica);
  EXPECT_EQ(why_not(url_of_sentinels(sentinel.address())),
            std::to_string(EROFS) + " " + replica.in_messages() + "the server is no master");
}

// A master whose replica has timer "a", and a store that asks for both. The master is replaced
// while it stands still.
class RedisStoreReplaced : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(is_in_sync(replica_));
    sentinel_.name(master_);
    backend_ = open_backend(url_of_sentinels(sentinel_.address(), "&replicas=1"));
    ask_until(*backend_, timer("a", kNeverUs), 1, "replicas(1)");
  }
  void replace_the_master() {
    EXPECT_EQ(run(replica_.url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
    sentinel_.epoch = 1;
    sentinel_.name(replica_);
    master_.signal(SIGCONT);
  }

  RedisServer master_{{.on = RedisServer::On::kTcp}};
  RedisServer replica_{replica_of(master_)};
  Naming sentinel_;
  std::unique_ptr<workflow::StoreBackend> backend_;
};

// The old master never learns that it was replaced, as if it were cut off from everybody but the
// store.
TEST_F(RedisStoreReplaced, WhatAReplacedMasterSaysDoesNotCount) {
  const int asked = sentinel_.asked;
  master_.signal(SIGSTOP);
  ScheduleRequest request = timer("b", kNeverUs);
  StoreFailure failure;
  std::thread client([&] { carry_out(*backend_, request, &failure, 2); });
  // It has noticed the silence, and the Sentinel has answered that all is well.
  EXPECT_TRUE(eventually([&] { return sentinel_.asked > asked; }));
  replace_the_master();
  client.join();
  EXPECT_EQ(failure.error, EAGAIN);  // ECANCELED would say that it was not done
  EXPECT_TRUE(failure.in_doubt);

  ASSERT_TRUE(reopens(*backend_));
  AskRequest question;
  question.asked = {1, 2};
  EXPECT_FALSE(ask(*backend_, question).found);
  EXPECT_EQ(names(*backend_), std::vector<std::string>{"a"});
  EXPECT_EQ(ask(*backend_, timer("c", kNeverUs), 3).timer / kEpoch, 1U);
}

TEST(RedisStoreSentinel, WhatIsGivenUpIsInDoubt) {
  RedisServer master({.on = RedisServer::On::kTcp});
  RedisServer other({.on = RedisServer::On::kTcp});
  Naming sentinel;
  sentinel.name(master);
  const auto backend = open_backend(url_of_sentinels(sentinel.address()));
  master.signal(SIGSTOP);
  sentinel.epoch = 1;
  sentinel.name(other);
  ScheduleRequest request = timer("a", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, request, &failure, 1));
  EXPECT_EQ(failure.error, EAGAIN);
  EXPECT_TRUE(failure.in_doubt);
  EXPECT_THAT(failure.message, HasSubstr("another server may have become the master"));
  master.signal(SIGCONT);
}

// The replica hangs, so that the store waits for it, and meanwhile the master is replaced. What it
// has carried out before may be lost, and what it says after it does not count.
TEST_F(RedisStoreReplaced, AMasterThatIsReplacedDuringTheWaitDoesNotCount) {
  StoreFailure failure;
  uint64_t number = 2;
  // WAIT ends after a second. A busy machine may not stop the master within that.
  EXPECT_TRUE(eventually([&] {
    replica_.signal(SIGSTOP);
    const int asked = sentinel_.asked;
    std::atomic<bool> is_done{false};
    std::thread client([&] {
      ScheduleRequest request = timer("b", kNeverUs);
      carry_out(*backend_, request, &failure, number);
      is_done = true;
    });
    // The reply to the request is there, and WAIT is under way.
    EXPECT_TRUE(eventually([&] {
      return is_done || redis_test::info(master_.url(), "clients").find("blocked_clients:1") !=
                            std::string::npos;
    }));
    master_.signal(SIGSTOP);
    // Its silence was noticed, and all was well.
    EXPECT_TRUE(eventually([&] { return is_done || sentinel_.asked > asked; }));
    const bool is_in_time = !is_done;
    replica_.signal(SIGCONT);
    if (is_in_time) {
      replace_the_master();
    } else {
      master_.signal(SIGCONT);
    }
    client.join();
    if (!is_in_time) {
      ask_until(*backend_, timer("b", kNeverUs), number++, "replicas(1)");
    }
    return is_in_time;
  }));
  EXPECT_EQ(failure.error, EAGAIN);
  EXPECT_TRUE(failure.in_doubt);

  // Without a new connection nothing that it says counts, however fast it answers now.
  CancelRequest cancel = store_test::cancel_request("a");
  EXPECT_FALSE(carry_out(*backend_, cancel, &failure, number + 1));
  ASSERT_TRUE(reopens(*backend_));
  EXPECT_THAT(names(*backend_), testing::Contains("a"));
}

// A server that may drop timers is refused, also when it becomes the master later.
TEST_F(RedisStoreReplaced, ANewMasterThatMayDropTimersIsRefused) {
  const auto set_policy = [this](const std::string& policy) {
    EXPECT_EQ(run(replica_.url(), {"CONFIG", "SET", "maxmemory-policy", policy}).text, "OK");
  };
  set_policy("allkeys-lru");
  master_.signal(SIGKILL);
  master_.stop();
  EXPECT_EQ(run(replica_.url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
  sentinel_.epoch = 1;
  sentinel_.name(replica_);
  ScheduleRequest request = timer("b", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend_, request, &failure, 2));

  std::string message;
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(backend_->reopen(&message), EINVAL);
    EXPECT_EQ(message, replica_.in_messages() +
                           "the maxmemory-policy of the server is allkeys-lru, which would drop "
                           "timers: a store needs noeviction");
    EXPECT_FALSE(carry_out(*backend_, request, &failure, 2));
    EXPECT_EQ(failure.error, EINVAL);
    EXPECT_EQ(failure.message, message);
    EXPECT_FALSE(failure.in_doubt);
  }
  EXPECT_EQ(run(replica_.url(), {"ZCARD", "{app:0}:names"}).text, "1");
  set_policy("noeviction");
  ASSERT_TRUE(reopens(*backend_));
  EXPECT_EQ(ask(*backend_, timer("b", kNeverUs), 2).timer / kEpoch, 1U);
  EXPECT_EQ(names(*backend_), (std::vector<std::string>{"a", "b"}));
}

// How many connections the server has, also if it is stopped (proc(5), /proc/net/tcp: in each line
// the second word is the local address, the fourth the state, of which 0A is LISTEN).
size_t connections_of(const RedisServer& server) {
  char port[8];
  std::snprintf(port, sizeof port, ":%04X", static_cast<unsigned>(server.port()));
  size_t count = 0;
  std::ifstream lines("/proc/net/tcp");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    count += local.ends_with(port) && state != "0A" ? 1 : 0;
  }
  return count;
}

// The master is replaced while the store connects.
TEST_F(RedisStoreReplaced, AMasterThatIsReplacedDuringTheOpeningDoesNotCount) {
  const int asked = sentinel_.asked;
  master_.signal(SIGSTOP);
  const size_t connections = connections_of(master_);
  std::string message;
  int error = 0;
  std::thread client([&] { error = backend_->reopen(&message); });
  EXPECT_TRUE(
      eventually([&] { return sentinel_.asked > asked && connections_of(master_) > connections; }));
  // It has to be silent for so long that the silence means something.
  std::this_thread::sleep_for(milliseconds(2'500));
  replace_the_master();
  client.join();
  EXPECT_EQ(error, EAGAIN) << message;
  ASSERT_TRUE(reopens(*backend_));
  EXPECT_EQ(ask(*backend_, timer("b", kNeverUs), 2).timer / kEpoch, 1U);
}

}  // namespace

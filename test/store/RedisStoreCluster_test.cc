#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "store/RedisSlots.h"
#include "store/RedisStoreKit.h"
#include "store/RedisStorePlace.h"
#include "store/RedisStoreTopology.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/Loopback.h"
#include "support/RedisCluster.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/TestSeed.h"
#include "util/UniqueFd.h"

// Stores in a Redis Cluster. What happened is judged by receipts, by what has started, and by what
// the servers hold, not by what the store says later.

namespace {

using redis_test::answering;
using redis_test::bulk;
using redis_test::calls_of;
using redis_test::RawServer;
using redis_test::RedisCluster;
using redis_test::RedisServer;
using redis_test::run;
using std::chrono::milliseconds;
using store_test::ask;
using store_test::ask_until;
using store_test::cancel_request;
using store_test::carry_out;
using store_test::claim_request;
using store_test::kEpoch;
using store_test::kSecondUs;
using store_test::names;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::why_not;
using test_support::eventually;
using testing::AllOf;
using testing::HasSubstr;
using workflow::AskRequest;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::RedisStorePlace;
using workflow::RedisStoreTopology;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreFailure;
using workflow::StoreRequest;

std::string key_of(size_t shard, const std::string& key) {
  return "{app:" + std::to_string(shard) + "}:" + key;
}
// How many timers the servers hold.
int64_t stored_in(RedisCluster& cluster, size_t shards) {
  int64_t stored = 0;
  for (size_t shard = 0; shard < shards; shard++) {
    stored += run(cluster.node(0).url(), {"ZCARD", key_of(shard, "names")}).value.int_value();
  }
  return stored;
}
void flush_all(RedisCluster& cluster) {
  for (size_t i = 0; i < cluster.masters(); i++) {
    EXPECT_EQ(run(cluster.node(i).url(), {"FLUSHALL"}).text, "OK");
  }
}
// A name whose shard is on that master.
std::string name_on(RedisCluster& cluster, size_t master, size_t shards, int number) {
  for (int i = 0;; i++) {
    const std::string name = std::to_string(number) + " " + std::to_string(i);
    const size_t shard = workflow::redis_store_shard(name, shards);
    if (cluster.owner_of(cluster.slot_of(key_of(shard, "meta"))) == master) return name;
  }
}

TEST(RedisSlots, AreThoseOfTheSpecification) {
  EXPECT_EQ(workflow::RedisSlots::of_key("123456789"), 0x31c3U);
  EXPECT_EQ(workflow::RedisSlots::of_key("foo{123456789}bar"), 0x31c3U);
  EXPECT_EQ(workflow::RedisSlots::of_key("{}123456789"), 0x079fU);  // an empty tag is none
}

// It would take long to read ranges without an end, as a hostile server may send them.
TEST(RedisSlots, RangesHaveNoMoreSlotsThanThereAre) {
  const auto parses = [](std::vector<std::pair<int64_t, int64_t>> ranges) {
    protocol::RedisValue reply;
    reply.set_array(ranges.size());
    for (size_t i = 0; i < ranges.size(); i++) {
      reply[i].set_array(3);
      reply[i][0].set_int(ranges[i].first);
      reply[i][1].set_int(ranges[i].second);
      reply[i][2].set_array(2);
      reply[i][2][0].set_string("127.0.0.1");
      reply[i][2][1].set_int(6379);
    }
    workflow::RedisSlots slots;
    return workflow::RedisSlots::parse(reply, "127.0.0.1", &slots);
  };
  EXPECT_TRUE(parses({{0, 16383}}));
  EXPECT_TRUE(parses({{0, 8000}, {8001, 16383}}));
  EXPECT_FALSE(parses({{0, 16383}, {1, 1}}));
}

// What a node of a Cluster says: all slots are those of one master.
struct NodeSays {
  std::string state;
  int current_epoch;
  int port;
  int config_epoch;  // of that master
};
std::string said_by(const NodeSays& node, const std::string& question) {
  if (question == "INFO") {
    return bulk("cluster_state:" + node.state +
                "\r\ncluster_current_epoch:" + std::to_string(node.current_epoch) + "\r\n");
  }
  if (question == "SLOTS") {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" + bulk("127.0.0.1") + ":" +
           std::to_string(node.port) + "\r\n" + bulk("id" + std::to_string(node.port));
  }
  return bulk("id" + std::to_string(node.port) + " 127.0.0.1:" + std::to_string(node.port) +
              "@2 master - 0 0 " + std::to_string(node.config_epoch) + " connected 0-16383\n");
}
// The port of the master that two such nodes lead to.
int master_of(const NodeSays& first, const NodeSays& second) {
  const auto node = [](const NodeSays& says) {
    return answering([says](const std::vector<std::string>& words, int) {
      return words[0] == "PING" ? std::string("+PONG\r\n") : said_by(says, words[1]);
    });
  };
  RawServer one(node(first));
  RawServer other(node(second));
  RedisStorePlace place;
  RedisStoreTopology topology;
  std::string message;
  const std::string nodes =
      "127.0.0.1:" + std::to_string(one.port()) + ",127.0.0.1:" + std::to_string(other.port());
  EXPECT_EQ(
      RedisStorePlace::parse("redis+cluster://" + nodes + "/?namespace=app", &place, &message), 0)
      << message;
  EXPECT_EQ(RedisStoreTopology::find(place, {}, &topology, &message), 0) << message;
  return topology.masters.size() == 1 ? topology.masters[0].port : 0;
}

TEST(RedisStoreCluster, ASlotIsThatOfTheMasterWithTheLatestConfigEpoch) {
  // The first one has heard of a later change, but not of this one.
  EXPECT_EQ(master_of({"ok", 9, 1001, 1}, {"ok", 8, 1002, 8}), 1002);
  EXPECT_EQ(master_of({"ok", 8, 1002, 8}, {"ok", 9, 1001, 1}), 1002);
}

TEST(RedisStoreCluster, WhoSeesAFailedClusterIsNotBelieved) {
  EXPECT_EQ(master_of({"ok", 9, 1001, 1}, {"fail", 8, 1002, 8}), 1001);
  EXPECT_EQ(master_of({"fail", 8, 1002, 8}, {"ok", 9, 1001, 1}), 1001);
  EXPECT_EQ(master_of({"fail", 9, 1001, 1}, {"fail", 8, 1002, 8}), 1002);  // nobody else is there
}

TEST(RedisStoreCluster, ItsShardsAreOnAllMasters) {
  RedisCluster cluster;
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=8"));
  const int64_t now_us = backend->now_us();
  std::vector<std::string> expected;
  for (int i = 10; i < 60; i++) {
    expected.push_back("timer " + std::to_string(i));
    ask(*backend, timer(expected.back(), now_us - kSecondUs), static_cast<uint64_t>(i));
  }
  EXPECT_EQ(names(*backend), expected);
  EXPECT_EQ(stored_in(cluster, 8), 50);
  for (size_t i = 0; i < cluster.masters(); i++) {
    EXPECT_GT(run(cluster.node(i).url(), {"DBSIZE"}).value.int_value(), 0);
  }
  EXPECT_EQ(ask(*backend, cancel_request("timer 11")).answers.at(0).verdict, WFStoreVerdict::kWon);
  std::set<std::string> claimed;
  while (claimed.size() < 49) {
    const ClaimRequest claim = ask(*backend, claim_request(20));
    ASSERT_FALSE(claim.claimed.empty());
    for (const ClaimRequest::Claimed& one : claim.claimed) {
      EXPECT_TRUE(claimed.insert(one.spec.name).second);
      FinishRequest finish;
      finish.run = one.run;
      EXPECT_TRUE(ask(*backend, finish).accepted);
    }
  }
  EXPECT_EQ(stored_in(cluster, 8), 0);
}

// What is left of a store is refused, whichever shards it lacks: it is neither repaired nor
// mistaken for a smaller one. The others keep what they have, until somebody removes it.
TEST(RedisStoreCluster, TheLossOfTheDataOfOneMasterIsNoticed) {
  RedisCluster cluster;
  constexpr size_t kShards = 6;
  const std::string url = cluster.store_url("namespace=app&shards=6");
  const size_t of_first_shard = cluster.owner_of(cluster.slot_of(key_of(0, "meta")));
  for (const size_t lost : {of_first_shard, (of_first_shard + 1) % cluster.masters()}) {
    const auto backend = open_backend(url);
    for (size_t master = 0; master < cluster.masters(); master++) {
      ask(*backend, timer(name_on(cluster, master, kShards, 1), kNeverUs));
    }
    EXPECT_EQ(run(cluster.node(lost).url(), {"FLUSHALL"}).text, "OK");
    ScheduleRequest request = timer(name_on(cluster, lost, kShards, 2), kNeverUs);
    StoreFailure failure;
    EXPECT_FALSE(carry_out(*backend, request, &failure));
    EXPECT_EQ(failure.error, EILSEQ) << failure.message;
    EXPECT_FALSE(failure.in_doubt);
    std::string message;
    for (int i = 0; i < 2; i++) {
      EXPECT_EQ(backend->reopen(&message), EILSEQ) << message;
      EXPECT_THAT(why_not(url), HasSubstr("the store \"app\" is damaged"));
    }
    EXPECT_EQ(stored_in(cluster, kShards), 2);
    flush_all(cluster);
  }
}

TEST(RedisStoreCluster, TheLossOfAllDataIsNoticed) {
  RedisCluster cluster;
  const std::string url = cluster.store_url("namespace=app&shards=6");
  const auto backend = open_backend(url);
  ask(*backend, timer("a", kNeverUs));
  flush_all(cluster);
  ScheduleRequest request = timer("b", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, request, &failure));
  EXPECT_EQ(failure.error, EILSEQ) << failure.message;
  EXPECT_FALSE(failure.in_doubt);
  std::string message;
  EXPECT_EQ(backend->reopen(&message), EILSEQ);
  const size_t of_first_shard = cluster.owner_of(cluster.slot_of(key_of(0, "meta")));
  EXPECT_EQ(message, cluster.node(of_first_shard).in_messages() +
                         "the store \"app\" was removed from the server");
  // Also if another process has made a new one.
  const auto other = open_backend(url, 2);
  EXPECT_EQ(backend->reopen(&message), EILSEQ);
  EXPECT_FALSE(carry_out(*backend, request, &failure));
  EXPECT_EQ(failure.error, EILSEQ);
  EXPECT_EQ(names(*other), std::vector<std::string>());
}

TEST(RedisStoreCluster, MissingSlotsAreRefused) {
  RedisCluster cluster({.masters = 2, .all_slots = false});
  EXPECT_EQ(why_not(cluster.store_url("namespace=app")),
            std::to_string(EINVAL) +
                " the Cluster does not hold all slots: 1 of 16384 have no master; asked were " +
                cluster.node(0).address() + ", " + cluster.node(1).address());
}

TEST(RedisStoreCluster, TheUrlSaysWhetherItIsOne) {
  RedisCluster cluster({.masters = 1});
  RedisServer server({.on = RedisServer::On::kTcp});
  const std::string unsupported = std::to_string(ENOTSUP) + " ";
  EXPECT_EQ(why_not(cluster.node(0).url() + "?namespace=app"),
            unsupported + cluster.node(0).in_messages() +
                "the server is part of a Cluster: say redis+cluster:// or rediss+cluster:// in the "
                "URL");
  EXPECT_EQ(why_not("redis+cluster://" + server.address() + "/?namespace=app"),
            unsupported + server.in_messages() +
                "the server is not part of a Cluster: say redis:// in the URL");
}

TEST(RedisStoreCluster, NewsReachAllNodes) {
  RedisCluster cluster;
  // Sessions 1 to 3 listen at the masters of different shards.
  const std::string url = cluster.store_url("namespace=app&shards=3");
  std::atomic<int> news{0};
  const auto one = open_backend(url, 1, [&news] { ++news; });
  const auto other = open_backend(url, 2, [&news] { ++news; });
  const auto third = open_backend(url, 3);
  ASSERT_TRUE(eventually([&news] { return news == 2; }));  // they listen
  ask(*third, timer("late", third->now_us() + 3600 * kSecondUs));
  ask(*third, timer("soon", third->now_us()));
  EXPECT_TRUE(eventually([&news] { return news == 4; }));
}

// Schedules and cancels through a store, while runs of the same kind begin.
class ClusterLedger {
 public:
  explicit ClusterLedger(const std::string& url) : store_(store_test::open_store(url)) {
    EXPECT_EQ(store_->handle("kind", seen_.handler(*store_)), 0);
  }

  // Says it again, under the same id, until the store has carried it out.
  void schedule(const std::string& name, milliseconds delay) {
    WFStoreTimer timer{name, delay, "kind"};
    timer.request = WFStoreRequestId{7, ++number_};
    EXPECT_TRUE(eventually([&] { return store_->schedule(timer).ok(); }));
    stored_.insert(name);
  }
  // Schedules until replicas have the timer.
  void schedule_safely(const std::string& name, milliseconds delay) {
    store_test::schedule_until(*store_, {name, delay, "kind"}, {7, ++number_}, "replicas(1)");
    stored_.insert(name);
  }
  void cancel(const std::string& name) {
    WFStoreResult result = store_->cancel(name);
    if (result.verdict() == WFStoreVerdict::kInDoubt) {
      const WFStoreRequestId id = result.request;
      EXPECT_TRUE(eventually([&] { return (result = store_->ask(id)).ok(); }));
    }
    if (result.ok() && result.verdict() == WFStoreVerdict::kWon) {
      cancelled_.insert(name);
    }
  }

  // Waits until everything has run that should, and compares.
  void close() {
    EXPECT_TRUE(seen_.wait_for(stored_.size() - cancelled_.size()));
    EXPECT_TRUE(eventually([this] {
      const WFStoreResult left = store_->count("");
      return left.ok() && left.count == 0;
    }));
    store_.reset();
    std::map<std::string, int> starts;
    for (const std::string& name : seen_.names()) {
      starts[name]++;
    }
    for (const std::string& name : stored_) {
      EXPECT_EQ(starts[name], cancelled_.count(name) > 0 ? 0 : 1) << name;
    }
    EXPECT_EQ(starts.size(), stored_.size());
  }
  // A failover may undo that a run was acknowledged: it may come twice then.
  void close_after_failover() {
    EXPECT_TRUE(eventually([this] {
      const std::vector<std::string> names = seen_.names();
      return std::set<std::string>(names.begin(), names.end()) == stored_;
    }));
    store_.reset();
  }
  size_t cancelled() const { return cancelled_.size(); }

 private:
  store_test::SeenRuns seen_;
  store_test::StorePtr store_;
  uint64_t number_ = 0;
  std::set<std::string> stored_;
  std::set<std::string> cancelled_;
};

TEST(RedisStoreCluster, MovedSlotsLoseNothingAndDoubleNothing) {
  RedisCluster cluster;
  constexpr size_t kShards = 4;
  ClusterLedger ledger(cluster.store_url("namespace=app&shards=4"));
  std::atomic<bool> stop{false};
  std::atomic<int> moves{0};
  test_support::TestRandom random(test_support::test_seed(), 1);
  std::thread mover([&] {
    while (!stop) {
      const size_t slot = cluster.slot_of(key_of(random.below(kShards), "meta"));
      cluster.move(slot, random.below(cluster.masters()));
      moves++;
      std::this_thread::sleep_for(milliseconds(1));  // or the slots would be moving all the time
    }
  });
  // A timer whose cancel is late has begun before it, so this goes on until one has won.
  const auto has_seen_enough = [&] { return moves >= 20 && ledger.cancelled() > 0; };
  const auto end = std::chrono::steady_clock::now() + test_support::kPatience;
  for (int i = 0; i < 200 || (!has_seen_enough() && std::chrono::steady_clock::now() < end); i++) {
    const std::string name = std::to_string(i);
    ledger.schedule(name, milliseconds(i % 2 == 0 ? 0 : 50));
    if (i % 3 == 0) {
      ledger.cancel(name);
    }
  }
  stop = true;
  mover.join();
  EXPECT_GE(moves, 20);
  EXPECT_GT(ledger.cancelled(), 0U);
  ledger.close();
  EXPECT_EQ(stored_in(cluster, kShards), 0);
}

TEST(RedisStoreCluster, WhatReplicasHaveOutlivesTheirMaster) {
  RedisCluster cluster({.masters = 3, .replicas = 1});
  constexpr size_t kShards = 12;
  const std::string url = cluster.store_url("namespace=app&shards=12&replicas=1");
  const auto backend = open_backend(url);
  std::set<std::string> safe;
  for (int i = 0; i < 20; i++) {
    const std::string name = name_on(cluster, 0, kShards, i);
    ask_until(*backend, timer(name, kNeverUs), static_cast<uint64_t>(1 + i), "replicas(1)");
    safe.insert(name);
  }
  const std::string elsewhere = name_on(cluster, 1, kShards, 100);
  const uint64_t before = ask(*backend, timer(elsewhere, kNeverUs), 100).timer;
  EXPECT_EQ(backend->receipt().to_string(), "memory");  // that master has no replica

  cluster.node(0).signal(SIGKILL);
  cluster.node(0).stop();
  ScheduleRequest lost = timer(*safe.begin(), kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, lost, &failure, 101));
  cluster.promote(3);
  ASSERT_TRUE(reopens(*backend));

  const std::vector<std::string> stored = names(*backend);
  for (const std::string& name : safe) {
    EXPECT_TRUE(std::count(stored.begin(), stored.end(), name) == 1) << name;
  }
  // Only the shards of the new master have a new epoch.
  EXPECT_EQ(ask(*backend, timer(*safe.begin(), kNeverUs)).timer / kShards / kEpoch, 1U);
  const uint64_t after = ask(*backend, timer(elsewhere, kNeverUs)).timer;
  EXPECT_GT(after, before);
  EXPECT_EQ(after / kShards / kEpoch, 0U);
}

TEST(RedisStoreCluster, EachMasterCounts) {
  RedisCluster cluster({.masters = 2, .arguments = {"--appendonly", "yes"}});
  const std::string url = cluster.store_url("namespace=app&shards=4");
  const auto set = [&cluster](size_t node, const std::string& name, const std::string& value) {
    EXPECT_EQ(run(cluster.node(node).url(), {"CONFIG", "SET", name, value}).text, "OK");
  };
  const auto receipt = [&url] {
    const auto backend = open_backend(url);
    ask(*backend, timer("a", kNeverUs));
    return backend->receipt().to_string();
  };
  for (size_t node = 0; node < cluster.masters(); node++) {
    set(node, "maxmemory-policy", "allkeys-lru");
    const std::string port = ":" + std::to_string(cluster.node(node).port());
    EXPECT_THAT(why_not(url), AllOf(HasSubstr(port), HasSubstr("maxmemory-policy")));
    set(node, "maxmemory-policy", "noeviction");
  }
  // The least of all is said, wherever the timer is.
  EXPECT_EQ(receipt(), "everysec");
  set(0, "appendfsync", "always");
  EXPECT_EQ(receipt(), "everysec");
  set(1, "appendfsync", "always");
  EXPECT_EQ(receipt(), "fsync");
  set(0, "appendonly", "no");
  EXPECT_EQ(receipt(), "memory");
}

// Counts connections to a port, and ends them at once.
class Refusing {
 public:
  explicit Refusing(uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), thread_([this] { run(); }) {
    const int on = 1;
    const struct sockaddr_in address = test_support::loopback(port);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(
        ::bind(socket_.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address),
        0);
    EXPECT_EQ(::listen(socket_.get(), 128), 0);
    listening_.count_down();
  }
  ~Refusing() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;

  int connections() const { return connections_; }

 private:
  void run() {
    listening_.wait();
    for (;;) {
      const workflow::UniqueFd connection(::accept(socket_.get(), nullptr, nullptr));
      if (!connection.valid()) return;
      connections_++;
    }
  }

  const workflow::UniqueFd socket_;
  std::latch listening_{1};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST(RedisStoreCluster, AnUnreachableServerIsTriedOnceForAllShards) {
  constexpr size_t kShards = 16;
  RedisCluster cluster({.masters = 1});
  RedisServer other({.on = RedisServer::On::kCluster});
  const std::string id = run(other.url(), {"CLUSTER", "MYID"}).value.string_value();
  const std::string master = cluster.node(0).url();
  EXPECT_EQ(run(master, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(other.port()),
                         std::to_string(other.bus_port())})
                .text,
            "OK");
  EXPECT_TRUE(eventually([&] {
    return run(master, {"CLUSTER", "NODES"}).value.string_value().find(id) != std::string::npos;
  }));
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=16"));
  // A master may say that it has given away slots that it has no keys of.
  flush_all(cluster);
  for (size_t shard = 0; shard < kShards; shard++) {
    const std::string slot = std::to_string(cluster.slot_of(key_of(shard, "meta")));
    EXPECT_EQ(run(master, {"CLUSTER", "SETSLOT", slot, "NODE", id}).text, "OK");
  }
  other.stop();
  const Refusing refusing(other.port());
  ClaimRequest claim = claim_request(1);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, claim, &failure));
  EXPECT_THAT(failure.message, HasSubstr(other.address()));
  EXPECT_FALSE(failure.in_doubt);
  EXPECT_EQ(refusing.connections(), 1);
}

// A store that is open notices it, too. What has no timers of the store says nothing about it.
TEST(RedisStoreCluster, EachMasterWithTimersCountsAsItIsNow) {
  RedisCluster cluster({.masters = 2, .arguments = {"--appendonly", "yes"}});
  const auto set = [&cluster](size_t node, const std::string& value) {
    EXPECT_EQ(run(cluster.node(node).url(), {"CONFIG", "SET", "appendfsync", value}).text, "OK");
  };
  const auto wide = open_backend(cluster.store_url("namespace=wide&shards=4"));
  const auto narrow = open_backend(cluster.store_url("namespace=narrow&shards=1"));
  const auto says = [](workflow::StoreBackend& backend, const std::string& level) {
    return eventually([&] {
      names(backend);  // asks all shards
      return backend.receipt().to_string() == level;
    });
  };
  set(0, "no");
  EXPECT_TRUE(says(*wide, "memory"));
  set(1, "no");
  EXPECT_TRUE(says(*narrow, "memory"));
  set(0, "always");
  set(1, "always");
  EXPECT_TRUE(says(*wide, "fsync"));
  EXPECT_TRUE(says(*narrow, "fsync"));
  // One of the two has the only shard.
  std::vector<std::string> levels;
  for (const size_t node : {size_t{0}, size_t{1}}) {
    set(node, "everysec");
    EXPECT_TRUE(says(*wide, "everysec"));
    levels.push_back(open_backend(cluster.store_url("namespace=narrow&shards=1"), 2 + node)
                         ->receipt()
                         .to_string());
    set(node, "always");
    EXPECT_TRUE(says(*wide, "fsync"));
  }
  EXPECT_THAT(levels, testing::UnorderedElementsAre("everysec", "fsync"));
}

// A lease must not run down while replicas are waited for, and the claim has no part in it.
TEST(RedisStoreCluster, ReplicasAreWaitedForBeforeAClaim) {
  RedisCluster cluster({.masters = 2, .replicas = 1});
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=4&replicas=1"));
  const std::string safe = name_on(cluster, 0, 4, 1);
  const std::string elsewhere = name_on(cluster, 1, 4, 1);
  // The other master has no replica, so that a receipt of both never says so.
  uint64_t number = 0;
  EXPECT_TRUE(eventually([&] {
    ask(*backend, timer(elsewhere, 0));
    StoreRequest schedule;
    schedule.what = timer(safe, 0);
    schedule.id = {1, ++number};
    StoreRequest claim;
    claim.what = claim_request(10);
    StoreRequest* const requests[] = {&schedule, &claim};
    EXPECT_TRUE(backend->execute(requests));
    EXPECT_EQ(std::get<ClaimRequest>(claim.what).claimed.size(), 2U);
    return backend->receipt().to_string() == "replicas(1)";
  }));
}

// A Cluster of two masters. The clock of the first one is ahead by an hour.
RedisCluster::Options with_a_clock_ahead() {
  return {
      .masters = 2,
      .environment_of_first = {std::string("LD_PRELOAD=") + REDIS_CLOCK_AHEAD, "CLOCK_AHEAD=3600"}};
}
int64_t time_of(const RedisServer& node) {
  return std::stoll(run(node.url(), {"TIME"}).value[0].string_value()) * kSecondUs;
}

TEST(RedisStoreCluster, NoTimerStartsEarlyWhereTheClockIsAhead) {
  RedisCluster cluster(with_a_clock_ahead());
  ASSERT_GT(time_of(cluster.node(0)), time_of(cluster.node(1)) + 3000 * kSecondUs);
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=4"));
  const int64_t now_us = backend->now_us();
  EXPECT_LT(now_us, time_of(cluster.node(0)) - 3000 * kSecondUs);
  const int64_t due_us = now_us + 1800 * kSecondUs;
  for (const size_t master : {size_t{0}, size_t{1}}) {
    ask(*backend, timer(name_on(cluster, master, 4, 1), due_us));
  }
  const ClaimRequest early = ask(*backend, claim_request(10));
  EXPECT_TRUE(early.claimed.empty());
  EXPECT_EQ(early.next_us, due_us);
  // How far a clock is ahead is known as exactly as a reply is quick: the time of the store may
  // have been a little later above than it is now.
  for (const size_t master : {size_t{0}, size_t{1}}) {
    ask(*backend, timer(name_on(cluster, master, 4, 2), now_us - 60 * kSecondUs));
  }
  const ClaimRequest claim = ask(*backend, claim_request(10));
  EXPECT_EQ(claim.claimed.size(), 2U);
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    EXPECT_LT(one.lease_end_us, now_us + store_test::kHourUs + 1000 * kSecondUs);
    EXPECT_GT(one.lease_end_us, now_us + 1000 * kSecondUs);
  }
  EXPECT_TRUE(ask(*backend, claim_request(10)).claimed.empty());
}

TEST(RedisStoreCluster, AMasterWithoutShardsHasNoSayInTheTime) {
  RedisCluster cluster(with_a_clock_ahead());
  std::string space = "a";
  while (cluster.owner_of(cluster.slot_of("{" + space + ":0}:meta")) != 0) {
    space += "a";
  }
  const auto backend = open_backend(cluster.store_url("shards=1&namespace=" + space));
  EXPECT_GT(backend->now_us(), time_of(cluster.node(1)) + 3000 * kSecondUs);
}

// A master is stopped while a request is on its way to it, replaced, and continued. It carries out
// the request then, since it does not know yet; but all that it holds will be dropped.
TEST(RedisStoreCluster, WhatAReplacedMasterSaysDoesNotCount) {
  RedisCluster cluster({.masters = 3, .replicas = 1});
  constexpr size_t kShards = 6;
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=6"));
  const std::string name = name_on(cluster, 0, kShards, 1);
  ask(*backend, timer(name, kNeverUs), 1);
  ASSERT_TRUE(cluster.is_in_sync(3));
  ASSERT_TRUE(eventually([&] {
    return run(cluster.node(3).url(), {"DBSIZE"}).text ==
           run(cluster.node(0).url(), {"DBSIZE"}).text;
  }));
  const auto slots_asked = [&](size_t node) {
    return calls_of(cluster.node(node).url(), "cluster|slots");
  };
  const size_t asked = slots_asked(1);
  const size_t asked_new_one = slots_asked(3);
  const size_t carried_out = calls_of(cluster.node(0).url(), "evalsha");
  // A server reads its connections in the order in which something came. For the old master to read
  // the request before it reads that it was replaced, the new one has to keep silent until the
  // request is there, and what it has said before has to be read.
  cluster.node(3).signal(SIGSTOP);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(run(cluster.node(0).url(), {"PING"}).text, "PONG");
  }
  cluster.node(0).signal(SIGSTOP);
  ScheduleRequest request = timer(name, kNeverUs);
  StoreFailure failure;
  std::thread client([&] { carry_out(*backend, request, &failure, 2); });
  // It has noticed the silence, so the request is there. Then most nodes answer that all is well.
  EXPECT_TRUE(eventually([&] { return slots_asked(1) > asked; }));
  cluster.node(3).signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return slots_asked(3) > asked_new_one; }));
  cluster.promote(3);
  cluster.node(0).signal(SIGCONT);
  client.join();
  EXPECT_TRUE(
      eventually([&] { return calls_of(cluster.node(0).url(), "evalsha") == carried_out + 1; }));
  EXPECT_EQ(failure.error, EAGAIN);  // ECANCELED would say that it was not done
  EXPECT_TRUE(failure.in_doubt);

  ASSERT_TRUE(reopens(*backend));
  AskRequest question;
  question.asked = {1, 2};
  EXPECT_FALSE(ask(*backend, question).found);
  // The old master has learnt whose replica it is, and the truth is one.
  EXPECT_TRUE(eventually(
      [&] { return run(cluster.node(0).url(), {"ROLE"}).value[0].string_value() == "slave"; }));
  EXPECT_EQ(names(*backend), std::vector<std::string>{name});
  EXPECT_EQ(ask(*backend, timer(name, kNeverUs), 3).timer / kShards / kEpoch, 1U);
}

// Nobody is stopped: the old master says where the new one is.
TEST(RedisStoreCluster, ANewMasterRaisesTheEpochOfItsShards) {
  RedisCluster cluster({.masters = 3, .replicas = 1});
  constexpr size_t kShards = 6;
  const auto backend = open_backend(cluster.store_url("namespace=app&shards=6&replicas=1"));
  const std::string name = name_on(cluster, 0, kShards, 1);
  const ScheduleRequest stored = ask_until(*backend, timer(name, kNeverUs), 1, "replicas(1)");
  EXPECT_EQ(stored.timer / kShards / kEpoch, 0U);
  cluster.promote(3);
  ASSERT_TRUE(eventually(
      [&] { return run(cluster.node(0).url(), {"ROLE"}).value[0].string_value() == "slave"; }));
  ScheduleRequest second = timer(name, kNeverUs);
  StoreFailure failure;
  // If this has taken long, the store connects anew first.
  if (!carry_out(*backend, second, &failure, 2)) {
    ASSERT_TRUE(reopens(*backend));
    second = ask(*backend, timer(name, kNeverUs), 2);
  }
  EXPECT_EQ(second.timer / kShards / kEpoch, 1U);
  EXPECT_EQ(names(*backend), (std::vector<std::string>{name, name}));
}

// The store goes on by itself when the new master cannot drop timers any more.
TEST(RedisStoreCluster, ANewMasterThatMayDropTimersIsRefused) {
  RedisCluster cluster({.masters = 2, .replicas = 1});
  const std::string name = name_on(cluster, 0, 4, 1);
  const store_test::StorePtr store =
      store_test::open_store(cluster.store_url("namespace=app&shards=4&replicas=1"));
  WFStoreTimer later{name, std::chrono::hours(1), "kind"};
  store_test::schedule_until(*store, later, {7, 1}, "replicas(1)");
  run(cluster.node(2).url(), {"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"});
  cluster.promote(2);
  // Until the old master has heard of it, requests go there.
  ASSERT_TRUE(eventually(
      [&] { return run(cluster.node(0).url(), {"ROLE"}).value[0].string_value() == "slave"; }));
  WFStoreResult refused;
  EXPECT_TRUE(eventually([&] {
    refused = store->schedule(later);
    return refused.ok() || refused.error == EINVAL;
  }));
  EXPECT_EQ(refused.message, cluster.node(2).in_messages() +
                                 "the maxmemory-policy of the server is volatile-ttl, which would "
                                 "drop timers: a store needs noeviction");
  EXPECT_NE(refused.verdict(), WFStoreVerdict::kInDoubt);
  EXPECT_EQ(stored_in(cluster, 4), 1);
  run(cluster.node(2).url(), {"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  later.request = WFStoreRequestId{7, 2};
  EXPECT_TRUE(eventually([&] { return store->schedule(later).ok(); }));
  EXPECT_EQ(stored_in(cluster, 4), 2);
}

TEST(RedisStoreCluster, TimersRunOnAfterAFailover) {
  RedisCluster cluster({.masters = 3, .replicas = 1});
  ClusterLedger ledger(cluster.store_url("namespace=app&shards=6&replicas=1"));
  for (int i = 0; i < 20; i++) {
    ledger.schedule_safely(name_on(cluster, 0, 6, i), milliseconds(i % 2 == 0 ? 0 : 200));
  }
  cluster.node(0).signal(SIGKILL);
  cluster.node(0).stop();
  cluster.promote(3);
  for (int i = 20; i < 40; i++) {
    ledger.schedule(name_on(cluster, 0, 6, i), milliseconds(0));
  }
  ledger.close_after_failover();
}

}  // namespace

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>

#include "store/RedisStoreKit.h"
#include "store/RedisStorePlace.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Certificates.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"
#include "support/RedisTls.h"

// Stores over TLS: in a server, in the master that a Sentinel names, and in a Cluster. None of
// these servers listens for connections without TLS.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using std::chrono::hours;
using std::chrono::seconds;
using store_test::ask;
using store_test::open_backend;
using store_test::timer;
using store_test::why_not;
using test_support::eventually;
using testing::UnorderedElementsAre;
using workflow::kNeverUs;

const std::string kOfUnknownAuthority = ": TLS: unable to get local issuer certificate";

TEST(RedisStoreTls, AServerNeedsATrustedCertificate) {
  redis_test::TrustedAuthority authority;
  RedisServer server({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  const std::string url = server.url() + "?namespace=app&shards=2";
  store_test::SeenRuns seen;
  const store_test::StorePtr store = store_test::open_store(url);
  const store_test::StorePtr other = store_test::open_store(url);
  ASSERT_TRUE(store && other);
  ASSERT_EQ(store->handle("kind", seen.handler(*store)), 0);
  ASSERT_TRUE(other->schedule({"over tls", seconds(0), "kind"}).ok());
  ASSERT_TRUE(seen.wait_for(1));
  EXPECT_EQ(seen.at(0).name, "over tls");
  test_support::Authority unknown;
  redis_test::show_certificate_of(unknown, server);
  EXPECT_EQ(why_not(url),
            std::to_string(EIO) + " Redis at " + server.address() + kOfUnknownAuthority);
}

TEST(RedisStoreTls, TheMasterOfASentinelIsFollowed) {
  redis_test::TrustedAuthority authority;
  RedisServer master({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  RedisServer replica(redis_test::replica_of(master));
  ASSERT_TRUE(redis_test::is_in_sync(replica));
  RedisServer sentinel(redis_test::sentinel_of(master));
  ASSERT_TRUE(redis_test::knows_a_replica(sentinel));
  const store_test::StorePtr store = store_test::open_store(
      "rediss+sentinel://" + sentinel.address() + "/main?namespace=app&shards=1&replicas=1");
  ASSERT_TRUE(store);
  store_test::schedule_until(*store, {"later", hours(1), "kind"}, {8, 1}, "replicas(1)");
  master.stop();
  redis_test::miss_master_after(sentinel, std::chrono::milliseconds(500));
  WFStoreTimer now{"now", seconds(0), "kind"};
  now.request = WFStoreRequestId{7, 1};
  ASSERT_TRUE(eventually([&] { return store->schedule(now).ok(); }));
  store_test::SeenRuns seen;
  ASSERT_EQ(store->handle("kind", seen.handler(*store)), 0);
  ASSERT_TRUE(store->reschedule("later", seconds(0)).ok());
  ASSERT_TRUE(seen.wait_for(2));
  EXPECT_THAT(seen.names(), UnorderedElementsAre("later", "now"));
}

TEST(RedisStoreTls, ASentinelAndItsMasterNeedTrustedCertificates) {
  redis_test::TrustedAuthority authority;
  test_support::Authority unknown;
  RedisServer master({.on = RedisServer::On::kTcp, .tls = authority.tls()});
  RedisServer sentinel(redis_test::sentinel_of(master));
  const std::string behind = "/main?namespace=app";
  const std::string url = "rediss+sentinel://" + sentinel.address() + behind;
  EXPECT_EQ(why_not(url), "open");
  redis_test::show_certificate_of(unknown, master);
  EXPECT_EQ(why_not(url),
            std::to_string(EIO) + " Redis at " + master.address() + kOfUnknownAuthority);

  // A Sentinel cannot be told to show another one.
  RedisServer other({.on = RedisServer::On::kSentinel,
                     .tls = {unknown.issue({"IP:127.0.0.1"}), master.tls().authority},
                     .configuration = "sentinel monitor main 127.0.0.1 " +
                                      std::to_string(master.port()) + " 1\n"});
  EXPECT_EQ(why_not("rediss+sentinel://" + other.address() + behind),
            std::to_string(EIO) + " no Sentinel answers: Redis at " + other.address() +
                kOfUnknownAuthority);
}

// A name whose shard is on that master.
std::string name_on(RedisCluster& cluster, size_t master, size_t shards) {
  for (int i = 0;; i++) {
    const std::string name = std::to_string(i);
    const size_t shard = workflow::redis_store_shard(name, shards);
    const std::string key = "{app:" + std::to_string(shard) + "}:meta";
    if (cluster.owner_of(cluster.slot_of(key)) == master) return name;
  }
}

TEST(RedisStoreTls, TheSlotsOfAClusterAreFollowed) {
  redis_test::TrustedAuthority authority;
  RedisCluster cluster({.masters = 2, .tls = authority.tls()});
  constexpr size_t kShards = 4;
  const std::string url = cluster.store_url("namespace=app&shards=4");
  const std::string first = name_on(cluster, 0, kShards);
  const std::string second = name_on(cluster, 1, kShards);
  const auto backend = open_backend(url);
  ASSERT_TRUE(backend);
  ask(*backend, timer(first, kNeverUs), 1);
  ask(*backend, timer(second, kNeverUs), 2);
  const size_t shard = workflow::redis_store_shard(first, kShards);
  cluster.move(cluster.slot_of("{app:" + std::to_string(shard) + "}:meta"), 1);
  ask(*backend, timer(first, kNeverUs), 3);
  EXPECT_THAT(store_test::names(*backend), UnorderedElementsAre(first, first, second));

  test_support::Authority unknown;
  redis_test::show_certificate_of(unknown, cluster.node(1));
  std::string node = url;
  node.erase(node.find(','), node.find("/?") - node.find(','));  // the second one is only found
  EXPECT_EQ(why_not(node),
            std::to_string(EIO) + " Redis at " + cluster.node(1).address() + kOfUnknownAuthority);
}

}  // namespace

#include "support/RedisSentinel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/Loopback.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "util/UniqueFd.h"

// A master that Sentinels know: which of the servers a command goes to.

namespace redis_test {
namespace {

using test_support::eventually;

// A Sentinel that names whatever master the test has set.
struct FakeSentinel {
  FakeSentinel()
      : server(answering([this](const std::vector<std::string>& words, int) {
          EXPECT_EQ(words[0], "SENTINEL");
          asked++;
          const int port = named_port;
          return port == 0 ? std::string("*-1\r\n")
                           : "*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(port));
        })) {}

  std::string url() const {
    return "redis+sentinel://127.0.0.1:" + std::to_string(server.port()) + "/main";
  }

  std::atomic<int> named_port{0};
  std::atomic<int> asked{0};
  RawServer server;
};

TEST(RedisSentinel, CommandsGoToTheMasterAlsoAfterAFailover) {
  RedisServer master({.on = RedisServer::On::kTcp});
  RedisServer replica(replica_of(master));
  ASSERT_TRUE(is_in_sync(replica));
  RedisServer sentinel(sentinel_of(master));
  const std::string url = "redis+sentinel://" + sentinel.address() + "/main";
  EXPECT_EQ(run(url, {"SET", "k", "before"}).text, "OK");
  EXPECT_EQ(run(master.url(), {"GET", "k"}).text, "\"before\"");
  ASSERT_TRUE(eventually([&] { return run(replica.url(), {"GET", "k"}).text == "\"before\""; }));
  ASSERT_TRUE(knows_a_replica(sentinel));
  master.stop();
  miss_master_after(sentinel, std::chrono::milliseconds(500));
  EXPECT_TRUE(eventually([&] {
    return run(url, {"SET", "k", "after"}, {.retry_max = 2}).text == "OK";
  }));
  EXPECT_EQ(run(replica.url(), {"GET", "k"}).text, "\"after\"");
}

TEST(RedisSentinel, TheNextSentinelIsAskedIfOneDoesNotAnswer) {
  RedisServer master({.on = RedisServer::On::kTcp});
  FakeSentinel unknowing;
  FakeSentinel knowing;
  knowing.named_port = master.port();
  const workflow::UniqueFd nobody = test_support::keep_port();
  const std::string dead = std::to_string(test_support::port_of(nobody.get()));
  const std::string url = "redis+sentinel://127.0.0.1:" + dead +
                          ",127.0.0.1:" + std::to_string(unknowing.server.port()) +
                          ",127.0.0.1:" + std::to_string(knowing.server.port()) + "/main?db=3";
  EXPECT_EQ(run(url, {"SET", "k", "v"}).text, "OK");
  EXPECT_EQ(run(master.url("", 3), {"GET", "k"}).text, "\"v\"");
  EXPECT_EQ(unknowing.asked, 1);
}

TEST(RedisSentinel, TheAnswerIsRemembered) {
  RedisServer master({.on = RedisServer::On::kTcp});
  FakeSentinel sentinel;
  sentinel.named_port = master.port();
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(run(sentinel.url(), {"PING"}).text, "PONG");
  }
  EXPECT_EQ(sentinel.asked, 1);
}

TEST(RedisSentinel, AMasterThatNobodyKnowsIsReported) {
  FakeSentinel sentinel;
  const Reply reply = run(sentinel.url(), {"PING"}, {.retry_max = 2});
  EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(reply.error, WFT_ERR_UPSTREAM_UNAVAILABLE);
  EXPECT_EQ(sentinel.asked, 3);
}

TEST(RedisSentinel, WithoutAnySentinelTheErrorSaysWhy) {
  const workflow::UniqueFd nobody = test_support::keep_port();
  const std::string dead = std::to_string(test_support::port_of(nobody.get()));
  const Reply reply = run("redis+sentinel://127.0.0.1:" + dead + "/main", {"PING"});
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ECONNREFUSED);
}

TEST(RedisSentinel, AServerThatIsNoMasterGetsNoCommand) {
  RedisServer master({.on = RedisServer::On::kTcp});
  RedisServer replica(replica_of(master));
  ASSERT_TRUE(is_in_sync(replica));
  FakeSentinel sentinel;
  sentinel.named_port = replica.port();
  const Reply reply = run(sentinel.url(), {"GET", "k"}, {.retry_max = 1});
  EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(reply.error, WFT_ERR_UPSTREAM_UNAVAILABLE);
  EXPECT_EQ(sentinel.asked, 2);
}

TEST(RedisSentinel, AMasterThatBecameAReplicaIsAskedForNoMore) {
  RedisServer first({.on = RedisServer::On::kTcp});
  RedisServer second({.on = RedisServer::On::kTcp});
  FakeSentinel sentinel;
  sentinel.named_port = first.port();
  EXPECT_EQ(run(sentinel.url(), {"SET", "k", "v"}).text, "OK");
  sentinel.named_port = second.port();
  // The connection that is kept finds itself on a replica: the command is refused, not executed.
  EXPECT_EQ(run(first.url(), {"REPLICAOF", "127.0.0.1", std::to_string(second.port())}).text, "OK");
  EXPECT_EQ(run(sentinel.url(), {"SET", "k", "w"}).text, "OK");
  EXPECT_EQ(run(second.url(), {"GET", "k"}).text, "\"w\"");
}

TEST(RedisSentinel, ADeadMasterIsForgottenWithoutARetry) {
  FakeSentinel sentinel;
  RedisServer second({.on = RedisServer::On::kTcp});
  {
    RedisServer first({.on = RedisServer::On::kTcp});
    sentinel.named_port = first.port();
    EXPECT_EQ(run(sentinel.url(), {"SET", "k", "v"}).text, "OK");
  }
  sentinel.named_port = second.port();
  EXPECT_TRUE(eventually([&] { return run(sentinel.url(), {"GET", "k"}).text == "nil"; }));
}

}  // namespace
}  // namespace redis_test

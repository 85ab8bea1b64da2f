#include "support/RedisSentinel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/Loopback.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "util/UniqueFd.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFScope.h"

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
          std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
          const int port = named_port;
          return port == 0 ? std::string("*-1\r\n")
                           : "*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(port));
        })) {}

  std::string url() const {
    return "redis+sentinel://127.0.0.1:" + std::to_string(server.port()) + "/main";
  }

  std::atomic<int> named_port{0};
  std::atomic<int> pause_ms{0};  // before each answer
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

// A master that ends its connections when it is asked for its role, as one does that is killed.
TEST(RedisSentinel, ACommandThatWasNotSentGoesToTheNextMaster) {
  FakeSentinel sentinel;
  RedisServer second({.on = RedisServer::On::kTcp});
  std::atomic<int> connections{0};
  const RawServer first(answering([&](const auto& words, int) {
    EXPECT_EQ(words[0], "ROLE");
    connections++;
    sentinel.named_port = second.port();
    return std::string();
  }));
  sentinel.named_port = first.port();
  EXPECT_EQ(run(sentinel.url(), {"INCR", "n"}, {.retry_max = 1}).text, "1");
  // The Sentinel decides who is tried next, so a server is tried once and not again and again.
  EXPECT_EQ(connections, 1);
  EXPECT_EQ(sentinel.asked, 2);
}

// A master dies after it has received a command that reads. Whether that was carried out makes no
// difference.
TEST(RedisSentinel, AReadGoesToTheNextMasterAlsoIfItWasSent) {
  FakeSentinel sentinel;
  RedisServer second({.on = RedisServer::On::kTcp});
  ASSERT_EQ(run(second.url(), {"SET", "k", "v"}).text, "OK");
  RedisServer first({.on = RedisServer::On::kTcp});
  sentinel.named_port = first.port();
  EXPECT_EQ(run(sentinel.url(), {"GET", "k"}).text, "nil");  // by a connection that is kept
  sentinel.named_port = second.port();
  first.stop();
  EXPECT_EQ(run(sentinel.url(), {"GET", "k"}).text, "\"v\"");
}

// It cannot say what it is now, and is asked again later.
TEST(RedisSentinel, AServerThatIsBusyIsNotTakenForAMaster) {
  FakeSentinel sentinel;
  std::atomic<int> roles{0};
  const RawServer master(answering([&](const auto& words, int) {
    if (words[0] == "ROLE") {
      return std::string(++roles == 1 ? "-BUSY a script runs\r\n" : "*1\r\n$6\r\nmaster\r\n");
    }
    EXPECT_EQ(roles, 2);
    return std::string("+OK\r\n");
  }));
  sentinel.named_port = master.port();
  EXPECT_EQ(run(sentinel.url(), {"SET", "k", "v"}, {.retry_max = 1}).text, "OK");
}

// The time limits of a command say nothing about the question who is the master.
TEST(RedisSentinel, ASentinelMayTakeLongerThanTheCommand) {
  FakeSentinel sentinel;
  RedisServer master({.on = RedisServer::On::kTcp});
  sentinel.named_port = master.port();
  sentinel.pause_ms = 300;
  // BLPOP ends after its limit, when it has been sent.
  const Reply reply = run(sentinel.url(), {"BLPOP", "queue", "0"},
                          {.change = [](WFRedisTask* task) { task->set_watch_timeout(50); }});
  EXPECT_EQ(reply.error, ETIMEDOUT);
  EXPECT_NE(info(master.url(), "commandstats").find("cmdstat_blpop:"), std::string::npos);
}

// Whether the scope ends before or after the Sentinel has answered, the command was not sent.
TEST(RedisSentinel, ACommandThatWasCancelledIsNotSaidToHaveSucceeded) {
  RedisServer master({.on = RedisServer::On::kTcp});
  int cancelled = 0;
  for (int round = 0; round < 300; round++) {
    WFScope scope;
    const RawServer sentinel([&](Peer& peer, int) {
      CommandReader(peer).next();
      peer.send("*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(master.port())));
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round % 100);
      while (std::chrono::steady_clock::now() < until) {
      }
      scope.cancel();
    });
    Reply reply;
    WFFacilities::WaitGroup done(1);
    WFRedisTask* const command = WFTaskFactory::create_redis_task(
        "redis+sentinel://127.0.0.1:" + std::to_string(sentinel.port()) + "/main", 0,
        [&](WFRedisTask* task) { reply = reply_of(task); });
    command->get_req()->set_request("INCR", {"n"});
    WFScopeTask* const task =
        WFTaskFactory::create_scope_task(command, [&](WFScopeTask*) { done.done(); });
    scope = task->scope();
    task->start();
    done.wait();
    EXPECT_EQ(reply.state == WFT_STATE_SUCCESS, reply.value.is_int()) << round;
    cancelled += reply.state == WFT_STATE_SYS_ERROR ? 1 : 0;
  }
  EXPECT_GT(cancelled, 0);
}

}  // namespace
}  // namespace redis_test

#include "store/RedisPipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/RedisWire.h"
#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"

namespace redis_test {
namespace {

using test_support::eventually;
using test_support::Tally;
using workflow::RedisPipeline;
using workflow::RedisUrl;

RedisUrl parsed(const std::string& url) {
  RedisUrl parsed;
  EXPECT_EQ(RedisUrl::parse(url, &parsed), 0) << url;
  return parsed;
}

std::string command(std::initializer_list<std::string_view> words) {
  std::string wire;
  workflow::append_command(&wire, words);
  return wire;
}

// Posts one command and waits for its outcome. If the connection has ended, that is its outcome.
RedisPipeline::Outcome ask(RedisPipeline& pipeline, std::initializer_list<std::string_view> words) {
  RedisPipeline::Outcome outcome;
  Tally ended;
  const int refused = pipeline.post(command(words), [&](RedisPipeline::Outcome&& result) {
    outcome = std::move(result);
    ended.add();
  });
  if (refused == ECANCELED) return pipeline.ending();  // the connection has ended already
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(ended.wait_for(1));
  return outcome;
}

TEST(RedisPipeline, RepliesComeInOrder) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  constexpr size_t kCount = 20000;
  std::vector<std::string> replies;
  Tally ended;
  for (size_t i = 0; i < kCount; i++) {
    ASSERT_EQ(pipeline.post(command({"ECHO", std::to_string(i)}),
                            [&](RedisPipeline::Outcome&& outcome) {
                              replies.push_back(outcome.value.string_value());
                              ended.add();
                            }),
              0);
  }
  ASSERT_TRUE(ended.wait_for(kCount));
  for (size_t i = 0; i < kCount; i++) {
    EXPECT_EQ(replies[i], std::to_string(i));
  }
}

TEST(RedisPipeline, AnErrorThatRedisRepliesIsAValue) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  const RedisPipeline::Outcome outcome = ask(pipeline, {"NOSUCH"});
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
  EXPECT_TRUE(outcome.value.is_error());
  EXPECT_EQ(ask(pipeline, {"PING"}).value.string_value(), "PONG");
}

TEST(RedisPipeline, KeepsToOneConnection) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  EXPECT_EQ(ask(pipeline, {"PING"}).value.string_value(), "PONG");
  EXPECT_EQ(pipeline.ending().error, ECANCELED);
  run(server.url(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  ASSERT_TRUE(eventually([&pipeline] {
    return pipeline.post(command({"PING"}), [](RedisPipeline::Outcome&&) {}) == ECANCELED;
  }));
  EXPECT_EQ(pipeline.ending().error, ECONNRESET);
}

TEST(RedisPipeline, LogsInAndSelectsTheDatabase) {
  RedisServer server({.arguments = {"--requirepass", "pw"}});
  RedisPipeline pipeline(parsed(server.url(":pw@", 3)));
  EXPECT_EQ(ask(pipeline, {"SET", "k", "v"}).value.string_value(), "OK");
  EXPECT_EQ(run(server.url(":pw@", 3), {"GET", "k"}).text, "\"v\"");
  for (const char* userinfo : {":no@", ""}) {
    RedisPipeline refused(parsed(server.url(userinfo)));
    const RedisPipeline::Outcome outcome = ask(refused, {"SET", "k", "w"});
    EXPECT_EQ(outcome.state, WFT_STATE_TASK_ERROR);
    EXPECT_EQ(outcome.error, WFT_ERR_REDIS_ACCESS_DENIED);
    EXPECT_FALSE(outcome.sent);
  }
}

TEST(RedisPipeline, WorksOverTls) {
  test_support::Authority authority;
  ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()), 1);
  RedisServer server(
      {.on = RedisServer::On::kTcp, .tls = {authority.issue({"IP:127.0.0.1"}), authority.file()}});
  RedisPipeline pipeline(parsed(server.url()));
  const std::string large(1'000'000, 'x');
  EXPECT_EQ(ask(pipeline, {"SET", "k", large}).value.string_value(), "OK");
  EXPECT_TRUE(ask(pipeline, {"GET", "k"}).value.string_value() == large);
}

TEST(RedisPipeline, LargeCommandsAndRepliesPass) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  const std::string large(3'000'000, 'x');
  Tally ended;
  std::atomic<int> right{0};
  for (int i = 0; i < 10; i++) {
    ASSERT_EQ(pipeline.post(command({"ECHO", large}),
                            [&](RedisPipeline::Outcome&& outcome) {
                              right += outcome.value.string_value() == large ? 1 : 0;
                              ended.add();
                            }),
              0);
  }
  ASSERT_TRUE(ended.wait_for(10));
  EXPECT_EQ(right, 10);
}

TEST(RedisPipeline, ACallbackMayPost) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  Tally ended;
  std::function<void(RedisPipeline::Outcome &&)> again = [&](RedisPipeline::Outcome&& outcome) {
    if (outcome.value.int_value() < 1000) {
      EXPECT_EQ(pipeline.post(command({"INCR", "n"}), again), 0);
    } else {
      ended.add();
    }
  };
  EXPECT_EQ(pipeline.post(command({"INCR", "n"}), again), 0);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(RedisPipeline, ACommandWithoutAServerIsNotSent) {
  RedisPipeline pipeline(parsed("redis+unix:///nonexistent/redis.sock"));
  for (int i = 0; i < 3; i++) {
    const RedisPipeline::Outcome outcome = ask(pipeline, {"SET", "k", "v"});
    EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(outcome.error, ENOENT);
    EXPECT_FALSE(outcome.sent);
  }
}

TEST(RedisPipeline, ACommandThatWasSentAndNotAnsweredIsReportedAsSent) {
  Tally received;
  RawServer server([&](Peer& peer, int) {
    CommandReader commands(peer);
    commands.next();
    peer.send("+PONG\r\n");
    commands.next();
    peer.send("+first\r\n");
    commands.next();
    received.add();
  });
  RedisPipeline pipeline(parsed(url_of(server)));
  EXPECT_EQ(ask(pipeline, {"SET", "a", "1"}).value.string_value(), "first");
  const RedisPipeline::Outcome outcome = ask(pipeline, {"SET", "b", "2"});
  EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error, ECONNRESET);
  EXPECT_TRUE(outcome.sent);
}

TEST(RedisPipeline, ASilentServerIsGivenUp) {
  Tally received;
  RawServer server([&](Peer& peer, int) {
    CommandReader commands(peer);
    commands.next();
    peer.send("+PONG\r\n");
    commands.next();
    received.add();
    peer.ended();
  });
  RedisPipeline pipeline(parsed(url_of(server)));
  RedisPipeline::Outcome outcome;
  Tally ended;
  EXPECT_EQ(pipeline.post(command({"SET", "k", "v"}),
                          [&](RedisPipeline::Outcome&& last) {
                            outcome = std::move(last);
                            ended.add();
                          }),
            0);
  ASSERT_TRUE(received.wait_for(1));
  pipeline.end_if_silent(3'600'000);
  EXPECT_EQ(pipeline.ending().error, ECANCELED) << "it has not failed";
  pipeline.end_if_silent(0);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error, ETIMEDOUT);
  EXPECT_TRUE(outcome.sent);
}

TEST(RedisPipeline, AnIdleConnectionIsKept) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  const RedisPipeline::Outcome first = ask(pipeline, {"CLIENT", "ID"});
  pipeline.end_if_silent(0);
  const RedisPipeline::Outcome second = ask(pipeline, {"CLIENT", "ID"});
  EXPECT_EQ(second.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(second.value.int_value(), first.value.int_value());
}

TEST(RedisPipeline, RepliesThatNobodyAskedForEndTheConnection) {
  RawServer server([](Peer& peer, int) {
    CommandReader commands(peer);
    commands.next();
    peer.send("+PONG\r\n");
    commands.next();
    peer.send("+one\r\n+two\r\n");
    peer.ended();
  });
  RedisPipeline pipeline(parsed(url_of(server)));
  const RedisPipeline::Outcome outcome = ask(pipeline, {"GET", "k"});
  EXPECT_TRUE(outcome.state == WFT_STATE_SUCCESS || outcome.error == EBADMSG);
  EXPECT_TRUE(eventually([&] { return pipeline.ending().error == EBADMSG; }));
}

TEST(RedisPipeline, HostileRepliesEndTheConnection) {
  for (const char* reply : {"$9999999999\r\n", "*2147483647\r\n", "?", "%1\r\n"}) {
    RawServer server([reply](Peer& peer, int) {
      CommandReader commands(peer);
      commands.next();
      peer.send("+PONG\r\n");
      commands.next();
      peer.send(reply);
      peer.ended();
    });
    RedisPipeline pipeline(parsed(url_of(server)));
    const RedisPipeline::Outcome outcome = ask(pipeline, {"GET", "k"});
    EXPECT_TRUE(outcome.error == EBADMSG || outcome.error == EMSGSIZE) << reply << outcome.error;
    EXPECT_TRUE(outcome.sent);
  }
}

// A server that cannot serve everybody, or everything, just now.
TEST(RedisPipeline, AnErrorInPlaceOfThePongIsNoRefusedLogin) {
  for (const std::string error : {"BUSY a script runs", "LOADING the data", "MISCONF a snapshot",
                                  "NOPERM no PING", "ERR unknown command 'PING'"}) {
    const RawServer server(answering([&error](const auto& words, int) {
      return words[0] == "PING" ? "-" + error + "\r\n" : std::string("-BUSY itself\r\n");
    }));
    RedisPipeline pipeline(parsed(url_of(server)));
    const RedisPipeline::Outcome outcome = ask(pipeline, {"GET", "k"});
    EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS) << error;
    EXPECT_EQ(outcome.value.string_value(), "BUSY itself") << error;
  }
}

TEST(RedisPipeline, AServerWithTooManyClientsRefusesTheConnection) {
  const RawServer server([](Peer& peer, int) {
    CommandReader(peer).next();
    peer.send("-ERR max number of clients reached\r\n");
  });
  RedisPipeline pipeline(parsed(url_of(server)));
  const RedisPipeline::Outcome outcome = ask(pipeline, {"GET", "k"});
  EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error, ECONNREFUSED);
  EXPECT_FALSE(outcome.sent);
}

TEST(RedisPipeline, LimitsHold) {
  RawServer server([](Peer& peer, int) {
    CommandReader commands(peer);
    commands.next();
    peer.ended();
  });
  RedisPipeline::Options options;
  options.max_commands = 3;
  options.max_unsent_bytes = 100;
  Tally ended;
  const auto count = [&](RedisPipeline::Outcome&& outcome) {
    EXPECT_EQ(outcome.error, ECANCELED);
    EXPECT_FALSE(outcome.sent);
    ended.add();
  };
  {
    RedisPipeline pipeline(parsed(url_of(server)), options);
    EXPECT_EQ(pipeline.post(std::string(200, 'x'), count), 0) << "a first one may be larger";
    EXPECT_EQ(pipeline.post("x", count), ENOBUFS);
  }
  {
    RedisPipeline pipeline(parsed(url_of(server)), options);
    for (int i = 0; i < 3; i++) {
      EXPECT_EQ(pipeline.post("x", count), 0);
    }
    EXPECT_EQ(pipeline.post("x", count), ENOBUFS);
  }
  EXPECT_EQ(ended.count(), 4u) << "each callback runs before close() returns";
}

TEST(RedisPipeline, CloseEndsEverything) {
  RedisServer server;
  RedisPipeline pipeline(parsed(server.url()));
  EXPECT_EQ(ask(pipeline, {"PING"}).state, WFT_STATE_SUCCESS);
  std::atomic<int> cancelled{0};
  for (int i = 0; i < 10; i++) {
    EXPECT_EQ(pipeline.post(command({"BLPOP", "queue", "0"}),
                            [&](RedisPipeline::Outcome&& outcome) {
                              cancelled += outcome.error == ECANCELED ? 1 : 0;
                            }),
              0);
  }
  pipeline.close();
  EXPECT_EQ(cancelled, 10);
  EXPECT_EQ(pipeline.post("x", [](RedisPipeline::Outcome&&) { ADD_FAILURE(); }), ECANCELED);
  pipeline.close();
}

TEST(RedisPipeline, CloseAtAnyMomentLosesNoCallback) {
  RedisServer server;
  for (int round = 0; round < 200; round++) {
    // Some of them connect to nobody.
    auto pipeline = std::make_unique<RedisPipeline>(
        parsed(round % 4 == 0 ? "redis+unix:///nonexistent/redis.sock" : server.url()));
    std::atomic<int> outcomes{0};
    std::atomic<bool> inside{false};
    int posted = 0;
    for (int i = 0; i < round % 50; i++) {
      const int refused = pipeline->post(command({"PING"}), [&](RedisPipeline::Outcome&&) {
        EXPECT_FALSE(inside.exchange(true)) << "callbacks run one at a time";
        outcomes++;
        inside = false;
      });
      posted += refused == 0 ? 1 : 0;
      if (i % 16 == 15) {
        std::this_thread::yield();
      }
    }
    pipeline.reset();
    EXPECT_EQ(outcomes, posted);
  }
}

// Threads post while the server cuts one connection after the other. Each command has one outcome,
// and what the outcomes say agrees with what the server has executed.
TEST(RedisPipelineStress, EveryOutcomeIsTrue) {
  RedisServer server;
  ASSERT_EQ(run(server.url(), {"SET", "n", "0"}).text, "OK");
  RedisPipeline::Options options;
  options.max_commands = 500;
  Tally done;
  std::atomic<size_t> in_doubt{0};
  std::atomic<size_t> unsent{0};
  std::atomic<size_t> posted{0};
  const auto note = [&](RedisPipeline::Outcome&& outcome) {
    if (outcome.state == WFT_STATE_SUCCESS) {
      done.add();
    } else {
      (outcome.sent ? in_doubt : unsent)++;
    }
  };
  for (int cut = 0; cut < 20; cut++) {
    RedisPipeline pipeline(parsed(server.url()), options);
    const auto post_until_the_end = [&] {
      for (;;) {
        const int refused = pipeline.post(command({"INCR", "n"}), note);
        if (refused == ECANCELED) return;
        if (refused == 0) {
          posted++;
        } else {
          EXPECT_EQ(refused, ENOBUFS);
          std::this_thread::yield();
        }
      }
    };
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; i++) {
      threads.emplace_back(post_until_the_end);
    }
    EXPECT_TRUE(done.wait_for(done.count() + 200)) << "it is connected";
    run(server.url(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  }
  EXPECT_EQ(done.count() + in_doubt + unsent, posted);
  const Reply executed = run(server.url(), {"GET", "n"});
  ASSERT_TRUE(executed.value.is_string()) << executed.state << executed.error;
  const size_t count = std::stoull(executed.value.string_value());
  EXPECT_GE(count, done.count());
  EXPECT_LE(count, done.count() + in_doubt);
}

}  // namespace
}  // namespace redis_test

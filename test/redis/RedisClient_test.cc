#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Tally.h"
#include "workflow/URIParser.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"

// Commands to a real redis-server, and what others would do to a client.

namespace redis_test {
namespace {

using std::chrono::milliseconds;
using std::string_literals::operator""s;
using test_support::Tally;

TEST(RedisClient, WhatIsSetIsGot) {
  RedisServer server;
  const std::string value = "a\r\n\0\xff"s;
  EXPECT_EQ(run(server.url(), {"SET", "key \0"s, value}).text, "OK");
  const Reply got = run(server.url(), {"GET", "key \0"s});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.value.string_value(), value);
  EXPECT_EQ(run(server.url(), {"GET", "another"}).text, "nil");
}

TEST(RedisClient, EveryTypeOfReplyArrives) {
  RedisServer server;
  EXPECT_EQ(run(server.url(), {"PING"}).text, "PONG");
  EXPECT_EQ(run(server.url(), {"INCRBY", "n", "-7"}).text, "-7");
  EXPECT_EQ(run(server.url(), {"RPUSH", "list", "a", "b"}).text, "2");
  EXPECT_EQ(run(server.url(), {"LRANGE", "list", "0", "-1"}).text, "[\"a\", \"b\"]");
  EXPECT_EQ(run(server.url(), {"LRANGE", "none", "0", "-1"}).text, "[]");
  EXPECT_EQ(
      run(server.url(), {"EVAL", "return {1, {false, 'x', {}}, redis.status_reply('S')}", "0"})
          .text,
      "[1, [nil, \"x\", []], S]");
}

TEST(RedisClient, AnErrorThatRedisRepliesIsAValue) {
  RedisServer server;
  const Reply unknown = run(server.url(), {"NOSUCH", "x"});
  EXPECT_EQ(unknown.state, WFT_STATE_SUCCESS);
  EXPECT_TRUE(unknown.value.is_error());
  EXPECT_EQ(unknown.text.substr(0, 27), "(error) ERR unknown command");
  run(server.url(), {"SET", "text", "x"});
  EXPECT_TRUE(run(server.url(), {"INCR", "text"}).value.is_error());
  EXPECT_EQ(run(server.url(), {"GET", "text"}).sequence, 3) << "the connection is kept";
}

TEST(RedisClient, WorksOverTcpAndByParsedUri) {
  RedisServer server({.on = RedisServer::On::kTcp});
  EXPECT_EQ(run(server.url(), {"PING"}).text, "PONG");
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse(server.url(), uri), 0);
  Tally ended;
  Reply reply;
  WFRedisTask* task = WFTaskFactory::create_redis_task(uri, 0, [&](WFRedisTask* done) {
    reply = reply_of(done);
    ended.add();
  });
  task->get_req()->set_request("ECHO", {"hello"});
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(reply.text, "\"hello\"");
}

TEST(RedisClient, AHostIsFoundByItsName) {
  RedisServer server({.on = RedisServer::On::kTcp});
  const std::string address = server.address();
  const std::string port = address.substr(address.rfind(':'));
  EXPECT_EQ(run("redis://localhost" + port, {"PING"}).text, "PONG");
}

TEST(RedisClient, LargeValuesGoBothWays) {
  RedisServer server;
  std::string large(20'000'000, 'q');
  large[12345] = '\0';
  EXPECT_EQ(run(server.url(), {"SET", "large", large}).text, "OK");
  const Reply got = run(server.url(), {"GET", "large"});
  EXPECT_TRUE(got.value.string_value() == large) << got.value.string_value().size();
}

TEST(RedisClient, ConnectionsAreKeptAndShared) {
  RedisServer server;
  const std::string id = run(server.url(), {"CLIENT", "ID"}).text;
  for (int i = 1; i < 5; i++) {
    const Reply reply = run(server.url(), {"CLIENT", "ID"});
    EXPECT_EQ(reply.text, id);
    EXPECT_EQ(reply.sequence, i);
  }
  const Reply last = run(server.url(), {"CLIENT", "ID"},
                         {.change = [](WFRedisTask* task) { task->set_keep_alive(0); }});
  EXPECT_EQ(last.text, id);
  EXPECT_NE(run(server.url(), {"CLIENT", "ID"}).text, id);
}

TEST(RedisClient, EachDatabaseHasConnectionsOfItsOwn) {
  RedisServer server;
  EXPECT_EQ(run(server.url("", 1), {"SET", "k", "one"}).text, "OK");
  EXPECT_EQ(run(server.url("", 2), {"SET", "k", "two"}).text, "OK");
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(run(server.url(), {"GET", "k"}).text, "nil");
    EXPECT_EQ(run(server.url("", 1), {"GET", "k"}).text, "\"one\"");
    EXPECT_EQ(run(server.url("", 2), {"GET", "k"}).text, "\"two\"");
  }
  EXPECT_NE(run(server.url("", 1), {"CLIENT", "ID"}).text,
            run(server.url("", 2), {"CLIENT", "ID"}).text);
}

TEST(RedisClient, ADatabaseThatDoesNotExistIsRefusedAndNothingIsExecutedInAnother) {
  RedisServer server;
  const Reply reply = run(server.url("", 9999), {"SET", "k", "v"}, {.retry_max = 3});
  EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(reply.error, WFT_ERR_REDIS_ACCESS_DENIED);
  EXPECT_EQ(run(server.url(), {"DBSIZE"}).text, "0");
}

TEST(RedisClient, LogsInWithAPassword) {
  RedisServer server({.arguments = {"--requirepass", "s3cret /@:"}});
  EXPECT_EQ(run(server.url(":s3cret%20%2F%40%3A@", 3), {"PING"}).text, "PONG");
  EXPECT_EQ(run(server.url("default:s3cret%20%2F%40%3A@"), {"PING"}).text, "PONG");
  const Reply wrong = run(server.url(":wrong@"), {"PING"});
  EXPECT_EQ(wrong.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(wrong.error, WFT_ERR_REDIS_ACCESS_DENIED);
  EXPECT_STREQ(WFGlobal::get_error_string(wrong.state, wrong.error),
               "Redis refused the user, the password or the database");
  const Reply none = run(server.url(), {"PING"});
  EXPECT_EQ(none.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(none.text.substr(0, 14), "(error) NOAUTH");
}

TEST(RedisClient, LogsInAsAUser) {
  RedisServer server({.arguments = {"--user", "worker", "on", ">pw", "~app:*", "+get", "+set",
                                    "+select", "--user", "open", "on", "nopass", "~*", "+@all"}});
  EXPECT_EQ(run(server.url("worker:pw@"), {"SET", "app:1", "x"}).text, "OK");
  EXPECT_EQ(run(server.url("worker:pw@", 1), {"GET", "app:1"}).text, "nil");
  EXPECT_EQ(run(server.url("worker:pw@"), {"SET", "other", "x"}).text.substr(0, 14),
            "(error) NOPERM");
  EXPECT_EQ(run(server.url("worker:no@"), {"GET", "app:1"}).error, WFT_ERR_REDIS_ACCESS_DENIED);
  EXPECT_EQ(run(server.url("nobody:pw@"), {"GET", "app:1"}).error, WFT_ERR_REDIS_ACCESS_DENIED);
  EXPECT_EQ(run(server.url("open:@"), {"ACL", "WHOAMI"}).text, "\"open\"");
  EXPECT_EQ(run(server.url(), {"ACL", "WHOAMI"}).text, "\"default\"")
      << "connections of others are not used";
}

TEST(RedisClient, ACommandGoesOutOnlyAfterTheLogin) {
  Tally logins;
  std::atomic<bool> early{false};
  RawServer server([&](Peer& peer, int) {
    CommandReader commands(peer);
    EXPECT_EQ(commands.next(), (std::vector<std::string>{"AUTH", "u", "p"}));
    EXPECT_EQ(commands.next(), (std::vector<std::string>{"SELECT", "7"}));
    peer.send("+OK\r\n");
    // Nothing comes while the second answer is missing.
    char byte;
    early = ::recv(peer.fd(), &byte, 1, MSG_DONTWAIT) > 0;
    logins.add();
    peer.send("+OK\r\n");
    EXPECT_EQ(commands.next(), (std::vector<std::string>{"GET", "k"}));
    peer.send("$1\r\nv\r\n");
    EXPECT_EQ(commands.next(), (std::vector<std::string>{"GET", "l"})) << "no second login";
    peer.send("$1\r\nw\r\n");
    commands.next();
  });
  EXPECT_EQ(run(url_of(server, "u:p@") + "7", {"GET", "k"}).text, "\"v\"");
  EXPECT_EQ(run(url_of(server, "u:p@") + "7", {"GET", "l"}).text, "\"w\"");
  EXPECT_EQ(logins.count(), 1u);
  EXPECT_FALSE(early);
}

TEST(RedisClient, CommandsThatChangeAConnectionAreNotSent) {
  RawServer server(answering([](const auto&, int) { return "+OK\r\n"; }));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"AUTH", "x"},
                                                {"select", "1"},
                                                {"SUBSCRIBE", "c"},
                                                {"MULTI"},
                                                {"MONITOR"},
                                                {"QUIT"},
                                                {"CLIENT", "REPLY", "OFF"}}) {
    const Reply reply = run(url_of(server), words, {.retry_max = 2});
    EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR) << words[0];
    EXPECT_EQ(reply.error, WFT_ERR_REDIS_COMMAND_DISALLOWED) << words[0];
  }
  EXPECT_EQ(server.connections(), 0);
  EXPECT_STREQ(WFGlobal::get_error_string(WFT_STATE_TASK_ERROR, WFT_ERR_REDIS_COMMAND_DISALLOWED),
               "Redis command not allowed on a shared connection");
}

TEST(RedisClient, APreparedCommandIsCheckedAsWell) {
  RawServer server(answering(
      [](const auto& words, int) { return words[0] == "GET" ? "+got\r\n" : "+executed\r\n"; }));
  const auto prepared = [](const std::string& command) {
    return RunOptions{.change = [command](WFRedisTask* task) {
      task->set_prepare([command](WFRedisTask* now) { now->get_req()->set_request(command, {}); });
    }};
  };
  const Reply reply = run(url_of(server), {"PING"}, prepared("MULTI"));
  EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(reply.error, WFT_ERR_REDIS_COMMAND_DISALLOWED);
  EXPECT_EQ(run(url_of(server), {"PING"}, prepared("GET")).text, "got");
}

TEST(RedisClient, ATaskWithoutACommandIsNotSent) {
  RawServer server(answering([](const auto&, int) { return "+OK\r\n"; }));
  const Reply reply = run(url_of(server), {});
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, EINVAL);
  EXPECT_EQ(server.connections(), 0);
}

TEST(RedisClient, AUrlThatMakesNoSenseIsReported) {
  for (const auto& [url, error] : std::vector<std::pair<std::string, int>>{
           {"nonsense", WFT_ERR_URI_SCHEME_INVALID},
           {"redis://host/x", WFT_ERR_URI_PARSE_FAILED},
           {"http://127.0.0.1/", WFT_ERR_URI_SCHEME_INVALID},
           {"redis://127.0.0.1:70000/", WFT_ERR_URI_PORT_INVALID}}) {
    const Reply reply = run(url, {"PING"});
    EXPECT_EQ(reply.state, WFT_STATE_TASK_ERROR) << url;
    EXPECT_TRUE(reply.error == error || url == "nonsense") << url << reply.error;
  }
}

TEST(RedisClient, ServersThatAreNotThereAreReported) {
  const workflow::UniqueFd kept = test_support::keep_port();
  const std::string port = std::to_string(test_support::port_of(kept.get()));
  EXPECT_EQ(run("redis://127.0.0.1:" + port, {"PING"}).error, ECONNREFUSED);
  EXPECT_EQ(run("redis+unix:///nonexistent/redis.sock", {"PING"}).error, ENOENT);
}

TEST(RedisClient, ManyCommandsAtOnceEachGetTheirReply) {
  RedisServer server;
  constexpr int kCount = 2000;
  Tally ended;
  std::atomic<int> wrong{0};
  for (int i = 0; i < kCount; i++) {
    const std::string text = "value " + std::to_string(i);
    WFRedisTask* task =
        WFTaskFactory::create_redis_task(server.url("", i % 3), 0, [&, text](WFRedisTask* done) {
          if (reply_of(done).value.string_value() != text) {
            wrong++;
          }
          ended.add();
        });
    task->get_req()->set_request("ECHO", {text});
    task->start();
  }
  ASSERT_TRUE(ended.wait_for(kCount));
  EXPECT_EQ(wrong, 0);
}

TEST(RedisClient, ADeadlineEndsACommandThatBlocks) {
  RedisServer server;
  Tally ended;
  Reply reply;
  WFRedisTask* task = WFTaskFactory::create_redis_task(server.url(), 3, [&](WFRedisTask* done) {
    reply = reply_of(done);
    ended.add();
  });
  task->get_req()->set_request("BLPOP", {"queue", "0"});
  task->set_watch_timeout(-1);
  with_deadline(task, milliseconds(50), nullptr)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ETIMEDOUT);
  EXPECT_EQ(reply.timeout_reason, TOR_NOT_TIMEOUT);
  // Its connection is closed, so nobody else gets the element that comes late.
  EXPECT_TRUE(test_support::eventually([&] {
    return run(server.url(), {"CLIENT", "LIST"}).text.find("cmd=blpop") == std::string::npos;
  }));
  EXPECT_EQ(run(server.url(), {"RPUSH", "queue", "x"}).text, "1");
  EXPECT_EQ(run(server.url(), {"LLEN", "queue"}).text, "1");
}

TEST(RedisClient, AScopeEndsACommandThatBlocks) {
  RedisServer server;
  Tally ended;
  Reply reply;
  WFRedisTask* task = WFTaskFactory::create_redis_task(
      server.url(), 0, [&](WFRedisTask* done) { reply = reply_of(done); });
  task->get_req()->set_request("BLPOP", {"queue", "0"});
  WFScopeTask* scope = WFTaskFactory::create_scope_task(task, [&](WFScopeTask*) { ended.add(); });
  WFScope handle = scope->scope();
  scope->start();
  ASSERT_TRUE(test_support::eventually([&] {
    return run(server.url(), {"CLIENT", "LIST"}).text.find("cmd=blpop") != std::string::npos;
  }));
  handle.cancel();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ECANCELED);
}

TEST(RedisClient, TimeLimitsHold) {
  RedisServer server;
  const Reply watched = run(server.url(), {"BLPOP", "queue", "0"},
                            {.change = [](WFRedisTask* task) { task->set_watch_timeout(30); }});
  EXPECT_EQ(watched.error, ETIMEDOUT);
  EXPECT_EQ(watched.timeout_reason, TOR_TRANSMIT_TIMEOUT);
}

TEST(RedisClient, ALoginThatIsNotAnsweredCountsAsConnecting) {
  RawServer server([](Peer& peer, int) { CommandReader(peer).next(), peer.ended(); });
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.connect_timeout = 50;
  WORKFLOW_library_init(&settings);
  const Reply reply = run(url_of(server, ":p@"), {"PING"});
  settings.endpoint_params.connect_timeout = 10000;
  WORKFLOW_library_init(&settings);
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ETIMEDOUT);
  EXPECT_EQ(reply.timeout_reason, TOR_CONNECT_TIMEOUT);
}

TEST(RedisClient, AResponseMayBeLimited) {
  RedisServer server;
  run(server.url(), {"SET", "k", std::string(1000, 'x')});
  const auto limited = [](size_t limit) {
    return RunOptions{
        .change = [limit](WFRedisTask* task) { task->get_resp()->set_size_limit(limit); }};
  };
  EXPECT_EQ(run(server.url(), {"GET", "k"}, limited(1009)).state, WFT_STATE_SUCCESS);
  const Reply refused = run(server.url(), {"GET", "k"}, limited(1008));
  EXPECT_EQ(refused.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(refused.error, EMSGSIZE);
  EXPECT_EQ(run(server.url(), {"PING"}).text, "PONG");
}

// The server breaks the first connections without a reply.
struct Breaking {
  explicit Breaking(int broken)
      : server(answering([this, broken](const std::vector<std::string>& words, int connection) {
          std::lock_guard<std::mutex> lock(mutex);
          received.push_back(words[0]);
          return std::string(connection < broken ? "" : "+fine\r\n");
        })) {}

  size_t count() {
    std::lock_guard<std::mutex> lock(mutex);
    return received.size();
  }

  std::mutex mutex;
  std::vector<std::string> received;
  RawServer server;
};

TEST(RedisClient, ACommandThatReadsIsRepeated) {
  Breaking breaking(2);
  EXPECT_EQ(run(url_of(breaking.server), {"get", "k"}, {.retry_max = 2}).text, "fine");
  EXPECT_EQ(breaking.count(), 3u);
}

TEST(RedisClient, ACommandIsRepeatedNoMoreThanAsked) {
  Breaking breaking(5);
  const Reply reply = run(url_of(breaking.server), {"GET", "k"}, {.retry_max = 2});
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ECONNRESET);
  EXPECT_EQ(breaking.count(), 3u);
}

TEST(RedisClient, ACommandThatWritesIsNotRepeated) {
  for (const char* command : {"SET", "INCR", "EVAL", "BLPOP", "NOSUCH"}) {
    Breaking breaking(1);
    const Reply reply = run(url_of(breaking.server), {command, "k"}, {.retry_max = 5});
    EXPECT_EQ(reply.error, ECONNRESET) << command;
    EXPECT_EQ(breaking.count(), 1u) << command;
  }
}

TEST(RedisClient, ACommandThatWritesIsNotRepeatedOnAConnectionThatWasKept) {
  std::atomic<int> commands{0};
  RawServer server(
      answering([&](const auto&, int) { return std::string(commands++ == 0 ? "+fine\r\n" : ""); }));
  EXPECT_EQ(run(url_of(server), {"SET", "k", "v"}).text, "fine");
  EXPECT_EQ(run(url_of(server), {"SET", "k", "v"}, {.retry_max = 5}).error, ECONNRESET);
  EXPECT_EQ(commands, 2);
}

TEST(RedisClient, ALoginThatBreaksIsTriedAgainWhateverTheCommand) {
  std::atomic<int> sets{0};
  RawServer server(answering([&](const std::vector<std::string>& words, int connection) {
    sets += words[0] == "SET" ? 1 : 0;
    return std::string(connection < 2 ? "" : "+OK\r\n");
  }));
  EXPECT_EQ(run(url_of(server, ":p@"), {"SET", "k", "v"}, {.retry_max = 2}).text, "OK");
  EXPECT_EQ(sets, 1);
}

// It says nothing about who logs in.
TEST(RedisClient, ABusyServerIsNoRefusedLogin) {
  for (const std::string error : {"BUSY a script runs", "LOADING the data"}) {
    RawServer server(answering([&error](const auto&, int connection) {
      return connection < 3 ? "-" + error + "\r\n" : std::string("+OK\r\n");
    }));
    const Reply reply = run(url_of(server, ":p@"), {"SET", "k", "v"});
    EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(reply.error, EAGAIN);
    EXPECT_EQ(run(url_of(server, ":p@"), {"SET", "k", "v"}, {.retry_max = 2}).text, "OK");
  }
}

TEST(RedisClient, ASeriesOfCommandsRunsInOrder) {
  RedisServer server;
  Tally ended;
  std::string texts;
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(),
                                                    [&](const SeriesWork*) { ended.add(); });
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"SET", "k", "1"}, {"INCR", "k"}, {"GET", "k"}, {"DEL", "k"}}) {
    WFRedisTask* task = WFTaskFactory::create_redis_task(
        server.url(), 0, [&](WFRedisTask* done) { texts += reply_of(done).text + " "; });
    task->get_req()->set_request(words[0], {words.begin() + 1, words.end()});
    series->push_back(task);
  }
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(texts, "OK 2 \"2\" 1 ");
}

TEST(RedisClient, ATaskThatIsDismissedHasNoCallback) {
  bool called = false;
  WFRedisTask* task = WFTaskFactory::create_redis_task("redis://127.0.0.1/", 0,
                                                       [&](WFRedisTask*) { called = true; });
  task->dismiss();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace redis_test

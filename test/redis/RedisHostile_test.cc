#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"

// What a hostile or broken server may not achieve.

namespace redis_test {
namespace {

// Sends `begin` after the first command, then `bytes` for as long as the client is there.
std::function<void(Peer&, int)> for_ever(const std::string& begin, const std::string& bytes) {
  return [begin, bytes](Peer& peer, int) {
    CommandReader(peer).next();
    std::string many;
    while (!bytes.empty() && many.size() < 65536) {
      many += bytes;
    }
    peer.send(begin);
    while (!many.empty() && peer.send(many)) {
    }
  };
}

Reply get_limited(const RawServer& server, size_t limit = size_t{1} << 20) {
  return run(url_of(server), {"GET", "k"},
             {.change = [limit](WFRedisTask* task) { task->get_resp()->set_size_limit(limit); }});
}

TEST(RedisHostile, EndlessRepliesAreCutOff) {
  for (const auto& [begin, bytes] :
       std::vector<std::pair<std::string, std::string>>{{"+", "x"},
                                                        {"-", "x"},
                                                        {"$1048570\r\n", "x"},
                                                        {"*300000\r\n", ":1\r\n"},
                                                        {"*300000\r\n", "*1\r\n+\r\n"},
                                                        {"*2\r\n$3\r\nabc\r\n+", "x"}}) {
    RawServer server(for_ever(begin, bytes));
    const Reply reply = get_limited(server);
    EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR) << begin << bytes;
    EXPECT_TRUE(reply.error == EMSGSIZE || reply.error == EBADMSG) << begin << reply.error;
  }
}

TEST(RedisHostile, LiesAboutLengthsEndAtOnce) {
  for (const char* lie :
       {"$9999999999\r\n", "$1073741824\r\nabc", "*2147483647\r\n", "*1\r\n*1\r\n*1000000000\r\n",
        "*99999999999\r\n", "$-7\r\n", "*-7\r\n", "$99999999999999999999\r\n"}) {
    RawServer server([lie](Peer& peer, int) {
      CommandReader(peer).next();
      peer.send(lie);
      peer.ended();  // waits for more than the client does
    });
    const Reply reply = run(url_of(server), {"GET", "k"});
    EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR) << lie;
    EXPECT_TRUE(reply.error == EMSGSIZE || reply.error == EBADMSG) << lie << reply.error;
  }
}

TEST(RedisHostile, DeepNestingIsRefused) {
  RawServer server(for_ever("", "*1\r\n"));
  const Reply reply = get_limited(server);
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, EBADMSG);
}

TEST(RedisHostile, OtherProtocolsAreRefused) {
  for (const char* bytes :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "\x16\x03\x01", "%1\r\n+a\r\n+b\r\n"}) {
    RawServer server(for_ever(bytes, ""));
    EXPECT_EQ(run(url_of(server), {"GET", "k"}).error, EBADMSG) << bytes;
  }
}

TEST(RedisHostile, AReplyThatIsCutShortIsReported) {
  for (const char* part :
       {"", "$", "$5\r\n", "$5\r\nabc", "$5\r\nabcde", "*2\r\n:1\r\n", "+OK\r"}) {
    RawServer server(for_ever(part, ""));
    const Reply reply = run(url_of(server), {"SET", "k", "v"});
    EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR) << part;
    EXPECT_EQ(reply.error, ECONNRESET) << part;
  }
}

TEST(RedisHostile, AHalfClosedConnectionIsNotUsedAgain) {
  RawServer server([](Peer& peer, int) {
    CommandReader(peer).next();
    peer.send("+last\r\n");
    ::shutdown(peer.fd(), SHUT_WR);
    peer.ended();
  });
  for (int i = 0; i < 3; i++) {
    const Reply reply = run(url_of(server), {"GET", "k"});
    EXPECT_EQ(reply.text, "last");
    EXPECT_EQ(reply.sequence, 0);
  }
  EXPECT_EQ(server.connections(), 3);
}

TEST(RedisHostile, WhatNobodyAskedForIsNotTakenForAReply) {
  RawServer server([](Peer& peer, int connection) {
    CommandReader commands(peer);
    commands.next();
    peer.send("+reply " + std::to_string(connection) + "\r\n+unasked\r\n");
    peer.ended();
  });
  EXPECT_EQ(run(url_of(server), {"GET", "k"}).text, "reply 0");
  EXPECT_EQ(run(url_of(server), {"GET", "k"}).text, "reply 1");
}

TEST(RedisHostile, AServerThatNeverAnswersIsGivenUp) {
  RawServer server([](Peer& peer, int) { CommandReader(peer).next(), peer.ended(); });
  const Reply reply =
      run(url_of(server), {"GET", "k"},
          {.retry_max = 3, .change = [](WFRedisTask* t) { t->set_watch_timeout(20); }});
  EXPECT_EQ(reply.error, ETIMEDOUT);
  EXPECT_EQ(reply.timeout_reason, TOR_TRANSMIT_TIMEOUT);
  EXPECT_TRUE(test_support::eventually([&] { return server.connections() > 0; }));
  EXPECT_EQ(server.connections(), 1);
}

TEST(RedisHostile, AHostileAnswerToALoginEndsTheTask) {
  const std::string long_line(100000, 'x');
  for (const std::string& answer :
       {std::string("?"), "+" + long_line, std::string("*2147483647\r\n"),
        std::string("$9999999999\r\n"), std::string("+OK\r\n+unasked\r\n")}) {
    RawServer server(for_ever(answer, ""));
    const Reply reply = run(url_of(server, ":p@"), {"GET", "k"});
    EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR) << answer.substr(0, 20);
    EXPECT_TRUE(reply.error == EMSGSIZE || reply.error == EBADMSG)
        << answer.substr(0, 20) << reply.error;
  }
}

TEST(RedisHostile, ARedirectionWithoutEndIsFollowedAFewTimes) {
  for (const char* kind : {"MOVED", "ASK"}) {
    uint16_t port = 0;
    std::atomic<int> gets{0};
    RawServer server(answering([&](const std::vector<std::string>& words, int) {
      if (words[0] == "ASKING") return std::string("+OK\r\n");
      gets++;
      return std::string("-") + kind + " 1 127.0.0.1:" + std::to_string(port) + "\r\n";
    }));
    port = server.port();
    const Reply reply = run(url_of(server), {"SET", "k", "v"});
    EXPECT_EQ(reply.state, WFT_STATE_SUCCESS);
    EXPECT_TRUE(reply.value.is_error());
    EXPECT_EQ(gets, 6);
  }
}

TEST(RedisHostile, AnEndlessAnswerToAskingIsCutOff) {
  uint16_t port = 0;
  RawServer server([&port](Peer& peer, int) {
    CommandReader commands(peer);
    if (commands.next()[0] != "ASKING") {
      peer.send("-ASK 1 127.0.0.1:" + std::to_string(port) + "\r\n");
      commands.next();
      return;
    }
    peer.send("$999999999\r\n");
    while (peer.send(std::string(65536, 'x'))) {
    }
  });
  port = server.port();
  const Reply reply = run(url_of(server), {"GET", "k"});
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, EMSGSIZE);
}

TEST(RedisHostile, RedirectionsThatMakeNoSenseAreReplies) {
  for (const char* line :
       {"MOVED", "MOVED ", "MOVED 1", "MOVED 1 x", "MOVED 1 x:", "MOVED 1 x:0", "MOVED 1 x:70000",
        "MOVED 1 x:1y", "MOVED 1 ?:1", "ASK 1 x:-1", "MOVED :1 x"}) {
    RawServer server(
        answering([line](const auto&, int) { return "-" + std::string(line) + "\r\n"; }));
    const Reply reply = run(url_of(server), {"GET", "k"});
    EXPECT_EQ(reply.state, WFT_STATE_SUCCESS) << line;
    EXPECT_EQ(reply.value.string_value(), line);
  }
}

}  // namespace
}  // namespace redis_test

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "Append.h"
#include "support/HttpFeeding.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

using namespace http_feeding;
using message_kit::append;
using protocol::HttpResponse;

namespace {

// Complete with `rest` bytes left, whole and byte by byte; returns what is seen.
std::string complete(const std::string& bytes, size_t rest = 0) {
  Outcome whole = feed<HttpResponse>(bytes);
  EXPECT_EQ(whole.result, 1);
  EXPECT_EQ(whole.consumed, bytes.size() - rest);
  EXPECT_EQ(feed<HttpResponse>(bytes, cut_everywhere(bytes.size())), whole);
  return whole.seen;
}

int refused(const std::string& bytes) {
  Outcome whole = feed<HttpResponse>(bytes);
  EXPECT_EQ(feed<HttpResponse>(bytes, cut_everywhere(bytes.size())), whole);
  return whole.result == -1 ? whole.status : 0;
}

TEST(HttpResponse, StatusLineFieldsAndBodyAreRead) {
  EXPECT_EQ(complete("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nabrest", 4),
            "HTTP/1.1 404 Not Found\n<Content-Length><2>\nab\nab");
  HttpResponse response;
  ASSERT_EQ(append(response, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), 1);
  std::string text;
  EXPECT_STREQ(response.get_status_code(), "200");
  EXPECT_TRUE(response.get_status_code(text));
  EXPECT_STREQ(response.get_reason_phrase(), "OK");
  EXPECT_TRUE(response.get_reason_phrase(text));
  EXPECT_STREQ(response.get_http_version(), "HTTP/1.0");
  EXPECT_FALSE(response.is_keep_alive());
}

TEST(HttpResponse, ReasonPhraseMayBeMissing) {
  EXPECT_EQ(complete("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
            "HTTP/1.1 200 \n<Content-Length><0>\n\n");
  EXPECT_EQ(complete("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"),
            "HTTP/1.1 200 \n<Content-Length><0>\n\n");
}

TEST(HttpResponse, ChunkedBodyIsReadToItsEnd) {
  EXPECT_EQ(complete("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "2\r\nab\r\n0\r\n\r\nrest",
                     4),
            "HTTP/1.1 200 OK\n<Transfer-Encoding><chunked>\n2\r\nab\r\n0\r\n\r\n\nab");
}

TEST(HttpResponse, StatusesWithoutBodyEndWithTheHeader) {
  complete("HTTP/1.1 204 No Content\r\n\r\nrest", 4);
  complete("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\nrest", 4);
  complete("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nrest", 4);
}

TEST(HttpResponse, AnswerToHeadHasNoBody) {
  HttpResponse response;
  response.parse_zero_body();
  std::string bytes = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nrest";
  size_t size = bytes.size();
  EXPECT_EQ(response.append(bytes.data(), &size), 1);
  EXPECT_EQ(size, bytes.size() - 4);
}

TEST(HttpResponse, BodyWithoutLengthEndsWithTheConnection) {
  HttpResponse response;
  EXPECT_EQ(append(response, "HTTP/1.1 200 OK\r\n\r\nabc"), 0);
  EXPECT_EQ(append(response, "def"), 0);
  EXPECT_FALSE(response.is_complete());
  EXPECT_EQ(response.end_of_input(), 1);
  EXPECT_EQ(body_of(response), "abcdef");
}

TEST(HttpResponse, EndOfInputBeforeTheAnnouncedLengthIsAnError) {
  HttpResponse response;
  EXPECT_EQ(append(response, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), 0);
  EXPECT_EQ(response.end_of_input(), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(body_of(response), "(none)");
}

TEST(HttpResponse, InterimResponsesAreSkipped) {
  EXPECT_EQ(complete("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxrest",
                     4),
            "HTTP/1.1 200 OK\n<Content-Length><1>\nx\nx");
}

TEST(HttpResponse, EndlessInterimResponsesAreRefused) {
  std::string bytes;
  for (int i = 0; i < 33; ++i)
    bytes += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_EQ(refused(bytes), 400);
}

TEST(HttpResponse, InterimResponseRestartsTheReceiveTime) {
  class Channel : public protocol::MessageChannel {
   public:
    int write_now(const void*, size_t) override { return -1; }
    void restart_receive() override { ++restarts; }
    int restarts = 0;
  } channel;
  HttpResponse response;
  response.set_channel(&channel);
  EXPECT_EQ(append(response, "HTTP/1.1 100 Continue\r\n\r\n"), 0);
  EXPECT_EQ(channel.restarts, 1);
}

TEST(HttpResponse, MalformedResponsesAreRefused) {
  for (const char* bytes :
       {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 200 OK\nX: y\r\n\r\n", "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200OK\r\n\r\n", "HTTP/1.1 200 a\x01\r\n\r\n",
        "HTTP/1.1\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n", "200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"}) {
    EXPECT_EQ(refused(bytes), 400) << bytes;
  }
  EXPECT_EQ(refused("HTTP/2.0 200 OK\r\n\r\n"), 505);
}

TEST(HttpResponse, BodyIsLimitedBySizeLimitAlone) {
  std::string head = "HTTP/1.1 200 OK\r\n\r\n";
  HttpResponse unlimited;
  EXPECT_EQ(append(unlimited, head + std::string(20000000, 'x')), 0);
  EXPECT_EQ(unlimited.end_of_input(), 1);
  HttpResponse limited;
  limited.set_size_limit(head.size() + 10);
  EXPECT_EQ(append(limited, head + std::string(10, 'x')), 0);
  EXPECT_EQ(append(limited, "x"), -1);
  EXPECT_EQ(errno, EMSGSIZE);
}

// Complete at the end of input, and only then; returns the body.
std::string until_end(const std::string& bytes) {
  HttpResponse whole, pieces;
  EXPECT_EQ(append(whole, bytes), 0);
  for (char byte : bytes)
    EXPECT_EQ(append(pieces, std::string(1, byte)), 0);
  protocol::ProtocolMessage& message = whole;
  EXPECT_EQ(message.end_of_input(), 1);
  EXPECT_EQ(message.end_of_input(), 1);
  EXPECT_EQ(pieces.end_of_input(), 1);
  EXPECT_EQ(describe(pieces), describe(whole));
  return body_of(whole);
}

TEST(HttpResponse, EndOfInputEndsOnlyABodyWithoutAnyOtherEnd) {
  EXPECT_EQ(until_end("HTTP/1.1 200 OK\r\n\r\nabc"), "abc");
  EXPECT_EQ(until_end("HTTP/1.1 200 OK\r\n\r\n"), "");
  EXPECT_EQ(until_end("HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n"),
            "0\r\n\r\n");
  for (const char* bytes : {"", "H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n"}) {
    HttpResponse response;
    EXPECT_EQ(append(response, bytes), 0) << bytes;
    errno = 0;
    EXPECT_EQ(response.end_of_input(), -1) << bytes;
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_FALSE(response.is_complete());
  }
}

TEST(HttpResponse, TrailersEndTheBodyAndAreNoFields) {
  EXPECT_EQ(complete("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n"
                     "1;a=b\r\nx\r\n00\r\nDigest: y\r\nOther: z\r\n\r\nrest",
                     4),
            "HTTP/1.1 200 OK\n<Transfer-Encoding><chunked>\n<Trailer><Digest>\n"
            "1;a=b\r\nx\r\n00\r\nDigest: y\r\nOther: z\r\n\r\n\nx");
}

TEST(HttpResponse, FramingFieldsOfABodilessResponseDoNotMatter) {
  complete("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\nrest", 4);
  complete("HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nrest", 4);
  complete(
      "HTTP/1.1 103 Early Hints\r\nContent-Length: 99\r\n\r\n"
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nrest",
      4);
  HttpResponse head;
  head.parse_zero_body();
  EXPECT_EQ(append(head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), 1);
  EXPECT_TRUE(head.is_chunked());
}

TEST(HttpResponse, WhiteSpaceAroundALengthIsNoPartOfIt) {
  for (const char* length : {"4", "4\t", "\t4 \t", "4 \t\t "}) {
    HttpResponse response;
    EXPECT_EQ(append(response,
                     std::string("HTTP/1.1 200 OK\r\nContent-Length:") + length + "\r\n\r\nabcd"),
              1)
        << length;
    EXPECT_EQ(body_of(response), "abcd");
  }
  for (const char* length : {"\t", "4\t4", "4\v", "4\f", "+4", "4,4"}) {
    HttpResponse response;
    EXPECT_EQ(append(response,
                     std::string("HTTP/1.1 200 OK\r\nContent-Length:") + length + "\r\n\r\nabcd"),
              -1)
        << length;
  }
}

TEST(HttpResponse, AnswerToConnectHasABodyOnlyWhenItRefuses) {
  for (const char* field :
       {"", "Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n", "Content-Length: 10\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 10\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: ?\r\n"}) {
    HttpResponse tunnel;
    tunnel.parse_connect_reply();
    const std::string head = std::string("HTTP/1.1 200 OK\r\n") + field + "\r\n";
    size_t size = head.size() + 6;
    EXPECT_EQ(tunnel.append((head + "tunnel").data(), &size), 1) << field;
    EXPECT_EQ(size, head.size());
    EXPECT_EQ(body_of(tunnel), "");
  }
  HttpResponse refusal;
  refusal.parse_connect_reply();
  EXPECT_EQ(append(refusal,
                   "HTTP/1.1 407 Proxy Authentication Required\r\n"
                   "Content-Length: 4\r\n\r\nabcd"),
            1);
  EXPECT_EQ(body_of(refusal), "abcd");
}

TEST(HttpResponse, WhatItAnswersMovesWithIt) {
  for (const bool head : {true, false}) {
    HttpResponse first;
    if (head) first.parse_zero_body();
    if (!head) first.parse_connect_reply();
    HttpResponse second(std::move(first));
    HttpResponse third;
    third = std::move(second);
    const std::string bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    EXPECT_EQ(append(third, bytes), 1);
    EXPECT_EQ(append(first, bytes), 0);
    EXPECT_EQ(append(second, bytes), 0);
  }
}

TEST(HttpResponse, EachInterimResponseRestartsTheReceiveTimeWhereverItIsCut) {
  class Channel : public protocol::MessageChannel {
   public:
    int write_now(const void*, size_t) override { return -1; }
    void restart_receive() override { ++restarts; }
    int restarts = 0;
  };
  const std::string bytes =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
      "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    Channel channel;
    HttpResponse response;
    response.set_channel(&channel);
    EXPECT_EQ(append(response, bytes.substr(0, cut)), 0);
    EXPECT_EQ(append(response, bytes.substr(cut)), 1);
    EXPECT_EQ(channel.restarts, 3);
    EXPECT_STREQ(response.get_status_code(), "200");
    EXPECT_TRUE(response.is_keep_alive());
  }
}

TEST(HttpResponse, ErrorsSayWhetherItIsBadOrTooLarge) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string long_line = std::string(17 * 1024, 'x');
  std::string many_fields = ok;
  std::string large_head = ok;
  for (int i = 0; i < 257; ++i)
    many_fields += "A: b\r\n";
  for (int i = 0; i < 5; ++i)
    large_head += "A: " + std::string(15000, 'b') + "\r\n";
  const std::pair<std::string, int> cases[] = {
      {"HTTP/1.1 200 " + long_line + "\r\n\r\n", EMSGSIZE},
      {ok + "A: " + long_line + "\r\n\r\n", EMSGSIZE},
      {many_fields + "\r\n", EMSGSIZE},
      {large_head + "\r\n", EMSGSIZE},
      {"SSH-2.0-OpenSSH\r\n", EBADMSG},
      {"HTTP/3.0 200 OK\r\n\r\n", EBADMSG},
      {ok + "Content-Length: 1, 1\r\n\r\n", EBADMSG},
      {ok + "Content-Length: -1\r\n\r\n", EBADMSG},
      {ok + "Content-Length: 99999999999999999999\r\n\r\n", EBADMSG},
      {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", EBADMSG},
      {ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", EBADMSG},
      {ok + "Transfer-Encoding: gzip\r\n\r\n", EBADMSG},
      {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", EBADMSG},
      {ok + "Transfer-Encoding: chunked, chunked\r\n\r\n", EBADMSG},
      {ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", EBADMSG},
      {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", EBADMSG},
      {"HTTP/1.1 200 OK\n\n", EBADMSG},
      {ok + "A: b\nC: d\r\n\r\n", EBADMSG},
      {ok + "A: b\r\n c\r\n\r\n", EBADMSG},
      {ok + "A: b\r\n\tc\r\n\r\n", EBADMSG},
      {ok + "Transfer-Encoding: chunked\r\n\r\nx\r\n", EBADMSG},
      {ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", EBADMSG},
      {ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 1\r\n\r\n", EBADMSG},
  };
  for (const auto& [bytes, error] : cases) {
    HttpResponse response;
    errno = 0;
    EXPECT_EQ(append(response, bytes), -1) << bytes;
    EXPECT_EQ(errno, error) << bytes;
    EXPECT_EQ(response.end_of_input(), -1);
    EXPECT_GE(refused(bytes), 400) << bytes;
  }
}

TEST(HttpResponse, SizeLimitCountsHeadAndDataOfEachKindOfBody) {
  const std::string chunked_head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string length_head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
  const std::string close_head = "HTTP/1.1 200 OK\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {chunked_head, "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"},
      {length_head, "abcd"},
      {close_head, "abcd"},
  };
  for (const auto& [head, body] : cases) {
    for (size_t limit : {head.size() - 1, head.size() + 3, head.size() + 4}) {
      for (size_t step : {size_t{1}, head.size() + body.size()}) {
        HttpResponse response;
        response.set_size_limit(limit);
        int result = 0;
        for (size_t at = 0; result == 0 && at < head.size() + body.size(); at += step)
          result = append(response, (head + body).substr(at, step));
        if (result == 0) result = response.end_of_input();
        EXPECT_EQ(result, limit == head.size() + 4 ? 1 : -1) << head;
        EXPECT_TRUE(result == 1 || errno == EMSGSIZE);
      }
    }
  }
}

TEST(HttpResponse, EndOfParsingMakesWhatThereIsOfTheBodyTheWhole) {
  const std::pair<std::string, std::string> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "abc"},
      {"HTTP/1.1 200 OK\r\n\r\nabc", "abc"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", ""},
      // The chunk that is not whole is not handed out decoded.
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n9\r\nxy", "abc"},
  };
  for (const auto& [bytes, body] : cases) {
    for (const bool connection_ended : {false, true}) {
      HttpResponse response;
      ASSERT_EQ(append(response, bytes), 0);
      if (connection_ended) response.end_of_input();
      response.end_parsing();
      const void* parsed;
      size_t size;
      EXPECT_TRUE(response.get_parsed_body(&parsed, &size));
      EXPECT_EQ(protocol::HttpUtil::decode_chunked_body(&response), body) << bytes;
    }
  }
}

TEST(HttpResponse, EndOfParsingIsNothingToAHeadThatIsNotWhole) {
  HttpResponse unused;
  unused.end_parsing();
  EXPECT_EQ(body_of(unused), "(none)");
  HttpResponse response;
  ASSERT_EQ(append(response, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"), 0);
  response.end_parsing();
  EXPECT_EQ(body_of(response), "(none)");
  EXPECT_EQ(append(response, "\r\nabc"), 1);
  EXPECT_EQ(body_of(response), "abc");
}

}  // namespace

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "HttpFeeding.h"
#include "workflow/HttpMessage.h"

using http_feeding::body_of;
using http_feeding::cut_everywhere;
using http_feeding::describe;
using http_feeding::feed;
using http_feeding::Outcome;
using protocol::HttpResponse;

namespace {

int append(HttpResponse& response, std::string_view bytes) {
  size_t size = bytes.size();
  return response.append(bytes.data(), &size);
}

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

}  // namespace

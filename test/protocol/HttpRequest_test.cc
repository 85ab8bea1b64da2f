#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "Append.h"
#include "support/HttpFeeding.h"
#include "support/TestSeed.h"
#include "workflow/HttpMessage.h"

using namespace http_feeding;
using message_kit::append;
using protocol::HttpRequest;

namespace {

class RecordingChannel : public protocol::MessageChannel {
 public:
  int write_now(const void* buf, size_t size) override {
    written.append(static_cast<const char*>(buf), size);
    ++writes;
    return static_cast<int>(size);
  }
  void restart_receive() override { ++restarts; }
  bool serves(std::string_view authority) override {
    asked.emplace_back(authority);
    return authority != refused;
  }

  std::vector<std::string> asked;  // which hosts are served
  std::string refused;
  std::string written;
  int writes = 0;
  int restarts = 0;
};

TEST(HttpRequest, StartLineAndFieldsAreRead) {
  HttpRequest request;
  ASSERT_EQ(append(request, "GET /a?b HTTP/1.1\r\nHost: h\r\nX-One:  1 \t\r\nempty:\r\n\r\n"), 1);
  EXPECT_STREQ(request.get_method(), "GET");
  EXPECT_STREQ(request.get_request_uri(), "/a?b");
  EXPECT_STREQ(request.get_http_version(), "HTTP/1.1");
  EXPECT_EQ(describe(request), "GET /a?b HTTP/1.1\n<Host><h>\n<X-One><1>\n<empty><>\n\n");
  std::string text;
  EXPECT_TRUE(request.get_method(text));
  EXPECT_EQ(text, "GET");
  EXPECT_TRUE(request.get_request_uri(text));
  EXPECT_EQ(text, "/a?b");
  EXPECT_TRUE(request.get_http_version(text));
  EXPECT_EQ(text, "HTTP/1.1");
}

TEST(HttpRequest, NothingIsKnownBeforeTheHeaderIsComplete) {
  HttpRequest request;
  ASSERT_EQ(append(request, "GET / HTTP/1.1\r\nHost: h\r\n"), 0);
  std::string text = "untouched";
  EXPECT_EQ(request.get_method(), nullptr);
  EXPECT_FALSE(request.get_request_uri(text));
  EXPECT_EQ(text, "untouched");
  const void* body = "x";
  size_t size = 1;
  EXPECT_FALSE(request.get_parsed_body(&body, &size));
  EXPECT_EQ(body, nullptr);
  EXPECT_EQ(size, 0u);
}

TEST(HttpRequest, RequestWithoutBodyHasNullBody) {
  HttpRequest request;
  ASSERT_EQ(append(request, with_field("X: y")), 1);
  const void* body = "x";
  size_t size = 1;
  EXPECT_TRUE(request.get_parsed_body(&body, &size));
  EXPECT_EQ(body, nullptr);
  EXPECT_EQ(size, 0u);
}

TEST(HttpRequest, PhasesAreReported) {
  HttpRequest request;
  EXPECT_FALSE(request.has_started());
  ASSERT_EQ(append(request, ""), 0);
  ASSERT_EQ(append(request, "\r\n\r"), 0);
  EXPECT_FALSE(request.has_started());
  ASSERT_EQ(append(request, "\nP"), 0);
  EXPECT_TRUE(request.has_started());
  EXPECT_FALSE(request.is_header_complete());
  ASSERT_EQ(append(request, "OST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r"), 0);
  EXPECT_FALSE(request.is_header_complete());
  ASSERT_EQ(append(request, "\n"), 0);
  EXPECT_TRUE(request.is_header_complete());
  EXPECT_EQ(request.get_received_body_size(), 0u);
  ASSERT_EQ(append(request, "abc"), 0);
  EXPECT_EQ(request.get_received_body_size(), 3u);
  EXPECT_FALSE(request.is_complete());
  ASSERT_EQ(append(request, "d"), 1);
  EXPECT_TRUE(request.is_complete());
  EXPECT_EQ(body_of(request), "abcd");
}

TEST(HttpRequest, PipelinedRequestsAreTakenOneByOne) {
  std::string bytes = with_field("N: 1") + chunked("3\r\nabc\r\n0\r\n\r\n") +
                      "POST /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nde" +
                      with_field("N: 4");
  std::vector<std::string> bodies;
  size_t from = 0;
  while (from < bytes.size()) {
    HttpRequest request;
    size_t size = bytes.size() - from;
    ASSERT_EQ(request.append(bytes.data() + from, &size), 1);
    from += size;
    bodies.push_back(protocol::HttpUtil::decode_chunked_body(&request));
  }
  EXPECT_EQ(bodies, (std::vector<std::string>{"", "abc", "de", ""}));
}

TEST(HttpRequest, AppendAfterCompletionTakesNothing) {
  HttpRequest request;
  ASSERT_EQ(append(request, with_field("X: y")), 1);
  std::string more = "more";
  size_t size = more.size();
  EXPECT_EQ(request.append(more.data(), &size), 1);
  EXPECT_EQ(size, 0u);
}

TEST(HttpRequest, AppendBySizeRefusesWhatFollowsTheMessage) {
  std::string bytes = with_field("X: y");
  HttpRequest exact;
  EXPECT_EQ(exact.append(bytes.data(), bytes.size()), 1);
  bytes += "x";
  HttpRequest more;
  EXPECT_EQ(more.append(bytes.data(), bytes.size()), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(HttpRequest, ChunkedBodyIsKeptRawAndDecodes) {
  HttpRequest request;
  ASSERT_EQ(append(request, chunked("3;e\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n")), 1);
  EXPECT_TRUE(request.is_chunked());
  EXPECT_EQ(body_of(request), "3;e\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n");
  EXPECT_EQ(protocol::HttpUtil::decode_chunked_body(&request), "abcde");
}

TEST(HttpRequest, KeepAliveFollowsVersionAndConnection) {
  struct Case {
    const char* version;
    const char* connection;
    bool keep_alive;
  };
  for (const Case& c :
       {Case{"1.1", "", true}, Case{"1.0", "", false}, Case{"1.1", "Connection: close\r\n", false},
        Case{"1.1", "connection: CLOSE\r\n", false}, Case{"1.1", "Connection: x, close\r\n", false},
        Case{"1.1", "Connection: x\r\nConnection: close\r\n", false},
        Case{"1.1", "Connection: keep-alive, close\r\n", false},
        Case{"1.1", "Connection: closed\r\n", true},
        Case{"1.0", "Connection: keep-alive\r\n", true},
        Case{"1.0", "Connection: Keep-Alive\r\n", true},
        Case{"1.0", "Connection: keep-alive, close\r\n", false}}) {
    HttpRequest request;
    std::string bytes =
        std::string("GET / HTTP/") + c.version + "\r\nHost: h\r\n" + c.connection + "\r\n";
    ASSERT_EQ(append(request, bytes), 1);
    EXPECT_EQ(request.is_keep_alive(), c.keep_alive) << c.version << " " << c.connection;
  }
}

const char kExpecting[] =
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n";

TEST(HttpRequest, ExpectContinueIsAnsweredOnceBeforeTheBody) {
  RecordingChannel channel;
  HttpRequest request;
  request.set_channel(&channel);
  std::string bytes = std::string(kExpecting) + "abc";
  Outcome outcome = feed_pieces(request, bytes, cut_everywhere(bytes.size()));
  EXPECT_EQ(outcome.result, 1);
  EXPECT_EQ(channel.written, "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(channel.writes, 1);
}

TEST(HttpRequest, ExpectContinueIsNotAnsweredWhenNotNeeded) {
  for (std::string bytes :
       {std::string(kExpecting) + "a",
        std::string(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n"),
        std::string("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16777217\r\n"
                    "Expect: 100-continue\r\n\r\n")}) {
    RecordingChannel channel;
    HttpRequest request;
    request.set_channel(&channel);
    append(request, bytes);
    EXPECT_EQ(channel.writes, 0) << bytes;
  }
}

TEST(HttpRequest, ExpectContinueOfAChunkedBodyIsAnswered) {
  RecordingChannel channel;
  HttpRequest request;
  request.set_channel(&channel);
  EXPECT_EQ(append(request,
                   "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                   "Expect: 100-continue\r\n\r\n"),
            0);
  EXPECT_EQ(channel.writes, 1);
}

TEST(HttpRequest, ExpectContinueWithoutConnectionStillReceives) {
  HttpRequest request;
  EXPECT_EQ(append(request, kExpecting), 0);
  EXPECT_EQ(append(request, "abc"), 1);
}

TEST(HttpRequest, ContinueAmongOtherExpectationsIs417) {
  HttpRequest request;
  EXPECT_EQ(append(request, with_field("Expect: 100-continue\r\nExpect: x")), -1);
  EXPECT_EQ(request.refusal_status(), 417);
}

TEST(HttpRequest, TheChannelIsAskedWhetherItServesTheHosts) {
  using Hosts = std::vector<std::string>;
  const struct {
    std::string head;
    Hosts asked;
  } cases[] = {
      {"GET / HTTP/1.1\r\nX: y\r\nhost: f:1\r\n\r\n", {"f:1"}},
      {"GET / HTTP/1.1\r\nHost:\r\n\r\n", {""}},
      {"GET / HTTP/1.0\r\n\r\n", {""}},
      {"OPTIONS * HTTP/1.1\r\nHost: f\r\n\r\n", {"f"}},
      {"GET /://t HTTP/1.1\r\nHost: f\r\n\r\n", {"f"}},
      {"GET http://t HTTP/1.1\r\nHost: f\r\n\r\n", {"t", "f"}},
      {"GET https://u:p@t:1/@a HTTP/1.1\r\nHost: f\r\n\r\n", {"t:1", "f"}},
      {"GET http://t?://@a HTTP/1.1\r\nHost: f\r\n\r\n", {"t", "f"}},
      {"GET http://[::1]:1/ HTTP/1.0\r\n\r\n", {"[::1]:1", ""}},
      {"CONNECT t:1 HTTP/1.1\r\nHost: f\r\n\r\n", {"t:1", "f"}},
  };
  for (const auto& each : cases) {
    RecordingChannel channel;
    channel.refused = "none";
    HttpRequest request;
    request.set_channel(&channel);
    EXPECT_EQ(append(request, each.head), 1) << each.head;
    EXPECT_EQ(channel.asked, each.asked) << each.head;
  }
}

TEST(HttpRequest, ARequestForAHostThatIsNotServedIs421) {
  const std::string head = "POST http://t/ HTTP/1.1\r\nHost: f\r\nContent-Length: 1\r\n";
  for (const char* refused : {"t", "f"}) {
    for (const char* expectation : {"", "Expect: 100-continue\r\n", "Expect: else\r\n"}) {
      RecordingChannel channel;
      channel.refused = refused;
      HttpRequest request;
      request.set_channel(&channel);
      EXPECT_EQ(append(request, head + expectation + "\r\n"), -1);
      EXPECT_EQ(request.refusal_status(), 421);
      EXPECT_EQ(channel.writes, 0);
    }
  }
  // A wrapper passes the question on.
  RecordingChannel channel;
  channel.refused = "f";
  HttpRequest request;
  protocol::ProtocolWrapper wrapper(&request);
  EXPECT_EQ(append(wrapper, head), 0);
  wrapper.set_channel(&channel);
  EXPECT_EQ(append(wrapper, "\r\n"), -1);
  EXPECT_EQ(request.refusal_status(), 421);
}

TEST(HttpRequest, ALargeBodyArrivesUnchanged) {
  std::string body;
  for (int i = 0; i < 300000; ++i)
    body += std::to_string(i);
  std::string bytes =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      body;
  for (size_t step : {size_t{1000}, size_t{65536}, bytes.size()}) {
    HttpRequest request;
    Outcome outcome = feed_pieces(request, bytes, cut_everywhere(bytes.size(), step));
    EXPECT_EQ(outcome.result, 1);
    EXPECT_TRUE(body_of(request) == body);
  }
}

// A head and a body behind it, where the head alone came in pieces.
TEST(HttpRequest, ALargeReadAfterAPartialHeadIsTaken) {
  std::string body(1000000, 'b');
  std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
  for (size_t cut = 1; cut < head.size(); ++cut) {
    HttpRequest request;
    Outcome outcome = feed_pieces(request, head + body + "rest", {cut});
    ASSERT_EQ(outcome.result, 1);
    ASSERT_EQ(outcome.consumed, head.size() + body.size());
  }
}

// Valid and damaged requests, cut at random places: the outcome never depends on the cuts.
TEST(HttpRequest, OutcomeDoesNotDependOnCuts) {
  test_support::TestRandom random(test_support::test_seed());
  auto below = [&random](size_t bound) { return random.below(bound); };
  const std::string samples[] = {
      with_field("X: y") + "rest",
      "\r\n" + chunked("3;a=b\r\nabc\r\n0010\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\nrest"),
      std::string(kExpecting) + "abcrest",
      "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\nrest",
  };
  const std::string damage("\r\n\0 :;\t,0aX\x7f", 12);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = samples[below(4)];
    for (size_t n = below(4); n > 0; --n) {
      size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = damage[below(damage.size())];
          break;
        case 1:
          bytes.insert(at, 1, damage[below(damage.size())]);
          break;
        default:
          bytes.erase(at, 1);
          break;
      }
    }
    std::vector<size_t> cuts;
    for (size_t n = below(5); n > 0; --n)
      cuts.push_back(below(bytes.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    ASSERT_EQ(feed<HttpRequest>(bytes, cuts), feed<HttpRequest>(bytes)) << bytes;
  }
}

TEST(HttpRequest, EndOfInputInTheMiddleIsAnError) {
  HttpRequest request;
  EXPECT_EQ(request.end_of_input(), -1);
  ASSERT_EQ(append(request, kExpecting), 0);
  EXPECT_EQ(request.end_of_input(), -1);
  EXPECT_EQ(append(request, "abc"), -1);
}

}  // namespace

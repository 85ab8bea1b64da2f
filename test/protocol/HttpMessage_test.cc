#include "workflow/HttpMessage.h"

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "Append.h"
#include "support/HttpFeeding.h"

using http_feeding::body_of;
using message_kit::append;
using namespace protocol;

namespace {

template <class Message>
std::string encoded(Message& message, int max = 64, int* used = nullptr) {
  std::vector<iovec> vectors(static_cast<size_t>(max));
  int count = message.encode(vectors.data(), max);
  if (used != nullptr) *used = count;
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const iovec& vector = vectors[static_cast<size_t>(i)];
    bytes.append(static_cast<const char*>(vector.iov_base), vector.iov_len);
  }
  return bytes;
}

const std::string kLong(1000, 'l');

TEST(HttpMessage, IsSmallUntilUsed) {
  EXPECT_LE(sizeof(HttpRequest), 96u);
  EXPECT_LE(sizeof(HttpResponse), 96u);
}

TEST(HttpMessage, UnusedMessageAnswersEveryQuestion) {
  HttpResponse response;
  EXPECT_EQ(response.get_status_code(), nullptr);
  EXPECT_EQ(response.get_reason_phrase(), nullptr);
  EXPECT_EQ(response.get_http_version(), nullptr);
  EXPECT_FALSE(response.is_chunked());
  EXPECT_TRUE(response.is_keep_alive());
  EXPECT_FALSE(response.has_started());
  EXPECT_FALSE(response.is_header_complete());
  EXPECT_FALSE(response.is_complete());
  EXPECT_EQ(response.get_received_body_size(), 0u);
  EXPECT_EQ(response.refusal_status(), 0);
  EXPECT_EQ(response.get_output_body_size(), 0u);
  EXPECT_FALSE(response.has_connection_header());
  std::string body = "x";
  EXPECT_TRUE(response.get_output_body_merged(body));
  EXPECT_EQ(body, "");
  size_t size = 0;
  EXPECT_TRUE(response.get_output_body_merged(nullptr, &size));
  response.clear_output_body();
  EXPECT_EQ(body_of(response), "(none)");
}

TEST(HttpMessage, EncodeWritesStartLineFieldsAndBody) {
  HttpResponse response;
  EXPECT_TRUE(response.set_http_version("HTTP/1.1"));
  EXPECT_TRUE(response.set_status_code("404"));
  EXPECT_TRUE(response.set_reason_phrase("Not Found"));
  EXPECT_TRUE(response.add_header_pair("Content-Length", "5"));
  EXPECT_TRUE(response.add_header_pair(std::string("X"), std::string("")));
  EXPECT_TRUE(response.append_output_body("Hello"));
  EXPECT_EQ(encoded(response), "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX: \r\n\r\nHello");
  HttpRequest request;
  EXPECT_TRUE(request.set_method("POST"));
  EXPECT_TRUE(request.set_request_uri("/a?b"));
  EXPECT_TRUE(request.set_http_version("HTTP/1.0"));
  EXPECT_EQ(encoded(request), "POST /a?b HTTP/1.0\r\n\r\n");
}

TEST(HttpMessage, EncodeFillsInWhatWasNotSet) {
  HttpRequest request;
  EXPECT_EQ(encoded(request), "GET / HTTP/1.1\r\n\r\n");
  HttpResponse response;
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\n\r\n");
  response.set_status_code("204");
  EXPECT_EQ(encoded(response), "HTTP/1.1 204 No Content\r\n\r\n");
}

TEST(HttpMessage, EncodeAgainSeesChanges) {
  HttpResponse response;
  response.set_header_pair("X", "1");
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\nX: 1\r\n\r\n");
  response.set_header_pair("X", kLong);
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\nX: " + kLong + "\r\n\r\n");
  response.set_header_pair("X", "2");
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\nX: 2\r\n\r\n");
}

TEST(HttpMessage, EncodeMergesBlocksBeyondTheLastVector) {
  static const std::string blocks[] = {"one", "two", "three", "four", "five"};
  std::string whole = "HTTP/1.1 200 OK\r\n\r\nonetwothreefourfive";
  for (int max = 1; max <= 8; ++max) {
    HttpResponse response;
    for (const std::string& block : blocks)
      response.append_output_body_nocopy(block);
    int used;
    EXPECT_EQ(encoded(response, max, &used), whole) << max;
    EXPECT_EQ(used, max < 6 ? max : 6);
    EXPECT_EQ(encoded(response, max, &used), whole) << max;
  }
}

TEST(HttpMessage, EncodeIntoOneVectorAfterMoreBodySeesAll) {
  HttpResponse response;
  response.append_output_body("a");
  EXPECT_EQ(encoded(response, 1), "HTTP/1.1 200 OK\r\n\r\na");
  response.append_output_body(kLong);
  EXPECT_EQ(encoded(response, 1), "HTTP/1.1 200 OK\r\n\r\na" + kLong);
  EXPECT_EQ(encoded(response, 2), "HTTP/1.1 200 OK\r\n\r\na" + kLong);
}

TEST(HttpMessage, EncodeWithoutVectorsFails) {
  HttpResponse response;
  iovec vector;
  EXPECT_EQ(response.encode(&vector, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(HttpMessage, NocopyBlocksAreNotCopied) {
  HttpResponse response;
  response.append_output_body_nocopy(kLong);
  iovec vectors[4];
  ASSERT_EQ(response.encode(vectors, 4), 2);
  EXPECT_EQ(vectors[1].iov_base, kLong.data());
}

TEST(HttpMessage, OutputBodyKeepsOrderOfCopiedAndNocopyBlocks) {
  HttpResponse response;
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    std::string piece = std::to_string(i) + std::string(static_cast<size_t>(i % 50), 'p');
    EXPECT_TRUE(response.append_output_body(piece));
    expected += piece;
    if (i % 7 == 0) {
      EXPECT_TRUE(response.append_output_body_nocopy(kLong));
      expected += kLong;
    }
    EXPECT_TRUE(response.append_output_body("", 0));
  }
  EXPECT_EQ(response.get_output_body_size(), expected.size());
  std::string merged;
  EXPECT_TRUE(response.get_output_body_merged(merged));
  EXPECT_EQ(merged, expected);
  for (int max : {1, 2, 3, 20, 1000}) {
    EXPECT_EQ(encoded(response, max), "HTTP/1.1 200 OK\r\n\r\n" + expected);
  }
}

TEST(HttpMessage, OutputBodyBlocksAreListed) {
  HttpResponse response;
  response.append_output_body("ab", 2);
  response.append_output_body_nocopy("cde");
  response.append_output_body_nocopy("f", 1);
  const void* buf[4];
  size_t size[4];
  ASSERT_EQ(response.get_output_body_blocks(buf, size, 4), 3u);
  EXPECT_EQ(std::string(static_cast<const char*>(buf[1]), size[1]), "cde");
  EXPECT_EQ(response.get_output_body_blocks(buf, size, 2), 2u);
}

TEST(HttpMessage, MergedBodyNeedsRoom) {
  HttpResponse response;
  response.append_output_body("abc");
  char room[4];
  size_t size = 2;
  EXPECT_FALSE(response.get_output_body_merged(room, &size));
  EXPECT_EQ(errno, ENOSPC);
  size = sizeof(room);
  EXPECT_TRUE(response.get_output_body_merged(room, &size));
  EXPECT_EQ(std::string(room, size), "abc");
}

TEST(HttpMessage, ClearedOutputBodyStartsAnew) {
  HttpResponse response;
  for (int i = 0; i < 100; ++i) {
    response.append_output_body("short");
    response.append_output_body(kLong);
    response.clear_output_body();
    EXPECT_EQ(response.get_output_body_size(), 0u);
  }
  response.append_output_body("x");
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\n\r\nx");
}

TEST(HttpMessage, AddAppendsAndSetReplacesAll) {
  HttpResponse response;
  response.add_header_pair("A", "1");
  response.add_header_pair("Set-Cookie", "1");
  response.add_header_pair("set-cookie", "2");
  response.add_header_pair("B", "2");
  response.add_header_pair("SET-COOKIE", "3");
  EXPECT_EQ(encoded(response),
            "HTTP/1.1 200 OK\r\nA: 1\r\nSet-Cookie: 1\r\nset-cookie: 2\r\nB: 2\r\nSET-COOKIE: "
            "3\r\n\r\n");
  EXPECT_TRUE(response.set_header_pair("Set-Cookie", "4"));
  EXPECT_TRUE(response.set_header_pair("C", "5"));
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\nA: 1\r\nSet-Cookie: 4\r\nB: 2\r\nC: 5\r\n\r\n");
}

TEST(HttpMessage, StructFormsOfAddAndSet) {
  HttpResponse response;
  HttpMessageHeader header = {"NameX", 4, "valueX", 5};
  EXPECT_TRUE(response.add_header(&header));
  EXPECT_TRUE(response.add_header(&header));
  header = {"name", 4, "other", 5};
  EXPECT_TRUE(response.set_header(&header));
  EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\nname: other\r\n\r\n");
  HttpMessageHeader split = {"X", 1, "a\r\nB: c", 7};
  EXPECT_FALSE(response.add_header(&split));
  EXPECT_FALSE(response.set_header(&split));
  split = {"X\nY", 3, "v", 1};
  EXPECT_FALSE(response.add_header(&split));
}

TEST(HttpMessage, ManyFieldsKeepTheirOrder) {
  HttpResponse response;
  std::string expected = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 500; ++i) {
    std::string name = "N" + std::to_string(i), value = "v" + std::to_string(i * i);
    ASSERT_TRUE(response.add_header_pair(name, value));
    expected += name + ": " + value + "\r\n";
  }
  EXPECT_EQ(encoded(response), expected + "\r\n");
}

TEST(HttpMessage, TextThatWouldSplitTheMessageIsRefused) {
  const std::string nul("a\0b", 3);
  for (const std::string& bad : {std::string("a\r\nB: c"), std::string("a\nb"), std::string("a\rb"),
                                 nul, std::string("\n")}) {
    HttpRequest request;
    HttpResponse response;
    EXPECT_FALSE(request.set_method(bad));
    EXPECT_FALSE(request.set_request_uri(bad));
    EXPECT_FALSE(request.set_http_version(bad));
    EXPECT_FALSE(response.set_status_code(bad));
    EXPECT_FALSE(response.set_reason_phrase(bad));
    EXPECT_FALSE(response.add_header_pair("X", bad));
    EXPECT_FALSE(response.set_header_pair("X", bad));
    errno = 0;
    EXPECT_FALSE(response.add_header_pair(bad, "v"));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(response.set_header_pair(bad, "v"));
    EXPECT_EQ(encoded(request), "GET / HTTP/1.1\r\n\r\n");
    EXPECT_EQ(encoded(response), "HTTP/1.1 200 OK\r\n\r\n");
  }
}

TEST(HttpMessage, TextThatWouldBreakTheStartLineIsRefused) {
  HttpRequest request;
  HttpResponse response;
  for (const char* bad : {"", " ", "GET /", "G\tET", "G:"})
    EXPECT_FALSE(request.set_method(bad));
  for (const char* bad : {"", "/ HTTP/1.1", "/a b", "/a\tb"}) {
    EXPECT_FALSE(request.set_request_uri(bad));
  }
  for (const char* bad : {"", "HTTP/1.1 ", "1.1", "http/1.1"}) {
    EXPECT_FALSE(request.set_http_version(bad));
  }
  for (const char* bad : {"", "20", "2000", "20x", "099"}) {
    EXPECT_FALSE(response.set_status_code(bad));
  }
  for (const char* bad : {"", "A B", "A:", "A\x80"})
    EXPECT_FALSE(response.add_header_pair(bad, "v"));
  EXPECT_TRUE(response.set_reason_phrase(""));
}

TEST(HttpMessage, StatusThatIsSetAloneGetsItsReasonPhrase) {
  const auto line = [](HttpResponse& response) {
    const std::string text = encoded(response);
    return text.substr(0, text.find("\r\n"));
  };
  HttpResponse response;
  EXPECT_EQ(line(response), "HTTP/1.1 200 OK");
  response.set_status_code("404");
  EXPECT_EQ(line(response), "HTTP/1.1 404 Not Found");
  response.set_status_code("799");
  EXPECT_EQ(line(response), "HTTP/1.1 799 Unknown");
  response.set_reason_phrase("");
  EXPECT_EQ(line(response), "HTTP/1.1 799 ");
  response.set_reason_phrase("Own Reason");
  EXPECT_EQ(line(response), "HTTP/1.1 799 Own Reason");
}

TEST(HttpMessage, TextStaysValidWhateverElseIsSet) {
  HttpRequest request;
  ASSERT_EQ(append(request, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"), 1);
  const char* method = request.get_method();
  const char* uri = request.get_request_uri();
  for (int i = 0; i < 100; ++i)
    request.add_header_pair("X", kLong);
  request.set_http_version("HTTP/1.0");
  request.append_output_body(kLong);
  encoded(request);
  HttpRequest moved(std::move(request));
  EXPECT_STREQ(method, "GET");
  EXPECT_STREQ(uri, "/a");
  EXPECT_EQ(moved.get_method(), method);
}

TEST(HttpMessage, ReceivedMessageIsSentOnUnchanged) {
  std::string head = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string body = "3;x\r\nabc\r\n0\r\nT: u\r\n\r\n";
  HttpRequest received;
  ASSERT_EQ(append(received, head + body), 1);
  const void* parsed;
  size_t size;
  ASSERT_TRUE(received.get_parsed_body(&parsed, &size));
  ASSERT_TRUE(received.append_output_body_nocopy(parsed, size));
  HttpRequest forwarded;
  forwarded.add_header_pair("Old", "content");
  forwarded = std::move(received);
  EXPECT_EQ(encoded(forwarded), head + body);
  EXPECT_EQ(received.get_method(), nullptr);
  EXPECT_EQ(encoded(received), "GET / HTTP/1.1\r\n\r\n");
}

TEST(HttpMessage, MovedFromMessageReceivesAgain) {
  HttpRequest request;
  ASSERT_EQ(append(request, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"), 1);
  HttpRequest first(std::move(request));
  ASSERT_EQ(append(request, "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"), 1);
  EXPECT_STREQ(first.get_request_uri(), "/1");
  EXPECT_STREQ(request.get_request_uri(), "/2");
}

TEST(HttpMessage, MovingInTheMiddleOfAMessageGoesOn) {
  std::string bytes = http_feeding::chunked("3\r\nabc\r\n0\r\n\r\n");
  HttpRequest request;
  for (char c : bytes) {
    size_t size = 1;
    request.append(&c, &size);
    HttpRequest next(std::move(request));
    request = std::move(next);
  }
  EXPECT_TRUE(request.is_complete());
  EXPECT_EQ(protocol::HttpUtil::decode_chunked_body(&request), "abc");
}

TEST(HttpMessage, FieldsThatDecideTheConnectionAreSeenWhenSet) {
  HttpResponse response;
  response.set_header_pair("connection", "close");
  EXPECT_FALSE(response.is_keep_alive());
  EXPECT_TRUE(response.has_connection_header());
  response.set_header_pair("Connection", "Keep-Alive");
  EXPECT_TRUE(response.is_keep_alive());
  response.set_header_pair("content-length", "0");
  EXPECT_TRUE(response.has_content_length_header());
  response.set_header_pair("KEEP-ALIVE", "timeout=5");
  EXPECT_TRUE(response.has_keep_alive_header());
  response.set_header_pair("transfer-encoding", "Chunked");
  EXPECT_TRUE(response.is_chunked());
}

}  // namespace

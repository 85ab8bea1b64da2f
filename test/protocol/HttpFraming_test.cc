#include <gtest/gtest.h>

#include <cctype>
#include <cerrno>
#include <string>
#include <string_view>

#include "support/HttpFeeding.h"

// What each byte does in each place. What is accepted and what is refused otherwise is data:
// test/http/cases, which http/Conformance_test.cc feeds to the parser, too.

using namespace http_feeding;
using protocol::HttpRequest;

namespace {

// What each single byte does in a place, against the grammar of RFC 9110 and 9112.
int status_with_byte(std::string_view before, unsigned byte, std::string_view after) {
  std::string bytes(before);
  bytes.push_back(static_cast<char>(byte));
  bytes += after;
  Outcome outcome = feed<HttpRequest>(bytes);
  EXPECT_EQ(feed<HttpRequest>(bytes, cut_everywhere(bytes.size())), outcome) << "byte " << byte;
  return outcome.result == 1 ? 0 : outcome.status;
}

bool is_tchar(unsigned byte) {
  return byte < 0x7f && byte > 0x20 &&
         std::string_view("\"(),/:;<=>?@[\\]{}").find(static_cast<char>(byte)) ==
             std::string_view::npos;
}

TEST(HttpFraming, EveryByteInAFieldName) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET / HTTP/1.1\r\nHost: h\r\nX", byte, "Y: v\r\n\r\n");
    // A colon there ends the name, which is fine.
    EXPECT_EQ(status, is_tchar(byte) || byte == ':' ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInAFieldValue) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET / HTTP/1.1\r\nHost: h\r\nX: v", byte, "w\r\n\r\n");
    bool allowed = byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    EXPECT_EQ(status, allowed ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInATarget) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GET /a", byte, "b HTTP/1.1\r\nHost: h\r\n\r\n");
    bool allowed = byte > 0x20 && byte < 0x7f && byte != '#';
    EXPECT_EQ(status, allowed ? 0 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteInAMethod) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte("GE", byte, "T / HTTP/1.1\r\nHost: h\r\n\r\n");
    // A space there ends the method, and the line has one part too many.
    EXPECT_EQ(status, is_tchar(byte) ? 501 : 400) << "byte " << byte;
  }
}

TEST(HttpFraming, EveryByteAfterAChunkSize) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    int status = status_with_byte(chunked("0"), byte, "\r\n\r\n");
    // After another digit than 0 the line end that follows is data, and too short.
    bool digit = std::isxdigit(static_cast<int>(byte)) != 0;
    EXPECT_EQ(status, digit ? status : 400) << "byte " << byte;
    if (byte == '0') {
      EXPECT_EQ(status, 0);
    }
  }
}

TEST(HttpFraming, NothingIsParsedAfterAnError) {
  HttpRequest request;
  std::string bad = with_field("X : y");
  size_t size = bad.size();
  ASSERT_EQ(request.append(bad.data(), &size), -1);
  std::string good = with_line("GET / HTTP/1.1");
  for (int i = 0; i < 3; ++i) {
    size = good.size();
    EXPECT_EQ(request.append(good.data(), &size), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_EQ(request.refusal_status(), 400);
  }
  EXPECT_FALSE(request.is_complete());
  const void* body;
  EXPECT_FALSE(request.get_parsed_body(&body, &size));
}

}  // namespace

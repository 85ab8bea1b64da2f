#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/HttpFeeding.h"

// Limits at their edge: the largest that passes, the smallest that does not. The others are in
// test/http/cases/limits.txt.

using namespace http_feeding;
using protocol::HttpLimits;
using protocol::HttpRequest;

namespace {

constexpr int kMore = -100;

// The status refused with; 0 when complete, kMore when incomplete. Whole, in pieces of an odd
// size and in two must agree.
int status_of(const std::string& bytes, const HttpLimits* limits = nullptr) {
  Outcome whole = feed<HttpRequest>(bytes, {}, limits);
  EXPECT_EQ(feed<HttpRequest>(bytes, cut_everywhere(bytes.size(), 97), limits), whole);
  EXPECT_EQ(feed<HttpRequest>(bytes, {bytes.size() - 1}, limits), whole);
  if (bytes.size() < 20000) {
    EXPECT_EQ(feed<HttpRequest>(bytes, cut_everywhere(bytes.size()), limits), whole);
  }
  return whole.result == 0 ? kMore : whole.status;
}

const std::string kStart = "GET / HTTP/1.1\r\nHost: h\r\n";

std::string field_line_of(size_t size) {
  std::string fixed = "X: \r\n";
  return "X: " + std::string(size - fixed.size(), 'v') + "\r\n";
}

// A line whose end can only come too late is refused at once, and not a byte earlier.
TEST(HttpLimits, IncompleteLinesAreRefusedAtTheirEdge) {
  EXPECT_EQ(status_of("GET /" + std::string(8191 - 5, 'a')), kMore);
  EXPECT_EQ(status_of("GET /" + std::string(8192 - 5, 'a')), 414);
  EXPECT_EQ(status_of(kStart + "X: " + std::string(16383 - 3, 'a')), kMore);
  EXPECT_EQ(status_of(kStart + "X: " + std::string(16384 - 3, 'a')), 431);
  EXPECT_EQ(status_of(chunked("1;" + std::string(273 - 2, 'e'))), kMore);
  EXPECT_EQ(status_of(chunked("1;" + std::string(274 - 2, 'e'))), 400);
  EXPECT_EQ(status_of(chunked("0\r\nX: " + std::string(16383 - 3, 'a'))), kMore);
  EXPECT_EQ(status_of(chunked("0\r\nX: " + std::string(16384 - 3, 'a'))), 431);
}

std::string header_section_of(size_t size) {
  std::string head = "Host: h\r\n";
  while (head.size() + 2 < size) {
    size_t left = size - 2 - head.size();
    head += field_line_of(left > 12000 ? 10000 : left);
  }
  return "GET / HTTP/1.1\r\n" + head + "\r\n";
}

TEST(HttpLimits, HeaderSectionOf64KiBPassesOneByteMoreIs431) {
  EXPECT_EQ(status_of(header_section_of(65536)), 0);
  EXPECT_EQ(status_of(header_section_of(65537)), 431);
}

TEST(HttpLimits, TrailersShareTheSizeOfTheHeaderSection) {
  HttpLimits limits;
  limits.header_bytes = 9 + 28 + 2 + 100;
  std::string end = "0\r\n";
  EXPECT_EQ(status_of(chunked(end + field_line_of(98) + "\r\n"), &limits), 0);
  EXPECT_EQ(status_of(chunked(end + field_line_of(99) + "\r\n"), &limits), 431);
  EXPECT_EQ(status_of(chunked(end + "X: " + std::string(1000, 'v')), &limits), 431);
}

std::string chunks_with_extension(size_t count) {
  std::string body;
  for (size_t i = 0; i < count; ++i)
    body += "1;" + std::string(200, 'e') + "\r\nx\r\n";
  return body;
}

TEST(HttpLimits, ChunkOverheadBeyond16KiBAndTheBodyIs400) {
  // 206 bytes of framing for each byte of data, and one byte allowed for it.
  size_t last_that_passes = 16384 / 205;
  EXPECT_EQ(status_of(chunked(chunks_with_extension(last_that_passes - 1) + "0\r\n\r\n")), 0);
  EXPECT_EQ(status_of(chunked(chunks_with_extension(last_that_passes + 2) + "0\r\n\r\n")), 400);
}

TEST(HttpLimits, LargeChunksMayBeMany) {
  std::string body;
  for (int i = 0; i < 5000; ++i)
    body += "10\r\n0123456789abcdef\r\n";
  EXPECT_EQ(status_of(chunked(body + "0\r\n\r\n")), 0);
}

TEST(HttpLimits, SizeLimitCountsHeadAndBody) {
  std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n";
  for (size_t room : {size_t{10}, size_t{9}}) {
    HttpRequest request;
    request.set_size_limit(head.size() + room);
    std::string bytes = head + "0123456789";
    size_t size = bytes.size();
    EXPECT_EQ(request.append(bytes.data(), &size), room == 10 ? 1 : -1);
    EXPECT_EQ(request.refusal_status(), room == 10 ? 0 : 413);
    if (room != 10) {
      EXPECT_EQ(errno, EMSGSIZE);
    }
  }
}

TEST(HttpLimits, SizeLimitBelowTheHeadIs413) {
  HttpRequest request;
  request.set_size_limit(20);
  std::string bytes = kStart + "\r\n";
  size_t size = bytes.size();
  EXPECT_EQ(request.append(bytes.data(), &size), -1);
  EXPECT_EQ(request.refusal_status(), 413);
}

}  // namespace

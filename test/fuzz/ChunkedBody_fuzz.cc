#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "Fuzzing.h"
#include "protocol/ByteBuffer.h"
#include "protocol/ChunkedBody.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// Whatever bytes come as a chunked body: the verdict does not depend on how they are cut; what is
// accepted is what RFC 9112, 7.1 says, and the cursor walks exactly its chunks. A cursor on bytes
// that nobody checked stays within them.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::ByteBuffer;
using protocol::ChunkedBody;

namespace {

constexpr uint64_t kBodyLimit = 500;

protocol::HttpLimits small_limits() {
  protocol::HttpLimits limits;
  limits.field_line_bytes = 60;
  limits.field_name_bytes = 20;
  limits.header_bytes = 200;
  limits.header_fields = 5;
  limits.chunk_extension_bytes = 20;
  limits.chunk_overhead_bytes = 60;
  return limits;
}

struct Outcome {
  int result = 0;
  int refusal = 0;
  size_t consumed = 0;
  std::string raw;

  bool operator==(const Outcome&) const = default;
};

Outcome feed(std::string_view bytes, const Cuts& cuts) {
  static const protocol::HttpLimits limits = small_limits();
  ChunkedBody body(0, 0, nullptr);
  ByteBuffer raw;
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    switch (body.feed(piece, size, limits, kBodyLimit, &raw)) {
      case ChunkedBody::Result::kMore:
        return 0;
      case ChunkedBody::Result::kComplete:
        return 1;
      default:
        return -1;
    }
  });
  outcome.refusal = body.refusal();
  if (outcome.result >= 0) {
    outcome.consumed = consumed;
    outcome.raw.assign(raw.data() != nullptr ? raw.data() : "", raw.size());
  }
  return outcome;
}

// The chunks of an accepted body, read the obvious way.
std::vector<std::string> chunks_of(std::string_view raw) {
  std::vector<std::string> chunks;
  for (;;) {
    const size_t line_end = raw.find("\r\n");
    require(line_end != std::string_view::npos);
    const size_t size = std::stoull(std::string(raw.substr(0, line_end)), nullptr, 16);
    raw.remove_prefix(line_end + 2);
    if (size == 0) break;
    require(raw.size() >= size + 2 && raw.substr(size, 2) == "\r\n");
    chunks.emplace_back(raw.substr(0, size));
    raw.remove_prefix(size + 2);
  }
  // The trailer section: lines, and an empty one that ends it all.
  size_t line_end;
  while ((line_end = raw.find("\r\n")) != 0) {
    require(line_end != std::string_view::npos);
    require(raw.substr(0, line_end).find(':') != std::string_view::npos);
    raw.remove_prefix(line_end + 2);
  }
  require(raw.size() == 2);
  return chunks;
}

std::vector<std::string> walk(protocol::HttpChunkCursor& cursor) {
  std::vector<std::string> chunks;
  const void* chunk;
  size_t size;
  while (cursor.next(&chunk, &size))
    chunks.emplace_back(static_cast<const char*>(chunk), size);
  return chunks;
}

void check_accepted(std::string_view raw) {
  const std::vector<std::string> chunks = chunks_of(raw);
  uint64_t data = 0;
  for (const std::string& chunk : chunks)
    data += chunk.size();
  require(data <= kBodyLimit);
  protocol::HttpResponse response;
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(raw);
  size_t size = bytes.size();
  require(response.append(bytes.data(), &size) == 1 && size == bytes.size());
  protocol::HttpChunkCursor cursor(&response);
  require(walk(cursor) == chunks);
  require(walk(cursor).empty());
  cursor.rewind();
  require(walk(cursor) == chunks);
  std::string joined;
  for (const std::string& chunk : chunks)
    joined += chunk;
  require(protocol::HttpUtil::decode_chunked_body(&response) == joined);
}

// A body of any bytes, called chunked afterwards.
void check_unchecked(std::string_view bytes) {
  protocol::HttpResponse response;
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(bytes.size()) + "\r\n\r\n";
  size_t size = head.size();
  int result = response.append(head.data(), &size);
  size = bytes.size();
  if (result == 0) result = response.append(bytes.data(), &size);
  require(result == 1);
  require(response.set_header_pair("Transfer-Encoding", "chunked"));
  const void* body;
  require(response.get_parsed_body(&body, &size));
  const char* at = static_cast<const char*>(body);
  const char* const end = at + size;
  protocol::HttpChunkCursor cursor(&response);
  const void* chunk;
  while (cursor.next(&chunk, &size)) {
    const char* const begin = static_cast<const char*>(chunk);
    require(begin > at && size > 0 && size <= static_cast<size_t>(end - begin));
    at = begin + size;
  }
}

// Any bytes as the data of a body: they come out again.
void check_carried(std::string_view bytes) {
  std::string body;
  std::vector<std::string> chunks;
  size_t from = 0;
  Cuts ends = fuzzing::random_cuts(bytes, 100);
  ends.push_back(bytes.size());
  for (size_t to : ends) {
    if (to == from) continue;
    char line[20];
    std::snprintf(line, sizeof line, from % 2 == 0 ? "%zx\r\n" : "0%zX;a=b\r\n", to - from);
    chunks.emplace_back(bytes.substr(from, to - from));
    body.append(line).append(chunks.back()).append("\r\n");
    from = to;
  }
  body += bytes.size() % 2 == 0 ? "0\r\n\r\n" : "0\r\nX: y\r\n\r\n";
  require(chunks_of(body) == chunks);
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  fuzzing::for_each_cutting(body, [&](const Cuts& cuts) {
    protocol::HttpResponse response;
    size_t size = head.size();
    require(response.append(head.data(), &size) == 0);
    size_t consumed = 0;
    const int result = fuzzing::feed(body, cuts, &consumed, [&](const char* piece, size_t* count) {
      return response.append(piece, count);
    });
    require(result == 1 && consumed == body.size());
    protocol::HttpChunkCursor cursor(&response);
    require(walk(cursor) == chunks);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = feed(bytes, {});
  require((whole.result == -1) == (whole.refusal != 0));
  require(whole.raw == bytes.substr(0, whole.consumed));
  require(whole.result != 0 || whole.consumed == bytes.size());
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) { require(feed(bytes, cuts) == whole); });
  if (whole.result == 1) check_accepted(whole.raw);
  check_unchecked(bytes);
  check_carried(bytes);
  return 0;
}

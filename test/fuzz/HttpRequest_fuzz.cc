#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/HttpGrammar.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// Whatever bytes a client sends: nothing is read beyond them, the outcome does not depend on how
// they are cut, and what is accepted means the same when it is written out and read again.

using protocol::HttpRequest;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

struct Outcome {
  int result = 0;
  int status = 0;
  size_t consumed = 0;

  bool operator==(const Outcome& other) const {
    return result == other.result && status == other.status && consumed == other.consumed;
  }
};

// Pieces of 1 to `longest` bytes, by a small generator; one piece when `longest` is 0. Each in a
// heap block of its own size, so that a read beyond it is seen.
Outcome feed(HttpRequest& request, std::string_view bytes, size_t longest) {
  Outcome outcome;
  size_t from = 0;
  uint32_t random = static_cast<uint32_t>(bytes.size() * 2654435761u + longest);
  do {
    random = random * 1664525u + 1013904223u;
    size_t size = bytes.size() - from;
    if (longest > 0 && size > 0) size = std::min(size, 1 + (random >> 16) % longest);
    std::unique_ptr<char[]> piece(new char[size]);
    if (size > 0) std::memcpy(piece.get(), bytes.data() + from, size);
    size_t taken = size;
    outcome.result = request.append(piece.get(), &taken);
    require(taken <= size);
    from += taken;
  } while (outcome.result == 0 && from < bytes.size());
  outcome.consumed = outcome.result == 1 ? from : 0;
  outcome.status = request.refusal_status();
  return outcome;
}

std::string encode(HttpRequest& request) {
  iovec vectors[4];
  int count = request.encode(vectors, 4);
  require(count > 0);
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return bytes;
}

// What RFC 9112 says of any request that may be accepted, checked without the parser's help.
void check_accepted(const HttpRequest& request) {
  std::string_view version = request.get_http_version();
  require(version == "HTTP/1.1" || version == "HTTP/1.0");
  require(protocol::is_token(request.get_method()));
  protocol::HttpHeaderMap map(&request);
  size_t lengths = map.get_strict("Content-Length").size();
  size_t codings = map.get_strict("Transfer-Encoding").size();
  size_t hosts = map.get_strict("Host").size();
  require(lengths + codings <= 1);
  require(hosts == 1 || (hosts == 0 && version == "HTTP/1.0"));
  require(request.is_chunked() == (codings == 1));
  const void* body;
  size_t size;
  require(request.get_parsed_body(&body, &size));
  if (lengths == 1)
    require(std::to_string(size) == map.get("Content-Length") ||
            std::stoull(map.get("Content-Length")) == size);
  if (lengths + codings == 0) require(size == 0);
}

void check_sent_on(HttpRequest& request) {
  const void* body;
  size_t size;
  require(request.get_parsed_body(&body, &size));
  std::string decoded = protocol::HttpUtil::decode_chunked_body(&request);
  require(request.append_output_body_nocopy(body, size));
  std::string sent = encode(request);
  HttpRequest again;
  Outcome outcome = feed(again, sent, 0);
  // An Expect that was answered may be there still; nothing else may make a difference.
  require(outcome.result == 1 && outcome.consumed == sent.size());
  require(std::strcmp(again.get_request_uri(), request.get_request_uri()) == 0);
  require(protocol::HttpUtil::decode_chunked_body(&again) == decoded);
  require(encode(again).substr(0, sent.size() - size) == sent.substr(0, sent.size() - size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  // A pipeline of requests, as a connection would take them.
  while (!rest.empty()) {
    HttpRequest whole;
    Outcome outcome = feed(whole, rest, 0);
    for (size_t longest : {size_t{1}, size_t{7}, size_t{100}}) {
      HttpRequest pieces;
      require(feed(pieces, rest, longest) == outcome);
    }
    require((outcome.result == -1) == (outcome.status != 0));
    if (outcome.result != 1) break;
    check_accepted(whole);
    check_sent_on(whole);
    rest.remove_prefix(outcome.consumed);
  }
  return 0;
}

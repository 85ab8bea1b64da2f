#include <sys/uio.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "Fuzzing.h"
#include "protocol/HttpGrammar.h"
#include "support/HttpFeeding.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// Whatever bytes a client sends: nothing is read beyond them, the outcome does not depend on how
// they are cut, and what is accepted means the same when it is written out and read again.

using fuzzing::Cuts;
using fuzzing::require;
using http_feeding::feed_pieces;
using http_feeding::Outcome;
using protocol::HttpRequest;

namespace {

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
  Outcome outcome = feed_pieces(again, sent, {});
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
    Outcome outcome = feed_pieces(whole, rest, {});
    fuzzing::for_each_cutting(rest, [&](const Cuts& cuts) {
      HttpRequest pieces;
      require(feed_pieces(pieces, rest, cuts) == outcome);
    });
    require((outcome.result == -1) == (outcome.status != 0));
    if (outcome.result != 1) break;
    check_accepted(whole);
    check_sent_on(whole);
    rest.remove_prefix(outcome.consumed);
  }
  return 0;
}

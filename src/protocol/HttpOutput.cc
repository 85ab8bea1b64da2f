#include "protocol/HttpOutput.h"

#include <cstdint>
#include <cstring>

#include "protocol/ChunkedBody.h"
#include "protocol/HttpGrammar.h"
#include "workflow/HttpLimits.h"

namespace protocol {

namespace {

// The chunks of the user may be as small as the user likes.
constexpr HttpLimits kOutputLimits = [] {
  HttpLimits limits;
  limits.chunk_overhead_bytes = SIZE_MAX;
  return limits;
}();

}  // namespace

OutputFraming output_framing(const HttpFields& fields) {
  constexpr const char* kField = "Transfer-Encoding";
  const size_t at = fields.find(kField);
  if (at == HttpFields::kNotFound) return OutputFraming::kLength;
  const bool clear = equal_ignoring_case(fields[at].value_view(), "chunked") &&
                     fields.find(kField, at + 1) == HttpFields::kNotFound;
  return clear ? OutputFraming::kChunked : OutputFraming::kUnknownCoding;
}

bool is_spoken_version(const char* version) {
  return !version || std::strcmp(version, "HTTP/1.1") == 0 || std::strcmp(version, "HTTP/1.0") == 0;
}

bool is_chunk_framed(const HttpBody& body) {
  HttpPieces dropped(HttpPieces::Keeps::kNothing);
  ChunkedBody chunks(0, 0, &dropped);
  ByteBuffer line;
  ChunkedBody::Result result = ChunkedBody::Result::kMore;
  for (size_t i = 0; i < body.block_count(); ++i) {
    const iovec& block = body.block(i);
    size_t taken = block.iov_len;
    if (result == ChunkedBody::Result::kComplete) return false;
    result = chunks.feed(static_cast<const char*>(block.iov_base), &taken, kOutputLimits,
                         UINT64_MAX, &line);
    if (result == ChunkedBody::Result::kRefused || taken < block.iov_len) return false;
  }
  return result == ChunkedBody::Result::kComplete;
}

}  // namespace protocol

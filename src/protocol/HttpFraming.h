#pragma once

#include <cstdint>
#include <string_view>

#include "protocol/HttpFields.h"

// Where a message ends and what its connection does next, decided from its header fields
// (RFC 9112, 6 and 9.3). Pure functions. Anything a proxy might read differently is refused.
namespace protocol {

// The status with which a message is refused when memory is exhausted.
inline constexpr int kOutOfMemory = 500;

enum class BodyKind : uint8_t { kNone, kLength, kChunked, kUntilClose };

struct Framing {
  int refusal = 0;  // the status to refuse with, or 0
  BodyKind body = BodyKind::kNone;
  uint64_t length = 0;  // of a kLength body; never 0 for one
};

Framing frame_request(const HttpFields& fields, std::string_view method, std::string_view version);
Framing frame_response(const HttpFields& fields, std::string_view version, std::string_view status,
                       bool zero_body);

// Returns false for the fields that are not allowed in a trailer section: those that decide framing
// and routing.
bool is_allowed_in_trailer(std::string_view name);

bool is_chunked(const HttpFields& fields);
// An empty version means HTTP/1.1.
bool is_keep_alive(const HttpFields& fields, std::string_view version);

enum class Expectation : uint8_t { kNone, kContinue, kUnknown };
Expectation expectation_of(const HttpFields& fields);

}  // namespace protocol

#pragma once

#include <cstddef>
#include <cstdint>

namespace protocol {

// The limits of a message that is received. A request that exceeds one is refused with the status
// in the comment. Sizes include the line ends. The defaults are those of the server, for requests.
struct HttpLimits {
  size_t request_line_bytes = size_t{8} * 1024;  // 414
  size_t field_line_bytes = size_t{16} * 1024;   // 431
  size_t field_name_bytes = 256;                 // 431
  // The fields of the header section and of the trailer section together.
  size_t header_bytes = size_t{64} * 1024;  // 431
  size_t header_fields = 256;               // 431
  size_t chunk_extension_bytes = 256;       // 400
  // How many bytes chunk framing may add to the body: this many, plus as many as the data received
  // so far.
  size_t chunk_overhead_bytes = size_t{16} * 1024;  // 400
  // The size of the body without chunk framing.
  uint64_t body_bytes = uint64_t{16} * 1024 * 1024;  // 413
  unsigned leading_empty_lines = 4;                  // 400
};

// The largest number of hexadecimal digits in a chunk size, leading zeros included. A number of 64
// bits has no more than 16.
constexpr size_t kMaxChunkSizeDigits = 16;

}  // namespace protocol

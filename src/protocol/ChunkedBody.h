#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/ByteBuffer.h"
#include "protocol/HttpParser.h"
#include "protocol/HttpPieces.h"
#include "workflow/HttpLimits.h"

namespace protocol {

// Receives a chunked body and finds its end. Either collects the body in a buffer, with its
// framing, or passes the data of the chunks on as pieces, without framing and trailers. It checks
// the line ends, all limits, the chunk extensions, and which trailers are allowed. llhttp checks
// the grammar of everything but the extensions.
//
// Invariant: as for heads, the verdict depends on the bytes alone, not on how they are split.
class ChunkedBody {
 public:
  enum class Result { kMore, kComplete, kRefused };

  // `field_bytes` and `field_count`: what the header section has used up of the budget that
  // trailers share with it. `pieces`: where the data goes. If null, everything goes to the buffer
  // of feed().
  ChunkedBody(size_t field_bytes, size_t field_count, HttpPieces* pieces)
      : pieces_(pieces), field_bytes_(field_bytes), field_count_(field_count) {}

  // Appends to `raw`, which holds exactly what was taken before. With pieces, `raw` holds only the
  // line that is not complete yet. Sets `*size` to the number of bytes taken. `body_limit` bounds
  // the number of data bytes, without framing.
  Result feed(const char* data, size_t* size, const HttpLimits& limits, uint64_t body_limit,
              ByteBuffer* raw);

  int refusal() const { return refusal_; }

  // Used with pieces, between two calls of feed(). Returns true if nothing has come of the next
  // piece, nor of the line before it.
  bool is_between_pieces(const ByteBuffer& raw) const {
    const bool in_large_chunk = phase_ == Phase::kData && chunk_left_ < chunk_size_ &&
                                chunk_size_ > HttpPieces::kWholeChunk;
    return raw.empty() &&
           (phase_ == Phase::kSizeLine || phase_ == Phase::kDataEnd || in_large_chunk);
  }

 private:
  enum class Phase : uint8_t { kSizeLine, kData, kDataEnd, kTrailer, kComplete };

  size_t feed_data(const char* data, size_t size, ByteBuffer* raw);
  bool store_data(const char* data, size_t count, ByteBuffer* raw);
  size_t feed_line(const char* data, size_t size, const HttpLimits& limits, uint64_t body_limit,
                   ByteBuffer* raw);
  int check_size(size_t line_size, bool complete, const HttpLimits& limits) const;
  int check_line(std::string_view line, const HttpLimits& limits, uint64_t body_limit);
  int check_size_line(std::string_view line, const HttpLimits& limits, uint64_t body_limit);
  int check_trailer_line(std::string_view line, const HttpLimits& limits);

  HttpPieces* const pieces_;
  ChunkGrammar grammar_;
  uint64_t chunk_left_ = 0;
  uint64_t chunk_size_ = 0;
  uint64_t data_bytes_ = 0;      // announced by the size lines so far
  uint64_t overhead_bytes_ = 0;  // the size of all size lines and line ends so far
  size_t line_start_ = 0;        // offset in the raw body
  size_t field_bytes_;
  size_t field_count_;
  int refusal_ = 0;
  Phase phase_ = Phase::kSizeLine;
};

}  // namespace protocol

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/ByteBuffer.h"
#include "protocol/HttpParser.h"
#include "protocol/HttpPieces.h"
#include "workflow/HttpLimits.h"

namespace protocol {

// Receives a chunked body, framing included, into a buffer and finds its end; or passes on the
// chunks' data as pieces, without framing and trailers. Lines are checked for their CRLF and their
// size here, for the rest by llhttp.
//
// Invariant: as for heads, the verdict is a function of the bytes alone, not of how they come.
class ChunkedBody {
 public:
  enum class Result { kMore, kComplete, kRefused };

  // What the header section has used up of the budget that trailers share with it.
  // `pieces`: where the data goes; null: all goes to feed()'s buffer.
  ChunkedBody(size_t field_bytes, size_t field_count, HttpPieces* pieces)
      : pieces_(pieces), field_bytes_(field_bytes), field_count_(field_count) {}

  // Appends to `raw`, which holds exactly what was taken before; with pieces, only the line that is
  // not complete yet. `*size` becomes the number of bytes taken. `body_limit` bounds the data
  // without framing.
  Result feed(const char* data, size_t* size, const HttpLimits& limits, uint64_t body_limit,
              ByteBuffer* raw);

  int refusal() const { return refusal_; }

  // With pieces, between two calls: nothing has come of the next piece, nor of the line before it.
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
  int judge_size(size_t line_size, bool complete, const HttpLimits& limits) const;
  int judge_line(std::string_view line, const HttpLimits& limits, uint64_t body_limit);
  int judge_size_line(std::string_view line, const HttpLimits& limits, uint64_t body_limit);
  int judge_trailer_line(std::string_view line, const HttpLimits& limits);

  HttpPieces* const pieces_;
  ChunkGrammar grammar_;
  uint64_t chunk_left_ = 0;
  uint64_t chunk_size_ = 0;
  uint64_t data_bytes_ = 0;      // announced by the size lines so far
  uint64_t overhead_bytes_ = 0;  // of size lines and line ends
  size_t line_start_ = 0;        // in the raw body
  size_t field_bytes_;
  size_t field_count_;
  int refusal_ = 0;
  Phase phase_ = Phase::kSizeLine;
};

}  // namespace protocol

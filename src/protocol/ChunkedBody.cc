#include "protocol/ChunkedBody.h"

#include <algorithm>
#include <cstring>

#include "protocol/HttpFraming.h"
#include "protocol/HttpGrammar.h"

namespace protocol {

namespace {

constexpr size_t kLineEndSize = 2;

}  // namespace

ChunkedBody::Result ChunkedBody::feed(const char* data, size_t* size, const HttpLimits& limits,
                                      uint64_t body_limit, ByteBuffer* raw) {
  size_t taken = 0;
  while (taken < *size && phase_ != Phase::kComplete && refusal_ == 0) {
    if (phase_ == Phase::kData) {
      taken += feed_data(data + taken, *size - taken, raw);
    } else {
      taken += feed_line(data + taken, *size - taken, limits, body_limit, raw);
    }
  }
  *size = taken;
  if (refusal_ != 0) return Result::kRefused;
  return phase_ == Phase::kComplete ? Result::kComplete : Result::kMore;
}

bool ChunkedBody::store_data(const char* data, size_t count, ByteBuffer* raw) {
  if (pieces_ == nullptr) return raw->append(data, count);
  if (chunk_size_ > HttpPieces::kWholeChunk) return pieces_->append_whole(data, count);
  if (!pieces_->append(data, count)) return false;
  if (chunk_left_ == 0) pieces_->close();
  return true;
}

size_t ChunkedBody::feed_data(const char* data, size_t size, ByteBuffer* raw) {
  size_t count = static_cast<size_t>(std::min<uint64_t>(size, chunk_left_));
  chunk_left_ -= count;
  if (!store_data(data, count, raw)) {
    refusal_ = kOutOfMemory;
  } else if (!grammar_.take(data, count)) {
    refusal_ = 400;
  }
  if (chunk_left_ == 0) {
    phase_ = Phase::kDataEnd;
    line_start_ = raw->size();
  }
  return count;
}

size_t ChunkedBody::feed_line(const char* data, size_t size, const HttpLimits& limits,
                              uint64_t body_limit, ByteBuffer* raw) {
  const void* found = std::memchr(data, '\n', size);
  size_t count =
      found == nullptr ? size : static_cast<size_t>(static_cast<const char*>(found) - data) + 1;
  refusal_ = check_size(raw->size() - line_start_ + count, found != nullptr, limits);
  if (refusal_ == 0 && !raw->append(data, count)) refusal_ = kOutOfMemory;
  if (refusal_ != 0 || found == nullptr) return count;
  refusal_ = check_line({raw->data() + line_start_, raw->size() - line_start_}, limits, body_limit);
  if (pieces_ != nullptr) raw->clear();
  line_start_ = raw->size();
  return count;
}

// An incomplete line is too large when one more byte, its LF, would be too much.
int ChunkedBody::check_size(size_t line_size, bool complete, const HttpLimits& limits) const {
  size_t least = complete ? line_size : line_size + 1;
  switch (phase_) {
    case Phase::kSizeLine:
      return least > kMaxChunkSizeDigits + limits.chunk_extension_bytes + kLineEndSize ? 400 : 0;
    case Phase::kDataEnd:
      return least > kLineEndSize ? 400 : 0;
    default:
      return least > limits.field_line_bytes || field_bytes_ + least > limits.header_bytes ? 431
                                                                                           : 0;
  }
}

int ChunkedBody::check_line(std::string_view line, const HttpLimits& limits, uint64_t body_limit) {
  if (line.size() < kLineEndSize || line.find('\r') != line.size() - kLineEndSize) return 400;
  switch (phase_) {
    case Phase::kSizeLine:
      return check_size_line(line, limits, body_limit);
    case Phase::kDataEnd:
      overhead_bytes_ += kLineEndSize;
      phase_ = Phase::kSizeLine;
      return grammar_.take(line.data(), line.size()) ? 0 : 400;
    default:
      return check_trailer_line(line, limits);
  }
}

int ChunkedBody::check_size_line(std::string_view line, const HttpLimits& limits,
                                 uint64_t body_limit) {
  size_t digits = 0;
  while (hex_digit_value(line[digits]) >= 0)
    ++digits;
  size_t extension = line.size() - kLineEndSize - digits;
  if (digits == 0 || digits > kMaxChunkSizeDigits) return 400;
  if (extension > limits.chunk_extension_bytes) return 400;
  if (!is_chunk_extensions(line.substr(digits, extension))) return 400;
  if (!grammar_.take_size(line.substr(0, digits), &chunk_left_)) return 400;
  overhead_bytes_ += line.size();
  if (overhead_bytes_ > limits.chunk_overhead_bytes &&
      overhead_bytes_ - limits.chunk_overhead_bytes > data_bytes_) {
    return 400;
  }
  if (chunk_left_ > body_limit || data_bytes_ > body_limit - chunk_left_) return 413;
  data_bytes_ += chunk_left_;
  chunk_size_ = chunk_left_;
  phase_ = chunk_left_ > 0 ? Phase::kData : Phase::kTrailer;
  return 0;
}

int ChunkedBody::check_trailer_line(std::string_view line, const HttpLimits& limits) {
  bool is_end = line.size() == kLineEndSize;
  field_bytes_ += line.size();
  if (!is_end && ++field_count_ > limits.header_fields) return 431;
  // Neither folded nor without a name.
  if (!is_end && !is_token_char(line[0])) return 400;
  if (!grammar_.take(line.data(), line.size()) || grammar_.is_complete() != is_end) return 400;
  if (is_end) {
    phase_ = Phase::kComplete;
    return 0;
  }
  std::string_view name = grammar_.trailer_name();
  if (name.size() > limits.field_name_bytes) return 431;
  return is_allowed_in_trailer(name) ? 0 : 400;
}

}  // namespace protocol

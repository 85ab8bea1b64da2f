#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocol/ByteBuffer.h"

namespace protocol {

// A body on its way through: bytes are appended to a piece until it is whole, and whole pieces are
// taken in that order. Holds what was not taken yet, and nothing else. Not thread-safe.
class HttpPieces {
 public:
  // A chunk larger than this is passed on as it arrives, a smaller one as a whole.
  static constexpr size_t kWholeChunk = size_t{64} * 1024;

  enum class Keeps { kPieces, kNothing };  // kNothing: where only the framing matters
  explicit HttpPieces(Keeps keeps = Keeps::kPieces) : keeps_(keeps) {}

  // False when memory is exhausted.
  bool append(const char* bytes, size_t count) {
    return keeps_ == Keeps::kNothing || bytes_.append(bytes, count);
  }
  // What was appended since the last time is a piece; unless that is nothing.
  bool close() {
    const size_t end = bytes_.size();
    if (end == last_end_) return true;
    last_end_ = end;
    return ends_.append(reinterpret_cast<const char*>(&end), sizeof end);
  }

  bool empty() const { return next_ == ends_.size(); }
  // The next piece, valid until the call after it; false, and the memory given back, when all were
  // taken.
  bool take(const char** data, size_t* size) {
    if (empty()) {
      forget_taken();
      return false;
    }
    size_t end;
    std::memcpy(&end, ends_.data() + next_, sizeof end);
    next_ += sizeof end;
    *data = bytes_.data() + taken_;
    *size = end - taken_;
    taken_ = end;
    return true;
  }
  void drop() {
    taken_ = last_end_;
    forget_taken();
  }

 private:
  // A stream that is quiet for a while should not hold what a busy moment needed.
  static constexpr size_t kKept = 1024;

  void forget_taken() {
    bytes_.erase_front(taken_, kKept);
    ends_.erase_front(ends_.size(), kKept);
    next_ = taken_ = last_end_ = 0;
  }

  const Keeps keeps_;
  ByteBuffer bytes_;
  ByteBuffer ends_;      // of the whole pieces in bytes_, each a size_t
  size_t next_ = 0;      // in ends_
  size_t taken_ = 0;     // of bytes_
  size_t last_end_ = 0;  // the last one in ends_
};

}  // namespace protocol

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocol/ByteBuffer.h"

namespace protocol {

// A queue of pieces of a body. Bytes are appended to a piece until it is whole, and whole pieces
// are taken in the same order. Holds only what was not taken yet. Not thread-safe.
class HttpPieces {
 public:
  // A chunk larger than this is passed on as it arrives, a smaller one as a whole.
  static constexpr size_t kWholeChunk = size_t{64} * 1024;

  enum class Keeps { kPieces, kNothing };  // kNothing: for callers that check only the framing
  explicit HttpPieces(Keeps keeps = Keeps::kPieces) : keeps_(keeps) {}

  // Returns false when memory is exhausted.
  bool append(const char* bytes, size_t count) {
    return keeps_ == Keeps::kNothing || bytes_.append(bytes, count);
  }
  // Makes a whole piece of what was appended since the last call, unless that is nothing. Returns
  // false when memory is exhausted.
  bool close() {
    const size_t end = bytes_.size();
    if (end == last_end_) return true;
    last_end_ = end;
    return ends_.append(reinterpret_cast<const char*>(&end), sizeof end);
  }

  bool empty() const { return next_ == ends_.size(); }
  // Takes the next piece, whose bytes are valid until the next call. If all pieces were taken,
  // returns false and frees their memory.
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
  // At most this many bytes of memory stay allocated, so that a quiet stream does not hold what a
  // busy moment has needed.
  static constexpr size_t kKept = 1024;

  void forget_taken() {
    bytes_.erase_front(taken_, kKept);
    ends_.erase_front(ends_.size(), kKept);
    next_ = taken_ = last_end_ = 0;
  }

  const Keeps keeps_;
  ByteBuffer bytes_;
  ByteBuffer ends_;      // where the whole pieces in bytes_ end, each a size_t
  size_t next_ = 0;      // offset in ends_ of the end of the next piece
  size_t taken_ = 0;     // how many bytes of bytes_ were taken
  size_t last_end_ = 0;  // the last value in ends_
};

}  // namespace protocol

#pragma once

#include <algorithm>
#include <cstddef>

#include "kernel/Stream.h"

namespace workflow {

// What a client still sends after the last byte for it: read and thrown away, because a socket that
// is closed with unread bytes is reset, and the client may lose the end of the reply (RFC 9112,
// 9.6).
//
// Owned by a ServerConnection and guarded by its Channel lock.
class LingeringInput {
 public:
  enum class Result { kNothing, kSome, kEnd };

  // `is_sending`: the client may be in the middle of sending, because something has come that is
  // not a part of a request that was processed.
  void begin(bool is_sending) {
    size_ = 0;
    is_sending_ = is_sending;
  }
  // Throws away what one read finds.
  Result discard(Stream& stream);

  bool is_sending() const { return is_sending_; }
  bool is_over(size_t limit) const { return size_ > limit; }
  size_t left(size_t limit) const { return limit - std::min(limit, size_); }

 private:
  size_t size_ = 0;
  bool is_sending_ = false;
};

}  // namespace workflow

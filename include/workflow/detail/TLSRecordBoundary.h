#pragma once

#include <stddef.h>

namespace protocol {

// Finds where TLS records end in the bytes received (RFC 8446, 5.1).
class TLSRecordBoundary {
 public:
  // Returns how many of the `size` bytes belong to the record that is being received. That is at
  // least 1.
  size_t next(const unsigned char *data, size_t size);

 private:
  static constexpr size_t kHeadSize = 5;

  size_t head_size_ = 0;  // bytes of the head that have arrived
  size_t left_ = 0;       // bytes of the content still to arrive, once the head is complete
  unsigned char head_[kHeadSize] = {};
};

}  // namespace protocol

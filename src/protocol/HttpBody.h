#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "protocol/Arena.h"
#include "protocol/ByteBuffer.h"

namespace protocol {

// The body to be sent: blocks of bytes, copied ones and ones that the user keeps. A few blocks
// fit without allocating. Not thread-safe.
class HttpBody {
 public:
  HttpBody() = default;
  HttpBody(const HttpBody&) = delete;
  HttpBody& operator=(const HttpBody&) = delete;

  // False when memory is exhausted. Small pieces are taken from the room `text` has left.
  bool append(const void* bytes, size_t size, Arena* text);
  bool append_nocopy(const void* bytes, size_t size);
  void clear();

  size_t size() const { return size_; }
  size_t block_count() const { return count_; }
  const iovec& block(size_t index) const { return blocks()[index]; }

  // Copies all blocks from `first` on to `to`.
  void copy_to(char* to, size_t first = 0) const;

  // Describes the body in at most `max` vectors, merging what is beyond; the merged copy is kept
  // until the next call or clear(). Returns how many were used, -1 when memory is exhausted.
  int describe(iovec vectors[], int max);

 private:
  static constexpr size_t kInline = 2;

  iovec* blocks() { return more_ ? more_.get() : inline_; }
  const iovec* blocks() const { return more_ ? more_.get() : inline_; }
  bool add_block(void* bytes, size_t size);

  size_t size_ = 0;
  size_t count_ = 0;
  size_t capacity_ = kInline;
  // The end of the last block if that was copied: the next copy may just lengthen it.
  char* copied_end_ = nullptr;
  std::unique_ptr<iovec[]> more_;
  iovec inline_[kInline];
  Arena copies_;
  std::unique_ptr<char[]> merged_;
};

}  // namespace protocol

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "protocol/Arena.h"
#include "protocol/ByteBuffer.h"

namespace protocol {

// The body to be sent, as a list of blocks. A block is a copy, or memory that the user keeps alive.
// A few blocks fit without an allocation. Not thread-safe.
class HttpBody {
 public:
  HttpBody() = default;
  HttpBody(const HttpBody&) = delete;
  HttpBody& operator=(const HttpBody&) = delete;

  // Return false when memory is exhausted. append() copies the bytes, into the room that `text` has
  // left if nothing was appended before and it suffices.
  bool append(const void* bytes, size_t size, Arena* text);
  bool append_nocopy(const void* bytes, size_t size);
  void clear();

  size_t size() const { return size_; }
  size_t block_count() const { return count_; }
  const iovec& block(size_t index) const { return blocks()[index]; }

  // Copies the bytes of all blocks, from the block `first` on, to `to`.
  void copy_to(char* to, size_t first = 0) const;

  // Describes the body in at most `max` vectors. If there are more blocks, the last vector is a
  // copy of all blocks that do not fit; it is valid until the next call or clear(). Returns how
  // many vectors were used, or -1 when memory is exhausted.
  int describe(iovec vectors[], int max);

 private:
  static constexpr size_t kInline = 2;

  iovec* blocks() { return more_ ? more_.get() : inline_; }
  const iovec* blocks() const { return more_ ? more_.get() : inline_; }
  bool add_block(void* bytes, size_t size);

  size_t size_ = 0;
  size_t count_ = 0;
  size_t capacity_ = kInline;
  // The end of the last block if that is a copy, or null. If the next copy begins there, it just
  // lengthens the block.
  char* copied_end_ = nullptr;
  std::unique_ptr<iovec[]> more_;
  iovec inline_[kInline];
  Arena copies_;
  std::unique_ptr<char[]> merged_;
};

}  // namespace protocol

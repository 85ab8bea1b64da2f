#include "protocol/HttpBody.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace protocol {

bool HttpBody::add_block(void* bytes, size_t size) {
  if (count_ == capacity_) {
    std::unique_ptr<iovec[]> larger(new (std::nothrow) iovec[capacity_ * 2]);
    if (!larger) return false;
    std::copy(blocks(), blocks() + count_, larger.get());
    more_ = std::move(larger);
    capacity_ *= 2;
  }
  blocks()[count_++] = {bytes, size};
  size_ += size;
  return true;
}

bool HttpBody::append(const void* bytes, size_t size, Arena* text) {
  if (size == 0) return true;
  char* copy = count_ == 0 ? text->allocate_from_room(size) : nullptr;
  if (copy == nullptr) copy = copies_.allocate(size);
  if (copy == nullptr) return false;
  std::memcpy(copy, bytes, size);
  if (copy == copied_end_) {
    blocks()[count_ - 1].iov_len += size;
    size_ += size;
  } else if (!add_block(copy, size)) {
    return false;
  }
  copied_end_ = copy + size;
  return true;
}

bool HttpBody::append_nocopy(const void* bytes, size_t size) {
  if (size == 0) return true;
  copied_end_ = nullptr;
  return add_block(const_cast<void*>(bytes), size);
}

void HttpBody::clear() {
  size_ = 0;
  count_ = 0;
  copied_end_ = nullptr;
  copies_.clear();
  merged_.reset();
}

void HttpBody::copy_to(char* to, size_t first) const {
  for (size_t i = first; i < count_; ++i) {
    std::memcpy(to, block(i).iov_base, block(i).iov_len);
    to += block(i).iov_len;
  }
}

int HttpBody::describe(iovec vectors[], int max) {
  size_t room = static_cast<size_t>(max);
  if (count_ <= room) {
    std::copy(blocks(), blocks() + count_, vectors);
    return static_cast<int>(count_);
  }
  size_t kept = room - 1;
  size_t merged_size = 0;
  for (size_t i = kept; i < count_; ++i)
    merged_size += block(i).iov_len;
  merged_.reset(new (std::nothrow) char[merged_size]);
  if (!merged_) return -1;
  copy_to(merged_.get(), kept);
  std::copy(blocks(), blocks() + kept, vectors);
  vectors[kept] = {merged_.get(), merged_size};
  return max;
}

}  // namespace protocol

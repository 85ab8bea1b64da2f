#include "workflow/HttpMessageChunk.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace protocol {

namespace {

void* copy_of(const void* data, size_t size) {
  void* copy = std::malloc(size > 0 ? size : 1);
  if (copy == nullptr) {
    errno = ENOMEM;
  } else if (size > 0) {
    std::memcpy(copy, data, size);
  }
  return copy;
}

}  // namespace

HttpMessageChunk::~HttpMessageChunk() {
  std::free(owned_);
}

bool HttpMessageChunk::get_chunk_data(const void** data, size_t* size) const {
  *data = data_;
  *size = size_;
  return data_ != nullptr;
}

bool HttpMessageChunk::move_chunk_data(void** data, size_t* size) {
  void* moved = nullptr;
  if (owned_ != nullptr) {
    moved = std::exchange(owned_, nullptr);
  } else if (data_ != nullptr) {
    moved = copy_of(data_, size_);
    if (moved == nullptr) return false;
  } else {
    errno = ENOENT;
    return false;
  }
  *data = moved;
  *size = size_;
  refer_to(nullptr, 0);
  return true;
}

bool HttpMessageChunk::set_chunk_data(const void* data, size_t size) {
  void* copy = copy_of(data, size);
  if (copy == nullptr) return false;
  refer_to(copy, size);
  owned_ = copy;
  return true;
}

void HttpMessageChunk::refer_to(const void* data, size_t size) {
  std::free(std::exchange(owned_, nullptr));
  data_ = data;
  size_ = size;
}

}  // namespace protocol

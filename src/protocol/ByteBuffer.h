#pragma once

#include <cstdlib>
#include <cstring>
#include <utility>

namespace protocol {

// Contiguous bytes that grow at the end. realloc() moves a large buffer without copying. Nothing
// throws: a function that finds no memory returns false and changes nothing. Not thread-safe.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  ~ByteBuffer() { std::free(data_); }
  ByteBuffer(const ByteBuffer&) = delete;
  ByteBuffer& operator=(const ByteBuffer&) = delete;

  const char* data() const { return data_; }
  char* data() { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Makes room for exactly `capacity` bytes in all.
  bool reserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    char* grown = static_cast<char*>(std::realloc(data_, capacity));
    if (grown == nullptr) return false;
    data_ = grown;
    capacity_ = capacity;
    return true;
  }

  bool append(const char* bytes, size_t count) {
    if (count == 0) return true;
    if (count > capacity_ - size_ && !grow(count)) return false;
    std::memcpy(data_ + size_, bytes, count);
    size_ += count;
    return true;
  }

  // Removes all bytes and keeps the memory.
  void clear() { size_ = 0; }

  // Removes the first `count` bytes. If no bytes are left, and the capacity is more than `kept`
  // bytes, frees the memory.
  void erase_front(size_t count, size_t kept) {
    size_ -= count;
    if (size_ > 0) {
      std::memmove(data_, data_ + count, size_);
    } else if (capacity_ > kept) {
      release();
    }
  }

  // Removes all bytes and frees the memory.
  void release() {
    std::free(std::exchange(data_, nullptr));
    size_ = 0;
    capacity_ = 0;
  }

 private:
  bool grow(size_t count) {
    size_t needed = size_ + count;
    if (needed < size_) return false;
    size_t doubled = capacity_ * 2;
    return reserve(needed > doubled ? needed : doubled);
  }

  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace protocol

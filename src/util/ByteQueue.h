#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace workflow {

// Bytes that are appended at the end and removed at the front. They stand in blocks of at most 32
// KiB, which never move: see Pages for what larger ones would cost. Nothing throws. Not
// thread-safe.
//
// Invariants:
// 1. Only the first block may have bytes that are removed, and only the last one has room.
// 2. Without bytes there is at most one block, of at most kKept bytes.
class ByteQueue {
 public:
  ByteQueue() = default;
  ByteQueue(ByteQueue&& other) noexcept { swap(other); }
  ByteQueue& operator=(ByteQueue&& other) noexcept {
    ByteQueue(std::move(other)).swap(*this);
    return *this;
  }
  ~ByteQueue() { free_all(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Copies the bytes. Returns false when memory is exhausted, and then changes nothing.
  bool append(const void* bytes, size_t count) {
    if (count == 0) return true;
    const char* from = static_cast<const char*>(bytes);
    const size_t fitting = std::min(count, last_ ? last_->capacity - last_->end : 0);
    Block* added = nullptr;
    Block* end = nullptr;
    if (!make_blocks(from + fitting, count - fitting, &added, &end)) return false;
    if (fitting > 0) {
      std::memcpy(last_->bytes() + last_->end, from, fitting);
      last_->end += fitting;
    }
    if (added) {
      (last_ ? last_->next : first_) = added;
      last_ = end;
    }
    size_ += count;
    return true;
  }

  // Fills in at most `count` vectors with the first bytes, and returns how many.
  int vectors(struct iovec* vectors, int count) const {
    int filled = 0;
    for (Block* block = first_; block && size_ > 0 && filled < count; block = block->next) {
      vectors[filled++] = {block->bytes() + block->begin, block->end - block->begin};
    }
    return filled;
  }

  // Removes the first `count` bytes, which must be there.
  void consume(size_t count) {
    size_ -= count;
    while (count > 0) {
      const size_t part = std::min(count, first_->end - first_->begin);
      first_->begin += part;
      count -= part;
      if (first_->begin == first_->end && first_ != last_) {
        std::free(std::exchange(first_, first_->next));
      }
    }
    if (size_ == 0) clear();
  }

  void clear() {
    if (first_ && first_ == last_ && first_->capacity <= kKept) {
      first_->begin = first_->end = 0;
      size_ = 0;
    } else {
      free_all();
    }
  }

 private:
  static constexpr size_t kKept = 256;

  struct Block {
    Block* next;
    size_t begin;  // bytes before it are removed
    size_t end;
    size_t capacity;

    char* bytes() { return reinterpret_cast<char*>(this + 1); }
  };
  static constexpr size_t kLargest = size_t{32} * 1024 - sizeof(Block);

  // Copies the bytes into new blocks. The first of them is at least twice as large as the last one
  // of the queue, but no block is larger than kLargest. Returns false when memory is exhausted.
  bool make_blocks(const char* from, size_t count, Block** first, Block** last) const {
    size_t capacity = last_ ? last_->capacity : 0;
    while (count > 0) {
      capacity = std::min(kLargest, std::max(2 * capacity, count));
      auto* const block = static_cast<Block*>(std::malloc(sizeof(Block) + capacity));
      if (!block) {
        free_list(*first);
        return false;
      }
      const size_t part = std::min(count, capacity);
      *block = {nullptr, 0, part, capacity};
      std::memcpy(block->bytes(), from, part);
      (*last ? (*last)->next : *first) = block;
      *last = block;
      from += part;
      count -= part;
    }
    return true;
  }

  static void free_list(Block* block) {
    while (block) {
      std::free(std::exchange(block, block->next));
    }
  }
  void free_all() {
    free_list(first_);
    first_ = last_ = nullptr;
    size_ = 0;
  }
  void swap(ByteQueue& other) {
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
    std::swap(size_, other.size_);
  }

  Block* first_ = nullptr;
  Block* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace workflow

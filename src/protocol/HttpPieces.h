#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace protocol {

// A queue of pieces of a body. Bytes are appended to a piece until it is whole, and whole pieces
// are taken in the same order. Holds only what was not taken yet. Not thread-safe.
//
// The bytes of a piece stand in one block, so only a piece of nearly 64 KiB needs a block of that
// size. All others have less: see workflow::Pages for what larger ones cost.
//
// Invariants:
// 1. A block contains pieces, each behind its size. Only the last piece of the last block may be
//    open, which means that it is not whole.
// 2. `whole_` is the number of whole pieces that were not taken. What stands before `taken_` in the
//    first block was taken.
class HttpPieces {
 public:
  // A chunk larger than this is passed on as it arrives, a smaller one as a whole.
  static constexpr size_t kWholeChunk = size_t{64} * 1024;

  enum class Keeps { kPieces, kNothing };  // kNothing: for callers that check only the framing
  explicit HttpPieces(Keeps keeps = Keeps::kPieces) : keeps_(keeps) {}
  ~HttpPieces() {
    while (first_ != nullptr)
      drop_first();
  }
  HttpPieces(const HttpPieces&) = delete;
  HttpPieces& operator=(const HttpPieces&) = delete;

  // Returns false when memory is exhausted.
  bool append(const char* bytes, size_t count) {
    if (keeps_ == Keeps::kNothing || count == 0) return true;
    if (!make_room(count)) return false;
    std::memcpy(last_->bytes() + last_->size, bytes, count);
    last_->size += count;
    return true;
  }
  // Makes a whole piece of what was appended since the last call, unless that is nothing.
  void close() {
    if (!is_open_) return;
    const size_t size = open_size();
    std::memcpy(last_->bytes() + open_at_, &size, sizeof size);
    is_open_ = false;
    whole_++;
  }
  // Appends bytes as whole pieces. Where one ends does not matter. Returns false when memory is
  // exhausted.
  bool append_whole(const char* bytes, size_t count) {
    while (count > 0) {
      const size_t part = std::min(count, kBlock - sizeof(size_t));
      if (!append(bytes, part)) return false;
      close();
      bytes += part;
      count -= part;
    }
    return true;
  }

  bool empty() const { return whole_ == 0; }
  // Takes the next piece, whose bytes are valid until the next call. If all whole pieces were
  // taken, returns false and frees their memory, except the last block if it has at most kKept
  // bytes or holds the open piece.
  bool take(const char** data, size_t* size) {
    if (empty()) {
      forget_taken();
      return false;
    }
    while (taken_ == first_->size)
      drop_first();
    std::memcpy(size, first_->bytes() + taken_, sizeof *size);
    *data = first_->bytes() + taken_ + sizeof *size;
    taken_ += sizeof *size + *size;
    whole_--;
    return true;
  }
  // Drops all whole pieces.
  void drop() {
    whole_ = 0;
    forget_taken();
  }

 private:
  struct Block {
    Block* next;
    size_t capacity;
    size_t size;

    char* bytes() { return reinterpret_cast<char*>(this + 1); }
  };
  // Capacities. A block is twice as large as the one before, up to kBlock. If a piece needs more,
  // its block has kLargeBlock, and only if that is not enough, room for all that may come.
  static constexpr size_t kFirstBlock = 1024 - sizeof(Block);
  static constexpr size_t kBlock = size_t{32} * 1024 - sizeof(Block);
  static constexpr size_t kLargeBlock = size_t{63} * 1024;
  // At most this many bytes of memory stay allocated, so that a quiet stream does not hold what a
  // busy moment has needed.
  static constexpr size_t kKept = kFirstBlock;

  size_t open_size() const {
    assert(!is_open_ || last_ != nullptr);
    return is_open_ ? last_->size - open_at_ - sizeof(size_t) : 0;
  }

  static size_t capacity_for(size_t needed, size_t before) {
    if (needed <= kBlock) return std::max({needed, std::min(2 * before, kBlock), kFirstBlock});
    return needed <= kLargeBlock ? kLargeBlock : std::max(needed, kWholeChunk + sizeof(size_t));
  }

  // Makes room for `count` bytes in the last block, behind the bytes of the open piece.
  bool make_room(size_t count) {
    const size_t header = is_open_ ? 0 : sizeof(size_t);
    if (last_ == nullptr || last_->capacity - last_->size < header + count) {
      const size_t moved = is_open_ ? sizeof(size_t) + open_size() : 0;
      const size_t before = last_ == nullptr ? 0 : last_->capacity;
      const size_t capacity = capacity_for(moved + header + count, before);
      auto* const block = static_cast<Block*>(std::malloc(sizeof(Block) + capacity));
      if (block == nullptr) return false;
      *block = {nullptr, capacity, moved};
      if (moved > 0) {
        std::memcpy(block->bytes(), last_->bytes() + open_at_, moved);
        last_->size = open_at_;
        open_at_ = 0;
      }
      (last_ == nullptr ? first_ : last_->next) = block;
      last_ = block;
      if (whole_ == 0) {
        while (first_ != last_)
          drop_first();
      }
    }
    assert(last_ != nullptr);
    if (!is_open_) {
      is_open_ = true;
      open_at_ = last_->size;
      last_->size += sizeof(size_t);
    }
    return true;
  }

  void drop_first() {
    std::free(std::exchange(first_, first_->next));
    if (first_ == nullptr) last_ = nullptr;
    taken_ = 0;
  }

  void forget_taken() {
    if (last_ == nullptr) return;
    while (first_ != last_)
      drop_first();
    assert(last_ != nullptr);
    if (is_open_) {
      taken_ = open_at_;
    } else if (last_->capacity > kKept) {
      drop_first();
    } else {
      last_->size = taken_ = 0;
    }
  }

  const Keeps keeps_;
  bool is_open_ = false;
  Block* first_ = nullptr;
  Block* last_ = nullptr;
  size_t taken_ = 0;    // offset in the first block
  size_t open_at_ = 0;  // offset in the last block of the open piece's size
  size_t whole_ = 0;
};

}  // namespace protocol

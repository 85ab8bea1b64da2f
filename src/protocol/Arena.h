#pragma once

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace protocol {

// Memory that is allocated in pieces and freed as a whole. Pieces never move, so pointers to the
// text of a message stay valid when something is added to it later. The first pieces come from
// memory that the owner lends, which must live as long as the arena. Not thread-safe.
class Arena {
 public:
  Arena() = default;
  Arena(char* room, size_t size) : next_(room), left_(size) {}
  ~Arena() { clear(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns null when memory is exhausted. Pieces are not aligned: they are for bytes.
  char* allocate(size_t size) {
    if (size > left_ && !add_block(size)) return nullptr;
    return take(size);
  }

  // Allocates only from the room that is there already. Returns null if that is not enough.
  char* allocate_from_room(size_t size) { return size > left_ ? nullptr : take(size); }

  void clear() {
    while (blocks_ != nullptr)
      std::free(std::exchange(blocks_, blocks_->next));
    next_ = nullptr;
    left_ = 0;
    block_size_ = kFirstBlock;
  }

 private:
  static constexpr size_t kFirstBlock = 256;
  static constexpr size_t kLargestGrowth = size_t{256} * 1024;

  struct Block {
    Block* next;
  };

  char* take(size_t size) {
    char* piece = next_;
    next_ += size;
    left_ -= size;
    return piece;
  }

  // The size of the blocks doubles from one to the next, up to kLargestGrowth, so that many small
  // pieces cost few allocations. A larger piece gets a block of its own size. What was left of the
  // last block is not used any more.
  bool add_block(size_t size) {
    size_t capacity = size > block_size_ ? size : block_size_;
    if (capacity + sizeof(Block) < capacity) return false;
    auto* block = static_cast<Block*>(std::malloc(sizeof(Block) + capacity));
    if (block == nullptr) return false;
    block->next = blocks_;
    blocks_ = block;
    next_ = reinterpret_cast<char*>(block + 1);
    left_ = capacity;
    if (block_size_ < kLargestGrowth) block_size_ *= 2;
    return true;
  }

  char* next_ = nullptr;
  size_t left_ = 0;
  size_t block_size_ = kFirstBlock;
  Block* blocks_ = nullptr;
};

}  // namespace protocol

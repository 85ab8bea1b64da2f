#include "util/Slabs.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "util/Mutex.h"
#include "util/Pages.h"

namespace workflow {

// Lies at the beginning of the pages whose blocks it describes.
struct alignas(64) Slabs::Slab {
  Slab* next = nullptr;
  Slab* previous = nullptr;
  Block* free = nullptr;   // blocks that were given back
  char* unused = nullptr;  // no block from here on was taken since the slab was empty
  char* end = nullptr;     // of the last block
  size_t in_use = 0;

  void begin() {
    free = nullptr;
    unused = reinterpret_cast<char*>(this + 1);
  }
  bool is_full() const { return !free && unused == end; }
};

Slabs::Slab* Slabs::slab_of(Block* block) {
  return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & ~(Pages::kSize - 1));
}

void Slabs::link(Slab*& first, Slab* slab) {
  slab->previous = nullptr;
  slab->next = first;
  if (first) {
    first->previous = slab;
  }
  first = slab;
}

void Slabs::unlink(Slab*& first, Slab* slab) {
  (slab->previous ? slab->previous->next : first) = slab->next;
  if (slab->next) {
    slab->next->previous = slab->previous;
  }
}

Slabs::Block* Slabs::take_from(Slab* slab) {
  if (slab->in_use++ == 0) {
    unlink(empty_, slab);
    empty_count_--;
    link(partial_, slab);
  }
  Block* block = slab->free;
  if (block) {
    slab->free = block->next;
    __builtin_prefetch(block->next);
  } else {
    block = new (slab->unused) Block{nullptr};
    slab->unused += size_;
  }
  if (slab->is_full()) {
    unlink(partial_, slab);
  }
  return block;
}

std::unique_lock<NativeMutex> Slabs::lock() const {
  lock_spinning(mutex_);
  return {mutex_, std::adopt_lock};
}

Slabs::Block* Slabs::take(int most, int* count) {
  Block* batch = nullptr;
  std::unique_lock lock = this->lock();
  if (most == kBatch) {
    if (kept_count_ > 0) {
      wanted_++;
      *count += kBatch;
      return kept_[static_cast<size_t>(--kept_count_)];
    }
    wanted_ = std::min(wanted_ + 1, kMostKept);
  }
  if (!partial_ && !empty_) {
    lock.unlock();
    Slab* const slab = new (Pages::take()) Slab;
    slab->begin();
    slab->end = slab->unused + (Pages::kSize - sizeof(Slab)) / size_ * size_;
    lock = this->lock();
    link(empty_, slab);
    empty_count_++;
    slab_count_++;
  }
  while (most > 0 && (partial_ || empty_)) {
    Block* const block = take_from(partial_ ? partial_ : empty_);
    block->next = std::exchange(batch, block);
    ++*count;
    most--;
  }
  return batch;
}

void Slabs::give_one(Block* block) {
  Slab* const slab = slab_of(block);
  if (slab->is_full()) {
    link(partial_, slab);
  }
  block->next = std::exchange(slab->free, block);
  if (--slab->in_use == 0) {
    slab->begin();  // blocks are then taken in address order again, which suits caches
    unlink(partial_, slab);
    link(empty_, slab);
    empty_count_++;
  }
}

Slabs::Slab* Slabs::take_unneeded() {
  const size_t most = std::max(kLeastEmpty, (slab_count_ - empty_count_) / 2);
  if (empty_count_ <= most) return nullptr;
  Slab* const slab = empty_;
  unlink(empty_, slab);
  empty_count_--;
  slab_count_--;
  return slab;
}

void Slabs::give(Block* batch) noexcept {
  Slab* unneeded = nullptr;
  {
    const std::unique_lock lock = this->lock();
    while (Block* const block = batch) {
      batch = block->next;
      give_one(block);
    }
    while (Slab* const slab = take_unneeded()) {
      slab->next = std::exchange(unneeded, slab);
    }
  }
  while (Slab* const slab = unneeded) {
    unneeded = slab->next;
    Pages::give(slab);
  }
}

void Slabs::give_whole(Block* batch) noexcept {
  std::array<Block*, kMostKept> kept{};
  size_t count = 0;
  {
    const std::unique_lock lock = this->lock();
    if (wanted_ > 0) {
      wanted_--;
      kept_[static_cast<size_t>(kept_count_++)] = batch;
      return;
    }
    kept = kept_;
    count = static_cast<size_t>(std::exchange(kept_count_, 0));
  }
  give(batch);
  for (size_t i = 0; i < count; i++) {
    give(kept[i]);
  }
}

size_t Slabs::slab_count() const {
  const std::unique_lock lock = this->lock();
  return slab_count_;
}

}  // namespace workflow

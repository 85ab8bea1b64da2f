#include "util/Pages.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "util/Mutex.h"

namespace workflow {

namespace {

char* map(char* place, size_t size) {
  void* const memory =
      ::mmap(place, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<char*>(memory);
}

// When the process has as many mappings as the kernel allows, none can be split. The memory is
// returned even then, and its addresses are lost.
void unmap(void* memory, size_t size) noexcept {
  if (size > 0 && ::munmap(memory, size) != 0) {
    ::madvise(memory, size, MADV_DONTNEED);
  }
}

size_t offset_of(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % Pages::kSize;
}

// Addresses where there is probably room: that of the last piece that was unmapped, and that of
// the lowest piece of all. A piece right below the lowest one joins its mapping. Without such a
// hint the kernel would offer the same unaligned hole again and again. Relaxed: these are only
// hints, and publish nothing. The kernel decides who gets the memory.
std::atomic<char*> unmapped{nullptr};
std::atomic<char*> lowest{nullptr};

// Returns null if the memory that the kernel offers there is not aligned.
char* map_near(char* place) {
  if (!place) return nullptr;
  char* const pages = map(place, Pages::kSize);
  if (offset_of(pages) != 0) {
    unmap(pages, Pages::kSize);
    return nullptr;
  }
  return pages;
}

char* map_aligned() {
  constexpr size_t kSize = Pages::kSize;
  if (char* const pages = map_near(unmapped.exchange(nullptr, std::memory_order_relaxed))) {
    return pages;
  }
  char* const below = lowest.load(std::memory_order_relaxed);
  char* pages = map_near(below ? below - kSize : nullptr);
  if (!pages) {
    char* const larger = map(nullptr, 2 * kSize);
    const size_t before = (kSize - offset_of(larger)) % kSize;
    unmap(larger, before);
    unmap(larger + before + kSize, kSize - before);
    pages = larger + before;
  }
  if (!below || pages < below) {
    lowest.store(pages, std::memory_order_relaxed);
  }
  return pages;
}

// The pieces that are kept, linked through their first bytes. The one that was given back last is
// taken first, because it is most likely to be in a cache. No simulation schedules the lock.
class Kept {
 public:
  // Returns null if there is none.
  void* take() {
    const std::unique_lock lock = this->lock();
    if (!first_) return nullptr;
    count_--;
    return std::exchange(first_, first_->next);
  }

  // Returns whether it is kept.
  bool give(void* pages) {
    const std::unique_lock lock = this->lock();
    if (count_ == Pages::kMostKept) return false;
    count_++;
    first_ = new (pages) Piece{first_};
    return true;
  }

  size_t count() {
    const std::unique_lock lock = this->lock();
    return count_;
  }

 private:
  struct Piece {
    Piece* next;
  };

  std::unique_lock<NativeMutex> lock() {
    lock_spinning(mutex_);
    return {mutex_, std::adopt_lock};
  }

  NativeMutex mutex_;  // guards the members below
  Piece* first_ = nullptr;
  size_t count_ = 0;
};
constinit Kept kept_pieces;

void* take_piece() {
  void* const pages = kept_pieces.take();
  return pages ? pages : map_aligned();
}

}  // namespace

void* Pages::take() {
  void* const pages = plain() ? ::operator new (kSize, std::align_val_t{kSize}) : take_piece();
  count_.fetch_add(1, std::memory_order_relaxed);
  return pages;
}

void Pages::give(void* pages) noexcept {
  if (!pages) return;
  count_.fetch_sub(1, std::memory_order_relaxed);
  if (plain()) {
    ::operator delete (pages, std::align_val_t{kSize});
  } else if (!kept_pieces.give(pages)) {
    unmap(pages, kSize);
    unmapped.store(static_cast<char*>(pages), std::memory_order_relaxed);
  }
}

size_t Pages::kept_count() {
  return kept_pieces.count();
}

}  // namespace workflow

#include "util/Pages.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

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

// Addresses where there is probably room: that of the last piece that was given back, and that of
// the lowest piece of all. A piece right below the lowest one joins its mapping. Without such a
// hint the kernel would offer the same unaligned hole again and again. Relaxed: these are only
// hints, and publish nothing. The kernel decides who gets the memory.
std::atomic<char*> given{nullptr};
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
  if (char* const pages = map_near(given.exchange(nullptr, std::memory_order_relaxed))) {
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

}  // namespace

void* Pages::take() {
  void* const pages = plain() ? ::operator new (kSize, std::align_val_t{kSize}) : map_aligned();
  count_.fetch_add(1, std::memory_order_relaxed);
  return pages;
}

void Pages::give(void* pages) noexcept {
  if (!pages) return;
  count_.fetch_sub(1, std::memory_order_relaxed);
  if (plain()) {
    ::operator delete (pages, std::align_val_t{kSize});
  } else {
    unmap(pages, kSize);
    given.store(static_cast<char*>(pages), std::memory_order_relaxed);
  }
}

}  // namespace workflow

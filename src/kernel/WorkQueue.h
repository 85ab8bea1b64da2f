#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "util/VirtualScheduler.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// The items that a worker of a pool has taken for itself and will run next. The worker removes them
// at the front without a lock. Other threads may remove items at the back, while they hold the
// mutex of the pool.
//
// The worker, its owner, may call pop() at any time. The other functions require the mutex of the
// pool; fill() belongs to the owner, too.
//
// Invariants:
// 1. The items are slots_[first..end), and `first` and `end` are one word. Both pop() and
//    take_back() change that word by a compare-and-swap, so each item is removed exactly once.
// 2. Slots are written only by fill(), which the owner calls under the mutex while the queue is
//    empty. A slot is read by the owner itself, or under the mutex.
//
// Memory order. All operations on range_ are relaxed. By 2, program order or the mutex orders each
// write of a slot before the reads of its item, and each read before the next write. The word only
// decides who reads which slot, and that follows from its modification order alone.
class alignas(64) WorkQueue {
 public:
  static constexpr size_t kMax = 64;

  WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Takes all items of a list of at most kMax items. The queue must be empty.
  void fill(RunnableList& items) {
    uint32_t count = 0;
    while (Runnable* const item = items.pop_front()) {
      slots_[count++] = item;
    }
    range_.store(count, std::memory_order_relaxed);
  }

  // Owner only. Returns the oldest item, or null.
  Runnable* pop() {
    uint64_t range = range_.load(std::memory_order_relaxed);
    schedule_point();
    while (first_of(range) != end_of(range)) {
      if (range_.compare_exchange_weak(range, range + kOneFirst, std::memory_order_relaxed)) {
        if (first_of(range) + 1 < end_of(range)) {
          prefetch(slots_[first_of(range) + 1]);
        }
        return slots_[first_of(range)];
      }
    }
    return nullptr;
  }

  // Appends the newest half of the items to `items`, or all of them, oldest first.
  enum class Part { kHalf, kAll };
  void take_back(Part part, RunnableList& items) {
    uint64_t range = range_.load(std::memory_order_relaxed);
    schedule_point();
    uint32_t count = 0;
    do {
      const uint32_t size = end_of(range) - first_of(range);
      count = part == Part::kAll ? size : (size + 1) / 2;
    } while (count > 0 &&
             !range_.compare_exchange_weak(range, range - count, std::memory_order_relaxed));
    for (uint32_t i = end_of(range) - count; i != end_of(range); i++) {
      items.push_back(slots_[i]);
    }
  }

  // How many items there are. The owner may have removed some of them when the caller looks at the
  // result.
  size_t size() const {
    const uint64_t range = range_.load(std::memory_order_relaxed);
    return end_of(range) - first_of(range);
  }

 private:
  static constexpr uint64_t kOneFirst = uint64_t{1} << 32;

  // Fetches an item from the cache of the core that has made it, while the one before it runs.
  // These are the lines of a go task. An item may be smaller: it does no harm to fetch what follows
  // it.
  static void prefetch(const Runnable* item) {
    const char* const begin = reinterpret_cast<const char*>(item);
    __builtin_prefetch(begin);
    __builtin_prefetch(begin + 64);
    __builtin_prefetch(begin + 128);
  }
  static uint32_t first_of(uint64_t range) { return static_cast<uint32_t>(range >> 32); }
  static uint32_t end_of(uint64_t range) { return static_cast<uint32_t>(range); }

  // `first` in the upper half, `end` in the lower half. See "Memory order" above.
  std::atomic<uint64_t> range_{0};
  std::array<Runnable*, kMax> slots_{};
};

}  // namespace workflow

#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "util/Mutex.h"
#include "util/Sanitizers.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// Memory for objects of one size that are made on one thread and freed on another, many a second:
// what malloc does worst. Freed blocks are kept by the thread, in two batches; full batches
// travel from threads that free to threads that allocate through one common store, of limited size.
//
// Thread-safe. A block is plain memory of operator new, so what is taken may be freed otherwise.
// Neither simulations, which shall not depend on what was freed before, nor AddressSanitizer, which
// shall see what is used after it was freed, get a block twice.
template <size_t SIZE>
class BlockCache {
 public:
  static constexpr int kBatch = 32;
  static constexpr int kMostBatches = 512;
  // Whether blocks are kept.
#if defined(WORKFLOW_ADDRESS_SANITIZER)
  static constexpr bool kRecycles = false;
#else
  static constexpr bool kRecycles = true;
#endif

  static void* take() {
    Local& local = local_;
    if (!is_used_on(local) || (!local.open.head && !next_batch(local))) {
      return ::operator new(SIZE);
    }
    Block* block = local.open.head;
    local.open.head = block->next;
    local.open.count--;
    return block;
  }

  static void give(void* memory) noexcept {
    Local& local = local_;
    if (!is_used_on(local)) {
      ::operator delete(memory);
      return;
    }
    if (local.open.count == kBatch) {
      put_away(local);
    }
    local.open.head = new (memory) Block{local.open.head, nullptr};
    local.open.count++;
  }

 private:
  struct Block {
    Block* next;
    Block* next_batch;  // of the first of a batch in the store
  };
  static_assert(SIZE >= sizeof(Block));

  struct Batch {
    Block* head = nullptr;
    int count = 0;
  };

  // Of a thread. Without a destructor, so that it can be asked as long as the thread lives.
  struct Local {
    Batch open;
    Batch full;             // all or nothing
    bool will_end = false;  // LocalEnd was told to come
    bool ended = false;
  };

  // Gives back what an ending thread has.
  struct LocalEnd {
    ~LocalEnd() {
      Local& local = local_;
      local.ended = true;
      free_all(std::exchange(local.open, {}));
      free_all(std::exchange(local.full, {}));
    }
  };

  static bool is_used_on(Local& local) {
    if (!kRecycles || local.ended || VirtualScheduler::current()) {
      return false;
    }
    if (!local.will_end) {
      static thread_local LocalEnd at_end;
      static_cast<void>(at_end);
      local.will_end = true;
    }
    return true;
  }

  static bool next_batch(Local& local) {
    if (local.full.head) {
      local.open = std::exchange(local.full, {});
      return true;
    }
    MutexLock lock(store_mutex_);
    if (!store_) {
      return false;
    }
    local.open = {std::exchange(store_, store_->next_batch), kBatch};
    stored_--;
    return true;
  }

  static void put_away(Local& local) {
    const Batch batch = std::exchange(local.full, std::exchange(local.open, {}));
    if (batch.head && !store(batch)) {
      free_all(batch);
    }
  }

  static bool store(Batch batch) {
    MutexLock lock(store_mutex_);
    if (stored_ == kMostBatches) {
      return false;
    }
    batch.head->next_batch = std::exchange(store_, batch.head);
    stored_++;
    return true;
  }

  static void free_all(Batch batch) {
    while (Block* block = batch.head) {
      batch.head = block->next;
      ::operator delete(block);
    }
  }

  static inline constinit thread_local Local local_;
  static inline Mutex store_mutex_;
  static inline Block* store_ WF_GUARDED_BY(store_mutex_) = nullptr;
  static inline int stored_ WF_GUARDED_BY(store_mutex_) = 0;
};

}  // namespace workflow

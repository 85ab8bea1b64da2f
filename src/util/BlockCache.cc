#include "util/BlockCache.h"

#include <pthread.h>

namespace workflow {

// Never destroyed: threads that end late give blocks back.
template <size_t... KIND>
Slabs* BlockCache::make_slabs(std::index_sequence<KIND...> /*kinds*/) {
  return new Slabs[sizeof...(KIND)]{Slabs(size_of(KIND))...};
}

Slabs& BlockCache::slabs(size_t kind) {
  static_assert(kind_of(kLargest) == kKinds - 1 && size_of(kKinds - 1) == kLargest);
  static Slabs* const all = make_slabs(std::make_index_sequence<kKinds>());
  return all[kind];
}

void BlockCache::at_end(void* /*self*/) noexcept {
  ended_ = true;
  most_ = 0;
  for (size_t kind = 0; kind < kKinds; kind++) {
    Local& local = local_[kind];
    for (const Batch& batch :
         {std::exchange(local.open, Batch()), std::exchange(local.full, Batch())}) {
      if (batch.head) {
        slabs(kind).give(batch.head);
      }
    }
  }
}

// A thread_local object with a destructor would not do: glibc ends the process if it has no memory
// to register the destructor.
bool BlockCache::expect_end() noexcept {
  if (most_ == 0 && !ended_) {
    struct Key {
      pthread_key_t key = 0;
      bool valid = ::pthread_key_create(&key, &at_end) == 0;
    };
    static const Key end_key;
    // Any value but null makes at_end() run.
    if (end_key.valid && ::pthread_setspecific(end_key.key, local_.data()) == 0) {
      most_ = kBatch;
    }
  }
  return most_ != 0;
}

void BlockCache::refill(Local& local, size_t kind) {
  if (local.full.head) {
    local.open = std::exchange(local.full, Batch());
  } else {
    local.open.head = slabs(kind).take(expect_end() ? kBatch : 1, &local.open.count);
  }
}

void BlockCache::give_to_slab(void* memory, size_t kind) noexcept {
  if (!expect_end()) {
    slabs(kind).give(new (memory) Slabs::Block{nullptr});
    return;
  }
  Local& local = local_[kind];
  if (local.open.count == kBatch) {
    const Batch batch = std::exchange(local.full, std::exchange(local.open, Batch()));
    if (batch.head) {
      slabs(kind).give_whole(batch.head);
    }
  }
  push(local, memory);
}

}  // namespace workflow

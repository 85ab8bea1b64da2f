#include "util/BlockCache.h"

namespace workflow {

namespace {

// Never destroyed: threads that end late give blocks back.
template <size_t... KIND>
Slabs* make_slabs(std::index_sequence<KIND...>, size_t step) {
  return new Slabs[sizeof...(KIND)]{Slabs((KIND + 1) * step)...};
}

}  // namespace

Slabs& BlockCache::slabs(size_t kind) {
  static Slabs* const all = make_slabs(std::make_index_sequence<kKinds>(), kStep);
  return all[kind];
}

BlockCache::AtEnd::~AtEnd() {
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

bool BlockCache::expect_end() {
  if (most_ == 0 && !ended_) {
    static thread_local AtEnd at_end;
    static_cast<void>(at_end);
    most_ = kBatch;
  }
  return !ended_;
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
      slabs(kind).give(batch.head);
    }
  }
  push(local, memory);
}

}  // namespace workflow

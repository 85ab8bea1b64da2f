#include "kernel/TimerQueue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace workflow {

namespace {

constexpr size_t kArity = 4;
constexpr size_t parent_of(size_t i) {
  return i / kArity + 2;
}
constexpr size_t first_child_of(size_t i) {
  return (i - 2) * kArity;
}

}  // namespace

TimerQueue::~TimerQueue() {
  while (chunk_count_ > 0) {
    Pages::give(chunk(--chunk_count_));
  }
  for (Table* table : tables_) {
    Pages::give(table);
  }
}

// Neither chunks nor tables are initialised: they are written as they fill.
void TimerQueue::add_chunk() {
  const size_t table = chunk_count_ / kChunksPerTable;
  if (table == kTables) {
    throw std::bad_alloc();
  }
  if (!tables_[table]) {
    tables_[table] = static_cast<Table*>(Pages::take());
  }
  chunk(chunk_count_) = static_cast<Chunk*>(Pages::take());
  chunk_count_++;
}

bool TimerQueue::insert(TimerQueueNode* node, int64_t deadline_ns) {
  if (end_ >= chunk_count_ * kSlotsPerChunk) {
    add_chunk();
  }
  return sift_up(end_++, Slot{deadline_ns, node}) == kRoot;
}

bool TimerQueue::move(TimerQueueNode* node, int64_t deadline_ns) {
  place(node->index_, Slot{deadline_ns, node});
  return slot(kRoot).node == node;
}

void TimerQueue::erase(TimerQueueNode* node) {
  remove_at(node->index_);
}

TimerQueueNode* TimerQueue::pop_due(int64_t now_ns) {
  if (empty() || slot(kRoot).deadline_ns > now_ns) return nullptr;
  TimerQueueNode* node = slot(kRoot).node;
  remove_at(kRoot);
  return node;
}

size_t TimerQueue::sift_up(size_t i, const Slot& value) {
  while (i > kRoot) {
    const size_t parent = parent_of(i);
    if (slot(parent).deadline_ns <= value.deadline_ns) break;
    put(i, slot(parent));
    i = parent;
  }
  put(i, value);
  return i;
}

void TimerQueue::sift_down(size_t i, const Slot& value) {
  for (;;) {
    const size_t first = first_child_of(i);
    if (first >= end_) break;
    const size_t end = std::min(first + kArity, end_);
    size_t smallest = first;
    for (size_t child = first + 1; child < end; child++) {
      if (slot(child).deadline_ns < slot(smallest).deadline_ns) {
        smallest = child;
      }
    }
    if (value.deadline_ns <= slot(smallest).deadline_ns) break;
    put(i, slot(smallest));
    i = smallest;
  }
  put(i, value);
}

void TimerQueue::remove_at(size_t i) {
  slot(i).node->index_ = TimerQueueNode::kNotQueued;
  const Slot last = slot(--end_);
  if (i != end_) {
    place(i, last);
  }
}

void TimerQueue::place(size_t i, const Slot& value) {
  if (i > kRoot && value.deadline_ns < slot(parent_of(i)).deadline_ns) {
    sift_up(i, value);
  } else {
    sift_down(i, value);
  }
}

TimerQueue::Surplus TimerQueue::take_surplus() {
  // One spare chunk stays, so that a queue at a boundary does not map memory at every insert.
  return Surplus(has_surplus() ? chunk(--chunk_count_) : nullptr);
}

void TimerQueue::check_invariants() const {
  const auto require = [this](bool holds, const char* what, size_t i) {
    if (!holds) {
      std::fprintf(stderr, "TimerQueue: %s at slot %zu of %zu\n", what, i, end_);
      std::abort();
    }
  };
  for (size_t i = kRoot; i < end_; i++) {
    require(slot(i).node->index_ == i, "the node does not know its slot", i);
    require(i == kRoot || slot(parent_of(i)).deadline_ns <= slot(i).deadline_ns,
            "the parent is later than its child", i);
  }
  const size_t needed = (end_ + kSlotsPerChunk - 1) / kSlotsPerChunk;
  require(empty() || chunk_count_ >= needed, "too few chunks", end_);
}

}  // namespace workflow

#include "kernel/ComputePool.h"

#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// The queue that a thread has found last, so that it finds that queue again without a lock.
struct LastQueue {
  uint64_t pool = 0;  // ComputePool::number_; 0: none
  size_t length = 0;
  char name[32] = {};
  ComputeQueue* queue = nullptr;

  bool is(uint64_t pool_number, std::string_view wanted) const {
    return pool == pool_number && std::string_view(name, length) == wanted;
  }
  void set(uint64_t pool_number, std::string_view found, ComputeQueue* found_queue) {
    if (found.size() <= sizeof name) {
      pool = pool_number;
      length = found.copy(name, sizeof name);
      queue = found_queue;
    }
  }
};

constinit thread_local LastQueue last_queue;

// Relaxed: numbers need only be different.
std::atomic<uint64_t> compute_pools{0};

}  // namespace

ComputePool::ComputePool(int threads)
    : WorkerPool({.name = "wf-compute", .threads = threads, .in_order = true}),
      number_(compute_pools.fetch_add(1, std::memory_order_relaxed) + 1) {}

bool ComputeQueue::belongs_to(const ComputePool* pool) {
  const ComputePool* owner = pool_.load(std::memory_order_acquire);
  return owner == pool || (!owner && pool_.compare_exchange_strong(owner, pool));
}

ComputeQueue* ComputePool::queue(std::string_view name) {
  if (last_queue.is(number_, name)) return last_queue.queue;
  MutexLock lock(names_mutex_);
  auto found = names_.find(name);
  if (found == names_.end()) {
    auto made = std::make_unique<ComputeQueue>(this, static_cast<uint32_t>(names_.size()));
    found = names_.emplace(std::string(name), std::move(made)).first;
    if (closed_) {
      found->second->intake_.close();
    }
  }
  last_queue.set(number_, name, found->second.get());
  return found->second.get();
}

bool ComputePool::post(ComputeQueue* queue, Runnable* item) {
  return queue->own_ ? post_to_own(queue, item) : post_to_foreign(queue, item);
}

bool ComputePool::post_to_own(ComputeQueue* queue, Runnable* item) {
  const bool leaves = may_leave(queue);
  RunnableList items;
  items.push_back(item);
  // The item may be gone when push() returns.
  if (queue->pool_.load(std::memory_order_relaxed) != this || !queue->intake_.push(items)) {
    return false;
  }
  if (!leaves || !queue->listed_.load(std::memory_order_seq_cst)) {
    mutex_.lock();
    list(queue);
    unlock_and_wake();
  }
  return true;
}

bool ComputePool::post_to_foreign(ComputeQueue* queue, Runnable* item) {
  mutex_.lock();
  if (terminated() || !queue->belongs_to(this)) {
    mutex_.unlock();
    return false;
  }
  queue->items_.push_back(item);
  waiting_++;
  if (!queue->listed_.load(std::memory_order_relaxed)) {
    append(queue);
  }
  unlock_and_wake();
  return true;
}

bool ComputePool::may_leave(const ComputeQueue* queue) const {
  ThreadContext::LeftItems& left =
      ThreadContext::current().left_in[queue->number_ % ThreadContext::kLeftIn];
  if (left.pool == number_ && left.queue == queue->number_ && ++left.items < kPiece) return true;
  left = {.pool = number_, .queue = queue->number_};
  return false;
}

void ComputePool::list(ComputeQueue* queue) {
  waiting_ += queue->intake_.take(queue->items_);
  if (!queue->listed_.load(std::memory_order_relaxed) && !queue->items_.empty()) {
    append(queue);
  }
}

void ComputePool::append(ComputeQueue* queue) {
  queue->listed_.store(true, std::memory_order_seq_cst);
  queue->self_ = queue->weak_from_this().lock();  // null: the pool's own
  queue->next_listed_ = nullptr;
  if (last_listed_) {
    last_listed_->next_listed_ = queue;
  } else {
    first_listed_ = queue;
  }
  last_listed_ = queue;
}

Runnable* ComputePool::next(Begins begins) {
  ComputeQueue* const queue = first_listed_;
  if (begins == Begins::kLater && !queue->own_ && queue->items_.size() == 1) return nullptr;
  Runnable* const item = queue->items_.pop_front();
  waiting_--;
  if (queue->items_.empty() && queue->own_) {
    waiting_ += queue->intake_.take(queue->items_);
  }
  const bool again = !queue->items_.empty();
  if (again && queue == last_listed_) {
    return item;  // it takes turns with no other
  }
  first_listed_ = queue->next_listed_;
  if (!first_listed_) {
    last_listed_ = nullptr;
  }
  const std::shared_ptr<ComputeQueue> last = std::move(queue->self_);
  if (again) {
    append(queue);
    return item;
  }
  schedule_point();
  queue->listed_.store(false, std::memory_order_seq_cst);
  schedule_point();
  if (queue->own_) {
    list(queue);  // an item may have been posted before
  } else {
    queue->pool_.store(nullptr, std::memory_order_release);
  }
  return item;
}

bool ComputePool::close() {
  MutexLock lock(names_mutex_);
  bool found = false;
  for (const auto& [name, queue] : names_) {
    if (!queue->intake_.empty()) {
      list(queue.get());
      found = true;
    }
  }
  if (found) return false;
  for (const auto& [name, queue] : names_) {
    if (!queue->intake_.close()) {
      // What runs because of the item in there may post to any queue.
      for (const auto& [other_name, other] : names_) {
        other->intake_.open();
      }
      list(queue.get());
      return false;
    }
  }
  closed_ = true;
  return true;
}

}  // namespace workflow

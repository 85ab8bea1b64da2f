#include "kernel/ComputePool.h"

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
    : WorkerPool({.name = "wf-compute", .threads = threads, .one_by_one = true}),
      number_(compute_pools.fetch_add(1, std::memory_order_relaxed) + 1) {}

bool ComputeQueue::belongs_to(const ComputePool* pool) {
  const ComputePool* owner = pool_.load(std::memory_order_acquire);
  return owner == pool || (!owner && pool_.compare_exchange_strong(owner, pool));
}

ComputeQueue* ComputePool::queue(std::string_view name) {
  if (last_queue.is(number_, name)) {
    return last_queue.queue;
  }
  MutexLock lock(names_mutex_);
  auto found = names_.find(name);
  if (found == names_.end()) {
    found = names_.emplace(std::string(name), std::make_unique<ComputeQueue>(this)).first;
  }
  last_queue.set(number_, name, found->second.get());
  return found->second.get();
}

bool ComputePool::post(ComputeQueue* queue, Runnable* item) {
  mutex_.lock();
  if (terminated() || !queue->belongs_to(this)) {
    mutex_.unlock();
    return false;
  }
  queue->items_.push_back(item);
  waiting_++;
  if (!queue->ready_) {
    make_ready(queue);
  }
  unlock_and_wake();
  return true;
}

void ComputePool::make_ready(ComputeQueue* queue) {
  queue->ready_ = true;
  queue->self_ = queue->weak_from_this().lock();  // null: the pool's own
  queue->next_ready_ = nullptr;
  if (ready_tail_) {
    ready_tail_->next_ready_ = queue;
  } else {
    ready_head_ = queue;
  }
  ready_tail_ = queue;
}

Runnable* ComputePool::next() {
  ComputeQueue* queue = ready_head_;
  ready_head_ = queue->next_ready_;
  if (!ready_head_) {
    ready_tail_ = nullptr;
  }
  queue->ready_ = false;
  const std::shared_ptr<ComputeQueue> last = std::move(queue->self_);
  Runnable* item = queue->items_.pop_front();
  waiting_--;
  if (!queue->items_.empty()) {
    make_ready(queue);
  } else if (last) {
    queue->pool_.store(nullptr, std::memory_order_release);
  }
  return item;
}

}  // namespace workflow

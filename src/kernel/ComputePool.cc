#include "kernel/ComputePool.h"

namespace workflow {

ComputePool::ComputePool(int threads) : WorkerPool({.name = "wf-compute", .threads = threads}) {}

bool ComputeQueue::belongs_to(const ComputePool* pool) {
  const ComputePool* owner = pool_.load(std::memory_order_acquire);
  return owner == pool || (!owner && pool_.compare_exchange_strong(owner, pool));
}

ComputeQueue* ComputePool::queue(std::string_view name) {
  MutexLock lock(names_mutex_);
  const auto found = names_.find(name);
  if (found != names_.end()) {
    return found->second.get();
  }
  return names_.emplace(std::string(name), std::make_unique<ComputeQueue>(this))
      .first->second.get();
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

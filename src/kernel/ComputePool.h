#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernel/WorkerPool.h"

namespace workflow {

class ComputePool;

// A FIFO of computations. While it holds an item, it belongs to one ComputePool, whose mutex guards
// all members except pool_. A queue that a pool has created belongs to that pool for ever.
class ComputeQueue : public std::enable_shared_from_this<ComputeQueue> {
 public:
  ComputeQueue() = default;
  explicit ComputeQueue(const ComputePool* pool) : pool_(pool) {}
  ComputeQueue(const ComputeQueue&) = delete;
  ComputeQueue& operator=(const ComputeQueue&) = delete;

 private:
  friend class ComputePool;

  // To be called with the mutex of `pool` held. If the queue belongs to no pool, it belongs to
  // `pool` from now on. Returns whether it belongs to `pool`.
  bool belongs_to(const ComputePool* pool);

  RunnableList items_;
  ComputeQueue* next_ready_ = nullptr;
  bool ready_ = false;
  // Not null while the queue is ready. An owner that knows of no item any more may release the
  // queue although it still holds an item, one whose time limit has passed.
  std::shared_ptr<ComputeQueue> self_;
  std::atomic<const ComputePool*> pool_{nullptr};  // the pool it belongs to, if any
};

// Threads for computations. Each queue starts its items in order. The queues take turns, one item
// each, so that a long queue does not delay a short one. No thread takes several items at a time,
// or an item might begin after a later one of its queue.
class ComputePool final : public WorkerPool {
 public:
  explicit ComputePool(int threads);

  // The queue of that name, created on first use. Lives as long as the pool.
  ComputeQueue* queue(std::string_view name);

  // Returns false, and does not take the item, if the pool has stopped or the queue belongs to
  // another pool.
  bool post(ComputeQueue* queue, Runnable* item);

  // Requests that items which have not begun do not begin. Each item checks is_abandoned() when its
  // turn comes.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  bool is_abandoned() const { return abandoned_.load(std::memory_order_acquire); }

 private:
  size_t waiting() const WF_REQUIRES(mutex_) override { return waiting_; }
  Runnable* next() WF_REQUIRES(mutex_) override;
  void make_ready(ComputeQueue* queue) WF_REQUIRES(mutex_);

  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  const uint64_t number_;  // no other pool of the process has the same
  Mutex names_mutex_;
  std::unordered_map<std::string, std::unique_ptr<ComputeQueue>, NameHash, std::equal_to<>> names_
      WF_GUARDED_BY(names_mutex_);
  size_t waiting_ WF_GUARDED_BY(mutex_) = 0;  // items in all queues
  ComputeQueue* ready_head_ WF_GUARDED_BY(mutex_) = nullptr;
  ComputeQueue* ready_tail_ WF_GUARDED_BY(mutex_) = nullptr;
  std::atomic<bool> abandoned_{false};
};

}  // namespace workflow

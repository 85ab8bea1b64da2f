#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernel/WorkerPool.h"

namespace workflow {

class ComputePool;

// A FIFO of computations. While something is in it, it belongs to one ComputePool, whose mutex
// guards all but pool_; one that a pool has made belongs to that one for ever.
class ComputeQueue : public std::enable_shared_from_this<ComputeQueue> {
 public:
  ComputeQueue() = default;
  explicit ComputeQueue(const ComputePool* pool) : pool_(pool) {}
  ComputeQueue(const ComputeQueue&) = delete;
  ComputeQueue& operator=(const ComputeQueue&) = delete;

 private:
  friend class ComputePool;

  // With the mutex of `pool`: whether it is that one's, now if it was nobody's.
  bool belongs_to(const ComputePool* pool);

  RunnableList items_;
  ComputeQueue* next_ready_ = nullptr;
  bool ready_ = false;
  // While it is ready: an owner that knows of no item any more may let it go although one is left
  // whose time limit has passed.
  std::shared_ptr<ComputeQueue> self_;
  std::atomic<const ComputePool*> pool_{nullptr};  // the one it belongs to, if any
};

// Threads for computations. Each queue starts its items in order; queues take turns, one item
// each, so that a long queue does not hold back a short one.
class ComputePool final : public WorkerPool {
 public:
  explicit ComputePool(int threads);

  // The queue of that name, made at first use. Lives as long as the pool.
  ComputeQueue* queue(std::string_view name);

  // False when the pool has stopped, or the queue is another pool's: the item was not taken.
  bool post(ComputeQueue* queue, Runnable* item);

  // What has not begun yet should not begin any more: it asks when its turn comes.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  bool is_abandoned() const { return abandoned_.load(std::memory_order_acquire); }

 private:
  bool has_work() const WF_REQUIRES(mutex_) override { return ready_head_ != nullptr; }
  Runnable* next() WF_REQUIRES(mutex_) override;
  void make_ready(ComputeQueue* queue) WF_REQUIRES(mutex_);

  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  Mutex names_mutex_;
  std::unordered_map<std::string, std::unique_ptr<ComputeQueue>, NameHash, std::equal_to<>> names_
      WF_GUARDED_BY(names_mutex_);
  ComputeQueue* ready_head_ WF_GUARDED_BY(mutex_) = nullptr;
  ComputeQueue* ready_tail_ WF_GUARDED_BY(mutex_) = nullptr;
  std::atomic<bool> abandoned_{false};
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernel/Intake.h"
#include "kernel/WorkerPool.h"

namespace workflow {

class ComputePool;

// A FIFO of computations. A queue that a pool has created belongs to that pool for ever, and takes
// items without a lock while it is busy. Any other queue belongs to one pool while it holds an
// item. Its intake is not used, and it is listed if it holds an item. When a worker of that pool
// begins the last item, another pool may have the queue.
//
// Invariants, for a queue that a pool has created:
// 1. While the mutex of the pool is free, the queue is listed, that is among those that take turns,
//    if and only if items_ holds an item. Each item there is older than all in the intake.
// 2. If the queue is not listed while its intake holds an item, a thread is about to list it: one
//    that has pushed an item and has not yet returned from ComputePool::post().
//
// Invariant, for any other queue:
// 3. If a worker has taken an item and keeps it, or has given it back, items_ holds a later one. So
//    the queue still belongs to that pool, and no other pool begins a later item first.
class ComputeQueue : public std::enable_shared_from_this<ComputeQueue> {
 public:
  ComputeQueue() = default;
  // The queue of that number of a pool.
  ComputeQueue(const ComputePool* pool, uint32_t number)
      : own_(true), number_(number), pool_(pool) {}
  ComputeQueue(const ComputeQueue&) = delete;
  ComputeQueue& operator=(const ComputeQueue&) = delete;

 private:
  friend class ComputePool;

  // To be called with the mutex of `pool` held. If the queue belongs to no pool, it belongs to
  // `pool` from now on. Returns whether it belongs to `pool`.
  bool belongs_to(const ComputePool* pool);

  // Threads that post read these, so they have a line of the cache to themselves.
  const bool own_ = false;     // created by a pool
  const uint32_t number_ = 0;  // among those of its pool
  // The pool it belongs to, if any. Of a queue that a pool has created it never changes, so a post
  // reads it relaxed. Any other queue passes from one pool to the next, whose mutexes differ:
  // next() releases it when the queue is empty, and belongs_to() acquires it.
  std::atomic<const ComputePool*> pool_{nullptr};
  // Changed only under the mutex of that pool. Seq_cst, for invariant 2: a thread that posts pushes
  // an item and then reads this word, and a thread that takes the queue off the list clears this
  // word and then looks into the intake. In the single order of these four operations one of the
  // two reads comes after both writes.
  std::atomic<bool> listed_{false};

  Intake intake_;  // only of a queue that a pool has created

  // Guarded by the mutex of the pool.
  RunnableList items_;
  ComputeQueue* next_listed_ = nullptr;
  // Keeps a queue alive that no pool has created while it is listed: its owner may release it
  // although it still holds an item, one whose time limit has passed. Always null for a queue that
  // a pool has created, which lives as long as the pool.
  std::shared_ptr<ComputeQueue> self_;
};

// Threads for computations. Each queue starts its items in order. The queues take turns, one item
// each, so that a long queue does not delay a short one. A thread takes several items at a time
// only if they are short and no other thread is awake. Before a second thread that has woken up
// takes an item, it takes back what the first one has not begun. Otherwise an item might begin
// after a later one of its queue. For the same reason no thread keeps the last item of a queue that
// no pool has created: next() returns it only to a thread that begins it at once, when all items
// before it have begun (invariant 3 of ComputeQueue). That costs a long queue one more turn at the
// mutex. If many of these queues hold one item each, a thread takes one item at a time, however
// short they are.
//
// A post to a listed queue of the pool's own takes no lock. A thread that empties an intake holds
// the mutex meanwhile, and has a cache miss for each item. So a thread that has left kPiece items
// in an intake empties it itself, and an intake holds less than kPiece items for each thread that
// posts. A post also empties the intake if the thread keeps no count for this queue: at its first
// post to the queue, and after a post to another queue that has the same place in
// ThreadContext::left_in.
class ComputePool final : public WorkerPool {
 public:
  explicit ComputePool(int threads);

  // The queue of that name, created on first use. Lives as long as the pool.
  ComputeQueue* queue(std::string_view name);

  // Returns false, and does not take the item, if the pool has stopped or is about to, or if the
  // queue belongs to another pool.
  bool post(ComputeQueue* queue, Runnable* item);

  // Requests that items which have not begun do not begin. Each item checks is_abandoned() when its
  // turn comes.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  bool is_abandoned() const { return abandoned_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kPiece = 64;

  size_t waiting() const WF_REQUIRES(mutex_) override { return waiting_; }
  Runnable* next(Begins begins) WF_REQUIRES(mutex_) override;
  bool close() WF_REQUIRES(mutex_) override;
  bool post_to_own(ComputeQueue* queue, Runnable* item);
  bool post_to_foreign(ComputeQueue* queue, Runnable* item);
  // Whether the calling thread may leave an item in the intake of the queue without emptying it.
  bool may_leave(const ComputeQueue* queue) const;
  // Moves what is in the intake of the queue to items_. Lists the queue if it has an item and is
  // not listed.
  void list(ComputeQueue* queue) WF_REQUIRES(mutex_);
  void append(ComputeQueue* queue) WF_REQUIRES(mutex_);

  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  alignas(64) const uint64_t number_;  // no other pool of the process has the same
  // Becomes true once. Release and acquire: an item that does not begin comes after abandon().
  // An item that reads false counts as one that had begun before.
  std::atomic<bool> abandoned_{false};
  alignas(64) Mutex names_mutex_;
  std::unordered_map<std::string, std::unique_ptr<ComputeQueue>, NameHash, std::equal_to<>> names_
      WF_GUARDED_BY(names_mutex_);
  bool closed_ WF_GUARDED_BY(names_mutex_) = false;  // no queue takes items any more
  size_t waiting_ WF_GUARDED_BY(mutex_) = 0;         // items of all listed queues, without intakes
  ComputeQueue* first_listed_ WF_GUARDED_BY(mutex_) = nullptr;
  ComputeQueue* last_listed_ WF_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace workflow

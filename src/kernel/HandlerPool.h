#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/Intake.h"
#include "kernel/WorkerPool.h"

namespace workflow {

// The threads that run callbacks and other user code that may block, and the steps of series. The
// queue is first in, first out, and unbounded.
//
// Posting takes no lock, unless a worker has to be woken, or what waits in the intake may have
// become long. Whoever empties the intake turns it round under the mutex of the pool. So that this
// never takes long, a thread that has left kPiece items there moves all of them to the queue
// itself, and longer batches go straight to the queue. The intake therefore holds less than kPiece
// items of each thread, however many wait.
class HandlerPool final : public WorkerPool {
 public:
  explicit HandlerPool(int threads);

  // Posts a whole batch at once, and leaves the list empty. Must not be called with a lock held.
  // After stop() the calling thread runs the items itself: at once, or, when such items post each
  // other many levels deep, as soon as the deepest of them returns.
  void post(RunnableList& batch) { post(batch, false); }
  void post(Runnable* item);

  // Posts a batch. `turn_ends` may be true only if a thread of this pool calls this as the last
  // action of the item that it runs, or in WorkerPool::Source::post_more(). That thread looks
  // for work itself, so no other thread is woken for this batch.
  void post(RunnableList& batch, bool turn_ends);

  // The longest time in nanoseconds that an item was seen to wait for a thread, in any pool. Only
  // one batch in kWatched is measured, because reading the clock for every batch would cost more
  // than posting it.
  static int64_t longest_wait_ns() { return longest_wait_ns_.load(std::memory_order_relaxed); }

  static constexpr size_t kPiece = 256;

  // The most items that were turned round in one critical section.
  size_t most_gathered() const {
    MutexLock lock(mutex_);
    return most_gathered_;
  }

 private:
  static constexpr uint32_t kWatched = 16;

  size_t waiting() const WF_REQUIRES(mutex_) override {
    return queue_.size() + (intake_.empty() ? 0 : 1);
  }
  void gather() WF_REQUIRES(mutex_) override;
  Runnable* next(Begins begins) WF_REQUIRES(mutex_) override;
  bool close() WF_REQUIRES(mutex_) override { return intake_.close(); }
  // Whether the calling thread may leave the batch in the intake.
  bool may_use_intake(size_t batch);
  // Appends the batch, behind what is in the intake, and leaves it empty. Returns false, and does
  // nothing, if the pool has stopped.
  bool append(RunnableList& batch, bool turn_ends);
  // To be called before a batch is posted. May choose its last item to measure how long it waits.
  void watch(const Runnable* last);
  void end_watch();

  static void run_here(RunnableList& batch);

  Intake intake_;
  RunnableList queue_ WF_GUARDED_BY(mutex_);  // older than all that is in the intake
  size_t most_gathered_ WF_GUARDED_BY(mutex_) = 0;

  // The item whose wait is measured, or null. Relaxed: the thread that posts the item sets both
  // words before it pushes the item, and the thread that takes the item reads them afterwards. The
  // intake orders these. Other threads only compare the address with that of their own items.
  std::atomic<const Runnable*> watched_{nullptr};
  std::atomic<int64_t> watched_since_ns_{0};
  // Relaxed: a maximum that publishes nothing.
  static inline std::atomic<int64_t> longest_wait_ns_{0};
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/WorkerPool.h"

namespace workflow {

// The threads that run user code which may block, and what follows it. The queue is first in, first
// out, and unbounded.
class HandlerPool final : public WorkerPool {
 public:
  explicit HandlerPool(int threads);

  // Posts a whole batch at once, and leaves the list empty. Must not be called with a lock held.
  // After stop() the calling thread runs the items itself: at once, or, when such items post each
  // other many levels deep, as soon as the deepest of them returns.
  void post(RunnableList& batch) { post(batch, false); }
  void post(Runnable* item);

  // Posts a batch. `turn_ends` may be true only if a thread of this pool calls this as the last
  // action of the item that it runs. That thread takes the next item itself, so no other thread is
  // woken for this batch.
  void post(RunnableList& batch, bool turn_ends);

  // The longest time in nanoseconds that an item was seen to wait for a thread, in any pool. Only
  // one batch in kWatched is measured, because reading the clock for every batch would cost more
  // than posting it.
  static int64_t longest_wait_ns() { return longest_wait_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kWatched = 16;

  bool has_work() const WF_REQUIRES(mutex_) override { return !queue_.empty(); }
  Runnable* next() WF_REQUIRES(mutex_) override;
  // To be called after a batch was posted. May choose the last item of the batch to measure how
  // long it waits.
  void watch() WF_REQUIRES(mutex_);

  static void run_here(RunnableList& batch);

  RunnableList queue_ WF_GUARDED_BY(mutex_);
  uint64_t batches_ WF_GUARDED_BY(mutex_) = 0;
  size_t watched_ WF_GUARDED_BY(mutex_) = 0;  // the measured item's place in the queue, from 1; 0:
                                              // none
  int64_t watched_since_ns_ WF_GUARDED_BY(mutex_) = 0;
  static inline std::atomic<int64_t> longest_wait_ns_{0};
};

}  // namespace workflow

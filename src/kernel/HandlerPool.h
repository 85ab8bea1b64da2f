#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/WorkerPool.h"

namespace workflow {

// Where finished tasks go on: callbacks, process functions and the next steps of series.
// First in, first out; unbounded.
class HandlerPool final : public WorkerPool {
 public:
  explicit HandlerPool(int threads);

  // Hands over a whole batch at once and leaves it empty. Never call it with a lock held.
  // After stop() the items run in the caller: at once, or, when such items have posted each other
  // many levels deep, as soon as the deepest of them returns.
  void post(RunnableList& batch) { post(batch, false); }
  void post(Runnable* item);

  // Hands over a batch. With `turn_ends`, which is for a thread of this pool that has nothing else
  // to do in its turn: it takes the next item itself, so no other thread is woken for this batch.
  void post(RunnableList& batch, bool turn_ends);

  // The longest that an item of any pool was seen to wait for its thread. Of batches, one in
  // kWatched is watched, as a look at the clock for each would cost more than its hand-over.
  static int64_t longest_wait_ns() { return longest_wait_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kWatched = 16;

  bool has_work() const WF_REQUIRES(mutex_) override { return !queue_.empty(); }
  Runnable* next() WF_REQUIRES(mutex_) override;
  // After a batch was posted: the last of it may be the item to watch.
  void watch() WF_REQUIRES(mutex_);

  static void run_here(RunnableList& batch);

  RunnableList queue_ WF_GUARDED_BY(mutex_);
  uint64_t batches_ WF_GUARDED_BY(mutex_) = 0;
  size_t watched_ WF_GUARDED_BY(mutex_) = 0;  // its place in the queue, from 1 on; 0: none
  int64_t watched_since_ns_ WF_GUARDED_BY(mutex_) = 0;
  static inline std::atomic<int64_t> longest_wait_ns_{0};
};

}  // namespace workflow

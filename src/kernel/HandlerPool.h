#pragma once

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
  void post(RunnableList& batch);
  void post(Runnable* item);

 private:
  bool has_work() const WF_REQUIRES(mutex_) override { return !queue_.empty(); }
  Runnable* next() WF_REQUIRES(mutex_) override { return queue_.pop_front(); }

  static void run_here(RunnableList& batch);

  RunnableList queue_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

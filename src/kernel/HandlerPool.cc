#include "kernel/HandlerPool.h"

namespace workflow {

HandlerPool::HandlerPool(int threads)
    : WorkerPool({.name = "wf-handler", .threads = threads, .grow_when_starved = true}) {}

void HandlerPool::post(RunnableList& batch) {
  if (batch.empty()) {
    return;
  }
  mutex_.lock();
  if (!terminated()) {
    queue_.append(batch);
    unlock_and_wake();
    return;
  }
  mutex_.unlock();
  while (Runnable* item = batch.pop_front()) {
    item->run();
  }
}

void HandlerPool::post(Runnable* item) {
  RunnableList batch;
  batch.push_back(item);
  post(batch);
}

}  // namespace workflow

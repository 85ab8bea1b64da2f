#include "kernel/HandlerPool.h"

#include <utility>

#include "kernel/ThreadContext.h"
#include "util/Time.h"

namespace workflow {

namespace {

// Items nest so that a callback can wait for what it starts. The limit allows chains of any length
// to be started.
constexpr int kMaxInlineDepth = 32;

}  // namespace

HandlerPool::HandlerPool(int threads)
    : WorkerPool({.name = "wf-handler", .threads = threads, .grow_when_starved = true}) {}

void HandlerPool::post(RunnableList& batch, bool turn_ends) {
  if (batch.empty()) {
    return;
  }
  mutex_.lock();
  if (!terminated()) {
    queue_.append(batch);
    watch();
    if (turn_ends) {
      mutex_.unlock();
    } else {
      unlock_and_wake();
    }
    return;
  }
  mutex_.unlock();
  run_here(batch);
}

void HandlerPool::watch() {
  if (batches_++ % kWatched == 0 && watched_ == 0) {
    watched_ = queue_.size();
    watched_since_ns_ = monotonic_ns();
  }
}

Runnable* HandlerPool::next() {
  if (watched_ > 0 && --watched_ == 0) {
    const int64_t waited_ns = monotonic_ns() - watched_since_ns_;
    int64_t longest_ns = longest_wait_ns_.load(std::memory_order_relaxed);
    while (waited_ns > longest_ns && !longest_wait_ns_.compare_exchange_weak(
                                         longest_ns, waited_ns, std::memory_order_relaxed)) {
    }
  }
  return queue_.pop_front();
}

void HandlerPool::run_here(RunnableList& batch) {
  ThreadContext& context = ThreadContext::current();
  if (context.inline_items) {
    context.inline_items->append(batch);
    return;
  }
  RunnableList items(std::move(batch));
  context.inline_depth++;
  if (context.inline_depth == kMaxInlineDepth) {
    context.inline_items = &items;
  }
  while (Runnable* item = items.pop_front()) {
    item->run_queued();
  }
  if (context.inline_depth == kMaxInlineDepth) {
    context.inline_items = nullptr;
  }
  context.inline_depth--;
}

void HandlerPool::post(Runnable* item) {
  RunnableList batch;
  batch.push_back(item);
  post(batch);
}

}  // namespace workflow

#include "kernel/HandlerPool.h"

#include <algorithm>
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
  if (batch.empty()) return;
  watch(batch.back());
  const bool uses_intake = may_use_intake(batch.size());
  if (!(uses_intake ? intake_.push(batch) : append(batch, turn_ends))) {
    end_watch();
    run_here(batch);
  } else if (uses_intake && !turn_ends) {
    attend();
  }
}

bool HandlerPool::may_use_intake(size_t batch) {
  ThreadContext& context = ThreadContext::current();
  context.posted += batch;
  if (context.posted_to == this && context.posted < kPiece) [[likely]]
    return true;
  // It may have left items in the intake of this pool before it posted to another one.
  context.posted_to = this;
  context.posted = 0;
  return false;
}

bool HandlerPool::append(RunnableList& batch, bool turn_ends) {
  mutex_.lock();
  if (intake_.closed()) {
    mutex_.unlock();
    return false;
  }
  gather();
  queue_.append(batch);
  if (turn_ends) {
    mutex_.unlock();
  } else {
    unlock_and_wake();
  }
  return true;
}

void HandlerPool::gather() {
  most_gathered_ = std::max(most_gathered_, intake_.take(queue_));
}

void HandlerPool::watch(const Runnable* last) {
  static thread_local uint32_t batches = 0;
  const Runnable* none = nullptr;
  if (batches++ % kWatched == 0 && !watched_.load(std::memory_order_relaxed) &&
      watched_.compare_exchange_strong(none, last, std::memory_order_relaxed)) {
    watched_since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  }
}

void HandlerPool::end_watch() {
  watched_.store(nullptr, std::memory_order_relaxed);
}

Runnable* HandlerPool::next(Begins /*begins*/) {
  if (queue_.empty()) {
    gather();
  }
  Runnable* const item = queue_.pop_front();
  if (item == watched_.load(std::memory_order_relaxed)) {
    const int64_t waited_ns = monotonic_ns() - watched_since_ns_.load(std::memory_order_relaxed);
    int64_t longest_ns = longest_wait_ns_.load(std::memory_order_relaxed);
    while (waited_ns > longest_ns && !longest_wait_ns_.compare_exchange_weak(
                                         longest_ns, waited_ns, std::memory_order_relaxed)) {
    }
    end_watch();
  }
  return item;
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

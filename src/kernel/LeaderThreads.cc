#include "kernel/LeaderThreads.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "kernel/HandlerPool.h"
#include "kernel/LeaderTurn.h"
#include "kernel/StallWatch.h"
#include "kernel/ThreadContext.h"
#include "util/Processors.h"
#include "util/ThreadState.h"
#include "util/Time.h"

namespace workflow {

LeaderThreads::LeaderThreads(HandlerPool& handlers, StallWatch* watch, std::function<void()> lead)
    : handlers_(handlers),
      watch_(handlers.configured_threads() > 1 ? watch : nullptr),
      lead_(std::move(lead)),
      turn_ns_(LeaderTurn::length_ns(usable_processors())) {}

bool LeaderThreads::start() {
  if (watch_) {
    watch_->add(this);
  }
  MutexLock lock(threads_mutex_);
  if (!start_thread(0)) {
    errno = EAGAIN;
    return false;
  }
  return true;
}

bool LeaderThreads::start_thread(uint64_t callback_epoch) {
  std::list<Thread> one;
  try {
    one.emplace_back();
    const auto self = one.begin();
    // The new thread looks at *self only under threads_mutex_: it is complete then, and in
    // threads_.
    if (!self->start("wf-poller", ThreadContext::in_same_runtime([this, self, callback_epoch] {
                       thread_main(self, callback_epoch);
                     }))) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  threads_.splice(threads_.end(), one);
  return true;
}

void LeaderThreads::thread_main(std::list<Thread>::iterator self, uint64_t callback_epoch) {
  if (callback_epoch == 0 || take_place(callback_epoch)) {
    measure_caller();
    lead_();
  }
  std::list<Thread> ended_before;
  {
    MutexLock lock(threads_mutex_);
    ended_before.swap(ended_);
    ended_.splice(ended_.end(), threads_, self);
    threads_changed_.notify_all();
  }
  join(ended_before);
}

void LeaderThreads::join(std::list<Thread>& threads) {
  for (Thread& thread : threads) {
    thread.join();
  }
}

bool LeaderThreads::take_place(uint64_t callback_epoch) {
  RunnableList rest;
  {
    MutexLock lock(rest_mutex_);
    if (!word_.compare_exchange_strong(callback_epoch, callback_epoch + 1,
                                       std::memory_order_acq_rel)) {
      return false;
    }
    rest.append(rest_);
  }
  note_replacement();
  handlers_.post(rest);
  return true;
}

void LeaderThreads::measure_caller() {
  thread_id_.store(::gettid(), std::memory_order_relaxed);
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  ::pthread_getcpuclockid(::pthread_self(), &clock);
  cpu_clock_.store(clock, std::memory_order_relaxed);
}

void LeaderThreads::note_replacement() {
  const int64_t now_ns = monotonic_ns();
  const bool again = post_all_ns_ > 0 && now_ns - replaced_ns_ < kReplacedAgainNs;
  post_all_ns_ = again ? std::min(post_all_ns_ * 2, kMaxPostAllNs) : kMinPostAllNs;
  replaced_ns_ = now_ns;
}

bool LeaderThreads::deliver(RunnableList& finished, bool stopping) {
  if (finished.empty()) return true;
  if (watch_ && !stopping) {
    const int64_t now_ns = monotonic_ns();
    const bool follows_closely = now_ns - last_round_ns_ < kCloseRoundsNs;
    last_round_ns_ = now_ns;
    if ((follows_closely || finished.size() >= kBusyBatch) &&
        now_ns - replaced_ns_ >= post_all_ns_) {
      return run_callbacks(finished, now_ns);
    }
  }
  handlers_.post(finished);
  return true;
}

bool LeaderThreads::run_callbacks(RunnableList& items, int64_t now_ns) {
  ThreadContext& context = ThreadContext::current();
  context.running_for = this;
  {
    MutexLock lock(rest_mutex_);
    rest_.append(items);
  }
  uint64_t callback_epoch = word_.load(std::memory_order_relaxed) + 1;
  item_begin_ns_.store(now_ns, std::memory_order_relaxed);
  word_.store(callback_epoch, std::memory_order_seq_cst);
  watch_->begin_to_watch();
  LeaderTurn turn(now_ns, turn_ns_);
  while (Runnable* item = next(callback_epoch, now_ns)) {
    item->run_queued();
    now_ns = monotonic_ns();
    if (turn.is_over(now_ns, [] { return thread_cpu_ns(CLOCK_THREAD_CPUTIME_ID); })) {
      post_rest(callback_epoch);
    }
  }
  context.running_for = nullptr;
  return word_.compare_exchange_strong(callback_epoch, callback_epoch + 1,
                                       std::memory_order_acq_rel);
}

Runnable* LeaderThreads::next(uint64_t& callback_epoch, int64_t now_ns) {
  MutexLock lock(rest_mutex_);
  if (word_.load(std::memory_order_relaxed) != callback_epoch) return nullptr;
  Runnable* item = rest_.pop_front();
  if (item) {
    callback_epoch += 2;
    item_begin_ns_.store(now_ns, std::memory_order_relaxed);
    // As the store in run_callbacks(): another thread that changes this value then leads, and needs
    // to see what this one has done as the leader.
    word_.store(callback_epoch, std::memory_order_release);
  }
  return item;
}

void LeaderThreads::replace_leader() {
  const uint64_t epoch = callback_epoch();
  if (epoch == 0) return;
  post_rest(epoch);
  start_substitute(epoch);
}

void LeaderThreads::post_rest(uint64_t callback_epoch) {
  RunnableList rest;
  {
    MutexLock lock(rest_mutex_);
    if (word_.load(std::memory_order_relaxed) == callback_epoch) {
      rest.append(rest_);
    }
  }
  handlers_.post(rest);
}

void LeaderThreads::start_substitute(uint64_t callback_epoch) {
  MutexLock lock(threads_mutex_);
  // If the thread cannot be started the poller waits for its leader; the watch will try again.
  if (callback_epoch != 0 && callback_epoch != substituted_ && start_thread(callback_epoch)) {
    substituted_ = callback_epoch;
  }
}

void LeaderThreads::begin_blocking() {
  // In this order: a thread that sees an item of a leader sees the identifier of that leader, too.
  const uint64_t epoch = callback_epoch();
  if (thread_id_.load(std::memory_order_relaxed) == ::gettid()) {
    start_substitute(epoch);
  }
}

void LeaderThreads::wait_for_replaced(bool caller_is_one) {
  MutexLock lock(threads_mutex_);
  while (threads_.size() > (caller_is_one ? 2 : 1)) {
    threads_changed_.wait(threads_mutex_);
  }
}

void LeaderThreads::join_all(bool caller_is_one) {
  std::list<Thread> last;
  {
    MutexLock lock(threads_mutex_);
    while (threads_.size() > (caller_is_one ? 1 : 0)) {
      threads_changed_.wait(threads_mutex_);
    }
    last.swap(ended_);
  }
  join(last);
}

uint64_t LeaderThreads::callback_epoch() const {
  const uint64_t word = word_.load(std::memory_order_seq_cst);
  return word % 2 == 0 ? 0 : word;
}

int64_t LeaderThreads::cpu_ns() const {
  return thread_cpu_ns(cpu_clock_.load(std::memory_order_relaxed));
}

bool LeaderThreads::sleeps() const {
  return thread_sleeps(thread_id_.load(std::memory_order_relaxed));
}

}  // namespace workflow

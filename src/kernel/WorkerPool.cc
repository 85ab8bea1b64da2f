#include "kernel/WorkerPool.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// The current time on the clock of CondVar::wait_until().
int64_t wait_now_ns() {
  VirtualScheduler* scheduler = VirtualScheduler::current();
  return scheduler ? scheduler->now_ns() : monotonic_ns();
}

}  // namespace

WorkerPool::WorkerPool(const Options& options)
    : options_(options), wanted_(std::max(options.threads, 1)) {}

WorkerPool::~WorkerPool() = default;

bool WorkerPool::start() {
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < wanted_; i++) {
      if (!spawn()) {
        break;
      }
    }
    if (live_ == 0) {
      return false;
    }
  }
  // Without a supervisor the pool still works, but does not grow by itself.
  supervisor_.start("wf-supervisor", ThreadContext::in_same_runtime([this] { supervise(); }));
  return true;
}

bool WorkerPool::spawn() {
  std::list<Thread> one;
  try {
    one.emplace_back();
    const auto self = one.begin();
    // The new thread first needs mutex_, so *self is complete, and in threads_, when it looks.
    if (!self->start(options_.name,
                     ThreadContext::in_same_runtime([this, self] { worker_main(self); }))) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  threads_.splice(threads_.end(), one);
  live_++;
  return true;
}

void WorkerPool::stop() {
  const bool on_worker = ThreadContext::current().pool == this;
  if (on_worker) {
    begin_blocking();  // another thread works in its place, on what is still queued
  }
  std::list<Thread> to_join;
  {
    MutexLock lock(mutex_);
    lost_ = on_worker ? 1 : lost_;
    stopping_ = true;
    work_.notify_all();
    while (live_ > lost_) {
      ended_.wait(mutex_);
    }
    terminated_ = true;
    watch_.notify_all();
    to_join.splice(to_join.end(), retired_);
  }
  join_all(to_join);
  supervisor_.join();
}

void WorkerPool::abandon_caller() {
  MutexLock lock(mutex_);
  lost_ = 1;
  work_.notify_all();
  ended_.notify_all();
}

bool WorkerPool::has_lost_worker() const {
  MutexLock lock(mutex_);
  return lost_ > 0;
}

uint64_t WorkerPool::wait_quiet() {
  MutexLock lock(mutex_);
  while (!quiet()) {
    quiet_.wait(mutex_);
  }
  return taken_ + unblocked_;
}

int WorkerPool::increase_threads() {
  MutexLock lock(mutex_);
  if (stopping_) {
    errno = ECANCELED;
    return -1;
  }
  if (live_ - blocked_ <= wanted_ && !spawn()) {
    errno = EAGAIN;
    return -1;
  }
  wanted_++;
  leaving_ = std::max(leaving_ - 1, 0);
  return 0;
}

int WorkerPool::decrease_threads() {
  std::list<Thread> to_join;
  {
    MutexLock lock(mutex_);
    if (stopping_ || wanted_ == 1) {
      errno = stopping_ ? ECANCELED : EINVAL;
      return -1;
    }
    wanted_--;
    leaving_++;
    to_join.splice(to_join.end(), retired_);
    work_.notify_all();
  }
  join_all(to_join);
  return 0;
}

int WorkerPool::configured_threads() const {
  MutexLock lock(mutex_);
  return wanted_;
}

void WorkerPool::join_all(std::list<Thread>& threads) {
  for (Thread& thread : threads) {
    thread.join();
  }
}

bool WorkerPool::idle() const {
  MutexLock lock(mutex_);
  return quiet();
}

int WorkerPool::thread_count() const {
  MutexLock lock(mutex_);
  return live_;
}

uint64_t WorkerPool::taken() const {
  MutexLock lock(mutex_);
  return taken_;
}

WorkerPool::Wake WorkerPool::claim_wake() {
  Wake wake;
  if (!has_work() || waking_) {
    return wake;
  }
  if (idle_ > 0) {
    waking_ = wake.worker = true;
  } else if (!watched_) {
    watched_ = wake.supervisor = true;
  }
  return wake;
}

void WorkerPool::notify(Wake wake) {
  if (wake.worker) {
    work_.notify_one();
  }
  if (wake.supervisor) {
    watch_.notify_one();
  }
}

void WorkerPool::unlock_and_wake() {
  const Wake wake = claim_wake();
  mutex_.unlock();
  notify(wake);
}

bool WorkerPool::surplus() const {
  return live_ - blocked_ > wanted_;
}

// True if no worker is left that could post, because all others are idle.
bool WorkerPool::finished() const {
  return stopping_ && !has_work() && idle_ + 1 + lost_ == live_;
}

bool WorkerPool::wait_for_work() {
  if (finished()) {
    work_.notify_all();
    return false;
  }
  if (leaves()) {
    return false;
  }
  idle_++;
  if (quiet()) {
    quiet_.notify_all();
  }
  bool timed_out = false;
  if (surplus()) {
    timed_out = !work_.wait_until(mutex_, saturating_add(wait_now_ns(), kSpareNs));
  } else {
    work_.wait(mutex_);
  }
  idle_--;
  waking_ = false;
  if (finished()) {
    work_.notify_all();
    return false;
  }
  return !(timed_out && surplus() && !has_work() && !stopping_);
}

bool WorkerPool::leaves() {
  if (leaving_ == 0 || !surplus() || stopping_) {
    return false;
  }
  leaving_--;
  return true;
}

int WorkerPool::most_threads() const {
  return options_.grow_when_starved ? options_.max_threads : wanted_;
}

void WorkerPool::worker_main(std::list<Thread>::iterator self) {
  ThreadContext::current().pool = this;
  mutex_.lock();
  for (;;) {
    if (has_work()) {
      Runnable* item = next();
      taken_++;
      unlock_and_wake();
      item->run_queued();
      mutex_.lock();
    } else if (!wait_for_work()) {
      break;
    }
  }
  retired_.splice(retired_.end(), threads_, self);
  live_--;
  if (quiet()) {
    quiet_.notify_all();
  }
  if (live_ == lost_) {
    // Set here and not in stop(): an item that is posted before stop() wakes up would have no
    // worker left.
    terminated_ = true;
    ended_.notify_all();
  }
  mutex_.unlock();
}

void WorkerPool::begin_blocking() {
  Wake wake;
  {
    MutexLock lock(mutex_);
    blocked_++;
    if (quiet()) {
      quiet_.notify_all();
    }
    // A terminated pool starts no thread, because no other thread would join it. Its last worker,
    // for which stop() did not wait, still runs while it ends the process.
    if (!terminated_ && live_ - blocked_ < wanted_) {
      spawn();
    }
    wake = claim_wake();
  }
  notify(wake);
}

void WorkerPool::end_blocking() {
  MutexLock lock(mutex_);
  blocked_--;
  unblocked_++;
}

void WorkerPool::join_retired() {
  std::list<Thread> to_join;
  {
    MutexLock lock(mutex_);
    to_join.splice(to_join.end(), retired_);
  }
  join_all(to_join);
}

void WorkerPool::supervise() {
  MutexLock lock(mutex_);
  // This goes on while the pool stops, because callbacks may still wait for each other.
  while (!terminated_) {
    if (!watched_) {
      watch_.wait(mutex_);
      continue;
    }
    const uint64_t taken_before = taken_;
    const int64_t starved_at_ns = saturating_add(wait_now_ns(), kStarvedNs);
    // The notification for `watched_` may arrive only now, so check the time.
    while (!terminated_ && watch_.wait_until(mutex_, starved_at_ns)) {
    }
    if (!has_work()) {
      watched_ = false;
    } else if (taken_ == taken_before && live_ - blocked_ < most_threads()) {
      spawn();
      std::list<Thread> to_join;
      to_join.splice(to_join.end(), retired_);
      lock.unlock();
      join_all(to_join);
      lock.lock();
    }
  }
}

}  // namespace workflow

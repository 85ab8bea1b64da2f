#include "kernel/PendingWork.h"

#include <pthread.h>
#include <unistd.h>

#include <cassert>
#include <utility>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/ThreadState.h"
#include "util/VirtualScheduler.h"

namespace workflow {

PendingWork::PendingWork(const void* owner, RunnableList& pieces, Give give, Gives when)
    : owner_(owner),
      outer_(std::exchange(ThreadContext::current().pending, this)),
      give_(give),
      when_(when),
      pieces_(std::move(pieces)) {}

PendingWork::~PendingWork() {
  take_back();  // an exception may have ended a piece
  if (watch_) {
    watch_->exposed().remove(this);
  }
  ThreadContext::current().pending = outer_;
}

Runnable* PendingWork::next() {
  take_back();
  is_open_ = false;
  return pieces_.pop_front();
}

void PendingWork::add(RunnableList& pieces) {
  take_back();
  pieces_.append(pieces);
  if (ThreadContext::current().blocking > 0) {
    give_(pieces_);  // the thread may be about to wait for what these do
  }
  if (is_open_) {
    expose();
  }
}

void PendingWork::open() {
  is_open_ = true;
  turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  expose();
}

void PendingWork::expose() {
  if (pieces_.empty() || when_ == Gives::kWhenItBlocks) return;
  if (!watch_) {
    // What a computing thread runs stays there: an executor of one thread may be used to run one
    // thing at a time.
    ThreadContext& thread = ThreadContext::current();
    Runtime& runtime = Runtime::current();
    StallWatch& watch = runtime.stall_watch();
    const bool is_watched =
        watch.exposed().is_enabled_ && (thread.running_for || thread.pool == &runtime.handlers());
    if (!is_watched) return;
    if (!VirtualScheduler::current()) {
      if (thread.thread_id == 0) {
        thread.thread_id = ::gettid();
      }
      thread_ = thread.thread_id;
      ::pthread_getcpuclockid(::pthread_self(), &cpu_clock_);
    }
    watch_ = &watch;
    watch.exposed().add(this);
  }
  state_.store(State::kExposed, std::memory_order_seq_cst);
  schedule_point();
  watch_->begin_to_watch();
}

void PendingWork::take_back() {
  if (state_.load(std::memory_order_relaxed) == State::kOwned) return;
  schedule_point();
  if (state_.exchange(State::kOwned, std::memory_order_relaxed) == State::kTaken) {
    watch_->exposed().wait_for_giver(this);
  }
}

void PendingWork::give_all() {
  for (PendingWork* work = ThreadContext::current().pending; work; work = work->outer_) {
    work->take_back();
    work->give_(work->pieces_);
  }
}

ExposedWork::~ExposedWork() {
  assert(!first_);
}

void ExposedWork::add(PendingWork* work) {
  const MutexLock lock(mutex_);
  work->after_ = first_;
  if (first_) {
    first_->before_ = work;
  }
  first_ = work;
  work->seen_look_ = look_;  // a look that is under way is not concerned with it
}

void ExposedWork::remove(PendingWork* work) {
  const MutexLock lock(mutex_);
  (work->before_ ? work->before_->after_ : first_) = work->after_;
  if (work->after_) {
    work->after_->before_ = work->before_;
  }
}

void ExposedWork::wait_for_giver(const PendingWork* work) {
  MutexLock lock(mutex_);
  while (giving_ == work) {
    given_.wait(mutex_);
  }
}

bool ExposedWork::is_held_up(const PendingWork& work) {
  return work.thread_ == 0 || thread_cpu_ns(work.cpu_clock_) - work.seen_cpu_ns_ >= kBusyNs ||
         thread_sleeps(work.thread_);
}

PendingWork* ExposedWork::take_stuck() {
  for (PendingWork* work = first_; work; work = work->after_) {
    if (std::exchange(work->seen_look_, look_) == look_) continue;
    const uint64_t turn = work->turn_.load(std::memory_order_relaxed);
    auto state = PendingWork::State::kExposed;
    if (work->state_.load(std::memory_order_relaxed) != state) {
      work->seen_turn_ = 0;
    } else if (std::exchange(work->seen_turn_, turn) != turn) {
      work->seen_cpu_ns_ = work->thread_ == 0 ? 0 : thread_cpu_ns(work->cpu_clock_);
    } else if (is_held_up(*work)) {
      schedule_point();
      if (work->state_.compare_exchange_strong(state, PendingWork::State::kTaken,
                                               std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
        return work;
      }
    }
  }
  return nullptr;
}

bool ExposedWork::any_exposed() const {
  for (const PendingWork* work = first_; work; work = work->after_) {
    if (work->state_.load(std::memory_order_seq_cst) == PendingWork::State::kExposed) return true;
  }
  return false;
}

bool ExposedWork::look() {
  MutexLock lock(mutex_);
  look_++;
  while (PendingWork* const work = take_stuck()) {
    giving_ = work;
    lock.unlock();
    schedule_point();
    work->give_(work->pieces_);
    lock.lock();
    giving_ = nullptr;
    given_.notify_all();
  }
  return any_exposed();
}

}  // namespace workflow

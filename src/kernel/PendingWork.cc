#include "kernel/PendingWork.h"

#include <utility>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/VirtualScheduler.h"

namespace workflow {

PendingWork::PendingWork(const void* owner, RunnableList& pieces, Give give)
    : owner_(owner),
      outer_(std::exchange(ThreadContext::current().pending, this)),
      give_(give),
      pieces_(std::move(pieces)) {}

PendingWork::~PendingWork() {
  if (list_) {
    list_->remove(this);
  }
  ThreadContext::current().pending = outer_;
}

Runnable* PendingWork::next() {
  take_back();
  return pieces_.pop_front();
}

void PendingWork::add(RunnableList& pieces) {
  const bool was_exposed = !is_owned();
  take_back();
  pieces_.append(pieces);
  if (was_exposed) {
    state_.store(State::kExposed, std::memory_order_release);
  }
}

void PendingWork::expose() {
  if (pieces_.empty()) return;
  turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  state_.store(State::kExposed, std::memory_order_release);
  schedule_point();
  if (!list_) {
    StallWatch& watch = Runtime::current().stall_watch();
    list_ = &watch.exposed();
    list_->add(this);
    watch.begin_to_watch();
  }
}

void PendingWork::take_back() {
  if (is_owned()) return;
  schedule_point();
  if (state_.exchange(State::kOwned, std::memory_order_acquire) == State::kTaken) {
    list_->wait_for_taker();
  }
}

void PendingWork::give_all() {
  for (PendingWork* work = ThreadContext::current().pending; work; work = work->outer_) {
    work->take_back();
    RunnableList pieces(std::move(work->pieces_));
    if (!pieces.empty()) {
      work->give_(pieces);
    }
  }
}

void ExposedWork::add(PendingWork* work) {
  const MutexLock lock(mutex_);
  work->after_ = first_;
  if (first_) {
    first_->before_ = work;
  }
  first_ = work;
  // The look under way, if there is one, may have been past it.
  work->seen_look_ = look_;
}

void ExposedWork::remove(PendingWork* work) {
  const MutexLock lock(mutex_);
  (work->before_ ? work->before_->after_ : first_) = work->after_;
  if (work->after_) {
    work->after_->before_ = work->before_;
  }
}

PendingWork::Give ExposedWork::take_stuck(RunnableList& taken) {
  for (PendingWork* work = first_; work; work = work->after_) {
    if (std::exchange(work->seen_look_, look_) == look_) continue;
    const uint32_t turn = work->turn_.load(std::memory_order_relaxed);
    auto state = PendingWork::State::kExposed;
    if (work->state_.load(std::memory_order_relaxed) != state) {
      work->seen_turn_ = 0;
    } else if (std::exchange(work->seen_turn_, turn) == turn) {
      schedule_point();
      if (work->state_.compare_exchange_strong(state, PendingWork::State::kTaken,
                                               std::memory_order_acquire)) {
        schedule_point();
        taken.append(work->pieces_);
        return work->give_;
      }
    }
  }
  return nullptr;
}

bool ExposedWork::look() {
  MutexLock lock(mutex_);
  look_++;
  for (;;) {
    RunnableList taken;
    const PendingWork::Give give = take_stuck(taken);
    if (!give) return first_ != nullptr;
    lock.unlock();
    give(taken);
    lock.lock();
  }
}

}  // namespace workflow

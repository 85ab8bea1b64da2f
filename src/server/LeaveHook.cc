#include "server/LeaveHook.h"

#include <utility>

#include "factory/TaskContext.h"

namespace workflow {

namespace {

// The hook that this thread is inside, or null.
thread_local const LeaveHook* running = nullptr;

}  // namespace

bool LeaveHook::begin() {
  MutexLock lock(mutex_);
  if (state_ != State::kArmed) return false;
  state_ = State::kBegun;
  self_ = shared_from_this();
  return true;
}

void LeaveHook::end() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kBegun) {
      state_ = State::kOver;
      return;
    }
  }
  if (running == this) return;
  LendingCondition::Waiter waiter;
  MutexLock lock(mutex_);
  while (state_ == State::kBegun) {
    over_.wait(mutex_, waiter);
  }
}

void LeaveHook::run_queued() {
  const std::shared_ptr<LeaveHook> self = std::move(self_);
  {
    TaskContext& context = TaskContext::current();
    const LeaveHook* const outer = std::exchange(running, this);
    SeriesWork* const outer_series = std::exchange(context.series, series_);
    context.nesting += TaskContext::kMaxNesting;
    if (hook_) {
      hook_();
      hook_ = nullptr;  // end() also waits for what it owns
    }
    context.nesting -= TaskContext::kMaxNesting;
    context.series = outer_series;
    running = outer;
  }
  MutexLock lock(mutex_);
  state_ = State::kOver;
  over_.notify_all();
}

}  // namespace workflow

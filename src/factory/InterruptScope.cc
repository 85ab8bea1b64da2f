#include "factory/InterruptScope.h"

#include <new>
#include <utility>

#include "factory/TimerTask.h"
#include "util/VirtualScheduler.h"
#include "workflow/Workflow.h"

namespace workflow {

// These two are for ever, as series end late, and need no memory, which may have run out.

InterruptScope* InterruptScope::idle() {
  alignas(InterruptScope) static unsigned char storage[sizeof(InterruptScope)];
  static InterruptScope* const scope = new (storage) InterruptScope;
  return scope;
}

InterruptScope* InterruptScope::over() {
  alignas(InterruptScope) static unsigned char storage[sizeof(InterruptScope)];
  static InterruptScope* const scope = new (storage) InterruptScope(true);
  return scope;
}

InterruptScope::Enter InterruptScope::enter(TimerTask* task, Poller& poller) {
  MutexLock lock(mutex_);
  if (interrupted_) {
    return Enter::kInterrupted;
  }
  if (!one_) {
    one_ = task;
    poller_of_one_ = &poller;
    return Enter::kEntered;
  }
  try {
    others_.emplace(task, &poller);
  } catch (const std::bad_alloc&) {
    return Enter::kNoMemory;
  }
  return Enter::kEntered;
}

bool InterruptScope::leave(TimerTask* task) {
  schedule_point();
  MutexLock lock(mutex_);
  if (one_ == task) {
    one_ = nullptr;
    return true;
  }
  return others_.erase(task) > 0;
}

void InterruptScope::interrupt(RunnableList& ended) {
  schedule_point();
  MutexLock lock(mutex_);
  interrupted_ = true;
  if (TimerTask* const task = std::exchange(one_, nullptr)) {
    if (poller_of_one_->interrupt_timer(task)) {
      ended.push_back(task);
    }
  }
  for (const auto& [task, poller] : others_) {
    if (poller->interrupt_timer(task)) {
      ended.push_back(task);
    }
  }
  others_.clear();
}

}  // namespace workflow

using workflow::InterruptScope;
using workflow::RunnableList;

void SeriesWork::allow_interrupt() {
  scope_.store(InterruptScope::idle(), std::memory_order_relaxed);
}

void SeriesWork::interrupt(RunnableList& ended) {
  workflow::schedule_point();
  InterruptScope* scope = scope_.load(std::memory_order_acquire);
  if (scope == InterruptScope::idle() &&
      scope_.compare_exchange_strong(scope, InterruptScope::over(), std::memory_order_acq_rel)) {
    return;
  }
  if (scope) {
    scope->interrupt(ended);
  }
}

bool SeriesWork::scope_to_enter(InterruptScope** scope) {
  workflow::schedule_point();
  InterruptScope* current = scope_.load(std::memory_order_acquire);
  if (current == InterruptScope::idle()) {
    InterruptScope* const made = new (std::nothrow) InterruptScope;
    if (!made) {
      return false;
    }
    owns_scope_ = scope_.compare_exchange_strong(current, made, std::memory_order_acq_rel);
    if (owns_scope_) {
      current = made;
    } else {
      delete made;
    }
  }
  *scope = current;
  return true;
}

void SeriesWork::share_scope(SeriesWork* outer) {
  InterruptScope* scope = nullptr;
  // Without memory its timers end when they are due.
  if (outer && outer->scope_to_enter(&scope)) {
    scope_.store(scope, std::memory_order_relaxed);
  }
}

#include "factory/InterruptScope.h"

#include <cerrno>
#include <new>
#include <utility>

#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"
#include "workflow/Workflow.h"

namespace workflow {

void Interruption::finish() {
  while (SubTask* const task = static_cast<SubTask*>(tasks_.pop_front())) {
    task->end_interrupted(error_);
    ended_.push_back(task);
  }
  Runtime::current().handlers().post(ended_);
}

// These two are for ever, as series end late, and need no memory, which may have run out.

InterruptScope* InterruptScope::idle() {
  alignas(InterruptScope) static unsigned char storage[sizeof(InterruptScope)];
  static InterruptScope* const scope = new (storage) InterruptScope(Kinds::kTimers);
  return scope;
}

InterruptScope* InterruptScope::over() {
  alignas(InterruptScope) static unsigned char storage[sizeof(InterruptScope)];
  static InterruptScope* const scope = new (storage) InterruptScope(Kinds::kTimers, ECANCELED);
  return scope;
}

void InterruptScope::attach(SeriesWork* series) {
  series->scope_.store(this, std::memory_order_relaxed);
}

int InterruptScope::enter(SubTask* task) {
  schedule_point();
  MutexLock lock(mutex_);
  if (error_ != 0) {
    return error_;
  }
  if (!one_) {
    one_ = task;
    return 0;
  }
  Tasks place;
  try {
    place.push_back(task);
    places_.emplace(task, place.begin());
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  others_.splice(others_.end(), place);
  return 0;
}

int InterruptScope::leave(SubTask* task) {
  schedule_point();
  MutexLock lock(mutex_);
  if (one_ == task) {
    one_ = nullptr;
    return 0;
  }
  const auto found = places_.find(task);
  if (found == places_.end()) {
    return error_;
  }
  others_.erase(found->second);
  places_.erase(found);
  return 0;
}

void InterruptScope::interrupt(Interruption& interruption) {
  schedule_point();
  MutexLock lock(mutex_);
  if (error_ == 0) {
    error_ = interruption.error();
  }
  if (SubTask* const task = std::exchange(one_, nullptr)) {
    task->interrupt(interruption);
  }
  for (SubTask* const task : others_) {
    task->interrupt(interruption);
  }
  others_.clear();
  places_.clear();
}

int InterruptScope::error() const {
  MutexLock lock(mutex_);
  return error_;
}

}  // namespace workflow

using workflow::Interruption;
using workflow::InterruptScope;

void SeriesWork::allow_interrupt() {
  scope_.store(InterruptScope::idle(), std::memory_order_relaxed);
}

void SeriesWork::interrupt(Interruption& interruption) {
  workflow::schedule_point();
  InterruptScope* scope = scope_.load(std::memory_order_acquire);
  if (scope == InterruptScope::idle() &&
      scope_.compare_exchange_strong(scope, InterruptScope::over(), std::memory_order_acq_rel)) {
    return;
  }
  if (scope) {
    scope->interrupt(interruption);
  }
}

bool SeriesWork::scope_to_enter(InterruptScope** scope) {
  workflow::schedule_point();
  InterruptScope* current = scope_.load(std::memory_order_acquire);
  if (current == InterruptScope::idle()) {
    auto* const made = new (std::nothrow) InterruptScope(InterruptScope::Kinds::kTimers);
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

InterruptScope* SeriesWork::scope_for_all() const {
  InterruptScope* const scope = scope_.load(std::memory_order_acquire);
  return scope && scope->is_for_all() ? scope : nullptr;
}

bool SubTask::has_scope() const {
  const SeriesWork* const series = joined_series();
  return series && series->scope_for_all();
}

int SubTask::interrupted() const {
  const SeriesWork* const series = joined_series();
  const InterruptScope* const scope = series ? series->scope_for_all() : nullptr;
  return scope ? scope->error() : 0;
}

int SubTask::enter_scope() {
  const SeriesWork* const series = joined_series();
  InterruptScope* const scope = series ? series->scope_for_all() : nullptr;
  return scope ? scope->enter(this) : 0;
}

int SubTask::leave_scope() {
  const SeriesWork* const series = joined_series();
  InterruptScope* const scope = series ? series->scope_for_all() : nullptr;
  return scope ? scope->leave(this) : 0;
}

void SubTask::share_scope(SeriesWork* inside) {
  if (has_scope()) {
    inside->share_scope(joined_series());
  }
}

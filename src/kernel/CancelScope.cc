#include "kernel/CancelScope.h"

#include <cassert>
#include <thread>

#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"

namespace workflow {

CancelScope::~CancelScope() {
  assert((slot_.load(std::memory_order_relaxed) & ~kClosed) == 0);
  assert(!list(Kind::kTimer).first && !list(Kind::kOther).first);
}

void CancelScope::release() {
  if (references_.drop()) {
    delete this;
  }
}

int CancelScope::enter(CancelRegistration& registration, Kind kind) {
  assert(registration.state_ == CancelRegistration::State::kOutside);
  schedule_point();
  uintptr_t slot = slot_.load(std::memory_order_acquire);
  // A thread that is refused again and again must not wait for a canceller that locks in a loop.
  if (slot & closed_bit(kind)) return reason_for(kind);
  if ((slot & ~kClosed) == 0) {
    schedule_point();
    if (slot_.compare_exchange_strong(slot, slot | slot_value(registration, kind),
                                      std::memory_order_release, std::memory_order_relaxed)) {
      return 0;
    }
  }
  return enter_list(registration, kind);
}

int CancelScope::enter_list(CancelRegistration& registration, Kind kind) {
  schedule_point();
  MutexLock lock(mutex_);
  const int reason = list(kind).reason.load(std::memory_order_relaxed);
  if (reason == 0) {
    registration.kind_ = kind;
    link(registration);
  }
  return reason;
}

bool CancelScope::leave(CancelRegistration& registration, Runnable* ended) {
  if (leave_slot(registration)) return true;
  schedule_point();
  MutexLock lock(mutex_);
  if (registration.state_ == CancelRegistration::State::kCalled) {
    registration.state_ = CancelRegistration::State::kHandedOver;
    registration.ended_ = ended;
    return false;
  }
  if (registration.state_ == CancelRegistration::State::kEntered) {
    unlink(registration);
  }
  return true;
}

void CancelScope::leave_after_call(CancelRegistration& registration) {
  if (leave_slot(registration)) return;
  for (;;) {
    schedule_point();
    {
      MutexLock lock(mutex_);
      if (registration.state_ == CancelRegistration::State::kEntered) {
        unlink(registration);
      }
      if (registration.state_ == CancelRegistration::State::kOutside) return;
    }
    std::this_thread::yield();
  }
}

bool CancelScope::leave_slot(const CancelRegistration& registration) {
  const auto address = reinterpret_cast<uintptr_t>(&registration);
  schedule_point();
  uintptr_t slot = slot_.load(std::memory_order_relaxed);
  // Again only if a bit was set meanwhile: three times at most.
  while ((slot & ~(kClosed | kHoldsTimer)) == address) {
    schedule_point();
    if (slot_.compare_exchange_strong(slot, slot & kClosed, std::memory_order_relaxed)) return true;
  }
  return false;
}

bool CancelScope::cancel(int reason) {
  schedule_point();
  bool ends_timers = false;
  {
    MutexLock lock(mutex_);
    if (!close(Kind::kOther, reason)) return false;
    ends_timers = close(Kind::kTimer, reason);
  }
  if (ends_timers) {
    call_all(Kind::kTimer, reason);
  }
  call_all(Kind::kOther, reason);
  return true;
}

void CancelScope::cancel_timers(int reason) {
  schedule_point();
  {
    MutexLock lock(mutex_);
    if (!close(Kind::kTimer, reason)) return;
  }
  call_all(Kind::kTimer, reason);
}

int CancelScope::finish() {
  schedule_point();
  MutexLock lock(mutex_);
  finished_ = true;
  return list(Kind::kOther).reason.load(std::memory_order_relaxed);
}

bool CancelScope::close(Kind kind, int reason) {
  assert(reason != 0);
  if (finished_ || list(kind).reason.load(std::memory_order_relaxed) != 0) return false;
  list(kind).reason.store(reason, std::memory_order_release);
  schedule_point();
  slot_.fetch_or(closed_bit(kind), std::memory_order_release);
  return true;
}

void CancelScope::call_all(Kind kind, int reason) {
  RunnableList ended;
  while (CancelRegistration* const registration = take_first(kind)) {
    registration->on_cancel(reason);
    if (Runnable* const item = end_call(*registration)) {
      ended.push_back(item);
    }
    if (ended.size() == kGroup) {
      Runtime::current().handlers().post(ended);
    }
  }
  Runtime::current().handlers().post(ended);
}

CancelRegistration* CancelScope::take_first(Kind kind) {
  schedule_point();
  MutexLock lock(mutex_);
  CancelRegistration* registration = take_from_slot(kind);
  if (!registration && (registration = list(kind).first)) {
    unlink(*registration);
  }
  if (registration) {
    registration->state_ = CancelRegistration::State::kCalled;
  }
  return registration;
}

CancelRegistration* CancelScope::take_from_slot(Kind kind) {
  const uintptr_t kind_bit = kind == Kind::kTimer ? kHoldsTimer : 0;
  uintptr_t slot = slot_.load(std::memory_order_relaxed);
  while ((slot & ~kClosed) != 0 && (slot & kHoldsTimer) == kind_bit) {
    schedule_point();
    if (slot_.compare_exchange_strong(slot, slot & kClosed, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return reinterpret_cast<CancelRegistration*>(slot & ~(kClosed | kHoldsTimer));
    }
  }
  return nullptr;
}

Runnable* CancelScope::end_call(CancelRegistration& registration) {
  schedule_point();
  MutexLock lock(mutex_);
  const bool handed_over = registration.state_ == CancelRegistration::State::kHandedOver;
  registration.state_ = CancelRegistration::State::kOutside;
  return handed_over ? registration.ended_ : nullptr;
}

void CancelScope::link(CancelRegistration& registration) {
  List& list = this->list(registration.kind_);
  registration.state_ = CancelRegistration::State::kEntered;
  registration.next_ = nullptr;
  registration.previous_ = list.last;
  (list.last ? list.last->next_ : list.first) = &registration;
  list.last = &registration;
}

void CancelScope::unlink(CancelRegistration& registration) {
  List& list = this->list(registration.kind_);
  registration.state_ = CancelRegistration::State::kOutside;
  (registration.previous_ ? registration.previous_->next_ : list.first) = registration.next_;
  (registration.next_ ? registration.next_->previous_ : list.last) = registration.previous_;
}

}  // namespace workflow

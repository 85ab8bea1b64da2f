#include "kernel/CancelScope.h"

#include <cassert>

#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"

namespace workflow {

CancelScope::~CancelScope() {
  assert(!first_);
}

void CancelScope::drop_reference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;
  }
}

int CancelScope::enter(CancelRegistration& registration, CancelTarget& target) {
  schedule_point();
  MutexLock lock(mutex_);
  const int reason = reason_.load(std::memory_order_relaxed);
  if (reason == 0) {
    assert(registration.state_ == CancelRegistration::State::kOutside);
    registration.target_ = &target;
    link(registration);
  }
  return reason;
}

bool CancelScope::leave(CancelRegistration& registration, Runnable* ended) {
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

bool CancelScope::cancel(int reason) {
  assert(reason != 0);
  schedule_point();
  {
    MutexLock lock(mutex_);
    if (reason_.load(std::memory_order_relaxed) != 0) {
      return false;
    }
    reason_.store(reason, std::memory_order_release);
  }
  add_reference();  // the last target may free the scope task
  RunnableList ended;
  while (CancelRegistration* const registration = take_first()) {
    registration->target_->on_cancel(reason);
    if (Runnable* const item = end_call(*registration)) {
      ended.push_back(item);
    }
    if (ended.size() == kGroup) {
      Runtime::current().handlers().post(ended);
    }
  }
  Runtime::current().handlers().post(ended);
  drop_reference();
  return true;
}

CancelRegistration* CancelScope::take_first() {
  schedule_point();
  MutexLock lock(mutex_);
  CancelRegistration* const registration = first_;
  if (registration) {
    unlink(*registration);
    registration->state_ = CancelRegistration::State::kCalled;
  }
  return registration;
}

Runnable* CancelScope::end_call(CancelRegistration& registration) {
  schedule_point();
  MutexLock lock(mutex_);
  const bool handed_over = registration.state_ == CancelRegistration::State::kHandedOver;
  registration.state_ = CancelRegistration::State::kOutside;
  return handed_over ? registration.ended_ : nullptr;
}

void CancelScope::link(CancelRegistration& registration) {
  registration.state_ = CancelRegistration::State::kEntered;
  registration.next_ = nullptr;
  registration.previous_ = last_;
  (last_ ? last_->next_ : first_) = &registration;
  last_ = &registration;
}

void CancelScope::unlink(CancelRegistration& registration) {
  registration.state_ = CancelRegistration::State::kOutside;
  (registration.previous_ ? registration.previous_->next_ : first_) = registration.next_;
  (registration.next_ ? registration.next_->previous_ : last_) = registration.previous_;
}

}  // namespace workflow

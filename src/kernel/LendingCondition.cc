#include "kernel/LendingCondition.h"

#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

bool LendingCondition::wait_until(Mutex& mutex, Waiter& waiter, int64_t deadline_ns) {
  waiter.scope_.begin();
  waiter.next_ = std::exchange(waiting_, &waiter);
  ThreadContext::current().waiting_for = &waiter.note_;
  const bool in_time = changed_.wait_until(mutex, deadline_ns);
  ThreadContext::current().waiting_for = nullptr;
  stop_waiting(waiter);
  return in_time;
}

void LendingCondition::notify_all() {
  while (Waiter* waiter = waiting_) {
    waiting_ = waiter->next_;
    waiter->scope_.end();
  }
  changed_.notify_all();
}

void LendingCondition::stop_waiting(Waiter& waiter) {
  for (Waiter** link = &waiting_; *link; link = &(*link)->next_) {
    if (*link == &waiter) {
      *link = waiter.next_;
      waiter.scope_.end();
      return;
    }
  }
}

}  // namespace workflow

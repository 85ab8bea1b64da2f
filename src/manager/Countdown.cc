#include "manager/Countdown.h"

#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

// When CondVar::wait_until gives up.
int64_t deadline_of(int64_t timeout_ns) {
  if (timeout_ns < 0) {
    return kNever;
  }
  VirtualScheduler* scheduler = VirtualScheduler::current();
  return saturating_add(scheduler ? scheduler->now_ns() : monotonic_ns(), timeout_ns);
}

}  // namespace

void Countdown::add(int n) {
  MutexLock lock(mutex_);
  const bool above = left_ > 0;
  left_ += n;
  if (above && left_ <= 0) {
    arrivals_++;
    zero_.notify_all();
  }
}

bool Countdown::wait(int64_t timeout_ns, const char* how) {
  uint64_t arrivals_before = 0;
  {
    MutexLock lock(mutex_);
    if (left_ <= 0 || timeout_ns == 0) {
      return left_ <= 0;
    }
    arrivals_before = arrivals_;
  }
  const int64_t deadline_ns = deadline_of(timeout_ns);
  LendingCondition::Waiter waiter(WaitNote{.how = how});
  MutexLock lock(mutex_);
  const auto arrived = [this, arrivals_before]() WF_REQUIRES(mutex_) {
    return left_ <= 0 || arrivals_ != arrivals_before;
  };
  while (!arrived() && zero_.wait_until(mutex_, waiter, deadline_ns)) {
  }
  return arrived();
}

}  // namespace workflow

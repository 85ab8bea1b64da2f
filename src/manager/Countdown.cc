#include "manager/Countdown.h"

#include "factory/TaskContext.h"
#include "kernel/DeadlineScope.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

// When CondVar::wait_until gives up.
int64_t deadline_of(int64_t timeout_ns) {
  if (timeout_ns < 0) return kNever;
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

// Ends a wait of the calling thread when the scope ends of the computation that the thread runs.
class Countdown::ScopeEnd final : public CancelRegistration {
 public:
  explicit ScopeEnd(Countdown& countdown) : countdown_(countdown) {
    const TaskContext& context = TaskContext::current();
    scope_ = context.series ? nullptr : context.scope;
    if (scope_ && scope_->enter(*this, Kind::kOther) != 0) {
      ended_ = true;
      scope_ = nullptr;
    }
  }
  ~ScopeEnd() {
    if (scope_) {
      scope_->leave_after_call(*this);
    }
  }

  // Requires the mutex of the countdown.
  bool ended() const { return ended_; }

 private:
  void on_cancel(int /*reason*/) override {
    MutexLock lock(countdown_.mutex_);
    ended_ = true;
    countdown_.zero_.notify_all();
  }

  Countdown& countdown_;
  DeadlineScope* scope_ = nullptr;  // if entered
  bool ended_ = false;
};

bool Countdown::wait(int64_t timeout_ns, const char* how) {
  uint64_t arrivals_before = 0;
  {
    MutexLock lock(mutex_);
    if (left_ <= 0 || timeout_ns == 0) return left_ <= 0;
    arrivals_before = arrivals_;
  }
  const int64_t deadline_ns = deadline_of(timeout_ns);
  LendingCondition::Waiter waiter(WaitNote{.how = how});
  const ScopeEnd scope_end(*this);
  MutexLock lock(mutex_);
  const auto arrived = [this, arrivals_before]() WF_REQUIRES(mutex_) {
    return left_ <= 0 || arrivals_ != arrivals_before;
  };
  while (!arrived() && !scope_end.ended() && zero_.wait_until(mutex_, waiter, deadline_ns)) {
  }
  return arrived();
}

}  // namespace workflow

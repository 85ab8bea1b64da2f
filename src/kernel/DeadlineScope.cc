#include "kernel/DeadlineScope.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "kernel/Poller.h"
#include "kernel/Runtime.h"

namespace workflow {

class DeadlineScope::Timer final : public TimerNode, public Runnable {
 public:
  Timer(DeadlineScope* scope, TimerDue due, ClockId clock) : TimerNode(due, clock), scope_(scope) {}

  void left_queue(bool stopped, RunnableList& finished) override {
    stopped_ = stopped;
    finished.push_back(this);
  }

  // Not in left_queue(), because there may be much to end.
  void run_queued() override {
    {
      MutexLock lock(scope_->deadline_mutex_);
      scope_->timer_ = scope_->timer_ == this ? nullptr : scope_->timer_;
      scope_->expired_ |= !stopped_;
    }
    // When the library stops, that ends all that waits.
    if (!stopped_) {
      scope_->cancel(ETIMEDOUT);
    }
    delete this;
  }

 private:
  const Ref<DeadlineScope> scope_;
  bool stopped_ = false;
};

class DeadlineScope::StopRequest final : public CancelRegistration {
 public:
  ~StopRequest() = default;
  std::stop_source source;

 private:
  void on_cancel(int /*reason*/) override { source.request_stop(); }
};

DeadlineScope::DeadlineScope(const void* owner) : owner_(owner) {}

DeadlineScope::~DeadlineScope() {
  if (stop_request_) {
    leave(*stop_request_, nullptr);
  }
}

void DeadlineScope::set_host(Host* host) {
  MutexLock lock(deadline_mutex_);
  host_ = host;
  hosted_ = true;
}

bool DeadlineScope::was_hosted() const {
  if (belongs_to_parent_process()) return true;
  MutexLock lock(deadline_mutex_);
  return hosted_;
}

DeadlineScope::Host* DeadlineScope::join_host() {
  if (belongs_to_parent_process()) return nullptr;
  MutexLock lock(deadline_mutex_);
  return host_ && host_->join() ? host_ : nullptr;
}

int DeadlineScope::set_deadline(TimerDue due, std::optional<ClockId> clock) {
  bool passed = false;
  int error = reason();
  if (error == 0 && belongs_to_parent_process()) return ECANCELED;
  if (error == 0) {
    MutexLock lock(deadline_mutex_);
    if (stage_ == Stage::kCreated) {
      due_ = due;
      clock_ = clock.value_or(clock_);
    } else if (stage_ == Stage::kStarted) {
      error = set_timer(due, clock.value_or(clock_), &passed);
    } else {
      error = ECANCELED;
    }
  }
  if (passed) {
    cancel(ETIMEDOUT);
  }
  return error;
}

int DeadlineScope::set_timer(TimerDue due, ClockId clock, bool* passed) {
  if (expired_) return ETIMEDOUT;
  if (timer_ && clock_ == clock) {
    return PollerTimers::move(timer_, due) == PollerTimers::Move::kMoved ? 0 : ETIMEDOUT;
  }
  // The new timer comes first: if it cannot be started, nothing has changed.
  Timer* after = nullptr;
  if (const int error = start_timer(due, clock, &after, passed)) return error;
  if (!stop(timer_)) {
    *passed = false;
    stop(after);
    return ETIMEDOUT;  // the previous deadline has just expired, and will end the scope
  }
  timer_ = after;
  clock_ = clock;
  expired_ = *passed;
  return 0;
}

int DeadlineScope::start_timer(TimerDue due, ClockId clock, Timer** started, bool* passed) {
  using Start = PollerTimers::Start;
  Poller& poller = Runtime::current().own_poller();
  const int64_t now_ns = poller.clock().now_ns_on(clock);
  if (due.deadline_ns(now_ns) == kNever) return 0;
  auto* const timer = new (std::nothrow) Timer(this, due, clock);
  if (!timer) return ENOMEM;
  switch (poller.timers().start(timer, PollerTimers::IfDue::kReport)) {
    case Start::kQueued:
      *started = timer;
      return 0;
    case Start::kDue:
      *passed = true;
      delete timer;
      return 0;
    case Start::kNoClock: {
      const int error = errno;
      delete timer;
      return error;
    }
    case Start::kNoMemory:
      delete timer;
      return ENOMEM;
    case Start::kStopped:  // the stop of the library ends all that waits
    case Start::kCancelled:
    case Start::kScopeEnded:
      break;
  }
  delete timer;
  return 0;
}

bool DeadlineScope::stop(Timer* timer) {
  if (!timer) return true;
  if (PollerTimers::cancel(timer) != PollerTimers::Cancel::kTaken) return false;
  delete timer;  // its reference is not the last one: the caller has one
  return true;
}

int DeadlineScope::start(DeadlineScope* outer) {
  bool passed = false;
  int error = 0;
  {
    MutexLock lock(deadline_mutex_);
    stage_ = Stage::kStarted;
    outer_ = Ref(outer);
    error = start_timer(due_, clock_, &timer_, &passed);
    expired_ = passed;
  }
  return passed ? ETIMEDOUT : error;
}

int DeadlineScope::finish() {
  const int reason = CancelScope::finish();
  MutexLock lock(deadline_mutex_);
  stage_ = Stage::kFinished;
  if (stop(timer_)) {
    timer_ = nullptr;
  }
  return reason;
}

Runnable* DeadlineScope::later(Kind kind, int reason) {
  MutexLock lock(deadline_mutex_);
  int& stored = later_[static_cast<size_t>(kind)];
  stored = stored != 0 ? stored : reason;
  if (std::exchange(posted_, true)) return nullptr;
  retain();
  return this;
}

void DeadlineScope::run_queued() {
  int timers = 0;
  int all = 0;
  {
    MutexLock lock(deadline_mutex_);
    posted_ = false;
    timers = std::exchange(later_[static_cast<size_t>(Kind::kTimer)], 0);
    all = std::exchange(later_[static_cast<size_t>(Kind::kOther)], 0);
  }
  if (timers != 0) {
    cancel_timers(timers);
  }
  if (all != 0) {
    cancel(all);
  }
  release();
}

int64_t DeadlineScope::own_remaining_ns() const {
  Clock& clock = Runtime::current_clock();
  MutexLock lock(deadline_mutex_);
  if (stage_ == Stage::kCreated) {
    const int64_t now_ns = clock.now_ns_on(clock_);
    const int64_t deadline_ns = due_.deadline_ns(now_ns);
    return deadline_ns == kNever ? kNever : std::max<int64_t>(deadline_ns - now_ns, 0);
  }
  if (stage_ == Stage::kFinished) return kNever;
  if (expired_) return 0;
  return timer_ ? std::max<int64_t>(PollerTimers::remaining_ns(timer_, clock), 0) : kNever;
}

const DeadlineScope* DeadlineScope::outer() const {
  MutexLock lock(deadline_mutex_);
  return outer_.get();  // stays until this is freed
}

bool DeadlineScope::belongs_to(const void* owner) const {
  const DeadlineScope* scope = this;
  while (scope && scope->owner_ != owner) {
    scope = scope->outer();
  }
  return scope != nullptr;
}

int64_t DeadlineScope::remaining_ns() const {
  if (reason() != 0) return 0;
  int64_t remaining_ns = kNever;
  if (belongs_to_parent_process()) return remaining_ns;
  for (const DeadlineScope* scope = this; scope; scope = scope->outer()) {
    remaining_ns = std::min(remaining_ns, scope->own_remaining_ns());
  }
  return remaining_ns;
}

std::stop_token DeadlineScope::stop_token() {
  if (belongs_to_parent_process()) return std::stop_token();
  MutexLock lock(deadline_mutex_);
  if (!stop_request_) {
    stop_request_ = std::make_unique<StopRequest>();
    // It stays for as long as the scope, and the slot is for what comes and goes.
    if (enter_list(*stop_request_, Kind::kOther) != 0) {
      stop_request_->source.request_stop();  // has no callbacks yet
    }
  }
  return stop_request_->source.get_token();
}

}  // namespace workflow

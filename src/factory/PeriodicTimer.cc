#include "factory/PeriodicTimer.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "factory/TaskContext.h"
#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"

namespace workflow {

PeriodicTimer::PeriodicTimer(TimerDue first, ClockId clock, std::unique_ptr<TickSchedule> schedule,
                             bool overlap, WFTimer::Tick&& tick, WFTimer::Callback&& callback)
    : NamedTimerTask(first, std::move(callback), clock, true),
      created_due_(first),
      schedule_(std::move(schedule)),
      overlap_(overlap),
      tick_(std::move(tick)) {}

WFTimerTask* PeriodicTimer::create(TimerDue first, ClockId clock,
                                   std::unique_ptr<TickSchedule> schedule, bool overlap,
                                   const WFTimerOptions& options, WFTimer::Tick&& tick,
                                   WFTimer::Callback&& callback) {
  std::optional<NameRegistry::NameKey> name;
  if (options.name) {
    name = registry().key_of(*options.name);
  }
  auto* const timer = new PeriodicTimer(first, clock, std::move(schedule), overlap, std::move(tick),
                                        std::move(callback));
  return name ? give_name(timer, *name, options.policy, options.tag) : timer;
}

void PeriodicTimer::before_start() {
  if (created_due_.is_refused()) return;
  if (const std::optional<int64_t> first_ns = schedule_->first(now_ns())) {
    change_due(created_due_, TimerDue::at(*first_ns));
  }
}

void PeriodicTimer::left_queue(bool stopped, RunnableList& finished) {
  if (stopped) {
    NamedTimerTask::left_queue(stopped, finished);
    return;
  }
  if (!overlap_) {
    ticks_ = true;
    finished.push_back(this);
    return;
  }
  // The tick comes first, because another thread may end and free the timer as soon as it is in the
  // queue again.
  spawn_tick(finished);
  if (!restart()) {
    finished.push_back(this);
  }
}

class PeriodicTimer::OverlappingTick final : public Runnable {
 public:
  OverlappingTick(PeriodicTimer* timer, uint64_t number, uint64_t missed, int64_t due_ns)
      : timer_(timer), number_(number), missed_(missed), due_ns_(due_ns) {}

  void run_queued() override {
    if (!PollerTimers::is_ended(timer_)) {
      timer_->call_tick(number_, missed_, due_ns_);
    }
    timer_->drop_user();
    delete this;
  }

 private:
  PeriodicTimer* const timer_;
  const uint64_t number_;
  const uint64_t missed_;
  const int64_t due_ns_;
};

void PeriodicTimer::spawn_tick(RunnableList& finished) {
  auto* const tick = new (std::nothrow) OverlappingTick(this, number_, missed_, deadline_ns());
  if (!tick) {
    lost_ += missed_ + 1;
    return;
  }
  number_++;
  users_.add();
  finished.push_back(tick);
}

void PeriodicTimer::run_queued() {
  if (!std::exchange(ticks_, false)) {
    drop_user();
    return;
  }
  // No tick if the timer was ended after it left the queue. restart() will find that, too.
  if (!PollerTimers::is_ended(this)) {
    call_tick(number_++, missed_, deadline_ns());
  }
  if (!restart()) {
    drop_user();
  }
}

void PeriodicTimer::call_tick(uint64_t number, uint64_t missed, int64_t due_ns) {
  WFTimerTick tick(this);
  tick.number = number;
  tick.missed = missed;
  // The wall clock may have been set back since.
  tick.late = std::chrono::nanoseconds(std::max<int64_t>(now_ns() - due_ns, 0));
  Clock& clock = Runtime::current_clock();
  const int64_t begin_ns = clock.now_ns();  // of a clock that nobody sets
  TimerCounters::add(TimerCounters::kTicks);
  SeriesWork* const outer_series = std::exchange(TaskContext::current().series, joined_series());
  if (tick_ && slot()) {
    const RunningTimer running(slot(), RunningTimer::Part::kTick);
    tick_(tick);
  } else if (tick_) {
    tick_(tick);
  }
  TaskContext::current().series = outer_series;
  TimerCounters::add_callback(tick.late.count(), clock.now_ns() - begin_ns);
}

bool PeriodicTimer::restart() {
  using Start = PollerTimers::Start;
  using IfDue = PollerTimers::IfDue;
  const auto [due_ns, missed] = schedule_->next(deadline_ns(), now_ns());
  missed_ = missed + std::exchange(lost_, 0);
  // With kReport, overlapping ticks that are due already would follow each other here without end.
  const IfDue if_due = overlap_ ? IfDue::kQueue : IfDue::kReport;
  switch (PollerTimers::restart(this, due_ns, if_due)) {
    case Start::kQueued:
      return true;
    case Start::kDue:
      ticks_ = true;
      Runtime::current().handlers().post(this);
      return true;
    case Start::kCancelled:
      return !leave_with(WFT_STATE_SYS_ERROR, ECANCELED);
    case Start::kScopeEnded:
      return !leave_with(WFT_STATE_SYS_ERROR, scope_error());
    case Start::kStopped:
      return !leave_with(WFT_STATE_ABORTED, 0);
    case Start::kNoMemory:
    case Start::kNoClock:  // only a first start returns this
      return !leave_with(WFT_STATE_SYS_ERROR, ENOMEM);
  }
  return false;
}

void PeriodicTimer::end_with_tick() {
  using Cancel = PollerTimers::Cancel;
  if (PollerTimers::is_ended(this)) return;
  const Name name = leave_name();
  if (name == Name::kTaken) return;
  const Cancel found = PollerTimers::end(this);
  if (name == Name::kUnnamed && found == Cancel::kTooLate) return;
  schedule_point();
  ended_by_tick_.store(true, std::memory_order_release);
  if (found == Cancel::kTaken && leave_scope()) {
    Runtime::current().handlers().post(this);
  }
}

void PeriodicTimer::drop_user() {
  if (users_.drop()) end_by_last_user();
}

void PeriodicTimer::end_by_last_user() {
  if (ended_by_tick_.load(std::memory_order_acquire)) {
    set_outcome(WFT_STATE_SUCCESS, 0);
  }
  NamedTimerTask::run_queued();
}

void PeriodicTimer::forget_captured() {
  tick_ = nullptr;
  NamedTimerTask::forget_captured();
}

}  // namespace workflow

void WFTimerTick::end() const {
  timer_->end_with_tick();
}

#include <cerrno>
#include <new>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "factory/TimeLimit.h"
#include "kernel/ComputePool.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"
#include "workflow/WFComputeTask.h"

namespace workflow {

TimeSpan TimeSpan::of(time_t seconds, long nanoseconds) {
  if (nanoseconds < 0 || nanoseconds >= kNsPerSec) return {0, EINVAL};
  return seconds < 0 ? never() : TimeSpan{duration_ns(seconds, nanoseconds), 0};
}

PollerTimers::Start TimeLimit::start() {
  return Runtime::current().own_poller().timers().start(this, limit_ns_);
}

bool TimeLimit::claim() {
  schedule_point();
  Stage found = stage_.load(std::memory_order_acquire);
  while (found == Stage::kQueued || found == Stage::kBegun) {
    const Stage claimed = found == Stage::kQueued ? Stage::kRefused : Stage::kClaimed;
    if (stage_.compare_exchange_weak(found, claimed, std::memory_order_acq_rel)) return true;
  }
  return false;
}

bool TimeLimit::claim_before_begin() {
  schedule_point();
  Stage expected = Stage::kQueued;
  return stage_.compare_exchange_strong(expected, Stage::kRefused, std::memory_order_acq_rel);
}

bool TimeLimit::begin() {
  schedule_point();
  Stage expected = Stage::kQueued;
  return stage_.compare_exchange_strong(expected, Stage::kBegun, std::memory_order_acq_rel);
}

bool TimeLimit::arrive() {
  schedule_point();
  return arrived_.exchange(true, std::memory_order_acq_rel);
}

bool TimeLimit::has_begun() const {
  return stage_.load(std::memory_order_acquire) == Stage::kClaimed;
}

bool TimeLimit::unref() {
  schedule_point();
  return users_.drop();
}

bool TimeLimit::take_timer() {
  using Cancel = PollerTimers::Cancel;
  if (!has_timer()) return true;
  switch (PollerTimers::cancel(this)) {
    case Cancel::kTaken:
      return true;
    case Cancel::kTooLate:
      return arrive();
    case Cancel::kBeforeStart:
    case Cancel::kBeforeRestart:
      break;
  }
  return false;
}

void TimeLimit::left_queue(bool stopped, RunnableList& finished) {
  const bool timed_out = !stopped && claim();
  if (timed_out) {
    task_->state = WFT_STATE_SYS_ERROR;
    task_->error = ETIMEDOUT;
  }
  if ((timed_out || arrive()) && task_->leave_scope(this)) {
    finished.push_back(this);
  }
}

void TimeLimit::run_queued() {
  task_->complete_here();
}

ComputeTask::ComputeTask(const ComputePlace& place, const TimeSpan& limit) : place_(place) {
  error = limit.error;
  if (limit.error == 0 && limit.ns != kNever) {
    limit_ = std::make_unique<TimeLimit>(this, limit.ns);
  }
}

ComputeTask::~ComputeTask() = default;

void ComputeTask::dispatch() {
  if (place_.pool) {
    dispatch_to(place_.pool, place_.queue);
  } else {
    // The task may end, and the user's executor may be gone, before the task is posted to it.
    const ComputePlace::Kept kept = place_.keep_own();
    dispatch_to(kept.pool, kept.queue);
  }
}

void ComputeTask::dispatch_to(ComputePool* pool, ComputeQueue* queue) {
  if (error != 0) {
    state = WFT_STATE_SYS_ERROR;
    subtask_done();
  } else if (!enter_own_scope()) {
    subtask_done();
  } else if (!limit_ || !limit_->has_timer() || start_limit()) {
    queued_ = true;
    const bool posted = pool && queue && pool->post(queue, this);
    if (!posted && computed(WFT_STATE_ABORTED)) {
      queued_ = false;
      subtask_done();
    }
  }
}

// Returns false if the task has ended instead, and has its outcome.
bool ComputeTask::enter_own_scope() {
  if (!has_scope()) return true;
  if (!limit_) {
    limit_.reset(new (std::nothrow) TimeLimit(this, kNever));
  }
  if (limit_) {
    limit_->keep(Ref(SeriesScope::of(this)));
  }
  const int refused = limit_ ? enter_scope() : ENOMEM;
  if (refused == 0) {
    return true;  // claim() decides the outcome from now on
  }
  state = WFT_STATE_SYS_ERROR;
  error = refused;
  limit_.reset();
  return false;
}

// Returns false if nothing begins: the library stops, memory has run out, or the scope has ended.
bool ComputeTask::start_limit() {
  using Start = PollerTimers::Start;
  const Start started = limit_->start();
  if (started == Start::kQueued) return true;
  if (limit_->claim()) {
    const bool stops = started == Start::kStopped;
    state = stops ? WFT_STATE_ABORTED : WFT_STATE_SYS_ERROR;
    error = stops ? 0 : ENOMEM;
  }
  // If a canceller has claimed the outcome, it has found no timer, and leaves the rest to this.
  limit_->unref();  // nothing will be computed
  if (leave_scope(limit_.get())) {
    limit_.reset();
    subtask_done();
  }
  return false;
}

void ComputeTask::on_cancel(int reason) {
  const bool abandons = runs_on_ == RunsOn::kAfterAnything ||
                        (runs_on_ == RunsOn::kAfterTimeout && reason == ETIMEDOUT);
  if (abandons ? limit_->claim() : limit_->claim_before_begin()) {
    state = WFT_STATE_SYS_ERROR;
    error = reason;
    if (limit_->take_timer()) {
      leave_scope(limit_.get());
    }
  }
}

// The task's turn in its queue, or the turn on a handler thread that completes a task whose
// computation has ended on another thread, or that ends a task which has kept its place.
void ComputeTask::run_queued() {
  if (stays_) {
    end_late();
    return;
  }
  if (!queued_) {
    complete_here();
    return;
  }
  queued_ = false;
  int end_state = WFT_STATE_ABORTED;
  const auto* pool = static_cast<const ComputePool*>(ThreadContext::current().pool);
  if (!pool->is_abandoned() && !Runtime::current().stopping()) {
    if (!limit_ || limit_->begin()) {
      compute_here();
    }
    end_state = WFT_STATE_SUCCESS;
  }
  if (computed(end_state)) {
    complete_here();
  }
}

void ComputeTask::compute_here() {
  TaskContext& context = TaskContext::current();
  // Some functions of the library must know in which series they are called. A task that has a
  // limit or a scope may outlive its series.
  context.series = limit_ ? nullptr : joined_series();
  context.scope = limit_ ? limit_->scope() : nullptr;
  compute();
  context.series = nullptr;
  context.scope = nullptr;
}

bool ComputeTask::computed(int end_state) {
  if (!limit_) {
    state = end_state;
    return true;
  }
  if (limit_->claim()) {
    state = end_state;
    if (limit_->take_timer() && leave_scope(limit_.get())) {
      limit_.reset();  // no other thread uses it, nor the task
      return true;
    }
  }
  if (limit_->unref()) {
    if (stays_) {
      end_late();
    } else {
      delete this;
    }
  }
  return false;
}

void ComputeTask::complete_here() {
  SubTask::run_queued();
}

bool ComputeTask::keeps_place() const {
  return limit_->has_begun() && runs_on_ != RunsOn::kAfterAnything && borrows();
}

SubTask* ComputeTask::end_and_next() {
  if (!limit_) return delete_and_next();
  if (keeps_place()) {
    stays_ = true;
    goes_on_elsewhere();
    if (limit_->unref()) {
      Runtime::current().handlers().post(this);  // done() has to end before its chain goes on
    }
    return nullptr;
  }
  if (!limit_->has_begun() && borrows()) {
    forget_computation();
  }
  const Place after = leave_place();
  if (limit_->unref()) {
    delete this;
  }
  return after.next();
}

}  // namespace workflow

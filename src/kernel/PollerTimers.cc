#include "kernel/PollerTimers.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernel/HandlerPool.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// The monotonic clock is read first, so the result is too early by the time between the two
// readings. A poller that wakes too early computes the time again.
int64_t PollerTimers::monotonic_of(ClockId clock, int64_t deadline_ns) const {
  if (clock == ClockId::kMonotonic || deadline_ns == kNever) return deadline_ns;
  const int64_t now_ns = clock_.now_ns();
  const int64_t left_ns = deadline_ns - clock_.now_ns_on(clock);
  return saturating_add(now_ns, std::max<int64_t>(left_ns, 0));
}

int64_t PollerTimers::earliest_monotonic_ns() const {
  int64_t earliest_ns = kNever;
  for (size_t i = 0; i < kClocks; i++) {
    if (!queues_[i].empty()) {
      const ClockId clock = static_cast<ClockId>(i);
      earliest_ns = std::min(earliest_ns, monotonic_of(clock, queues_[i].earliest_ns()));
    }
  }
  return earliest_ns;
}

void PollerTimers::erase(TimerNode* node) {
  TimerQueue& queue = queue_of(node);
  queue.erase(node);
  return_surplus_of(queue);
}

void PollerTimers::return_surplus_of(const TimerQueue& queue) {
  if (queue.has_surplus() && !returns_memory_) {
    returns_memory_ = true;
    multiplexer_->wake();
  }
}

// Frees one piece of each queue in each round, so that neither timers nor descriptors wait until
// all are freed.
void PollerTimers::return_memory() {
  TimerQueue::Surplus surplus[kClocks];  // freed after the lock is
  MutexLock lock(mutex_);
  if (!returns_memory_) return;
  returns_memory_ = false;
  for (size_t i = 0; i < kClocks; i++) {
    surplus[i] = queues_[i].take_surplus();
    returns_memory_ |= queues_[i].has_surplus();
  }
  if (returns_memory_) {
    multiplexer_->wake();
  }
}

void PollerTimers::insert(TimerNode* node, int64_t deadline_ns) {
  node->deadline_ns_ = deadline_ns;
  if (queue_of(node).insert(node, deadline_ns)) {
    arm(monotonic_of(node->clock_, deadline_ns));
  }
}

// A move to a later time costs almost nothing: the queue is changed only when the node becomes its
// earliest (settle). So a timer that is moved later again and again, as leases and idle times are,
// moves in the queue only once per delay.
void PollerTimers::move_queued(TimerNode* node, int64_t deadline_ns) {
  const bool later = deadline_ns >= node->deadline_ns_;
  node->deadline_ns_ = deadline_ns;
  if (later) return;
  TimerQueue& queue = queue_of(node);
  if (deadline_ns >= queue.deadline_ns(node)) return;
  if (queue.move(node, deadline_ns)) {
    arm(monotonic_of(node->clock_, deadline_ns));
  }
  return_surplus_of(queue);
}

bool PollerTimers::settle(TimerNode* node) {
  TimerQueue& queue = queue_of(node);
  if (node->deadline_ns_ <= queue.deadline_ns(node)) return false;
  queue.move(node, node->deadline_ns_);
  return_surplus_of(queue);
  return true;
}

void PollerTimers::arm(int64_t deadline_ns) {
  const int64_t round_ns = std::max(deadline_ns, next_round_ns_);
  if (round_ns < armed_ns_) {
    armed_ns_ = round_ns;
    multiplexer_->arm(round_ns);
  }
}

// Armed here, after what was due has been handled, because the system call takes as long as a short
// callback.
void PollerTimers::end_round() {
  MutexLock lock(mutex_);
  leaving_ = false;
  if (std::exchange(unarmed_, false)) {
    arm(earliest_monotonic_ns());
  }
}

// To be called after a round that found `due` timers. Decides how long the next timers are
// collected before the next round.
void PollerTimers::space_rounds(int64_t now_ns, int due) {
  if (!clock_.is_system_clock()) return;
  const bool dense = due >= 2 && (now_ns - last_expiry_ns_) / due < kDenseNs;
  if (dense) {
    spacing_ns_ = std::clamp(spacing_ns_ * 2, kMinSpacingNs, kMaxSpacingNs);
  } else {
    spacing_ns_ = spacing_ns_ > kMinSpacingNs ? spacing_ns_ / 2 : 0;
  }
  last_expiry_ns_ = now_ns;
  next_round_ns_ = saturating_add(now_ns, spacing_ns_);
}

PollerTimers::Start PollerTimers::start(TimerNode* node, IfDue if_due) {
  const int64_t now_ns = clock_.now_ns_on(node->clock_);
  if (node->timers_ != this) {
    node->timers_ = this;  // expect() was not called, so no other thread reads it yet
  }
  MutexLock lock(mutex_);
  const TimerDue due = node->due_.exchange(TimerDue::started(), std::memory_order_acq_rel);
  if (node->flag_.exchange(true, std::memory_order_acq_rel)) {
    node->restarts_ = false;
    return Start::kCancelled;
  }
  const int64_t deadline_ns = due.deadline_ns(now_ns);
  return queue_or_refuse(node, deadline_ns, if_due == IfDue::kReport && deadline_ns <= now_ns);
}

PollerTimers::Start PollerTimers::queue_or_refuse(TimerNode* node, int64_t deadline_ns, bool due) {
  Start answer = due ? Start::kDue : Start::kQueued;
  // A node that restarts needs the watch sooner or later, and only its first start may be refused
  // because there is none.
  const bool needs_watch = node->clock_ != ClockId::kMonotonic && (!due || node->restarts_);
  if (node->mark_ != TimerNode::Mark::kNone) {
    answer = node->mark_ == TimerNode::Mark::kCancelled ? Start::kCancelled : Start::kScopeEnded;
  } else if (stopped_) {
    answer = Start::kStopped;
  } else if (needs_watch && !multiplexer_->watch_clocks()) {
    // The watch must begin before the deadline is converted to the monotonic clock, or a change of
    // the clock in between might be missed.
    answer = Start::kNoClock;
  } else if (due) {
    node->deadline_ns_ = deadline_ns;
  } else {
    try {
      insert(node, deadline_ns);
    } catch (const std::bad_alloc&) {
      answer = Start::kNoMemory;
    }
  }
  node->restarts_ = node->restarts_ && (answer == Start::kQueued || answer == Start::kDue);
  return answer;
}

PollerTimers::Cancel PollerTimers::cancel(TimerNode* node) {
  schedule_point();
  if (!node->flag_.exchange(true, std::memory_order_acq_rel)) return Cancel::kBeforeStart;
  return node->timers_ ? end(node) : Cancel::kTooLate;  // closed, unstarted
}

PollerTimers::Cancel PollerTimers::end(TimerNode* node) {
  PollerTimers* const timers = node->timers_;
  MutexLock lock(timers->mutex_);
  const bool is_first = node->mark_ == TimerNode::Mark::kNone;
  if (is_first) {
    node->mark_ = TimerNode::Mark::kCancelled;
  }
  if (node->queued()) {
    timers->erase(node);
    node->restarts_ = false;
    return Cancel::kTaken;
  }
  return node->restarts_ && is_first ? Cancel::kBeforeRestart : Cancel::kTooLate;
}

bool PollerTimers::is_ended(const TimerNode* node) {
  MutexLock lock(node->timers_->mutex_);
  return node->mark_ != TimerNode::Mark::kNone;
}

PollerTimers::Start PollerTimers::restart(TimerNode* node, int64_t deadline_ns, IfDue if_due) {
  schedule_point();
  PollerTimers* const timers = node->timers_;
  const bool due =
      if_due == IfDue::kReport && deadline_ns <= timers->clock_.now_ns_on(node->clock_);
  MutexLock lock(timers->mutex_);
  return timers->queue_or_refuse(node, deadline_ns, due);
}

PollerTimers::Move PollerTimers::move(TimerNode* node, TimerDue due) {
  schedule_point();
  TimerDue before = node->due_.load(std::memory_order_acquire);
  while (!before.is_started()) {
    if (before.is_refused()) return Move::kTooLate;
    schedule_point();
    if (node->flag_.load(std::memory_order_acquire)) {
      if (!node->due_.load(std::memory_order_acquire).is_started()) {
        return Move::kTooLate;  // cancelled; a start would have changed that first
      }
      break;
    }
    if (node->due_.compare_exchange_weak(before, due, std::memory_order_acq_rel)) {
      return Move::kMoved;
    }
  }
  PollerTimers* const timers = node->timers_;
  const int64_t deadline_ns = due.deadline_ns(timers->clock_.now_ns_on(node->clock_));
  MutexLock lock(timers->mutex_);
  if (!node->queued()) {
    const bool goes_on = node->restarts_ && node->mark_ == TimerNode::Mark::kNone;
    return goes_on ? Move::kInTick : Move::kTooLate;
  }
  timers->move_queued(node, deadline_ns);
  return Move::kMoved;
}

namespace {

int64_t time_left(int64_t deadline_ns, int64_t now_ns) {
  return deadline_ns == kNever ? kNever : std::max<int64_t>(deadline_ns - now_ns, 0);
}

}  // namespace

int64_t PollerTimers::remaining_ns(const TimerNode* node, Clock& clock) {
  const TimerDue due = node->due_.load(std::memory_order_acquire);
  if (!due.is_started()) {
    schedule_point();
    if (!node->flag_.load(std::memory_order_acquire)) {
      const int64_t now_ns = clock.now_ns_on(node->clock_);
      return due.is_refused() ? -1 : time_left(due.deadline_ns(now_ns), now_ns);
    }
    if (!node->due_.load(std::memory_order_acquire).is_started()) {
      return -1;  // cancelled; a start would have changed that first
    }
  }
  PollerTimers* const timers = node->timers_;
  const int64_t now_ns = timers->clock_.now_ns_on(node->clock_);
  MutexLock lock(timers->mutex_);
  if (!node->queued()) return -1;
  return time_left(node->deadline_ns_, now_ns);
}

bool PollerTimers::end_for_scope(TimerNode* node) {
  PollerTimers* const timers = node->timers_;
  MutexLock lock(timers->mutex_);
  if (node->mark_ == TimerNode::Mark::kNone) {
    node->mark_ = TimerNode::Mark::kScopeEnded;
  }
  if (!node->queued()) return false;
  timers->erase(node);
  node->restarts_ = false;
  return true;
}

bool PollerTimers::schedule(TimerNode* node, int64_t deadline_ns) {
  MutexLock lock(mutex_);
  if (node->queued()) {
    erase(node);
  }
  if (stopped_) return false;
  try {
    insert(node, deadline_ns);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void PollerTimers::unschedule(TimerNode* node) {
  MutexLock lock(mutex_);
  if (node->queued()) {
    erase(node);
  }
}

bool PollerTimers::settled() const {
  MutexLock lock(mutex_);
  if (leaving_) return false;
  for (size_t i = 0; i < kClocks; i++) {
    if (queues_[i].earliest_ns() <= clock_.now_ns_on(static_cast<ClockId>(i))) return false;
  }
  return true;
}

int64_t PollerTimers::earliest_ns() {
  MutexLock lock(mutex_);
  for (TimerQueue& queue : queues_) {
    while (!queue.empty() && settle(static_cast<TimerNode*>(queue.earliest()))) {
    }
  }
  return earliest_monotonic_ns();
}

size_t PollerTimers::size() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const TimerQueue& queue : queues_) {
    count += queue.size();
  }
  return count;
}

void PollerTimers::refuse() {
  MutexLock lock(mutex_);
  stopped_ = true;
}

bool PollerTimers::refuses() const {
  MutexLock lock(mutex_);
  return stopped_;
}

void PollerTimers::stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    draining_ = true;
  }
  multiplexer_->wake();
}

bool PollerTimers::stopping() const {
  MutexLock lock(mutex_);
  return draining_;
}

void PollerTimers::end_all(HandlerPool& handlers) {
  RunnableList finished;
  while (end_due(Ender::kStop, finished) > 0) {
    handlers.post(finished);
  }
  MutexLock lock(mutex_);
  drained_ = true;
  drained_changed_.notify_all();
}

void PollerTimers::wait_until_ended() {
  MutexLock lock(mutex_);
  while (!drained_) {
    drained_changed_.wait(mutex_);
  }
}

int PollerTimers::take_due(TimerQueue& queue, int64_t now_ns, Ender ender, TimerNode** due,
                           int* count, int looked) {
  for (; looked < kMaxPopped && !queue.empty() && queue.earliest_ns() <= now_ns; looked++) {
    auto* const node = static_cast<TimerNode*>(queue.earliest());
    if (ender == Ender::kClock && !node->flag_.load(std::memory_order_relaxed)) {
      return looked;  // queued by schedule(), so only the poller's thread may end it
    }
    if (ender == Ender::kStop || !settle(node)) {
      queue.erase(node);
      node->restarts_ = node->restarts_ && ender != Ender::kStop;
      due[(*count)++] = node;
    }
  }
  return looked;
}

int PollerTimers::end_due(Ender ender, RunnableList& finished) {
  const bool stopped = ender == Ender::kStop;
  const int64_t now_ns = clock_.now_ns();
  TimerNode* due[kMaxPopped];
  int count = 0;
  TimerQueue::Surplus surplus[kClocks];  // freed after the lock is
  {
    MutexLock lock(mutex_);
    int looked = 0;
    for (size_t i = 0; i < kClocks; i++) {
      const size_t which = (first_queue_ + i) % kClocks;
      TimerQueue& queue = queues_[which];
      if (!queue.empty()) {
        const ClockId clock = static_cast<ClockId>(which);
        const bool monotonic = clock == ClockId::kMonotonic;
        const int64_t at_ns = stopped ? kNever : monotonic ? now_ns : clock_.now_ns_on(clock);
        looked = take_due(queue, at_ns, ender, due, &count, looked);
      }
      surplus[which] = queue.take_surplus();
      return_surplus_of(queue);  // if there is more
    }
    leaving_ = ender == Ender::kClock ? leaving_ : count > 0;
    // The armed time has passed. If a full batch leaves due nodes behind, the poller is armed for
    // now.
    armed_ns_ = kNever;
    if (looked == kMaxPopped) {
      first_queue_ = (first_queue_ + 1) % kClocks;  // so that no clock keeps the others waiting
    } else if (!stopped) {
      space_rounds(now_ns, count);
    }
    unarmed_ = true;
  }
  for (int i = 0; i < count; i++) {
    due[i]->left_queue(stopped, finished);
  }
  return count;
}

}  // namespace workflow

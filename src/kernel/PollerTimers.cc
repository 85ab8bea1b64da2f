#include <algorithm>
#include <new>

#include "kernel/Poller.h"

// The timers of a poller: how they start, end, move and expire; the rules are in Poller.h.

namespace workflow {

void Poller::insert(TimerNode* node, int64_t deadline_ns) {
  node->deadline_ns_ = deadline_ns;
  if (queue_.insert(node, deadline_ns)) {
    arm(deadline_ns);
  }
}

// Later costs next to nothing: the queue is told when the node is the earliest of it. A timer that
// is put off again and again, as leases and idle times are, so moves once per delay.
void Poller::move(TimerNode* node, int64_t deadline_ns) {
  const bool later = deadline_ns >= node->deadline_ns_;
  node->deadline_ns_ = deadline_ns;
  if (!later && deadline_ns < queue_.deadline_ns(node) && queue_.move(node, deadline_ns)) {
    arm(deadline_ns);
  }
}

bool Poller::settle(TimerNode* node) {
  if (node->deadline_ns_ <= queue_.deadline_ns(node)) {
    return false;
  }
  queue_.move(node, node->deadline_ns_);
  return true;
}

void Poller::arm(int64_t deadline_ns) {
  const int64_t round_ns = std::max(deadline_ns, next_round_ns_);
  if (round_ns < armed_ns_) {
    armed_ns_ = round_ns;
    multiplexer_->arm(round_ns);
  }
}

// After a round that found `due` timers: how long to let the next ones gather.
void Poller::space_out(int64_t now_ns, int due) {
  if (!clock_.is_system_clock()) {
    return;
  }
  const bool dense = due >= 2 && (now_ns - last_expiry_ns_) / due < kDenseNs;
  if (dense) {
    spacing_ns_ = std::clamp(spacing_ns_ * 2, kMinSpacingNs, kMaxSpacingNs);
  } else {
    spacing_ns_ = spacing_ns_ > kMinSpacingNs ? spacing_ns_ / 2 : 0;
  }
  last_expiry_ns_ = now_ns;
  next_round_ns_ = saturating_add(now_ns, spacing_ns_);
}

Poller::Start Poller::start_timer(TimerNode* node) {
  const int64_t now_ns = clock_.now_ns();
  node->poller_ = this;
  MutexLock lock(mutex_);
  const int64_t delay_ns = node->delay_ns_.exchange(TimerNode::kStarted, std::memory_order_acq_rel);
  if (node->flag_.exchange(true, std::memory_order_acq_rel)) {
    return Start::kCancelled;
  }
  return put_in(node, saturating_add(now_ns, delay_ns));
}

Poller::Start Poller::put_in(TimerNode* node, int64_t deadline_ns) {
  Start answer = Start::kQueued;
  if (node->interrupted_) {
    answer = Start::kCancelled;
  } else if (stopped_) {
    answer = Start::kStopped;
  } else {
    try {
      insert(node, deadline_ns);
    } catch (const std::bad_alloc&) {
      answer = Start::kNoMemory;
    }
  }
  node->restarts_ = node->restarts_ && answer == Start::kQueued;
  return answer;
}

Poller::Cancel Poller::cancel_timer(TimerNode* node) {
  schedule_point();
  if (!node->flag_.exchange(true, std::memory_order_acq_rel)) {
    return Cancel::kBeforeStart;
  }
  return node->poller_ ? end_timer(node) : Cancel::kTooLate;  // closed, unstarted
}

Poller::Cancel Poller::end_timer(TimerNode* node) {
  Poller* const poller = node->poller_;
  MutexLock lock(poller->mutex_);
  if (node->queued()) {
    poller->queue_.erase(node);
    node->restarts_ = false;
    return Cancel::kTaken;
  }
  if (node->restarts_ && !node->interrupted_) {
    node->interrupted_ = true;
    return Cancel::kBeforeRestart;
  }
  return Cancel::kTooLate;
}

bool Poller::is_ended(const TimerNode* node) {
  MutexLock lock(node->poller_->mutex_);
  return node->interrupted_;
}

Poller::Start Poller::restart_timer(TimerNode* node, int64_t deadline_ns) {
  schedule_point();
  Poller* const poller = node->poller_;
  MutexLock lock(poller->mutex_);
  return poller->put_in(node, deadline_ns);
}

bool Poller::move_timer(TimerNode* node, int64_t delay_ns) {
  schedule_point();
  int64_t before = node->delay_ns_.load(std::memory_order_acquire);
  while (before >= 0) {
    schedule_point();
    if (node->flag_.load(std::memory_order_acquire)) {
      before = node->delay_ns_.load(std::memory_order_acquire);
      if (before >= 0) {
        return false;  // cancelled; a start would have changed that first
      }
      break;
    }
    if (node->delay_ns_.compare_exchange_weak(before, delay_ns, std::memory_order_acq_rel)) {
      return true;
    }
  }
  if (before != TimerNode::kStarted) {
    return false;
  }
  Poller* const poller = node->poller_;
  const int64_t deadline_ns = saturating_add(poller->clock_.now_ns(), delay_ns);
  MutexLock lock(poller->mutex_);
  if (!node->queued()) {
    return false;
  }
  poller->move(node, deadline_ns);
  return true;
}

int64_t Poller::remaining_ns(const TimerNode* node) {
  const int64_t delay_ns = node->delay_ns_.load(std::memory_order_acquire);
  if (delay_ns != TimerNode::kStarted) {
    schedule_point();
    if (!node->flag_.load(std::memory_order_acquire)) {
      return delay_ns;
    }
    if (node->delay_ns_.load(std::memory_order_acquire) != TimerNode::kStarted) {
      return -1;  // cancelled; a start would have changed that first
    }
  }
  Poller* const poller = node->poller_;
  const int64_t now_ns = poller->clock_.now_ns();
  MutexLock lock(poller->mutex_);
  if (!node->queued()) {
    return -1;
  }
  const int64_t deadline_ns = node->deadline_ns_;
  return deadline_ns == kNever ? kNever : std::max<int64_t>(deadline_ns - now_ns, 0);
}

bool Poller::interrupt_timer(TimerNode* node) {
  MutexLock lock(mutex_);
  if (!node->queued()) {
    node->interrupted_ = true;
    return false;
  }
  queue_.erase(node);
  node->restarts_ = false;
  return true;
}

bool Poller::schedule(TimerNode* node, int64_t deadline_ns) {
  MutexLock lock(mutex_);
  if (node->queued()) {
    queue_.erase(node);
  }
  if (stopped_) {
    return false;
  }
  try {
    insert(node, deadline_ns);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void Poller::unschedule(TimerNode* node) {
  MutexLock lock(mutex_);
  if (node->queued()) {
    queue_.erase(node);
  }
}

bool Poller::settled() const {
  {
    MutexLock lock(inbox_mutex_);
    if (!inbox_.empty()) {
      return false;
    }
  }
  const int64_t now_ns = clock_.now_ns();
  MutexLock lock(mutex_);
  return !leaving_ && queue_.earliest_ns() > now_ns;
}

int64_t Poller::earliest_ns() {
  MutexLock lock(mutex_);
  while (!queue_.empty() && settle(static_cast<TimerNode*>(queue_.earliest()))) {
  }
  return queue_.earliest_ns();
}

size_t Poller::timer_count() const {
  MutexLock lock(mutex_);
  return queue_.size();
}

int Poller::end_due(int64_t now_ns, bool stopped) {
  TimerNode* due[kMaxPopped];
  int count = 0;
  TimerQueue::Surplus surplus;  // freed after the lock is
  {
    MutexLock lock(mutex_);
    int looked = 0;
    for (; looked < kMaxPopped && !queue_.empty() && queue_.earliest_ns() <= now_ns; looked++) {
      auto* const node = static_cast<TimerNode*>(queue_.earliest());
      if (stopped || !settle(node)) {
        queue_.erase(node);
        node->restarts_ = node->restarts_ && !stopped;
        due[count++] = node;
      }
    }
    leaving_ = count > 0;
    // What was armed has come; what a full batch leaves behind is due at once.
    armed_ns_ = kNever;
    if (!stopped && looked < kMaxPopped) {
      space_out(now_ns, count);
    }
    arm(queue_.earliest_ns());
    surplus = queue_.take_surplus();
  }
  for (int i = 0; i < count; i++) {
    due[i]->left_queue(stopped, finished_);
  }
  return count;
}

}  // namespace workflow

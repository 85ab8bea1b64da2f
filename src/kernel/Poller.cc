#include "kernel/Poller.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace workflow {

Poller::Poller(Clock& clock, HandlerPool& handlers, LeaderWatch* watch)
    : clock_(clock),
      handlers_(handlers),
      watch_(handlers.configured_threads() > 1 ? watch : nullptr) {}

Poller::~Poller() = default;

bool Poller::start() {
  multiplexer_ = Multiplexer::create(clock_);
  if (!multiplexer_) {
    return false;
  }
  if (watch_) {
    watch_->add(&leadership_, [this] { replace_leader(); });
  }
  MutexLock lock(threads_mutex_);
  if (!start_thread(false)) {
    errno = EAGAIN;
    return false;
  }
  return true;
}

void Poller::refuse_timers() {
  MutexLock lock(mutex_);
  stopped_ = true;
}

void Poller::stop_timers() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    draining_ = true;
  }
  multiplexer_->wake();
}

void Poller::wait_for_timers() {
  MutexLock lock(mutex_);
  while (!drained_) {
    drained_changed_.wait(mutex_);
  }
}

void Poller::stop() {
  stop_timers();
  {
    MutexLock lock(inbox_mutex_);
    inbox_closed_ = true;
  }
  multiplexer_->wake();
  const bool inside = ThreadContext::current().poller == this;
  {
    MutexLock lock(threads_mutex_);
    while (threads_.size() > (inside ? 1 : 0)) {
      threads_changed_.wait(threads_mutex_);
    }
  }
  join_ended();
}

void Poller::insert(TimerNode* node, int64_t deadline_ns) {
  if (queue_.insert(node, deadline_ns)) {
    arm(deadline_ns);
  }
}

// Later costs next to nothing: the queue is told when the node is the earliest of it. A timer that
// is put off again and again, as leases and idle times are, so moves once per delay.
void Poller::move(TimerNode* node, int64_t deadline_ns) {
  const bool later = deadline_ns >= queue_.deadline_ns(node);
  node->put_off_ns_ = later ? deadline_ns : 0;
  if (!later && queue_.move(node, deadline_ns)) {
    arm(deadline_ns);
  }
}

bool Poller::settle(TimerNode* node) {
  if (node->put_off_ns_ <= queue_.deadline_ns(node)) {
    return false;
  }
  queue_.move(node, node->put_off_ns_);
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
  if (node->interrupted_) {
    return Start::kCancelled;
  }
  if (stopped_) {
    return Start::kStopped;
  }
  try {
    insert(node, saturating_add(now_ns, delay_ns));
  } catch (const std::bad_alloc&) {
    return Start::kNoMemory;
  }
  return Start::kQueued;
}

Poller::Cancel Poller::cancel_timer(TimerNode* node) {
  schedule_point();
  if (!node->flag_.exchange(true, std::memory_order_acq_rel)) {
    return Cancel::kBeforeStart;
  }
  Poller* poller = node->poller_;
  if (!poller) {
    return Cancel::kTooLate;  // closed, unstarted
  }
  MutexLock lock(poller->mutex_);
  if (!node->queued()) {
    return Cancel::kTooLate;
  }
  poller->queue_.erase(node);
  return Cancel::kTaken;
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
  const int64_t deadline_ns = std::max(poller->queue_.deadline_ns(node), node->put_off_ns_);
  return deadline_ns == kNever ? kNever : std::max<int64_t>(deadline_ns - now_ns, 0);
}

bool Poller::interrupt_timer(TimerNode* node) {
  MutexLock lock(mutex_);
  if (!node->queued()) {
    node->interrupted_ = true;
    return false;
  }
  queue_.erase(node);
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

int Poller::add(int fd, uint32_t events, IoHandler* handler) {
  return multiplexer_->add(fd, events, handler);
}

int Poller::modify(int fd, uint32_t events, IoHandler* handler) {
  return multiplexer_->modify(fd, events, handler);
}

int Poller::remove(int fd) {
  return multiplexer_->remove(fd);
}

void Poller::retire(int fd, IoHandler* handler) {
  multiplexer_->remove(fd);
  handler->next_retired_ = std::exchange(retired_, handler);
}

bool Poller::post(Runnable* item) {
  {
    MutexLock lock(inbox_mutex_);
    if (inbox_closed_) {
      return false;
    }
    inbox_.push_back(item);
  }
  multiplexer_->wake();
  return true;
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

// What is due beyond one batch has the multiplexer return at once, after a look at descriptors.
void Poller::expire() {
  end_due(clock_.now_ns(), false);
}

void Poller::drain() {
  handlers_.post(finished_);  // of this round so far
  while (end_due(kNever, true) > 0) {
    handlers_.post(finished_);
  }
  MutexLock lock(mutex_);
  drained_ = true;
  drained_changed_.notify_all();
}

void Poller::run_posted(bool all) {
  RunnableList posted;
  {
    MutexLock lock(inbox_mutex_);
    posted.append(inbox_);
  }
  const int64_t until_ns = saturating_add(clock_.now_ns(), kMaxPostedNs);
  while (Runnable* item = posted.pop_front()) {
    item->take_turn();
    if (!all && !posted.empty() && clock_.now_ns() >= until_ns) {
      {
        MutexLock lock(inbox_mutex_);
        posted.append(inbox_);
        inbox_.append(posted);
      }
      multiplexer_->wake();
    }
  }
}

void Poller::finish_retired() {
  // on_retired() may retire others.
  while (IoHandler* handler = retired_) {
    retired_ = handler->next_retired_;
    handler->on_retired();
  }
}

bool Poller::may_run_finished(int64_t now_ns) {
  const bool busy = now_ns - last_round_ns_ < kCloseRoundsNs || finished_.size() >= kBusyBatch;
  last_round_ns_ = now_ns;
  return busy && watch_ && !stopping_ && now_ns - replaced_ns_ >= hand_over_ns_ &&
         clock_.is_system_clock();
}

bool Poller::deliver() {
  bool leads = true;
  if (!finished_.empty()) {
    const int64_t now_ns = clock_.now_ns();
    if (may_run_finished(now_ns)) {
      RunnableList batch(std::move(finished_));
      ThreadContext& context = ThreadContext::current();
      context.away_from = this;
      leads = leadership_.run_away(batch, handlers_, *watch_, now_ns + kMaxAwayNs);
      context.away_from = nullptr;
    } else {
      handlers_.post(finished_);
    }
  }
  if (leads) {
    MutexLock lock(mutex_);
    leaving_ = false;
  }
  return leads;
}

void Poller::lead() {
  leadership_.attach();
  struct epoll_event events[kMaxEvents];
  for (bool closing = false; !closing;) {
    const Multiplexer::Result result = multiplexer_->wait(events, kMaxEvents);
    for (int i = 0; i < result.events; i++) {
      static_cast<IoHandler*>(events[i].data.ptr)->on_events(events[i].events, finished_);
    }
    if (result.deadline_due) {
      expire();
    }
    if (result.woken) {
      // In this order: who closes has stopped the timers before, so a closing leader never goes
      // away, and nobody else has to find out.
      {
        MutexLock lock(inbox_mutex_);
        closing = inbox_closed_;
      }
      {
        MutexLock lock(mutex_);
        stopping_ = draining_;
      }
      if (stopping_) {
        drain();
      }
      run_posted(closing);
    }
    finish_retired();
    if (!deliver()) {
      return;
    }
  }
}

}  // namespace workflow

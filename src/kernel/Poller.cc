#include "kernel/Poller.h"

#include <cerrno>
#include <new>
#include <utility>

namespace workflow {

Poller::Poller(Clock& clock, HandlerPool& handlers) : clock_(clock), handlers_(handlers) {}

Poller::~Poller() = default;

bool Poller::start() {
  multiplexer_ = Multiplexer::create(clock_);
  if (!multiplexer_) {
    return false;
  }
  if (!thread_.start("wf-poller", [this] { run(); })) {
    errno = EAGAIN;
    return false;
  }
  return true;
}

void Poller::stop_timers() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  multiplexer_->wake();
}

void Poller::stop() {
  stop_timers();
  {
    MutexLock lock(inbox_mutex_);
    inbox_closed_ = true;
  }
  multiplexer_->wake();
  thread_.join();
}

void Poller::insert(TimerNode* node, int64_t deadline_ns) {
  if (queue_.insert(node, deadline_ns) && deadline_ns < armed_ns_) {
    arm_earliest();
  }
}

void Poller::arm_earliest() {
  armed_ns_ = queue_.earliest_ns();
  multiplexer_->arm(armed_ns_);
}

Poller::Start Poller::start_timer(TimerNode* node, int64_t delay_ns) {
  const int64_t deadline_ns = saturating_add(clock_.now_ns(), delay_ns);
  node->poller_ = this;
  MutexLock lock(mutex_);
  if (node->flag_.exchange(true, std::memory_order_acq_rel)) {
    return Start::kCancelled;
  }
  if (stopped_) {
    return Start::kStopped;
  }
  try {
    insert(node, deadline_ns);
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
  MutexLock lock(poller->mutex_);
  if (!node->queued()) {
    return Cancel::kTooLate;
  }
  poller->queue_.erase(node);
  return Cancel::kTaken;
}

void Poller::schedule(TimerNode* node, int64_t deadline_ns) {
  MutexLock lock(mutex_);
  if (node->queued()) {
    queue_.erase(node);
  }
  if (stopped_) {
    return;
  }
  try {
    insert(node, deadline_ns);
  } catch (const std::bad_alloc&) {
    // The descriptor goes without its timeout; the next schedule() tries again.
  }
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

int Poller::remove(int fd) { return multiplexer_->remove(fd); }

void Poller::retire(int fd, IoHandler* handler) {
  multiplexer_->remove(fd);
  retired_.push_back(handler);
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

int64_t Poller::earliest_ns() const {
  MutexLock lock(mutex_);
  return queue_.earliest_ns();
}

size_t Poller::timer_count() const {
  MutexLock lock(mutex_);
  return queue_.size();
}

int Poller::end_due(int64_t now_ns, bool stopped) {
  TimerQueueNode* due[kMaxPopped];
  int count = 0;
  {
    MutexLock lock(mutex_);
    while (count < kMaxPopped && (due[count] = queue_.pop_due(now_ns))) {
      count++;
    }
    leaving_ = count > 0;
    arm_earliest();
  }
  if (count > 0) {
    for (int i = 0; i < count; i++) {
      static_cast<TimerNode*>(due[i])->left_queue(stopped, finished_);
    }
    handlers_.post(finished_);
    MutexLock lock(mutex_);
    leaving_ = false;
  }
  return count;
}

// What is due beyond one batch has the multiplexer return at once, after a look at descriptors.
void Poller::expire() { end_due(clock_.now_ns(), false); }

void Poller::drain() {
  while (end_due(kNever, true) > 0) {
  }
}

void Poller::run_posted() {
  RunnableList posted;
  {
    MutexLock lock(inbox_mutex_);
    posted.append(inbox_);
  }
  while (Runnable* item = posted.pop_front()) {
    item->run();
  }
}

void Poller::finish_retired() {
  // on_retired() may retire others.
  while (!retired_.empty()) {
    std::vector<IoHandler*> batch;
    batch.swap(retired_);
    for (IoHandler* handler : batch) {
      handler->on_retired();
    }
  }
}

void Poller::run() {
  ThreadContext::current().poller = this;
  struct epoll_event events[kMaxEvents];
  for (bool closing = false; !closing;) {
    const Multiplexer::Result result = multiplexer_->wait(events, kMaxEvents);
    for (int i = 0; i < result.events; i++) {
      static_cast<IoHandler*>(events[i].data.ptr)->on_events(events[i].events, finished_);
    }
    handlers_.post(finished_);
    if (result.deadline_due) {
      expire();
    }
    if (result.woken) {
      bool stopped = false;
      {
        MutexLock lock(mutex_);
        stopped = stopped_;
      }
      if (stopped) {
        drain();
      }
      {
        MutexLock lock(inbox_mutex_);
        closing = inbox_closed_;
      }
      run_posted();
    }
    finish_retired();
  }
}

}  // namespace workflow

#include "kernel/Poller.h"

#include <cerrno>
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

int Poller::add(int fd, uint32_t events, IoHandler* handler) {
  const int added = multiplexer_->add(fd, events, handler);
  if (added == 0) {
    descriptors_.fetch_add(1, std::memory_order_relaxed);
  }
  return added;
}

int Poller::modify(int fd, uint32_t events, IoHandler* handler) {
  return multiplexer_->modify(fd, events, handler);
}

int Poller::remove(int fd) {
  const int removed = multiplexer_->remove(fd);
  if (removed == 0) {
    descriptors_.fetch_sub(1, std::memory_order_relaxed);
  }
  return removed;
}

void Poller::retire(int fd, IoHandler* handler) {
  remove(fd);
  handler->next_retired_ = std::exchange(retired_, handler);
}

bool Poller::post(Runnable* item) {
  {
    MutexLock lock(inbox_mutex_);
    if (inbox_closed_) {
      return false;
    }
    inbox_.push_back(item);
    rounds_asked_++;
  }
  multiplexer_->wake();
  return true;
}

uint64_t Poller::ask_for_round() {
  uint64_t round = 0;
  {
    MutexLock lock(inbox_mutex_);
    if (inbox_closed_) {
      return 0;
    }
    round = ++rounds_asked_;
  }
  multiplexer_->wake();
  return round;
}

void Poller::wait_for_round(uint64_t round) {
  MutexLock lock(inbox_mutex_);
  while (rounds_made_ < round) {
    round_made_.wait(inbox_mutex_);
  }
}

// If more than one batch is due, the multiplexer returns again at once, after checking the
// descriptors.
void Poller::expire() {
  end_due(Ender::kLeader, finished_);
}

void Poller::drain() {
  handlers_.post(finished_);  // what this round has finished so far
  while (end_due(Ender::kStop, finished_) > 0) {
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
    round_ = rounds_asked_;
  }
  const int64_t until_ns = saturating_add(clock_.now_ns(), kMaxPostedNs);
  while (Runnable* item = posted.pop_front()) {
    item->run_queued();
    if (!all && !posted.empty() && clock_.now_ns() >= until_ns) {
      {
        MutexLock lock(inbox_mutex_);
        posted.append(inbox_);
        inbox_.append(posted);
        round_ = rounds_made_;
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
      context.running_for = this;
      leads = leadership_.run_callbacks(batch, handlers_, *watch_, now_ns + kMaxCallbacksNs);
      context.running_for = nullptr;
    } else {
      handlers_.post(finished_);
    }
  }
  if (leads) {
    MutexLock lock(mutex_);
    leaving_ = false;
    rearm();
  }
  if (leads && round_ != 0) {
    MutexLock lock(inbox_mutex_);
    rounds_made_ = std::exchange(round_, 0);
    round_made_.notify_all();
  }
  return leads;
}

void Poller::lead() {
  leadership_.attach();
  {
    MutexLock lock(mutex_);
    rearm();  // instead of the leader that this thread has replaced
  }
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
      // In this order: stop() stops the timers before it closes the inbox. So a leader that sees
      // `closing` also sees `stopping_`. It then runs no callbacks itself, is never replaced, and
      // no other leader has to notice the end.
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
      return_memory();
    }
    finish_retired();
    if (!deliver()) {
      return;
    }
  }
}

}  // namespace workflow

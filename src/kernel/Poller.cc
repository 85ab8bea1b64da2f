#include "kernel/Poller.h"

#include <utility>

#include "kernel/ThreadContext.h"
#include "util/Time.h"

namespace workflow {

Poller::Poller(Clock& clock, HandlerPool& handlers, StallWatch* watch)
    : clock_(clock),
      handlers_(handlers),
      timers_(clock),
      threads_(handlers, watch, [this] { lead(); }) {}

bool Poller::start() {
  multiplexer_ = Multiplexer::create(clock_);
  if (!multiplexer_) return false;
  timers_.attach(*multiplexer_);
  return threads_.start();
}

void Poller::wait_for_callbacks() {
  threads_.wait_for_replaced(ThreadContext::current().poller == this);
}

void Poller::stop() {
  timers_.stop();
  {
    MutexLock lock(rounds_mutex_);
    stopped_ = true;
  }
  multiplexer_->wake();
  threads_.join_all(ThreadContext::current().poller == this);
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
  if (multiplexer_->remove(fd) == 0) {
    removed_descriptors_++;
  }
  handler->next_retired_ = std::exchange(retired_, handler);
}

void Poller::finish_retired() {
  // on_retired() may retire others.
  while (IoHandler* handler = retired_) {
    retired_ = handler->next_retired_;
    handler->on_retired();
  }
}

bool Poller::post(Runnable* item) {
  RunnableList one;
  one.push_back(item);
  if (!intake_.push(one)) return false;
  // After the push: the round that follows a wake-up sees what was done before wake() was called.
  multiplexer_->wake();
  return true;
}

void Poller::run_posted(bool last) {
  const int64_t until_ns = saturating_add(clock_.now_ns(), kMaxPostedNs);
  do {
    intake_.take(posted_);
  } while (last && !intake_.close());
  while (Runnable* item = posted_.pop_front()) {
    item->run_queued();
    if (!last && !posted_.empty() && clock_.now_ns() >= until_ns) {
      round_ = 0;
      multiplexer_->wake();
      return;
    }
  }
}

uint64_t Poller::ask_for_round() {
  uint64_t round = 0;
  {
    MutexLock lock(rounds_mutex_);
    if (stopped_) return 0;
    round = ++rounds_asked_;
  }
  multiplexer_->wake();
  return round;
}

void Poller::wait_for_round(uint64_t round) {
  MutexLock lock(rounds_mutex_);
  while (rounds_made_ < round) {
    round_made_.wait(rounds_mutex_);
  }
}

bool Poller::settled() const {
  {
    MutexLock lock(rounds_mutex_);
    // While the lock is held no round begins, so nobody empties the intake.
    if (rounds_made_ != rounds_asked_ || !intake_.empty()) return false;
  }
  return timers_.settled();
}

void Poller::lead() {
  ThreadContext::current().poller = this;
  end_round();  // instead of the leader that this thread has replaced
  struct epoll_event events[kMaxEvents];
  for (bool last = false; !last;) {
    const Multiplexer::Result result = multiplexer_->wait(events, kMaxEvents);
    for (int i = 0; i < result.events; i++) {
      static_cast<IoHandler*>(events[i].data.ptr)->on_events(events[i].events, finished_);
    }
    if (result.deadline_due) {
      // If more than one batch is due, the multiplexer returns again at once, after checking the
      // descriptors.
      timers_.end_due(PollerTimers::Ender::kLeader, finished_);
    }
    if (result.woken) {
      last = handle_wake_up();
    }
    finish_retired();
    if (!threads_.deliver(finished_, stopping_)) return;
    end_round();
  }
}

bool Poller::handle_wake_up() {
  // In this order: stop() stops the timers before it sets stopped_. So a leader that sees `last`
  // also sees `stopping_`. It then runs no callbacks itself, is never replaced, and no other leader
  // has to notice the end.
  bool last = false;
  bool has_work = false;
  {
    MutexLock lock(rounds_mutex_);
    last = stopped_;
    // A round that was woken for nothing does not count, so the poller remains settled.
    has_work = last || rounds_made_ != rounds_asked_ || !intake_.empty();
    if (has_work) {
      round_ = ++rounds_asked_;
    }
  }
  stopping_ = timers_.stopping();
  if (stopping_) {
    handlers_.post(finished_);  // what this round has finished so far
    timers_.end_all(handlers_);
  }
  if (has_work) {
    run_posted(last);
  }
  timers_.return_memory();
  return last;
}

void Poller::end_round() {
  timers_.end_round();
  if (removed_descriptors_ > 0) {
    descriptors_.fetch_sub(std::exchange(removed_descriptors_, 0), std::memory_order_relaxed);
  }
  if (round_ != 0) {
    MutexLock lock(rounds_mutex_);
    rounds_made_ = std::exchange(round_, 0);
    round_made_.notify_all();
  }
}

}  // namespace workflow

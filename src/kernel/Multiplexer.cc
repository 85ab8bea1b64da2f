#include "kernel/Multiplexer.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "util/Mutex.h"
#include "util/UniqueFd.h"

namespace workflow {

namespace {

class EpollMultiplexer final : public Multiplexer {
 public:
  explicit EpollMultiplexer(Clock& clock)
      : clock_(clock), follows_system_clock_(clock.is_system_clock()) {}

  bool open() {
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    wake_ = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    // Edge-triggered: each expiry and each write reports once, so neither descriptor is ever read.
    return epoll_.valid() && timer_.valid() && wake_.valid() &&
           add(timer_.get(), EPOLLIN | EPOLLET, &timer_) == 0 &&
           add(wake_.get(), EPOLLIN | EPOLLET, &wake_) == 0;
  }

  Result wait(struct epoll_event* events, int max) override {
    Result result;
    const int n = ::epoll_wait(epoll_.get(), events, max, -1);
    for (int i = 0; i < n; i++) {
      if (events[i].data.ptr == &timer_) {
        result.deadline_due = true;
      } else if (events[i].data.ptr == &clock_watch_) {
        // ECANCELED: a clock was set (timerfd_create(2)); reading lets it report the next time.
        uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t n_read =
            ::read(clock_watch_.get(), &expirations, sizeof expirations);
        result.deadline_due = true;
      } else if (events[i].data.ptr == &wake_) {
        // Cleared before the caller looks for the reason of the wake-up, so that a later wake()
        // writes again. A wake() that found it set has written nothing: this operation reads what
        // that one has left, so the caller sees the reason. A store would read nothing.
        wake_pending_.exchange(false, std::memory_order_acq_rel);
        result.woken = true;
      } else {
        events[result.events++] = events[i];
      }
    }
    // A clock that is moved by hand wakes the poller when it moves.
    result.deadline_due |= result.woken && !follows_system_clock_;
    return result;  // EINTR is an empty result: the caller waits again
  }

  void arm(int64_t deadline_ns) override {
    if (deadline_ns == kNever) return;
    if (!follows_system_clock_) {
      // The thread that moves the clock wakes the poller, but it does not know of timers that are
      // due without a move.
      if (deadline_ns <= clock_.now_ns()) {
        wake();
      }
      return;
    }
    // A zero it_value would disarm (timerfd_settime(2)).
    const int64_t at = deadline_ns > 0 ? deadline_ns : 1;
    struct itimerspec when = {};
    when.it_value.tv_sec = at / kNsPerSec;
    when.it_value.tv_nsec = at % kNsPerSec;
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

  bool watch_clocks() override {
    if (clock_watch_.valid() || !follows_system_clock_) {
      return true;  // a thread that moves a clock by hand wakes the poller
    }
    UniqueFd watch(::timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC));
    struct itimerspec when = {};
    when.it_value.tv_sec = kNever / kNsPerSec;
    // ECANCELED: the clock was set just now, but the timer is armed nevertheless.
    if (!watch.valid() ||
        (::timerfd_settime(watch.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &when,
                           nullptr) < 0 &&
         errno != ECANCELED)) {
      return false;
    }
    clock_watch_ = std::move(watch);
    if (add(clock_watch_.get(), EPOLLIN | EPOLLET, &clock_watch_) < 0) {
      const int error = errno;
      clock_watch_.reset();
      errno = error;
      return false;
    }
    return true;
  }

  void wake() override {
    if (!wake_pending_.exchange(true, std::memory_order_acq_rel)) {
      const uint64_t one = 1;
      // EAGAIN means the counter is full, so that the poller is being woken anyway.
      while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
      }
    }
  }

  int add(int fd, uint32_t events, void* data) override {
    return control(EPOLL_CTL_ADD, fd, events, data);
  }
  int modify(int fd, uint32_t events, void* data) override {
    return control(EPOLL_CTL_MOD, fd, events, data);
  }

  int remove(int fd) override {
    struct epoll_event event = {};
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &event);
  }

 private:
  int control(int operation, int fd, uint32_t events, void* data) {
    struct epoll_event event = {};
    event.events = events;
    event.data.ptr = data;
    return ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  Clock& clock_;
  const bool follows_system_clock_;
  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd wake_;
  UniqueFd clock_watch_;  // once watch_clocks() was called
  // Exchanged only. wake() releases, whether it finds the word set or not, and wait() acquires what
  // all of them have left there.
  std::atomic<bool> wake_pending_{false};
};

class VirtualMultiplexer final : public Multiplexer {
 public:
  explicit VirtualMultiplexer(Clock& clock) : clock_(clock) {}

  Result wait(struct epoll_event*, int) override {
    MutexLock lock(mutex_);
    Result result;
    while (!woken_ && !result.deadline_due) {
      result.deadline_due = !changed_.wait_until(mutex_, armed_ns_);
    }
    if (result.deadline_due) {
      armed_ns_ = kNever;
    }
    result.woken = woken_;
    woken_ = false;
    result.deadline_due |= result.woken && clock_.is_moved_by_hand();
    return result;
  }

  void arm(int64_t deadline_ns) override {
    MutexLock lock(mutex_);
    if (clock_.is_moved_by_hand()) {
      woken_ = woken_ || deadline_ns <= clock_.now_ns();  // as EpollMultiplexer does
    } else {
      armed_ns_ = deadline_ns;
    }
    changed_.notify_one();
  }

  bool watch_clocks() override { return true; }

  void wake() override {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  int add(int, uint32_t, void*) override {
    errno = ENOTSUP;
    return -1;
  }

  int modify(int, uint32_t, void*) override { return add(-1, 0, nullptr); }
  int remove(int) override { return add(-1, 0, nullptr); }

 private:
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  int64_t armed_ns_ WF_GUARDED_BY(mutex_) = kNever;
  bool woken_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<Multiplexer> Multiplexer::create(Clock& clock) {
  if (VirtualScheduler::current()) return std::make_unique<VirtualMultiplexer>(clock);
  auto multiplexer = std::make_unique<EpollMultiplexer>(clock);
  if (!multiplexer->open()) return nullptr;
  return multiplexer;
}

}  // namespace workflow

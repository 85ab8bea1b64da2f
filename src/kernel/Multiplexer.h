#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

#include "util/Clock.h"

namespace workflow {

// Lets a poller wait for descriptors, for one armed deadline and for wake().
class Multiplexer {
 public:
  // It uses epoll, a timerfd and an eventfd. Inside a simulation it uses virtual time, and no
  // descriptors. Returns null with errno if descriptors have run out.
  static std::unique_ptr<Multiplexer> create(Clock& clock);

  virtual ~Multiplexer() = default;

  struct Result {
    int events = 0;             // how many of the caller's array are filled
    bool deadline_due = false;  // the armed deadline may have passed, or a watched clock was set
    bool woken = false;         // wake() was called since the last wait
  };
  // Poller's thread only. Returns when anything has happened. events[i].data.ptr is the `data` that
  // add() was given.
  virtual Result wait(struct epoll_event* events, int max) = 0;

  // Makes wait() return at `deadline_ns`, on the monotonic clock, instead of at the time armed
  // before. kNever disarms nothing: wait() may still return at the old time. Any thread, but one at
  // a time.
  virtual void arm(int64_t deadline_ns) = 0;

  // From now on wait() also reports a due deadline when the wall clock was set or the system was
  // suspended, because the armed deadline was computed from what the clocks showed before. Uses a
  // descriptor from the first call on. Returns false with errno, and watches nothing, if the system
  // refuses the descriptor. Any thread, but one at a time, as arm().
  virtual bool watch_clocks() = 0;

  // Any thread. Makes wait() return soon. Several calls before the poller wakes cause one wake-up.
  // What the caller has done before happens before the return of the next wait() that reports
  // `woken`, also if another call has caused that wake-up.
  virtual void wake() = 0;

  // Called on any thread. Returns 0, or -1 with errno (epoll_ctl(2); ENOTSUP in a simulation).
  virtual int add(int fd, uint32_t events, void* data) = 0;
  virtual int modify(int fd, uint32_t events, void* data) = 0;
  virtual int remove(int fd) = 0;
};

}  // namespace workflow

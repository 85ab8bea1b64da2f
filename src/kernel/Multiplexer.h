#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

#include "util/Clock.h"

namespace workflow {

// What a poller sleeps in: waits for descriptors, for one armed deadline, and for wake().
class Multiplexer {
 public:
  // Over epoll, a timerfd and an eventfd; inside a simulation over virtual time, without
  // descriptors. Null with errno when the system has no descriptors left.
  static std::unique_ptr<Multiplexer> create(Clock& clock);

  virtual ~Multiplexer() = default;

  struct Result {
    int events = 0;             // how many of the caller's array are filled
    bool deadline_due = false;  // the armed deadline may have passed, or a watched clock was set
    bool woken = false;         // wake() was called since the last wait
  };
  // Poller's thread only. Returns when anything happened; events[i].data.ptr is what add() got.
  virtual Result wait(struct epoll_event* events, int max) = 0;

  // Any thread, one at a time: wait() returns at `deadline_ns`. Replaces what was armed; kNever
  // disarms nothing, it only lets a stale wake-up happen.
  virtual void arm(int64_t deadline_ns) = 0;

  // As arm(): from now on wait() also reports a due deadline when the wall clock was set, or the
  // system was suspended: what is armed was then computed by clocks that show something else now.
  // Costs a descriptor from the first call on. False with errno, and nothing is watched, when the
  // system refuses it.
  virtual bool watch_clocks() = 0;

  // Any thread: wait() returns soon. Calls before the poller wakes are one wake-up.
  virtual void wake() = 0;

  // Any thread. 0, or -1 with errno (epoll_ctl(2); ENOTSUP in a simulation).
  virtual int add(int fd, uint32_t events, void* data) = 0;
  virtual int modify(int fd, uint32_t events, void* data) = 0;
  virtual int remove(int fd) = 0;
};

}  // namespace workflow

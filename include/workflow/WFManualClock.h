#pragma once

#include <chrono>
#include <cstdint>

#include "workflow/detail/Duration.h"

// A clock that stands still until a test moves it. Threads, sockets and everything else are real;
// only the timers, timeouts and limits of the library follow this clock. So a test of an hour's
// delay does not take an hour, and no such test depends on how fast the machine is.
//
//   WFManualClock::install();             // before the first task, server or library_init
//   ... start timers ...
//   WFManualClock::advance(3600 * 1000000000LL);
//   ... their callbacks have run ...
//
// advance() goes from deadline to deadline; set_wall() and suspend() jump. Each call that moves
// time returns when everything that is due has expired and all handler and compute threads are idle
// again. Therefore timers that advance() makes due complete in the order of their deadlines (equal
// ones in any order), and with handler_threads = 1 one after the other. A callback that blocks,
// except in a wait of WFFacilities or WFFuture, blocks these calls, too. They do not wait for
// events of descriptors, nor for the threads of an Executor.
//
// Within one call, a deadline costs about half a microsecond and the time of its callback. A call
// costs some 20 microseconds more, to wake a thread of the library and to be woken by it. In a
// process with open connections or servers each deadline costs that much, because each poller looks
// at its descriptors before time moves on.
//
// There are three clocks, as in the system: the monotonic and the boottime clock begin at 0, the
// wall clock at 2000-01-01 00:00:00 UTC. WFTimer::steady_now(), WFBootClock::now() and
// WFTimer::wall_now() read them. The clocks of std::chrono still show real time.
//
// The clock is for the whole process and cannot be removed. Any thread may call install() and
// now_ns(). The calls that move time abort the process with a message if no clock is installed, or
// if a thread of the library makes them, because it would wait for itself. A WFSimulation has its
// own time.
class WFManualClock {
 public:
  // Returns 0, or -1 with errno EBUSY if the library has started already or a clock was installed
  // before.
  static int install();

  // Returns the time of the monotonic clock in nanoseconds: how far advance() and
  // advance_to_next_deadline() have moved it since install(). suspend() and set_wall() do not
  // count.
  static int64_t now_ns();

  // Moves all clocks forward (negative: see docs/limits.md). 0 only waits for what is due now.
  static void advance(int64_t nanoseconds);
  static void advance(workflow::Duration duration) { advance(duration.ns()); }

  // Moves all clocks forward to the earliest outstanding deadline; all timers due then expire. If
  // there are none except those that never expire, returns false, and no time passes.
  static bool advance_to_next_deadline();

  // Sets the wall clock, forwards or backwards, as an operator would. This does not go from
  // deadline to deadline: timers whose dates the new date has reached or passed expire at the new
  // date.
  static void set_wall(std::chrono::system_clock::time_point date);

  // Simulates that the system is suspended for that long: the boottime and the wall clock go on,
  // the monotonic clock does not. What came due meanwhile expires at the end, as when a system
  // resumes.
  static void suspend(workflow::Duration duration);
};

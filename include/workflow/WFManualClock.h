#pragma once

#include <chrono>
#include <cstdint>

#include "workflow/Duration.h"

// Time that stands still until a test moves it. Threads, sockets and everything else are real;
// only timers, timeouts and limits of the library follow this clock, so that a test of an hour's
// delay takes no hour and none depends on how fast the machine is.
//
//   WFManualClock::install();             // before the first task, server or library_init
//   ... start timers ...
//   WFManualClock::advance(3600 * 1000000000LL);
//   ... their callbacks have run ...
//
// Every call that moves time goes from deadline to deadline, and returns when everything due has
// expired and all handler and compute threads are idle again. Timers therefore complete in the
// order of their deadlines (equal ones in any order), with handler_threads = 1 one after the other.
// A callback that blocks, other than in a wait of WFFacilities or WFFuture, blocks these calls too.
// What descriptors bring is not waited for, nor the threads of an Executor.
//
// A deadline costs some ten microseconds and what its callback does; in a process with open
// connections or servers more, because each poller looks at its descriptors before time moves on.
//
// There are three of them, as the system has: the monotonic and the boottime clock begin at 0, the
// wall clock at 2000-01-01 00:00:00 UTC. WFTimer::steady_now(), WFBootClock::now() and
// WFTimer::wall_now() read them; std::chrono's clocks show real time as ever.
//
// For the whole process and for good; any thread may call, but not a thread of the library: it
// would wait for itself, so the process is aborted with a message. A WFSimulation has its own time.
class WFManualClock {
 public:
  // 0; -1 with errno EBUSY when the library has started already, or a clock was installed.
  static int install();

  // Nanoseconds that the clock was moved since install().
  static int64_t now_ns();

  // Moves all clocks on. Negative durations count as 0, which waits for what is due now.
  static void advance(int64_t nanoseconds);
  static void advance(workflow::Duration duration) { advance(duration.ns()); }

  // Moves all clocks on to the earliest deadline outstanding, and all timers due then expire.
  // False, and no time passes, if there is none but those that never expire.
  static bool advance_to_next_deadline();

  // Sets the wall clock, forwards or backwards, as an operator would. It does not go from deadline
  // to deadline: timers whose date has come or gone by then expire at the new date.
  static void set_wall(std::chrono::system_clock::time_point date);

  // The system is suspended for that long: the boottime and the wall clock go on, the monotonic
  // one does not. What came due meanwhile expires at the end of it, as when a system resumes.
  static void suspend(workflow::Duration duration);
};

#pragma once

#include <cstdint>

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
// For the whole process and for good; any thread may call, but not a thread of the library: it
// would wait for itself, so the process is aborted with a message. A WFSimulation has its own time.
class WFManualClock {
 public:
  // 0; -1 with errno EBUSY when the library has started already, or a clock was installed.
  static int install();

  // Nanoseconds that the clock was moved since install().
  static int64_t now_ns();

  // Moves time on. Negative durations count as 0, which waits for what is due now.
  static void advance(int64_t nanoseconds);

  // Moves time to the earliest deadline outstanding, and all timers due then expire. False, and no
  // time passes, if there is none but those that never expire.
  static bool advance_to_next_deadline();
};

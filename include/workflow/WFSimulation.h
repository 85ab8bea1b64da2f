#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "workflow/detail/Duration.h"

namespace workflow {
class Simulation;
}  // namespace workflow

struct WFSimulationOptions {
  int poller_threads = 1;
  int handler_threads = 2;
  int compute_threads = 1;

  // Whether waits of the library sometimes end without a reason, as condition variables may.
  bool spurious_wakeups = true;

  // The maximum number of scheduling points. A run that needs more is reported as a livelock.
  uint64_t max_steps = 10000000;
};

struct WFSimulationResult {
  enum Outcome {
    QUIET,      // nothing can happen any more, and no thread is left waiting
    DEADLOCK,   // something waits for ever: an application thread, the stop, locks for each other,
                // or a callback in a call of the library (cancel_and_wait(), WaitGroup, WFFuture)
    STEP_LIMIT  // still running after max_steps scheduling points
  };
  Outcome outcome = QUIET;

  // Empty if the outcome is QUIET. Otherwise it describes what happened, with the seed and a line
  // for each thread that says for whom it waits, for example
  //   thread 4 (wf-handler), in the callback of timer "a", waits in cancel_and_wait() for timer
  //   "b", which thread 5 (wf-handler) runs
  std::string description;

  bool ok() const { return outcome == QUIET; }
};

// For tests of programs that use this library: all of its threads run on the calling thread, one at
// a time, in an order that a seed decides, in virtual time.
//
//   WFSimulation simulation(seed);
//   WFTaskFactory::create_timer_task("name", 3600, 0, callback)->start();
//   simulation.spawn([] { WFTaskFactory::cancel_by_name("name"); });
//   WFSimulationResult result = simulation.run();
//
// While a simulation exists, every call to the library on this thread belongs to it. It has
// pollers, handler threads and compute threads of its own, which are virtual threads. At each lock,
// wait, post and point() another virtual thread may take over. One seed always gives the same order
// for the same calls; other seeds give other orders. An hour of virtual time takes no longer than
// what happens in it, because time moves only when no thread can go on, and then straight to the
// next deadline.
//
// The thread of control that creates the simulation is a virtual thread, too. Only this one may
// run, stop and destroy the simulation. If it blocks for ever outside run() and stop(), there is
// nobody to report to, and the process is aborted with the description. Leave what may deadlock to
// spawn()ed threads.
//
// Virtual threads may wait for each other only through the library (WFFacilities::WaitGroup,
// WFFuture, tasks, ...). A std::mutex held across a call to the library, or any wait of the
// system's, blocks all of them. There are no sockets: network tasks do not work in a simulation.
// File tasks do work: virtual threads make the real system calls, which take no virtual time. A
// system thread may have one simulation at a time; several system threads may have one each.
class WFSimulation {
 public:
  explicit WFSimulation(uint64_t seed);
  WFSimulation(uint64_t seed, const WFSimulationOptions &options);

  // Stops the simulation first. If it cannot be stopped, its memory is not freed, and the reason is
  // written to stderr unless stop() has already returned it.
  ~WFSimulation();

  // Runs `body`, which must not be null, on a virtual thread, as an application does on threads of
  // its own.
  void spawn(std::function<void()> body);

  // Runs everything until nothing can happen any more: no thread can go on, and no timer is left
  // except those that never expire. The result may be a deadlock that the caller can still resolve,
  // by calls from here and another run().
  WFSimulationResult run();

  // Like run(), but for that much virtual time; afterwards now_ns() is later by exactly that time.
  // A thread that waits at the end is not taken for deadlocked.
  WFSimulationResult run_for(int64_t nanoseconds);
  WFSimulationResult run_for(workflow::Duration duration) { return run_for(duration.ns()); }

  // Does what the end of a process does: outstanding timers end as WFT_STATE_ABORTED, all callbacks
  // run and the library's threads end, while spawned threads go on. Tasks started later complete as
  // aborted. The stop happens once; later calls return the same result.
  WFSimulationResult stop();

  // Makes the calling virtual thread wait for that much virtual time.
  void sleep_for(int64_t nanoseconds);
  void sleep_for(workflow::Duration duration) { sleep_for(duration.ns()); }

  // Returns the virtual time since the simulation began.
  int64_t now_ns() const;

  uint64_t seed() const;

  // The number of scheduling points and switches so far, and a hash of their order, which is equal
  // for equal schedules.
  uint64_t steps() const;
  uint64_t trace_hash() const;

  // A scheduling point: another virtual thread may run before this returns. For code under test
  // that synchronises by atomics. Does nothing outside a simulation.
  static void point();

 private:
  std::unique_ptr<workflow::Simulation> simulation_;
};

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "workflow/Duration.h"

namespace workflow {
class Simulation;
}  // namespace workflow

struct WFSimulationOptions {
  int poller_threads = 1;
  int handler_threads = 2;
  int compute_threads = 1;

  // Whether waits of the library sometimes end without a reason, as condition variables may.
  bool spurious_wakeups = true;

  // So many scheduling points at most; more is reported as a livelock.
  uint64_t max_steps = 10000000;
};

struct WFSimulationResult {
  enum Outcome {
    QUIET,     // nothing can happen any more, and nobody is left waiting
    DEADLOCK,  // somebody waits for ever: an application thread, the stop, locks for each other, or
               // a callback in a call of the library (cancel_and_wait(), WaitGroup, WFFuture)
    STEP_LIMIT  // still running after max_steps scheduling points
  };
  Outcome outcome = QUIET;

  // Empty when quiet; else what happened, with the seed and who waits for whom: a line for each
  // thread, as in
  //   thread 4 (wf-handler), in the callback of timer "a", waits in cancel_and_wait() for timer
  //   "b", which thread 5 (wf-handler) runs
  std::string description;

  bool ok() const { return outcome == QUIET; }
};

// Tests of programs that use this library: all of its threads run on the calling thread, one at a
// time, in an order that a seed decides, under virtual time.
//
//   WFSimulation simulation(seed);
//   WFTaskFactory::create_timer_task("name", 3600, 0, callback)->start();
//   simulation.spawn([] { WFTaskFactory::cancel_by_name("name"); });
//   WFSimulationResult result = simulation.run();
//
// While it exists, every call to the library on this thread belongs to it: it has pollers, handlers
// and compute threads of its own, which are virtual threads. At each lock, wait, hand-over and
// point() another virtual thread may take over. The same seed and the same calls give the same
// order, always; other seeds give others. An hour of virtual time takes no longer than what
// happens in it, for time moves, to the next deadline, only when no thread can go on.
//
// The flow that makes the simulation is a virtual thread itself, and the only one that may run,
// stop and destroy it. Should it block for ever outside run() and stop() there is nobody to tell:
// the process is aborted with the description. Leave what may deadlock to spawn()ed threads.
//
// Virtual threads meet only through the library (WFFacilities::WaitGroup, WFFuture, tasks, ...).
// A std::mutex held across a call to the library, or any wait of the system's, blocks them all.
// There are no sockets: network tasks do not work in a simulation. File tasks do: virtual threads
// make the real system calls, which take no virtual time.
// One per system thread at a time; system threads may have one each.
class WFSimulation {
 public:
  explicit WFSimulation(uint64_t seed);
  WFSimulation(uint64_t seed, const WFSimulationOptions &options);

  // Stops it first. What cannot be stopped is described on stderr, unless stop() has told, and its
  // memory is not freed.
  ~WFSimulation();

  // Runs `body` on a virtual thread, as an application does on threads of its own.
  void spawn(std::function<void()> body);

  // Lets everything run until nothing can happen any more: no thread can go on and no timer is
  // left but those that never expire. The result may be a deadlock that the caller can still
  // resolve, by calls from here and another run().
  WFSimulationResult run();

  // The same for so long a virtual time, after which now_ns() is later by exactly that. Who waits
  // then is not taken for deadlocked.
  WFSimulationResult run_for(int64_t nanoseconds);
  WFSimulationResult run_for(workflow::Duration duration) { return run_for(duration.ns()); }

  // What the end of a process does: outstanding timers end as WFT_STATE_ABORTED, all callbacks run
  // and the library's threads end, while spawned threads go on beside it. Tasks started later
  // complete as aborted. Once; later calls return the same result.
  WFSimulationResult stop();

  // The calling virtual thread waits for so long a virtual time.
  void sleep_for(int64_t nanoseconds);
  void sleep_for(workflow::Duration duration) { sleep_for(duration.ns()); }

  // Virtual time since the simulation began.
  int64_t now_ns() const;

  uint64_t seed() const;

  // Scheduling points and switches so far, and a hash of their order: equal for equal schedules.
  uint64_t steps() const;
  uint64_t trace_hash() const;

  // Another virtual thread may run before this returns. For code under test that synchronises by
  // atomics. Nothing outside a simulation.
  static void point();

 private:
  std::unique_ptr<workflow::Simulation> simulation_;
};

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/FiberScheduler.h"
#include "kernel/Runtime.h"
#include "util/Clock.h"

namespace workflow {

// The whole library on one system thread under virtual time: a FiberScheduler, and a Runtime whose
// threads are its virtual threads.
//
// Belongs to the system thread that created it. Only that thread's original flow of control, which
// is virtual thread 0, may use and destroy it; sleep_for() and now_ns() may also be called by the
// other virtual threads. A system thread has at most one simulation at a time; several system
// threads may have one each.
class Simulation {
 public:
  struct Options {
    int poller_threads = 1;
    int handler_threads = 2;
    int compute_threads = 1;
    bool spurious_wakeups = true;
    uint64_t max_steps = 10'000'000;
  };
  enum class Outcome {
    kQuiet,     // nothing can happen any more, and no application thread or callback waits
    kDeadlock,  // nothing can happen any more, and an application thread or a callback waits
    kStepLimit  // still running after max_steps
  };
  struct Result {
    Outcome outcome = Outcome::kQuiet;
    std::string description;
  };

  Simulation(uint64_t seed, const Options& options);
  // Stops the simulation. Threads that cannot be stopped are reported to stderr and abandoned.
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  void spawn(std::function<void()> body);
  Result run() { return run_until(kNever); }
  Result run_for(int64_t duration_ns);
  Result stop();

  void sleep_for(int64_t duration_ns);
  int64_t now_ns() { return scheduler_.now_ns(); }
  Runtime& runtime() { return *runtime_; }
  uint64_t seed() const { return scheduler_.seed(); }
  uint64_t steps() const { return scheduler_.steps(); }
  uint64_t trace_hash() const { return scheduler_.trace_hash(); }

 private:
  class VirtualClock final : public Clock {
   public:
    explicit VirtualClock(FiberScheduler& scheduler) : scheduler_(scheduler) {}
    int64_t now_ns() override { return scheduler_.now_ns(); }

   private:
    FiberScheduler& scheduler_;
  };

  Result run_until(int64_t until_ns);
  Result outcome(const char* during);

  const ThreadContext outer_context_;
  FiberScheduler scheduler_;
  VirtualClock clock_{scheduler_};
  std::unique_ptr<Runtime> runtime_;
  std::vector<FiberScheduler::ThreadId> applications_;
  bool stop_begun_ = false;
  bool stopped_ = false;
  Result stop_result_;
};

}  // namespace workflow

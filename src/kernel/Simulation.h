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
// threads are its virtual threads. See workflow/WFSimulation.h, whose inside this is.
//
// Belongs to the thread that made it, and is used and destroyed by that thread's flow only, which
// is virtual thread 0; point(), sleep_for() and now_ns() also by virtual threads. There is one
// simulation per system thread at a time; several system threads may have one each.
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
    kQuiet,     // nothing can happen any more, and neither application threads nor callbacks wait
    kDeadlock,  // nothing can happen any more, and somebody waits for something
    kStepLimit  // still running after max_steps
  };
  struct Result {
    Outcome outcome = Outcome::kQuiet;
    std::string description;
  };

  Simulation(uint64_t seed, const Options& options);
  // Stops; what cannot be stopped is reported to stderr and abandoned.
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
  Result judge(const char* during);

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

#include "kernel/Simulation.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace workflow {

Simulation::Simulation(uint64_t seed, const Options& options)
    : outer_context_(ThreadContext::current()),
      scheduler_(seed, {.spurious_wakeups = options.spurious_wakeups,
                        .max_steps = std::min(options.max_steps, UINT64_MAX / 2)}) {
  ThreadContext::current() = ThreadContext{};
  runtime_ = std::make_unique<Runtime>(Runtime::Options{.poller_threads = options.poller_threads,
                                                        .handler_threads = options.handler_threads,
                                                        .compute_threads = options.compute_threads,
                                                        .clock = &clock_});
  ThreadContext::current().runtime = runtime_.get();
  runtime_->start();
}

Simulation::~Simulation() {
  const bool told = stop_begun_;
  const Result result = stop();
  if (!stopped_) {
    if (!told) {
      std::fprintf(stderr, "%s", result.description.c_str());
    }
    // Its threads are still inside; kept reachable for leak checkers. Out of memory here may well
    // end the process.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new)
    static thread_local std::vector<Runtime*>* abandoned = new std::vector<Runtime*>;
    abandoned->push_back(runtime_.release());
  }
  runtime_.reset();
  ThreadContext::current() = outer_context_;
}

void Simulation::spawn(std::function<void()> body) {
  applications_.push_back(scheduler_.spawn("application", std::move(body)));
}

Simulation::Result Simulation::run_for(int64_t duration_ns) {
  return run_until(saturating_add(scheduler_.now_ns(), std::max<int64_t>(duration_ns, 0)));
}

Simulation::Result Simulation::run_until(int64_t until_ns) {
  scheduler_.run_others(until_ns);
  // A thread that still waits after a limited time may be waiting for something later.
  if (until_ns != kNever && !scheduler_.over_limit()) return {};
  return outcome("run()");
}

Simulation::Result Simulation::stop() {
  if (stop_begun_) return stop_result_;
  stop_begun_ = true;
  if (!scheduler_.over_limit()) {
    // This runs on a thread of its own, so that the calling thread can report it if it blocks for
    // ever.
    const FiberScheduler::ThreadId exit = scheduler_.spawn("exit", [this] { runtime_->stop(); });
    applications_.push_back(exit);
    scheduler_.run_others(kNever);
    stopped_ = scheduler_.ended(exit);
  }
  stop_result_ = outcome("stop()");
  return stop_result_;
}

void Simulation::sleep_for(int64_t duration_ns) {
  scheduler_.sleep_until(saturating_add(scheduler_.now_ns(), std::max<int64_t>(duration_ns, 0)));
}

Simulation::Result Simulation::outcome(const char* during) {
  Result result;
  const char* what = "";
  if (scheduler_.over_limit()) {
    result.outcome = Outcome::kStepLimit;
    what = "the step limit was exceeded (livelock?)";
  } else if (scheduler_.any_stuck() ||
             std::any_of(applications_.begin(), applications_.end(),
                         [this](auto thread) { return !scheduler_.ended(thread); })) {
    result.outcome = Outcome::kDeadlock;
    what = "deadlock";
  } else {
    return result;
  }
  result.description = "simulation of seed " + std::to_string(seed()) + ": " + what + " in " +
                       during + " after " + std::to_string(steps()) + " steps, at " +
                       std::to_string(now_ns()) + " ns\n" + scheduler_.describe(applications_);
  return result;
}

}  // namespace workflow

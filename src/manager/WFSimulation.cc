#include "workflow/WFSimulation.h"

#include <utility>

#include "kernel/Simulation.h"

using workflow::Simulation;

namespace {

WFSimulationResult public_result(Simulation::Result result) {
  WFSimulationResult out;
  switch (result.outcome) {
    case Simulation::Outcome::kQuiet:
      out.outcome = WFSimulationResult::QUIET;
      break;
    case Simulation::Outcome::kDeadlock:
      out.outcome = WFSimulationResult::DEADLOCK;
      break;
    case Simulation::Outcome::kStepLimit:
      out.outcome = WFSimulationResult::STEP_LIMIT;
      break;
  }
  out.description = std::move(result.description);
  return out;
}

}  // namespace

WFSimulation::WFSimulation(uint64_t seed) : WFSimulation(seed, WFSimulationOptions()) {}

WFSimulation::WFSimulation(uint64_t seed, const WFSimulationOptions& options)
    : simulation_(std::make_unique<Simulation>(
          seed, Simulation::Options{.poller_threads = options.poller_threads,
                                    .handler_threads = options.handler_threads,
                                    .compute_threads = options.compute_threads,
                                    .spurious_wakeups = options.spurious_wakeups,
                                    .max_steps = options.max_steps})) {}

WFSimulation::~WFSimulation() = default;

void WFSimulation::spawn(std::function<void()> body) {
  simulation_->spawn(std::move(body));
}

WFSimulationResult WFSimulation::run() {
  return public_result(simulation_->run());
}

WFSimulationResult WFSimulation::run_for(int64_t nanoseconds) {
  return public_result(simulation_->run_for(nanoseconds));
}

WFSimulationResult WFSimulation::stop() {
  return public_result(simulation_->stop());
}

void WFSimulation::sleep_for(int64_t nanoseconds) {
  simulation_->sleep_for(nanoseconds);
}

int64_t WFSimulation::now_ns() const {
  return simulation_->now_ns();
}

uint64_t WFSimulation::seed() const {
  return simulation_->seed();
}

uint64_t WFSimulation::steps() const {
  return simulation_->steps();
}

uint64_t WFSimulation::trace_hash() const {
  return simulation_->trace_hash();
}

void WFSimulation::point() {
  workflow::schedule_point();
}

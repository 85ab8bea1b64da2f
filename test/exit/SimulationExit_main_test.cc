#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/ExitKit.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

// A simulation that is a static object ends when what is local to the thread is gone.

namespace {

void start_timer(const std::string& name) {
  const auto end = [name](WFTimerTask* task) {
    exit_kit::say(name + (task->get_state() == WFT_STATE_ABORTED ? " aborted" : " not aborted"));
  };
  WFTaskFactory::create_timer_task(name, 3600, 0, end)->start();
}

void leave_simulation() {
  {
    WFSimulation early(1);  // leaves stacks for the next one
    WFTaskFactory::create_timer_task(1, 0, nullptr)->start();
    early.run();
  }
  static std::unique_ptr<WFSimulation> simulation;
  simulation = std::make_unique<WFSimulation>(2);
  start_timer("first");
  start_timer("second");
}

constexpr exit_kit::Scenario kScenarios[] = {{"simulation", leave_simulation}};

}  // namespace

TEST(SimulationExit, AStaticSimulationEndsItsTimers) {
  // Whatever is freed is filled.
  EXPECT_EQ(exit_kit::play("simulation", {"MALLOC_PERTURB_=165"}),
            "first aborted\nsecond aborted\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}

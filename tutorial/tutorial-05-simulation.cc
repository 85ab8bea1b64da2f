// Shows: testing a program that uses the library. The simulation runs all threads on this one, in
// an order that a seed decides, under virtual time: a thousand races of an hour each take a moment,
// and one that fails is replayed by its seed.
//
// Try:   tutorial-05-simulation [seed]      without a seed: seeds 1 to 1000
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

namespace {

struct Outcome {
  bool ok;
  bool cancelled;
};

// Under test: a timer expires while another thread cancels it. Either may win, but what cancel
// returned is what the callback saw.
Outcome race(uint64_t seed) {
  int callbacks = 0;
  int seen_cancelled = 0;
  int cancelled = 0;

  WFSimulation simulation(seed);
  WFTaskFactory::create_timer_task("name", 3600, 0, [&](WFTimerTask* timer) {
    callbacks++;
    seen_cancelled += timer->get_state() == WFT_STATE_SYS_ERROR;
  })->start();
  simulation.spawn([&] {
    simulation.sleep_for(int64_t{3600} * 1000 * 1000 * 1000);
    cancelled = WFTaskFactory::cancel_by_name("name");
  });
  const WFSimulationResult result = simulation.run();

  if (!result.ok()) std::printf("seed %ju: %s\n", uintmax_t{seed}, result.description.c_str());
  return {result.ok() && callbacks == 1 && seen_cancelled == cancelled, cancelled == 1};
}

}  // namespace

int main(int argc, char* argv[]) {
  const uint64_t only = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  int runs = 0;
  int cancelled = 0;
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : 1000); seed++) {
    const Outcome outcome = race(seed);
    if (!outcome.ok) {
      std::printf("failed; replay with: tutorial-05-simulation %ju\n", uintmax_t{seed});
      return 1;
    }
    runs++;
    cancelled += outcome.cancelled;
  }
  std::printf("%d runs: cancelled in %d, expired in %d\n", runs, cancelled, runs - cancelled);
}

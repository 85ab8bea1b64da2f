// Timers of all clocks under every interleaving that many seeds find. In a simulation no clock is
// ever set; what is tried is that deadlines and moves meet starts, cancels and expiry.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "support/Seeds.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::nanoseconds;
using std::chrono::system_clock;

struct ClockOutcome {
  int callbacks = 0;
  int state = 0;
  int error = 0;
  int64_t at_ns = 0;
};

std::vector<WFTimerDue> at(nanoseconds from_now) {
  return {WFTimer::steady_now() + from_now, WFBootClock::now() + from_now,
          WFTimer::wall_now() + from_now};
}

TEST(ClockProtocol, TheWallClockBeginsInTheYear2000) {
  WFSimulation simulation(1);
  EXPECT_EQ(WFTimer::wall_now(), system_clock::from_time_t(946'684'800));
  simulation.run_for(std::chrono::hours(1));
  EXPECT_EQ(WFTimer::wall_now(), system_clock::from_time_t(946'684'800 + 3600));
  EXPECT_EQ(WFTimer::steady_now().time_since_epoch(), std::chrono::hours(1));
}

TEST(ClockProtocol, DeadlinesMeetMovesStartsAndCancels) {
  for_each_seed(2000, [](uint64_t seed) {
    std::vector<ClockOutcome> outcomes(3);
    std::vector<WFTimerTask*> tasks;
    std::vector<WFTimerHandle> handles;
    std::vector<int> won(3);
    std::vector<int> moved(3);
    WFSimulation simulation(seed);
    const std::vector<WFTimerDue> first = at(nanoseconds(100));
    const std::vector<WFTimerDue> then = at(nanoseconds(200));
    for (size_t i = 0; i < 3; i++) {
      tasks.push_back(WFTimer::create(first[i], [&, i](WFTimerTask* task) {
        outcomes[i] = {outcomes[i].callbacks + 1, task->get_state(), task->get_error(),
                       simulation.now_ns()};
      }));
      handles.push_back(WFTimer::handle_of(tasks.back()));
    }
    simulation.spawn([&] {
      for (WFTimerTask* task : tasks) {
        task->start();
      }
    });
    simulation.spawn([&] {
      simulation.sleep_for(static_cast<int64_t>(seed % 2) * 100);
      for (size_t i = 0; i < 3; i++) {
        moved[i] += handles[i].reschedule(then[i]) == WFTimerMove::kWon;
        EXPECT_NE(handles[i].reschedule(then[(i + 1) % 3]), WFTimerMove::kWon);
      }
    });
    simulation.spawn([&] {
      simulation.sleep_for(static_cast<int64_t>(seed % 3) * 100);
      won[seed % 3] += handles[seed % 3].cancel() == WFTimerCancel::kWon;
    });
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    for (size_t i = 0; i < 3; i++) {
      ASSERT_EQ(outcomes[i].callbacks, 1);
      if (won[i]) {
        EXPECT_EQ(outcomes[i].error, ECANCELED);
      } else {
        EXPECT_EQ(outcomes[i].state, WFT_STATE_SUCCESS);
        EXPECT_EQ(outcomes[i].at_ns, moved[i] ? 200 : 100);
      }
    }
  });
}

}  // namespace

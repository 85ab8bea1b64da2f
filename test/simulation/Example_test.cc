// The examples of docs/testing.md, word for word.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "workflow/WFManualClock.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

namespace {

// Asks again every minute until somebody answers; the answer cancels the reminder.
class Reminder {
 public:
  void begin() { arm(); }
  void answer() {
    answered_ = true;
    WFTaskFactory::cancel_by_name("reminder");
  }
  int reminded() const { return reminded_; }

 private:
  void arm() {
    WFTaskFactory::create_timer_task("reminder", 60, 0, [this](WFTimerTask* task) {
      if (task->get_state() != WFT_STATE_SUCCESS || answered_) return;
      reminded_++;
      arm();
    })->start();
  }

  std::atomic<bool> answered_{false};
  std::atomic<int> reminded_{0};
};

TEST(Example, ReminderEndsInEveryInterleaving) {
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    Reminder reminder;
    WFSimulation simulation(seed);
    reminder.begin();
    simulation.spawn([&] {
      simulation.sleep_for(180 * 1000000000LL);
      reminder.answer();
    });
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ASSERT_GE(reminder.reminded(), 2) << "seed " << seed;
    ASSERT_LE(reminder.reminded(), 3) << "seed " << seed;
  }
}

TEST(Example, OneReminderPerMinute) {
  ASSERT_EQ(WFManualClock::install(), 0);
  Reminder reminder;
  reminder.begin();
  WFManualClock::advance(std::chrono::seconds(59));
  EXPECT_EQ(reminder.reminded(), 0);
  WFManualClock::advance(std::chrono::seconds(1));
  EXPECT_EQ(reminder.reminded(), 1);
  EXPECT_TRUE(WFManualClock::advance_to_next_deadline());
  EXPECT_EQ(reminder.reminded(), 2);
  reminder.answer();
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
}

}  // namespace

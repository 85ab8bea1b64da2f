#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <vector>

#include "ManualTime.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFCron.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using probes::advance;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using test_support::TimerOutcomes;
using TimePoint = WFCron::TimePoint;

namespace {

// 2026-03-28 00:00 UTC, the day before Berlin's clocks are set forward.
const TimePoint kDay = std::chrono::system_clock::from_time_t(1'774'656'000);

class CronTimer : public testing::Test {
 protected:
  struct Seen {
    TimePoint at;
    uint64_t missed;
  };

  static void SetUpTestSuite() { ASSERT_EQ(WFManualClock::install(), 0); }
  void SetUp() override { WFManualClock::set_wall(kDay); }

  WFTimerTask* create(const char* expression, const char* zone = "",
                      const WFTimerOptions& options = {}) {
    const auto cron = WFCron::parse(expression, zone);
    EXPECT_TRUE(cron);
    WFTimerTask* task = WFTimer::create_cron(
        *cron, options,
        [this](const WFTimerTick& tick) {
          std::lock_guard<std::mutex> lock(mutex_);
          seen_.push_back({WFTimer::wall_now(), tick.missed});
        },
        outcomes_.callback());
    handle_ = WFTimer::handle_of(task);
    return task;
  }
  void start(const char* expression, const char* zone = "") { create(expression, zone)->start(); }

  void TearDown() override {
    handle_.cancel_and_wait();
    EXPECT_TRUE(outcomes_.wait_for(1));
  }

  // After kDay.
  std::vector<minutes> ticked() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<minutes> result;
    for (const Seen& tick : seen_) {
      EXPECT_EQ((tick.at - kDay) % minutes(1), nanoseconds(0));
      result.push_back(std::chrono::duration_cast<minutes>(tick.at - kDay));
    }
    return result;
  }

  TimerOutcomes outcomes_;
  WFTimerHandle handle_;
  std::mutex mutex_;
  std::vector<Seen> seen_;
};

using Minutes = std::vector<minutes>;

}  // namespace

TEST_F(CronTimer, TicksAtItsDates) {
  start("*/20 * * * *");
  EXPECT_EQ(handle_.remaining(), minutes(20));
  advance(minutes(65));
  EXPECT_EQ(ticked(), (Minutes{minutes(20), minutes(40), minutes(60)}));
}

TEST_F(CronTimer, ADayHas23HoursWhenClocksAreSetForward) {
  start("30 2 * * *", "Europe/Berlin");
  advance(hours(72));
  // 02:30 is 01:30 UTC in winter and 00:30 in summer; on the 29th it is skipped: 03:00 summer time.
  EXPECT_EQ(ticked(), (Minutes{minutes(90), hours(25), hours(48) + minutes(30)}));
}

TEST_F(CronTimer, CountsFromItsStartAndNotFromItsCreation) {
  WFTimerTask* task = create("0 * * * *");
  advance(hours(5) + minutes(30));
  task->start();
  EXPECT_EQ(handle_.remaining(), minutes(30));
  advance(minutes(30));
  EXPECT_EQ(ticked(), (Minutes{hours(6)}));
}

TEST_F(CronTimer, ARescheduleBeforeTheStartStays) {
  WFTimerTask* task = create("0 * * * *");
  EXPECT_EQ(handle_.reschedule(minutes(7)), WFTimerMove::kWon);
  task->start();
  advance(hours(1));
  EXPECT_EQ(ticked(), (Minutes{minutes(7), hours(1)}));
}

TEST_F(CronTimer, AClockThatIsSetForwardMissesDates) {
  start("0 * * * *");
  advance(minutes(30));
  WFManualClock::set_wall(kDay + hours(5) + minutes(30));
  advance(minutes(30));
  EXPECT_EQ(ticked(), (Minutes{hours(5) + minutes(30), hours(6)}));
  std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_EQ(seen_[0].missed, 0u);
  EXPECT_EQ(seen_[1].missed, 4u);  // 02:00 to 05:00
}

TEST_F(CronTimer, AClockThatIsSetBackRepeatsNoDate) {
  start("0 * * * *");
  advance(hours(2));
  WFManualClock::set_wall(kDay + minutes(30));
  advance(hours(3));
  EXPECT_EQ(ticked(), (Minutes{hours(1), hours(2), hours(3)}));
}

TEST_F(CronTimer, IsCancelledByItsName) {
  WFTimerOptions options;
  options.name = "backup";
  create("@daily", "", options)->start();
  EXPECT_EQ(WFTimer::list("backup", 1).at(0).clock, WF_CLOCK_WALL);
  EXPECT_EQ(WFTimer::list("backup", 1).at(0).remaining, hours(24));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("backup"), 1);
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_F(CronTimer, AnExpressionThatIsNeverDueIsRefused) {
  WFTimerTask* task = create("0 0 30 2 *");
  EXPECT_EQ(task->get_error(), EINVAL);
  task->start();
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, EINVAL), 1u);
}

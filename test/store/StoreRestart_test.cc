#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/StoreKit.h"
#include "support/SqliteKit.h"
#include "workflow/WFCron.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTimerStore.h"

// Timers in a file whose dates pass while no process has it open. The time is that of a simulation.

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using store_test::SeenRun;
using store_test::SeenRuns;
using store_test::StorePtr;
using testing::ElementsAre;

using Time = std::chrono::system_clock::time_point;

class StoreRestart : public testing::TestWithParam<workflow::SqliteLayout> {
 protected:
  // For each of a few seeds: stores the timer, closes the store, and lets time pass. Then opens it
  // again and runs its timers for a minute. `check` is called with the time of the beginning.
  void restart_after(std::chrono::nanoseconds time, const WFStoreTimer& timer,
                     const std::function<void(Time, WFTimerStore&)>& check) {
    for (uint64_t seed = 1; seed <= 3 && !HasFailure(); seed++) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const test_support::FastDir directory;
      const bool is_owned = GetParam() == workflow::SqliteLayout::kOwned;
      const std::string url =
          "sqlite:" + directory.path("timers") + (is_owned ? "?layout=owned" : "");
      runs_ = std::make_unique<SeenRuns>();
      missed_.clear();
      WFSimulation simulation(seed);
      const Time start = WFTimer::wall_now();
      ASSERT_TRUE(store_test::open_store(url)->schedule(timer).ok());
      ASSERT_TRUE(simulation.run_for(time).ok());
      {
        const StorePtr store = store_test::open_store(url);
        WFStoreHandlerOptions options;
        options.on_missed = [this](const WFStoreInfo& info) { missed_.push_back(info); };
        store->handle("kind", runs_->handler(*store), options);
        ASSERT_TRUE(simulation.run_for(minutes(1)).ok());
        check(start, *store);
      }
      const WFSimulationResult result = simulation.stop();
      EXPECT_TRUE(result.ok()) << result.description;
    }
  }

  std::vector<Time> dates() const {
    std::vector<Time> times;
    for (const SeenRun& run : runs_->all()) {
      times.push_back(run.due);
    }
    return times;
  }

  std::unique_ptr<SeenRuns> runs_;
  std::vector<WFStoreInfo> missed_;
};

TEST_P(StoreRestart, OnlyTheLatestDateThatHasPassedRuns) {
  const WFStoreTimer timer = {"a", WFStoreDue::every(minutes(1)), "kind"};
  restart_after(minutes(5) + seconds(30), timer, [this](Time start, WFTimerStore&) {
    EXPECT_THAT(dates(), ElementsAre(start + minutes(5), start + minutes(6)));
    EXPECT_EQ(runs_->at(0).lateness, seconds(30));
    EXPECT_EQ(runs_->at(1).lateness, seconds(0));
  });
}

TEST_P(StoreRestart, EachDateThatHasPassedRunsIfItIsToldTo) {
  WFStoreTimer timer = {"a", WFStoreDue::every(minutes(1)), "kind"};
  timer.every_missed_date = true;
  restart_after(minutes(3) + seconds(30), timer, [this](Time start, WFTimerStore&) {
    EXPECT_THAT(dates(), ElementsAre(start + minutes(1), start + minutes(2), start + minutes(3),
                                     start + minutes(4)));
  });
}

TEST_P(StoreRestart, TheDatesOfACronExpressionAreKept) {
  const WFStoreTimer timer = {"a", *WFCron::parse("30 2 * * *", "Europe/Berlin"), "kind"};
  restart_after(hours(24 * 10), timer, [this](Time start, WFTimerStore&) {
    const WFCron cron = *WFCron::parse("30 2 * * *", "Europe/Berlin");
    Time latest = *cron.next(start);
    for (Time next = latest; next <= start + hours(24 * 10); next = *cron.next(next)) {
      latest = next;
    }
    EXPECT_THAT(dates(), ElementsAre(latest));
  });
}

TEST_P(StoreRestart, ATimerThatIsTooLateIsReportedAsMissed) {
  WFStoreTimer timer = {"a", seconds(1), "kind", "payload"};
  timer.skip_if_later = seconds(5);
  restart_after(seconds(10), timer, [this](Time start, WFTimerStore& store) {
    EXPECT_EQ(runs_->count(), 0U);
    ASSERT_EQ(missed_.size(), 1U);
    EXPECT_EQ(missed_[0].name, "a");
    EXPECT_EQ(missed_[0].payload, "payload");
    EXPECT_EQ(missed_[0].due, start + seconds(1));
    EXPECT_EQ(store.stats().missed, 1U);
    EXPECT_EQ(store.cancel("a").answers.at(0).outcome, WFStoreOutcome::kMissed);
  });
}

TEST_P(StoreRestart, ADateThatIsTooLateIsReportedAndFollowedByTheNext) {
  WFStoreTimer timer = {"a", WFStoreDue::every(minutes(1)), "kind"};
  timer.skip_if_later = seconds(10);
  restart_after(minutes(2) + seconds(30), timer, [this](Time start, WFTimerStore& store) {
    ASSERT_EQ(missed_.size(), 1U);
    EXPECT_EQ(missed_[0].due, start + minutes(2));
    EXPECT_THAT(dates(), ElementsAre(start + minutes(3)));
    EXPECT_EQ(store.stats().missed, 1U);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, StoreRestart, test_support::sqlite_layouts(),
                         test_support::layout_name);

}  // namespace

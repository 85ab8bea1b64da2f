#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "factory/TimerTask.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFTaskFactory.h"

using probes::kQuiet;
using test_support::Tally;
using test_support::TimerOutcomes;
using workflow::NamedTimerTask;

namespace {

WFTimerTask* never(const std::string& name, timer_callback_t callback) {
  return WFTaskFactory::create_timer_task(name, -1, 0, std::move(callback));
}

size_t linked(const std::string& name) {
  return NamedTimerTask::registry().count(name);
}

}  // namespace

TEST(NamedTimer, ExpiresLikeAnyOtherAndLeavesItsName) {
  TimerOutcomes outcomes;
  WFTimerTask* task = WFTaskFactory::create_timer_task("name", 0, 1'000'000, outcomes.callback());
  EXPECT_EQ(linked("name"), 1u);
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 1u);
  EXPECT_EQ(linked("name"), 0u);
}

TEST(NamedTimer, CancelEndsItAtOnce) {
  TimerOutcomes outcomes;
  WFTaskFactory::create_timer_task("name", 3600, 0, outcomes.callback())->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  EXPECT_EQ(linked("name"), 0u);
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
}

TEST(NamedTimer, CancelBeforeStartCompletesItAtItsStart) {
  TimerOutcomes outcomes;
  WFTimerTask* task = never("name", outcomes.callback());
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
  EXPECT_FALSE(outcomes.wait_for(1, kQuiet));
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST(NamedTimer, CancelBeforeStartThenDismissedIsCountedAndSilent) {
  TimerOutcomes outcomes;
  WFTimerTask* task = never("name", outcomes.callback());
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  task->dismiss();
  EXPECT_FALSE(outcomes.wait_for(1, kQuiet));
}

TEST(NamedTimer, CancelAfterExpiryReturnsZero) {
  TimerOutcomes outcomes;
  WFTaskFactory::create_timer_task("name", 0, 0, outcomes.callback())->start();
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 1u);
}

TEST(NamedTimer, CancelOfAnUnknownNameReturnsZero) {
  EXPECT_EQ(WFTaskFactory::cancel_by_name("nobody"), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("nobody", 5), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name(""), 0);
}

TEST(NamedTimer, CancelTakesTheOldestCreatedWhateverTheOrderOfStarts) {
  TimerOutcomes outcomes;
  std::vector<WFTimerTask*> tasks;
  for (int i = 0; i < 5; i++) {
    tasks.push_back(never("name", outcomes.callback(i)));
  }
  std::for_each(tasks.rbegin(), tasks.rend(), [](WFTimerTask* task) { task->start(); });
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 0), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 2), 2);
  EXPECT_TRUE(outcomes.wait_for(2));
  auto tags = outcomes.tags();
  std::sort(tags.begin(), tags.end());
  EXPECT_EQ(tags, (std::vector<int>{0, 1}));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 1), 1);
  EXPECT_TRUE(outcomes.wait_for(3));
  EXPECT_EQ(outcomes.tags().at(2), 2);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 100), 2);
  EXPECT_TRUE(outcomes.wait_for(5));
}

TEST(NamedTimer, MaxCountsUnstartedTimersToo) {
  TimerOutcomes outcomes;
  WFTimerTask* unstarted = never("name", outcomes.callback(0));
  never("name", outcomes.callback(1))->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 1), 1);
  EXPECT_FALSE(outcomes.wait_for(1, kQuiet));
  EXPECT_EQ(linked("name"), 1u);
  unstarted->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.tags(), std::vector<int>{0});
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  EXPECT_TRUE(outcomes.wait_for(2));
}

TEST(NamedTimer, OtherNamesAreLeftAlone) {
  TimerOutcomes outcomes;
  const std::string names[] = {"name", std::string("name\0x", 6), "", "nam", "name "};
  for (const std::string& name : names) {
    never(name, outcomes.callback())->start();
  }
  for (size_t i = 0; i < std::size(names); i++) {
    EXPECT_EQ(WFTaskFactory::cancel_by_name(names[i]), 1);
    EXPECT_TRUE(outcomes.wait_for(i + 1));
  }
  EXPECT_TRUE(NamedTimerTask::registry().empty());
}

TEST(NamedTimer, DismissLeavesTheName) {
  WFTimerTask* task = never("name", nullptr);
  EXPECT_EQ(linked("name"), 1u);
  task->dismiss();
  EXPECT_EQ(linked("name"), 0u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
}

TEST(NamedTimer, DismissedSeriesLeavesTheNames) {
  TimerOutcomes outcomes;
  SeriesWork* series =
      Workflow::create_series_work(never("a", outcomes.callback()), never("c", nullptr), nullptr);
  series->push_back(never("b", outcomes.callback()));
  EXPECT_FALSE(NamedTimerTask::registry().empty());
  series->dismiss();
  EXPECT_TRUE(NamedTimerTask::registry().empty());
  EXPECT_FALSE(outcomes.wait_for(1, kQuiet));
}

TEST(NamedTimer, SeriesGoesOnAfterACancelledTimer) {
  TimerOutcomes outcomes;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(never("name", outcomes.callback(0)),
                                                    [&ended](const SeriesWork* self) {
                                                      EXPECT_FALSE(self->is_canceled());
                                                      ended.add();
                                                    });
  series->push_back(WFTaskFactory::create_timer_task(0, 0, outcomes.callback(1)));
  series->push_back(never("name", outcomes.callback(2)));  // cancelled before its turn
  series->push_back(WFTaskFactory::create_timer_task("name", 0, 0, outcomes.callback(3)));
  series->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 2), 2);
  EXPECT_TRUE(ended.wait_for(1));
  const auto all = outcomes.all();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(outcomes.tags(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(all[0].error, ECANCELED);
  EXPECT_EQ(all[1].state, WFT_STATE_SUCCESS);
  EXPECT_EQ(all[2].error, ECANCELED);
  EXPECT_EQ(all[3].state, WFT_STATE_SUCCESS);
}

TEST(NamedTimer, CancelledSeriesFreesItsUnstartedTimers) {
  TimerOutcomes outcomes;
  Tally ended;
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0,
                                                                    [&outcomes](WFTimerTask* task) {
                                                                      outcomes.add(0, task);
                                                                      series_of(task)->cancel();
                                                                    }),
                                   [&ended](const SeriesWork* self) {
                                     EXPECT_TRUE(self->is_canceled());
                                     ended.add();
                                   });
  SeriesWork* branch = Workflow::create_series_work(never("a", outcomes.callback(1)), nullptr);
  branch->push_back(never("b", outcomes.callback(1)));
  series->push_back(Workflow::create_parallel_work(&branch, 1, nullptr));
  series->push_back(never("c", outcomes.callback(1)));
  EXPECT_FALSE(NamedTimerTask::registry().empty());
  series->start();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcomes.tags(), std::vector<int>{0});
  EXPECT_TRUE(NamedTimerTask::registry().empty());
}

TEST(NamedTimer, ParallelEndsWhenItsTimersAreCancelled) {
  TimerOutcomes outcomes;
  Tally ended;
  ParallelWork* parallel =
      Workflow::create_parallel_work([&ended](const ParallelWork*) { ended.add(); });
  for (int i = 0; i < 10; i++) {
    parallel->add_series(Workflow::create_series_work(never("name", outcomes.callback()), nullptr));
  }
  parallel->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name", 9), 9);
  EXPECT_TRUE(outcomes.wait_for(9));
  EXPECT_EQ(ended.count(), 0u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedTimer, CallbackRunsOnAnotherThreadThanTheCanceller) {
  TimerOutcomes outcomes;
  for (int i = 0; i < 100; i++) {
    never("name", outcomes.callback())->start();
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 100);
  EXPECT_TRUE(outcomes.wait_for(100));
  for (const auto& outcome : outcomes.all()) {
    EXPECT_NE(outcome.thread, std::this_thread::get_id());
  }
}

TEST(NamedTimer, CallbackNeverRunsInsideACancellingCallback) {
  static thread_local bool cancelling = false;
  Tally done;
  std::atomic<int> nested{0};
  std::atomic<int> cancelled{0};
  for (int i = 0; i < 200; i++) {
    never("name", [&](WFTimerTask*) {
      nested += cancelling;
      done.add();
    })->start();
  }
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    cancelling = true;
    cancelled += WFTaskFactory::cancel_by_name("name");
    cancelling = false;
    done.add();
  })->start();
  EXPECT_TRUE(done.wait_for(201));
  EXPECT_EQ(cancelled, 200);
  EXPECT_EQ(nested, 0);
}

TEST(NamedTimer, CallbackCancellingItsOwnNameDoesNotCountItself) {
  Tally done;
  std::atomic<int> after_expiry{-1};
  std::atomic<int> after_cancel{-1};
  WFTaskFactory::create_timer_task("expires", 0, 0, [&](WFTimerTask*) {
    after_expiry = WFTaskFactory::cancel_by_name("expires");
    done.add();
  })->start();
  never("cancelled", [&](WFTimerTask*) {
    after_cancel = WFTaskFactory::cancel_by_name("cancelled");
    done.add();
  })->start();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("cancelled"), 1);
  EXPECT_TRUE(done.wait_for(2));
  EXPECT_EQ(after_expiry, 0);
  EXPECT_EQ(after_cancel, 0);
}

TEST(NamedTimer, CallbackMayCancelOthersOfItsName) {
  TimerOutcomes outcomes;
  Tally done;
  std::atomic<int> cancelled{0};
  WFTimerTask* canceller =
      WFTaskFactory::create_timer_task("name", 0, 1'000'000, [&](WFTimerTask* task) {
        EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
        cancelled = WFTaskFactory::cancel_by_name("name");
        done.add();
      });
  never("name", outcomes.callback())->start();
  never("name", outcomes.callback())->start();
  canceller->start();
  EXPECT_TRUE(done.wait_for(1));
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(cancelled, 2);
}

TEST(NamedTimer, CancelCountsOnlyOlderTimersThoughCallbacksRecreateTheName) {
  constexpr int kTimers = 5000;
  Tally done;
  std::atomic<int> cancelled{0};
  const auto count = [&](WFTimerTask* task) {
    cancelled += task->get_error() == ECANCELED;
    done.add();
  };
  for (int i = 0; i < kTimers; i++) {
    never("name", [&](WFTimerTask* task) {
      never("name", count)->start();
      count(task);
    })->start();
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), kTimers);
  EXPECT_TRUE(done.wait_for(kTimers));
  EXPECT_EQ(linked("name"), size_t{kTimers});
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), kTimers);
  EXPECT_TRUE(done.wait_for(2 * kTimers));
  EXPECT_EQ(cancelled, 2 * kTimers);
}

TEST(NamedTimer, CancellersOfOneNameShareTheTimersBetweenThem) {
  constexpr int kTimers = 20'000;
  Tally done;
  std::atomic<int> cancelled{0};
  for (int i = 0; i < kTimers; i++) {
    never("name", [&](WFTimerTask* task) {
      cancelled += task->get_error() == ECANCELED;
      done.add();
    })->start();
  }
  std::atomic<int> counted{0};
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 4; t++) {
    threads.emplace_back([&counted, t] {
      counted += t % 2 ? WFTaskFactory::cancel_by_name("name")
                       : WFTaskFactory::cancel_by_name("name", 7000);
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(counted, kTimers);
  EXPECT_TRUE(done.wait_for(kTimers));
  EXPECT_EQ(cancelled, kTimers);
}

TEST(NamedTimer, NameMayDieWithItsCaller) {
  TimerOutcomes outcomes;
  {
    std::string name(1000, 'n');
    never(name, outcomes.callback())->start();
    name.assign(1000, 'x');
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name(std::string(1000, 'n')), 1);
  EXPECT_TRUE(outcomes.wait_for(1));
}

TEST(NamedTimer, RegistryListsWhatIsOutstanding) {
  TimerOutcomes outcomes;
  never("a", outcomes.callback())->start();
  never("a", outcomes.callback())->start();
  WFTimerTask* unstarted = never("b", nullptr);
  auto names = NamedTimerTask::registry().names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::pair<std::string, size_t>>{{"a", 2}, {"b", 1}}));
  unstarted->dismiss();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 2);
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_TRUE(NamedTimerTask::registry().empty());
}

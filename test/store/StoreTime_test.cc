#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "FaultyBackend.h"
#include "StoreKit.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTimerStore.h"

// What stores do in time: each case runs in the virtual time of a simulation, for a few seeds, so
// that times are exact however slow the machine is.

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::system_clock;
using store_test::FaultyBackend;
using store_test::fresh_url;
using store_test::SeenRun;
using store_test::SeenRuns;
using store_test::StorePtr;
using testing::ElementsAre;

using Time = system_clock::time_point;

class StoreTime : public testing::Test {
 protected:
  // Runs `body` in a simulation for each of some seeds.
  void simulate(const std::function<void()>& body) {
    for (uint64_t seed = 1; seed <= 20 && !HasFailure(); seed++) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      WFSimulation simulation(seed);
      simulation_ = &simulation;
      body();
      const WFSimulationResult result = simulation.stop();
      EXPECT_TRUE(result.ok()) << result.description;
    }
  }

  // The same, with a store and runs for a handler of it to note.
  void simulate_store(const std::function<void(SeenRuns&, WFTimerStore&)>& body) {
    simulate([&body] {
      SeenRuns runs;
      const StorePtr store = store_test::open_store();
      body(runs, *store);
    });
  }

  // Lets time pass.
  void pass(std::chrono::nanoseconds time) {
    const WFSimulationResult result = simulation_->run_for(time);
    ASSERT_TRUE(result.ok()) << result.description;
  }
  static Time now() { return WFTimer::wall_now(); }

  // A task that lasts so long.
  static SubTask* lasting(std::chrono::nanoseconds time) { return WFTimer::create(time, nullptr); }

  WFSimulation* simulation_ = nullptr;
};

std::vector<Time> began(const SeenRuns& runs) {
  std::vector<Time> times;
  for (const SeenRun& run : runs.all()) {
    times.push_back(run.began);
  }
  return times;
}

std::vector<Time> dates(const SeenRuns& runs) {
  std::vector<Time> times;
  for (const SeenRun& run : runs.all()) {
    times.push_back(run.due);
  }
  return times;
}

// Due times --------------------------------------------------------------------------------------

TEST_F(StoreTime, ATimerBeginsExactlyWhenItIsDue) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store));
    const Time start = now();
    store.schedule({"c", seconds(3), "kind"});
    store.schedule({"a", milliseconds(1), "kind"});
    store.schedule({"b", start + minutes(1), "kind"});
    store.schedule({"d", std::chrono::nanoseconds(1'000'001), "kind"});
    pass(hours(1));
    EXPECT_THAT(runs.names(), testing::UnorderedElementsAre("a", "d", "c", "b"));
    for (const SeenRun& run : runs.all()) {
      EXPECT_EQ(run.began, run.due);
      EXPECT_EQ(run.lateness, microseconds(0));
    }
    const std::vector<Time> times = began(runs);
    // Rounded up to microseconds.
    EXPECT_THAT(times, ElementsAre(start + milliseconds(1), start + microseconds(1001),
                                   start + seconds(3), start + minutes(1)));
  });
}

TEST_F(StoreTime, AMovedTimerBeginsAtItsNewTime) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store));
    const Time start = now();
    store.schedule({"sooner", hours(1), "kind"});
    store.schedule({"later", seconds(1), "kind"});
    store.schedule({"never", seconds(1), "kind"});
    store.reschedule("sooner", seconds(10));
    store.reschedule("later", hours(2));
    store.reschedule("never", seconds(-1));
    pass(hours(3));
    EXPECT_THAT(runs.names(), ElementsAre("sooner", "later"));
    EXPECT_THAT(began(runs), ElementsAre(start + seconds(10), start + hours(2)));
    EXPECT_EQ(store.count("").count, 1u);
  });
}

TEST_F(StoreTime, AnotherProcessLearnsOfAnEarlierTime) {
  simulate([&] {
    SeenRuns runs;
    const std::string url = fresh_url();
    const StorePtr one = store_test::open_store(url);
    const StorePtr other = store_test::open_store(url);
    one->handle("kind", runs.handler(*one));
    const Time start = now();
    one->schedule({"a", hours(1), "kind"});
    other->schedule({"b", milliseconds(500), "kind"});
    pass(seconds(10));
    EXPECT_THAT(began(runs), ElementsAre(start + milliseconds(500)));
    other->reschedule("a", seconds(0));
    pass(seconds(1));
    EXPECT_THAT(runs.names(), ElementsAre("b", "a"));
    EXPECT_EQ(runs.at(1).began, start + seconds(10));
  });
}

TEST_F(StoreTime, ADelayCountsFromTheStartOfItsTask) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store));
    const Time start = now();
    const WFCron cron = *WFCron::parse("* * * * *");
    store.schedule({"moved", hours(100), "kind"});
    store.schedule({"moved, recurs", hours(100), "kind"});
    SeriesWork* const series =
        Workflow::create_series_work(lasting(minutes(10) + milliseconds(500)), nullptr);
    *series << store.create_schedule_task({"delay", minutes(5), "kind"}, nullptr)
            << store.create_schedule_task({"period", WFStoreDue::every(minutes(5)), "kind"},
                                          nullptr)
            << store.create_schedule_task({"cron", cron, "kind"}, nullptr)
            << store.create_reschedule_task("moved", minutes(5), nullptr)
            << store.create_reschedule_task("moved, recurs", WFStoreDue::every(minutes(5)),
                                            nullptr);
    series->start();
    pass(minutes(10) + milliseconds(501));
    EXPECT_EQ(runs.count(), 0u);
    const Time stored = start + minutes(10) + milliseconds(500);
    for (const WFStoreInfo& timer : store.list("").timers) {
      const Time due = timer.name == "cron" ? *cron.next(stored) : stored + minutes(5);
      EXPECT_EQ(timer.due, due) << timer.name;
    }
    EXPECT_EQ(store.count("").count, 5u);
  });
}

TEST_F(StoreTime, ATimerWhoseKindHasNoHandlerWaitsForOne) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("other", runs.handler(store));
    const Time start = now();
    store.schedule({"a", seconds(1), "kind"});
    pass(minutes(1));
    EXPECT_EQ(runs.count(), 0u);
    store.handle("kind", runs.handler(store));
    pass(minutes(1));
    EXPECT_THAT(began(runs), ElementsAre(start + minutes(1)));
    EXPECT_EQ(runs.at(0).lateness, seconds(59));
    EXPECT_EQ(runs.at(0).attempt, 1u);
  });
}

// Retries ----------------------------------------------------------------------------------------

TEST_F(StoreTime, ARetryBeginsAfterItsDelay) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [](WFStoredTimer* timer) {
      if (timer->attempt() < 3) {
        timer->retry_after(seconds(5));
      }
    }));
    const Time start = now();
    store.schedule({"a", seconds(1), "kind", "payload"});
    pass(minutes(1));
    EXPECT_THAT(began(runs),
                ElementsAre(start + seconds(1), start + seconds(6), start + seconds(11)));
    for (size_t i = 0; i < 3; i++) {
      EXPECT_EQ(runs.at(i).attempt, i + 1);
      EXPECT_EQ(runs.at(i).due, start + seconds(1));
      EXPECT_EQ(runs.at(i).payload, "payload");
    }
    EXPECT_LT(runs.at(0).fence, runs.at(1).fence);
    EXPECT_LT(runs.at(1).fence, runs.at(2).fence);
    const WFTimerStoreStats stats = store.stats();
    EXPECT_EQ(stats.begun, 3u);
    EXPECT_EQ(stats.retried, 2u);
    EXPECT_EQ(stats.acknowledged, 1u);
    EXPECT_EQ(store.count("").count, 0u);
  });
}

TEST_F(StoreTime, TheBackOffGrowsUpToItsLimit) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    WFStoreHandlerOptions options;
    options.retry_delay = seconds(4);
    options.max_retry_delay = seconds(50);
    store.handle("kind",
                 runs.handler(store,
                              [](WFStoredTimer* timer) {
                                if (timer->attempt() < 8) {
                                  timer->retry();
                                }
                              }),
                 options);
    store.schedule({"a", seconds(1), "kind"});
    pass(hours(1));
    ASSERT_EQ(runs.count(), 8u);
    const std::vector<Time> times = began(runs);
    int full = 4;
    for (size_t i = 1; i < times.size(); i++) {
      EXPECT_LE(times[i] - times[i - 1], seconds(full)) << i;
      EXPECT_GE(times[i] - times[i - 1], seconds(full) * 3 / 4) << i;
      full = std::min(full * 2, 50);
    }
  });
}

TEST_F(StoreTime, TheLastWordOfAHandlerCounts) {
  simulate([&] {
    std::map<std::string, std::function<void(WFStoredTimer*)>> words = {
        {"acknowledged",
         [](WFStoredTimer* timer) {
           timer->give_up("no");
           timer->retry();
           timer->acknowledge();
         }},
        {"given up",
         [](WFStoredTimer* timer) {
           timer->retry_after(seconds(1));
           timer->give_up("this reason");
         }},
        {"retried",
         [](WFStoredTimer* timer) {
           timer->give_up("no");
           timer->retry_after(hours(1));
         }},
    };
    const StorePtr store = store_test::open_store();
    store->handle("kind", [&](WFStoredTimer* timer) { words.at(timer->name())(timer); });
    for (const auto& [name, word] : words) {
      store->schedule({name, seconds(0), "kind"});
    }
    pass(seconds(1));
    EXPECT_EQ(store->cancel("acknowledged").answers.at(0).outcome, WFStoreOutcome::kDone);
    const WFStoreResult failed = store->list_failed("");
    ASSERT_EQ(failed.timers.size(), 1u);
    EXPECT_EQ(failed.timers[0].name, "given up");
    EXPECT_EQ(failed.timers[0].reason, "this reason");
    EXPECT_EQ(failed.timers[0].stage, WFStoreStage::kFailed);
    const WFStoreInfo retried = store->list("retried").timers.at(0);
    EXPECT_EQ(retried.stage, WFStoreStage::kWaiting);
    EXPECT_EQ(retried.attempts, 1u);
  });
}

TEST_F(StoreTime, WhatIsSaidLaterInTheSeriesCounts) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [](WFStoredTimer* timer) {
      const bool first = timer->attempt() == 1;
      *series_of(timer) << WFTimer::create(seconds(1), [timer, first](WFTimerTask*) {
        if (first) {
          timer->retry_after(seconds(2));
        }
      }) << lasting(seconds(1));
    }));
    const Time start = now();
    store.schedule({"a", seconds(0), "kind"});
    pass(minutes(1));
    // The delay counts from the end of the series.
    EXPECT_THAT(began(runs), ElementsAre(start, start + seconds(4)));
  });
}

TEST_F(StoreTime, ACancelledSeriesIsARunThatIsRetried) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [](WFStoredTimer* timer) {
      if (timer->attempt() == 1) {
        *series_of(timer) << lasting(seconds(1));
        series_of(timer)->cancel();
      }
    }));
    store.schedule({"a", seconds(0), "kind"});
    pass(minutes(1));
    EXPECT_EQ(runs.count(), 2u);
    EXPECT_EQ(store.count("").count, 0u);
  });
}

// Failed timers ----------------------------------------------------------------------------------

TEST_F(StoreTime, ATimerFailsWhenItsAttemptsAreUsedUp) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    WFStoreHandlerOptions options;
    options.max_attempts = 3;
    store.handle("kind",
                 runs.handler(store, [](WFStoredTimer* timer) { timer->retry_after(seconds(1)); }),
                 options);
    store.schedule({"a", seconds(0), "kind"});
    pass(hours(1));
    EXPECT_EQ(runs.count(), 3u);
    const WFStoreResult failed = store.list_failed("");
    ASSERT_EQ(failed.timers.size(), 1u);
    EXPECT_EQ(failed.timers[0].reason, "its attempts are used up");
    EXPECT_EQ(failed.timers[0].attempts, 3u);
    EXPECT_EQ(store.stats().failed, 1u);
    EXPECT_EQ(store.stats().retried, 2u);
  });
}

TEST_F(StoreTime, NoLimitOfAttempts) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    WFStoreHandlerOptions options;
    options.max_attempts = 0;
    store.handle("kind",
                 runs.handler(store, [](WFStoredTimer* timer) { timer->retry_after(seconds(1)); }),
                 options);
    store.schedule({"a", seconds(0), "kind"});
    pass(seconds(49) + milliseconds(500));
    EXPECT_EQ(runs.count(), 50u);
  });
}

TEST_F(StoreTime, FailedTimersAreListedRetriedAndRemoved) {
  simulate([&] {
    SeenRuns runs;
    bool works = false;
    const StorePtr store = store_test::open_store();
    store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
      if (!works) {
        timer->give_up("of " + timer->name());
      }
    }));
    for (const char* name : {"a", "a", "b", "c"}) {
      store->schedule({name, seconds(0), "kind"});
    }
    store->schedule({"d", hours(100), "kind"});
    pass(minutes(1));
    EXPECT_EQ(store->stats().failed, 4u);
    EXPECT_EQ(store->count("").count, 5u);
    const WFStoreResult first = store->list_failed("", "", 3);
    ASSERT_EQ(first.timers.size(), 3u);
    EXPECT_EQ(first.timers[2].name, "b");
    EXPECT_EQ(first.timers[2].reason, "of b");
    const WFStoreResult second = store->list_failed("", first.cursor, 3);
    ASSERT_EQ(second.timers.size(), 1u);
    EXPECT_EQ(second.timers[0].name, "c");
    EXPECT_TRUE(second.cursor.empty());

    // A failed timer is none for cancel and reschedule.
    EXPECT_EQ(store->cancel("b").answers.at(0).outcome, WFStoreOutcome::kFailed);
    EXPECT_EQ(store->reschedule("b", seconds(0)).verdict(), WFStoreVerdict::kDone);

    works = true;
    EXPECT_EQ(store->remove_failed("b").count, 1u);
    EXPECT_EQ(store->remove_failed("b").count, 0u);
    EXPECT_EQ(store->remove_failed("d").count, 0u);
    EXPECT_EQ(store->retry_failed("nobody").count, 0u);
    const Time then = now();
    EXPECT_EQ(store->retry_failed("a").count, 2u);
    pass(minutes(1));
    ASSERT_EQ(runs.count(), 6u);
    for (size_t i = 4; i < 6; i++) {
      EXPECT_EQ(runs.at(i).name, "a");
      EXPECT_EQ(runs.at(i).attempt, 1u);
      EXPECT_EQ(runs.at(i).began, then);
    }
    EXPECT_EQ(store->list_failed("").timers.size(), 1u);
    EXPECT_EQ(store->count("").count, 2u);
  });
}

// Late timers ------------------------------------------------------------------------------------

TEST_F(StoreTime, ATimerThatIsTooLateIsLeftOut) {
  simulate([&] {
    SeenRuns runs;
    std::vector<WFStoreInfo> missed;
    const StorePtr store = store_test::open_store();
    WFStoreTimer timer = {"late", seconds(1), "kind", "payload"};
    timer.skip_if_later = seconds(5);
    store->schedule(timer);
    timer.name = "in time";
    timer.due = seconds(5);
    store->schedule(timer);
    timer.name = "whenever";
    timer.due = seconds(1);
    timer.skip_if_later = seconds(-1);
    store->schedule(timer);
    pass(seconds(10));
    WFStoreHandlerOptions options;
    options.on_missed = [&missed](const WFStoreInfo& info) { missed.push_back(info); };
    store->handle("kind", runs.handler(*store), options);
    pass(seconds(1));
    EXPECT_THAT(runs.names(), testing::UnorderedElementsAre("in time", "whenever"));
    ASSERT_EQ(missed.size(), 1u);
    EXPECT_EQ(missed[0].name, "late");
    EXPECT_EQ(missed[0].payload, "payload");
    EXPECT_EQ(missed[0].kind, "kind");
    EXPECT_EQ(store->stats().missed, 1u);
    EXPECT_EQ(store->stats().begun, 2u);
    EXPECT_EQ(store->cancel("late").answers.at(0).outcome, WFStoreOutcome::kMissed);
  });
}

TEST_F(StoreTime, ARetryIsNeverLeftOut) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [](WFStoredTimer* timer) {
      if (timer->attempt() == 1) {
        timer->retry_after(minutes(1));
      }
    }));
    WFStoreTimer timer = {"a", seconds(1), "kind"};
    timer.skip_if_later = seconds(5);
    store.schedule(timer);
    pass(hours(1));
    EXPECT_EQ(runs.count(), 2u);
  });
}

// Recurring timers -------------------------------------------------------------------------------

TEST_F(StoreTime, APeriodHasOneRunForEachDate) {
  simulate([&] {
    SeenRuns runs;
    const std::string url = fresh_url();
    const StorePtr one = store_test::open_store(url);
    const StorePtr other = store_test::open_store(url);
    one->handle("kind", runs.handler(*one));
    other->handle("kind", runs.handler(*other));
    const Time start = now();
    one->schedule({"a", WFStoreDue::every(minutes(1)), "kind"});
    one->schedule({"b", WFStoreDue::every(hours(1), start + seconds(90)), "kind"});
    pass(minutes(3) + seconds(1));
    EXPECT_THAT(began(runs), ElementsAre(start + minutes(1), start + seconds(90),
                                         start + minutes(2), start + minutes(3)));
    EXPECT_EQ(dates(runs), began(runs));
    EXPECT_EQ(runs.at(1).name, "b");
    EXPECT_EQ(runs.at(3).attempt, 1u);
    EXPECT_EQ(one->cancel("a").verdict(), WFStoreVerdict::kWon);
    pass(hours(1));
    EXPECT_THAT(runs.names(), ElementsAre("a", "b", "a", "a", "b"));
  });
}

TEST_F(StoreTime, ACronExpressionIsRunAtItsDates) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store));
    const WFCron cron = *WFCron::parse("30 2 * * *", "Europe/Berlin");
    store.schedule({"a", cron, "kind"});
    const Time start = now();
    pass(hours(72));
    ASSERT_EQ(runs.count(), 3u);
    Time date = start;
    for (const SeenRun& run : runs.all()) {
      date = *cron.next(date);
      EXPECT_EQ(run.due, date);
      EXPECT_EQ(run.began, date);
    }
  });
}

TEST_F(StoreTime, OnlyTheLatestMissedDateRuns) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    const Time start = now();
    store.schedule({"a", WFStoreDue::every(minutes(1)), "kind"});
    pass(minutes(5) + seconds(30));
    store.handle("kind", runs.handler(store));
    pass(minutes(1));
    EXPECT_THAT(dates(runs), ElementsAre(start + minutes(5), start + minutes(6)));
    EXPECT_THAT(began(runs), ElementsAre(start + minutes(5) + seconds(30), start + minutes(6)));
    EXPECT_EQ(runs.at(0).lateness, seconds(30));
  });
}

TEST_F(StoreTime, EveryMissedDateRunsIfItIsToldTo) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    const Time start = now();
    WFStoreTimer timer = {"a", WFStoreDue::every(minutes(1)), "kind"};
    timer.every_missed_date = true;
    store.schedule(timer);
    pass(minutes(3) + seconds(30));
    store.handle("kind", runs.handler(store));
    pass(minutes(1));
    EXPECT_THAT(dates(runs), ElementsAre(start + minutes(1), start + minutes(2), start + minutes(3),
                                         start + minutes(4)));
  });
}

TEST_F(StoreTime, ADateThatComesDuringARunIsRunAfterIt) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [&](WFStoredTimer* timer) {
      if (runs.count() == 1) {
        series_of(timer)->push_back(lasting(minutes(2) + seconds(30)));
      }
    }));
    const Time start = now();
    store.schedule({"a", WFStoreDue::every(minutes(1)), "kind"});
    pass(minutes(4) + seconds(30));
    EXPECT_THAT(dates(runs),
                ElementsAre(start + minutes(1), start + minutes(3), start + minutes(4)));
    EXPECT_THAT(began(runs), ElementsAre(start + minutes(1), start + minutes(3) + seconds(30),
                                         start + minutes(4)));
  });
}

TEST_F(StoreTime, AMissedDateOfARecurringTimerIsFollowedByTheNext) {
  simulate([&] {
    SeenRuns runs;
    std::vector<WFStoreInfo> missed;
    const StorePtr store = store_test::open_store();
    const Time start = now();
    WFStoreTimer timer = {"a", WFStoreDue::every(minutes(1)), "kind"};
    timer.skip_if_later = seconds(10);
    store->schedule(timer);
    pass(minutes(2) + seconds(30));
    WFStoreHandlerOptions options;
    options.on_missed = [&missed](const WFStoreInfo& info) { missed.push_back(info); };
    store->handle("kind", runs.handler(*store), options);
    pass(minutes(1));
    ASSERT_EQ(missed.size(), 1u);
    EXPECT_EQ(missed[0].due, start + minutes(2));
    EXPECT_THAT(dates(runs), ElementsAre(start + minutes(3)));
    EXPECT_EQ(store->stats().missed, 1u);
  });
}

TEST_F(StoreTime, ARecurringTimerThatFailsGoesOnWithItsNextDate) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store, [&](WFStoredTimer* timer) {
      if (runs.count() == 1) {
        timer->give_up("once");
      }
    }));
    const Time start = now();
    store.schedule({"a", WFStoreDue::every(minutes(1)), "kind"});
    pass(minutes(2) + seconds(1));
    EXPECT_THAT(dates(runs), ElementsAre(start + minutes(1), start + minutes(2)));
    EXPECT_EQ(store.list_failed("a").timers.size(), 1u);
    EXPECT_EQ(store.count("a").count, 2u);
    // Run once more, the failed one does not recur.
    store.retry_failed("a");
    pass(milliseconds(1));
    EXPECT_EQ(runs.count(), 3u);
    EXPECT_EQ(store.count("a").count, 1u);
  });
}

TEST_F(StoreTime, ARescheduleMovesTheNextDateOnlyUnlessItRecurs) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    store.handle("kind", runs.handler(store));
    const Time start = now();
    store.schedule({"a", WFStoreDue::every(minutes(10)), "kind"});
    store.reschedule("a", minutes(12));
    pass(minutes(21));
    EXPECT_THAT(began(runs), ElementsAre(start + minutes(12), start + minutes(20)));
    store.reschedule("a", WFStoreDue::every(minutes(2)));
    pass(minutes(5));
    EXPECT_EQ(runs.count(), 4u);
    EXPECT_EQ(runs.at(2).began, start + minutes(23));
    EXPECT_EQ(runs.at(3).began, start + minutes(25));
  });
}

// Leases -----------------------------------------------------------------------------------------

TEST_F(StoreTime, LeasesAreExtendedWhileTheSeriesRuns) {
  simulate([&] {
    SeenRuns runs;
    std::vector<microseconds> left;
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(30);
    const StorePtr store = store_test::open_store(url, options);
    const StorePtr other = store_test::open_store(url, options);
    store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
      for (int i = 0; i < 60; i++) {
        *series_of(timer) << WFTimer::create(
            seconds(5), [&left, timer](WFTimerTask*) { left.push_back(timer->lease_left()); });
      }
    }));
    store->schedule({"a", seconds(0), "kind"});
    pass(seconds(1));
    other->handle("kind", runs.handler(*other));
    pass(hours(1));
    EXPECT_EQ(runs.count(), 1u);
    ASSERT_EQ(left.size(), 60u);
    // Extended after a third of the lease.
    EXPECT_GE(*std::min_element(left.begin(), left.end()), seconds(20));
    EXPECT_LE(*std::max_element(left.begin(), left.end()), seconds(30));
    EXPECT_EQ(store->stats().acknowledged, 1u);
    EXPECT_EQ(store->stats().lost, 0u);
    EXPECT_EQ(store->count("").count, 0u);
  });
}

// A store whose backend fails as long as the test wants it to.
struct Faulty {
  explicit Faulty(const std::string& url, const WFStoreOptions& options = {}) {
    store = store_test::open_wrapped(url, options,
                                     [this](std::unique_ptr<workflow::StoreBackend> backend,
                                            const workflow::StoreBackendOptions&) {
                                       auto faulty =
                                           std::make_unique<FaultyBackend>(std::move(backend));
                                       backend_of = faulty.get();
                                       return faulty;
                                     });
  }
  FaultyBackend* operator->() const { return backend_of; }

  FaultyBackend* backend_of = nullptr;
  StorePtr store;
};

TEST_F(StoreTime, ARunIsToldBeforeItsLeaseIsLostAndRunsElsewhere) {
  simulate([&] {
    SeenRuns runs;
    SeenRuns other_runs;
    Time told;
    int reason = 0;
    microseconds left{};
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(30);
    Faulty faulty(url, options);
    const StorePtr other = store_test::open_store(url, options);
    faulty.store->handle("kind", runs.handler(*faulty.store, [&](WFStoredTimer* timer) {
      *series_of(timer) << WFTimer::create(minutes(10), [&, timer](WFTimerTask* task) {
        told = now();
        reason = task->get_error();
        left = timer->lease_left();
      });
    }));
    const Time start = now();
    faulty.store->schedule({"a", seconds(0), "kind"});
    pass(seconds(1));
    faulty->fail_next(FaultyBackend::Fault::kRefuse);
    faulty->fail_reopen(1'000);
    other->handle("kind", other_runs.handler(*other));
    pass(seconds(28));
    EXPECT_EQ(reason, ESTALE);
    EXPECT_GT(left, microseconds(0));
    EXPECT_LT(told, start + seconds(30));
    EXPECT_GE(told, start + seconds(24));
    pass(minutes(1));
    // It runs elsewhere as soon as the lease is over, and not earlier.
    EXPECT_THAT(began(other_runs), ElementsAre(start + seconds(30)));
    EXPECT_EQ(other_runs.at(0).attempt, 2u);
    EXPECT_GT(other_runs.at(0).fence, runs.at(0).fence);
    EXPECT_GT(faulty.store->stats().errors, 0u);
    EXPECT_EQ(other->count("").count, 0u);
    pass(hours(1));
    EXPECT_EQ(faulty.store->stats().running, 0u);
    EXPECT_TRUE(faulty.store->schedule({"b", hours(1), "kind"}).ok());
  });
}

TEST_F(StoreTime, AStaleFinishChangesNothing) {
  simulate([&] {
    SeenRuns runs;
    SeenRuns other_runs;
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(10);
    Faulty faulty(url, options);
    const StorePtr other = store_test::open_store(url, options);
    faulty.store->handle("kind", runs.handler(*faulty.store, [&](WFStoredTimer* timer) {
      timer->acknowledge();
      // Goes on although its scope has ended, as code that does not look at it.
      for (int i = 0; i < 12; i++) {
        *series_of(timer) << WFTaskFactory::create_go_task(
            "queue", [this] { simulation_->sleep_for(seconds(10)); });
      }
    }));
    faulty.store->schedule({"a", seconds(0), "kind"});
    pass(seconds(1));
    faulty->fail_next(FaultyBackend::Fault::kRefuse);
    faulty->fail_reopen(30);
    other->handle("kind", other_runs.handler(*other, [](WFStoredTimer* timer) {
      series_of(timer)->push_back(lasting(minutes(5)));
    }));
    pass(minutes(3));
    EXPECT_EQ(runs.count(), 1u);
    EXPECT_EQ(other_runs.count(), 1u);
    // The other run is not ended by the acknowledgement of the first.
    EXPECT_EQ(other->list("a").timers.at(0).stage, WFStoreStage::kRunning);
    EXPECT_EQ(faulty.store->stats().lost, 1u);
    EXPECT_EQ(faulty.store->stats().acknowledged, 0u);
    pass(minutes(5));
    EXPECT_EQ(other->count("").count, 0u);
  });
}

TEST_F(StoreTime, AHandlerLearnsThatItsEndWasRefused) {
  simulate([&] {
    SeenRuns runs;
    SeenRuns other_runs;
    std::map<std::string, std::vector<uint64_t>> lost;
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(10);
    Faulty faulty(url, options);
    const StorePtr other = store_test::open_store(url, options);
    WFStoreHandlerOptions handler;
    handler.on_lost = [&](const WFStoreInfo& timer, uint64_t fence) {
      lost[timer.name].push_back(fence);
      EXPECT_EQ(timer.payload, "payload of " + timer.name);
      EXPECT_EQ(timer.kind, "kind");
      EXPECT_EQ(timer.attempts, 1u);
    };
    faulty.store->handle("kind",
                         runs.handler(*faulty.store,
                                      [&](WFStoredTimer* timer) {
                                        timer->acknowledge();
                                        if (timer->name() == "ends meanwhile") {
                                          series_of(timer)->push_back(lasting(seconds(5)));
                                        } else if (timer->name() == "goes on") {
                                          *series_of(timer)
                                              << WFTaskFactory::create_go_task("queue", [this] {
                                                   simulation_->sleep_for(minutes(1));
                                                 });
                                        }
                                      }),
                         handler);
    for (const std::string name : {"in time", "ends meanwhile", "goes on"}) {
      faulty.store->schedule({name, seconds(0), "kind", "payload of " + name});
    }
    pass(seconds(1));
    // The store is away until the leases are over.
    faulty->fail_next(FaultyBackend::Fault::kRefuse);
    faulty->fail_reopen(30);
    other->handle("kind", other_runs.handler(*other));
    pass(seconds(50));
    EXPECT_THAT(other_runs.names(), testing::UnorderedElementsAre("ends meanwhile", "goes on"));
    // A handler is told when its series has ended.
    EXPECT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost.count("ends meanwhile"), 1u);
    pass(hours(1));
    EXPECT_EQ(lost.size(), 2u);
    ASSERT_EQ(runs.count(), 3u);
    for (const SeenRun& run : runs.all()) {
      const bool was_in_time = run.name == "in time";
      EXPECT_EQ(lost[run.name],
                was_in_time ? std::vector<uint64_t>() : std::vector<uint64_t>{run.fence});
    }
    EXPECT_EQ(faulty.store->stats().lost, 2u);
    EXPECT_EQ(faulty.store->stats().acknowledged, 1u);
    EXPECT_EQ(other->stats().acknowledged, 2u);
  });
}

TEST_F(StoreTime, AnEndWhoseAnswerWasLostIsInDoubtAndNotLost) {
  for (const auto fault : {FaultyBackend::Fault::kAfter, FaultyBackend::Fault::kBefore}) {
    simulate([&] {
      SeenRuns runs;
      Faulty faulty(fresh_url());
      WFStoreHandlerOptions handler;
      handler.on_lost = [](const WFStoreInfo&, uint64_t) { ADD_FAILURE(); };
      faulty.store->handle("kind",
                           runs.handler(*faulty.store,
                                        [&](WFStoredTimer* timer) {
                                          series_of(timer)->push_back(lasting(seconds(1)));
                                        }),
                           handler);
      faulty.store->schedule({"a", seconds(0), "kind"});
      pass(milliseconds(500));
      faulty->fail_next(fault);
      pass(minutes(1));
      EXPECT_EQ(runs.count(), 1u);
      EXPECT_EQ(faulty.store->count("").count, 0u);
      const bool was_carried_out = fault == FaultyBackend::Fault::kAfter;
      EXPECT_EQ(faulty.store->stats().in_doubt, was_carried_out ? 1u : 0u);
      EXPECT_EQ(faulty.store->stats().acknowledged, was_carried_out ? 0u : 1u);
      EXPECT_EQ(faulty.store->stats().lost, 0u);
    });
  }
}

TEST_F(StoreTime, WhatACloseHasNotWaitedForRunsElsewhere) {
  simulate([&] {
    SeenRuns runs;
    SeenRuns other_runs;
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(10);
    const StorePtr other = store_test::open_store(url, options);
    const StorePtr store = store_test::open_store(url, options);
    store->handle("kind", runs.handler(*store, [](WFStoredTimer* timer) {
      series_of(timer)->push_back(lasting(minutes(1)));
    }));
    const Time start = now();
    store->schedule({"a", seconds(0), "kind"});
    pass(seconds(1));
    other->handle("kind", other_runs.handler(*other, [](WFStoredTimer* timer) {
      series_of(timer)->push_back(lasting(hours(1)));
    }));
    EXPECT_FALSE(store->close(seconds(1)));
    pass(minutes(10));
    // The lease was not extended any more, and the first run has ended without an effect.
    EXPECT_THAT(began(other_runs), ElementsAre(start + seconds(10)));
    EXPECT_EQ(other_runs.at(0).attempt, 2u);
    EXPECT_GT(other_runs.at(0).fence, runs.at(0).fence);
    EXPECT_EQ(store->stats().running, 0u);
    EXPECT_EQ(store->stats().acknowledged, 0u);
    EXPECT_EQ(other->list("a").timers.at(0).stage, WFStoreStage::kRunning);
    pass(hours(2));
    EXPECT_EQ(runs.count() + other_runs.count(), 2u);
    EXPECT_EQ(other->count("").count, 0u);
  });
}

TEST_F(StoreTime, ACancelReachesTheProcessThatRunsTheTimer) {
  simulate([&] {
    SeenRuns runs;
    std::map<std::string, Time> told;
    const std::string url = fresh_url();
    const StorePtr one = store_test::open_store(url);
    const StorePtr other = store_test::open_store(url);
    one->handle("kind", runs.handler(*one, [&](WFStoredTimer* timer) {
      *series_of(timer) << WFTimer::create(minutes(10), [&, timer](WFTimerTask* task) {
        EXPECT_EQ(task->get_error(), ECANCELED);
        EXPECT_TRUE(timer->cancelled());
        told[timer->name()] = now();
      });
    }));
    for (const char* name : {"a", "b", "c"}) {
      one->schedule({name, seconds(0), "kind"});
    }
    pass(seconds(1));
    // Hints that come quickly one after the other are not lost.
    const Time then = now();
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_EQ(other->cancel(name).verdict(), WFStoreVerdict::kRunning);
      pass(milliseconds(1));
    }
    pass(seconds(1));
    ASSERT_EQ(told.size(), 3u);
    for (const auto& [name, when] : told) {
      EXPECT_LE(when, then + milliseconds(200)) << name;
    }
    EXPECT_EQ(one->count("").count, 0u);
  });
}

TEST_F(StoreTime, AnAttemptWhoseProcessDiesCounts) {
  simulate([&] {
    SeenRuns runs;
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(10);
    const StorePtr store = store_test::open_store(url, options);
    WFStoreHandlerOptions handler;
    handler.max_attempts = 2;
    store->schedule({"a", seconds(0), "kind"});
    // Claims whose answers are lost are what a process leaves that dies.
    {
      Faulty dying(url, options);
      dying->fail_next(FaultyBackend::Fault::kAfter);
      dying->fail_reopen(1'000);
      dying.store->handle("kind", [](WFStoredTimer*) { ADD_FAILURE(); });
      pass(seconds(1));
      EXPECT_EQ(store->list("a").timers.at(0).stage, WFStoreStage::kRunning);
      pass(seconds(10));
      EXPECT_EQ(store->list("a").timers.at(0).stage, WFStoreStage::kWaiting);
      const WFStoreInfo info = store->list("a").timers.at(0);
      EXPECT_EQ(info.attempts, 1u);
    }
    store->handle("kind", runs.handler(*store, [](WFStoredTimer* timer) { timer->retry(); }),
                  handler);
    pass(minutes(1));
    ASSERT_EQ(runs.count(), 1u);
    EXPECT_EQ(runs.at(0).attempt, 2u);
    EXPECT_EQ(store->list_failed("").timers.size(), 1u);
  });
}

TEST_F(StoreTime, CancelAndRescheduleOfALostRunAreToldOfIt) {
  simulate([&] {
    const std::string url = fresh_url();
    WFStoreOptions options;
    options.lease = seconds(10);
    const StorePtr store = store_test::open_store(url, options);
    store->schedule({"a", seconds(0), "kind"});
    store->schedule({"b", seconds(0), "kind"});
    Faulty dying(url, options);
    dying->fail_next(FaultyBackend::Fault::kAfter);
    dying->fail_reopen(100);
    dying.store->handle("kind", [](WFStoredTimer* timer) { EXPECT_EQ(timer->name(), "b"); });
    pass(seconds(11));
    const WFStoreResult cancelled = store->cancel("a");
    EXPECT_EQ(cancelled.verdict(), WFStoreVerdict::kWonAfter);
    EXPECT_EQ(cancelled.answers[0].attempts, 1u);
    const WFStoreResult moved = store->reschedule("b", hours(1));
    EXPECT_EQ(moved.verdict(), WFStoreVerdict::kWonAfter);
    EXPECT_EQ(moved.answers[0].attempts, 1u);
    EXPECT_EQ(store->list("b").timers.at(0).attempts, 0u);
  });
}

// Limits -----------------------------------------------------------------------------------------

TEST_F(StoreTime, NoMoreRunsAtATimeThanAllowed) {
  simulate([&] {
    int running = 0;
    int most = 0;
    int begun = 0;
    const StorePtr store = store_test::open_store();
    for (int i = 0; i < 30; i++) {
      store->schedule({"overdue", seconds(0), "kind"});
    }
    for (int i = 0; i < 30; i++) {
      store->schedule({"fresh", seconds(10), "kind"});
    }
    pass(seconds(10));
    WFStoreHandlerOptions options;
    options.max_running = 8;
    store->handle(
        "kind",
        [&](WFStoredTimer* timer) {
          begun++;
          most = std::max(most, ++running);
          *series_of(timer) << WFTimer::create(milliseconds(100), [&](WFTimerTask*) { running--; });
        },
        options);
    pass(minutes(1));
    EXPECT_EQ(begun, 60);
    EXPECT_EQ(most, 8);
  });
}

TEST_F(StoreTime, ReplacedHandlersKeepTheirPlaces) {
  simulate([&] {
    int running = 0;
    int most = 0;
    std::vector<std::string> handlers;
    const StorePtr store = store_test::open_store();
    const auto handler = [&](const std::string& name) {
      return [&, name](WFStoredTimer* timer) {
        handlers.push_back(name);
        most = std::max(most, ++running);
        *series_of(timer) << WFTimer::create(seconds(10), [&](WFTimerTask*) { running--; });
      };
    };
    WFStoreHandlerOptions options;
    options.max_running = 2;
    store->handle("kind", handler("first"), options);
    for (int i = 0; i < 4; i++) {
      store->schedule({"a", seconds(0), "kind"});
    }
    pass(seconds(1));
    EXPECT_EQ(store->handle("kind", handler("second"), options), 0);
    pass(minutes(1));
    EXPECT_THAT(handlers, ElementsAre("first", "first", "second", "second"));
    EXPECT_EQ(most, 2);
    store->schedule({"a", seconds(0), "kind"});
    store->schedule({"a", seconds(0), "kind"});
    pass(minutes(1));
    EXPECT_EQ(handlers.size(), 6u);
    EXPECT_EQ(store->stats().running, 0u);
  });
}

TEST_F(StoreTime, OverdueTimersBeginAtTheirRateAndNewOnesInTime) {
  simulate([&] {
    SeenRuns overdue;
    SeenRuns fresh;
    WFStoreOptions options;
    options.catch_up_rate = 100;
    const StorePtr store = store_test::open_store(options);
    for (int i = 0; i < 300; i++) {
      store->schedule({"overdue " + std::to_string(i), milliseconds(i), "kind"});
    }
    pass(minutes(1));
    const Time start = now();
    WFStoreHandlerOptions handler;
    handler.max_running = 64;
    store->handle(
        "kind",
        [&](WFStoredTimer* timer) {
          (timer->name() == "fresh" ? fresh : overdue).handler (*store)(timer);
        },
        handler);
    for (int i = 0; i < 20; i++) {
      store->schedule({"fresh", milliseconds(7 + 50 * i), "kind"});
    }
    pass(seconds(1));
    EXPECT_LE(overdue.count(), 111u);
    EXPECT_GE(overdue.count(), 80u);
    EXPECT_EQ(fresh.count(), 20u);
    for (const SeenRun& run : fresh.all()) {
      EXPECT_EQ(run.began, run.due);
    }
    pass(seconds(5));
    ASSERT_EQ(overdue.count(), 300u);
    EXPECT_GE(overdue.all().back().began, start + milliseconds(2800));
    // In the order of their due times, as far as one claim goes.
    for (size_t i = 20; i < 300; i++) {
      EXPECT_GE(overdue.at(i).due, overdue.at(i - 20).due);
    }
  });
}

TEST_F(StoreTime, ANewTimerHasAPlaceBesideOverdueOnesThatLast) {
  simulate([&] {
    SeenRuns overdue;
    SeenRuns fresh;
    const StorePtr store = store_test::open_store();
    for (int i = 0; i < 100; i++) {
      store->schedule({"overdue", seconds(0), "kind"});
    }
    pass(minutes(1));
    WFStoreHandlerOptions handler;
    handler.max_running = 4;
    store->handle(
        "kind",
        [&](WFStoredTimer* timer) {
          if (timer->name() == "fresh") {
            fresh.handler (*store)(timer);
          } else {
            overdue.handler (*store)(timer);
            series_of(timer)->push_back(lasting(seconds(25)));
          }
        },
        handler);
    for (int i = 1; i <= 10; i++) {
      store->schedule({"fresh", seconds(i), "kind"});
    }
    pass(seconds(20));
    EXPECT_EQ(overdue.count(), 2u);
    ASSERT_EQ(fresh.count(), 10u);
    for (const SeenRun& run : fresh.all()) {
      EXPECT_EQ(run.began, run.due);
    }
  });
}

TEST_F(StoreTime, OverdueTimersBeginBesideFreshRunsThatLast) {
  simulate_store([&](SeenRuns& runs, WFTimerStore& store) {
    WFStoreHandlerOptions handler;
    handler.max_running = 4;
    store.handle(
        "kind",
        runs.handler(store,
                     [](WFStoredTimer* timer) { series_of(timer)->push_back(lasting(hours(1))); }),
        handler);
    store.schedule({"fresh", seconds(0), "kind"});
    store.schedule({"fresh", seconds(0), "kind"});
    pass(minutes(1));
    const Time then = now();
    for (int i = 0; i < 3; i++) {
      store.schedule({"overdue", then - seconds(10), "kind"});
    }
    pass(minutes(1));
    // They have half of the places, and the third one waits.
    EXPECT_THAT(runs.names(), ElementsAre("fresh", "fresh", "overdue", "overdue"));
    EXPECT_EQ(runs.at(2).began, then);
    EXPECT_EQ(runs.at(3).began, then);
    // A place of the other half is for a fresh one.
    pass(minutes(58) + seconds(30));
    EXPECT_EQ(store.stats().running, 2u);
    store.schedule({"fresh", seconds(0), "kind"});
    store.schedule({"fresh", seconds(0), "kind"});
    pass(seconds(1));
    EXPECT_EQ(runs.count(), 6u);
    EXPECT_EQ(runs.names().back(), "fresh");
    pass(hours(3));
    EXPECT_EQ(runs.count(), 7u);
  });
}

TEST_F(StoreTime, RetriesTakeNothingFromTheRateOfOverdueTimers) {
  simulate([&] {
    SeenRuns overdue;
    WFStoreOptions options;
    options.catch_up_rate = 1;
    const StorePtr store = store_test::open_store(options);
    store->handle("kind", [&](WFStoredTimer* timer) {
      if (timer->name() == "retried") {
        timer->retry_after(milliseconds(400));
      } else {
        overdue.handler (*store)(timer);
      }
    });
    store->schedule({"retried", seconds(0), "kind"});
    pass(milliseconds(3900));
    for (int i = 0; i < 3; i++) {
      store->schedule({"overdue", now() - seconds(10), "kind"});
    }
    pass(milliseconds(3500));
    EXPECT_EQ(overdue.count(), 3u);
    store->cancel("retried");
  });
}

}  // namespace

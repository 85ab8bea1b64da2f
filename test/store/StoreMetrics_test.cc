#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/PlaceOfTimers.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "workflow/WFTimerStore.h"

// What a store counts, wherever it keeps its timers.

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_test::open_store;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;
using testing::HasSubstr;

class StoreMetrics : public testing::TestWithParam<const char*> {
 protected:
  StorePtr open(const WFStoreOptions& options = {}) { return open_store(place_.url(), options); }

  // The values of a text for one store. A name has the label "how" behind a point.
  static std::map<std::string, double> values_of(const std::string& text) {
    std::map<std::string, double> values;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '#' || line.find(",le=") != std::string::npos) continue;
      std::string name = line.substr(0, line.find('{'));
      const size_t how = line.find("how=\"");
      if (how != std::string::npos) {
        name += '.' + line.substr(how + 5, line.find('"', how + 5) - how - 5);
      }
      values[name] = std::stod(line.substr(line.rfind(' ') + 1));
    }
    return values;
  }

 private:
  const store_test::PlaceOfTimers place_{GetParam()};
};

TEST_P(StoreMetrics, WhatIsCounted) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store, [](WFStoredTimer* timer) {
    if (timer->name().starts_with("fails")) {
      timer->give_up("told to");
    } else if (timer->attempt() == 1 && timer->name() == "retried") {
      timer->retry_after(seconds(0));
    }
  }));
  for (const char* name : {"runs", "fails", "fails too", "retried"}) {
    store->schedule({name, seconds(0), "kind"});
  }
  store->schedule({"moved", hours(1), "kind"});
  store->reschedule("moved", hours(2));
  store->cancel("moved");
  store->cancel("nobody");
  store->schedule({"unhandled", std::chrono::system_clock::from_time_t(1), "other"});
  ASSERT_TRUE(runs.wait_for(5));
  EXPECT_TRUE(eventually([&] {
    const WFTimerStoreStats stats = store->stats();
    return stats.acknowledged == 2 && stats.unhandled == 1 && stats.stored == 3 &&
           stats.failed_timers == 2;
  }));
  const WFTimerStoreStats stats = store->stats();
  EXPECT_EQ(stats.overdue, 1u);
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.scheduled, 6u);
  EXPECT_EQ(stats.cancelled, 1u);
  EXPECT_EQ(stats.rescheduled, 1u);
  EXPECT_EQ(stats.begun, 5u);
  EXPECT_EQ(stats.retried, 1u);
  EXPECT_EQ(stats.failed, 2u);
  EXPECT_EQ(stats.missed, 0u);
  EXPECT_EQ(stats.lost, 0u);
  EXPECT_EQ(stats.errors, 0u);
  EXPECT_EQ(stats.lateness.count, 4u);  // without the retry
  // Each request of this thread was a group of its own, and took at least as long as its group.
  EXPECT_GE(stats.group.count, 9u);
  EXPECT_GT(stats.group.max.count(), 0);
  EXPECT_GE(stats.group.sum, stats.group.max);
  // All of these requests have changed something: that they were answered.
  const std::string place = GetParam();
  const bool commits = place == "Sqlite" || place == "Owned";
  const std::pair<const WFTimerStats::Lateness*, bool> times[] = {
      {&stats.commit, commits}, {&stats.round_trip, place == "Redis"}};
  for (const auto& [time, is_counted] : times) {
    EXPECT_EQ(time->count >= 9, is_counted);
    EXPECT_EQ(time->count > 0, is_counted);
    EXPECT_EQ(time->max.count() > 0, is_counted);
  }
  EXPECT_EQ(stats.request.count, 9u);
  EXPECT_GT(stats.request.max.count(), 0);
  EXPECT_GE(stats.request.sum, stats.request.max);
}

TEST_P(StoreMetrics, DueTimersAreCountedUntilTheyAreTaken) {
  const StorePtr store = open();
  for (const char* name : {"a", "b", "c"}) {
    store->schedule({name, seconds(0), "kind"});
  }
  store->schedule({"later", hours(1), "kind"});
  EXPECT_TRUE(eventually([&] { return store->stats().due == 3; }));
  EXPECT_TRUE(eventually([&] { return store->stats().overdue == 3; }));
  EXPECT_EQ(store->stats().due, 3u);
  EXPECT_EQ(store->stats().leased, 0u);
  store->cancel("a");
  EXPECT_TRUE(eventually([&] { return store->stats().due == 2; }));
  store->handle("kind", [](WFStoredTimer*) {});
  EXPECT_TRUE(eventually([&] { return store->stats().stored == 1; }));
  EXPECT_EQ(store->stats().due, 0u);
  EXPECT_EQ(store->stats().overdue, 0u);
}

// Each process sees what all of them have leased. An owned file is open in one at a time.
TEST_P(StoreMetrics, LeasedTimersAreThoseOfAllProcesses) {
  SeenRuns runs;
  store_test::Gate gate;
  WFStoreOptions options;
  options.lease = hours(1);  // it does not end by itself
  const StorePtr worker = open(options);
  const StorePtr other = GetParam() == std::string("Owned") ? nullptr : open();
  worker->handle("kind", gate.handler(runs, *worker));
  for (const char* name : {"a", "b"}) {
    worker->schedule({name, seconds(0), "kind"});
  }
  ASSERT_TRUE(runs.wait_for(2));
  const auto all_see = [&](uint64_t leased) {
    return eventually([&] {
      return worker->stats().leased == leased && (!other || other->stats().leased == leased);
    });
  };
  EXPECT_TRUE(all_see(2));
  EXPECT_EQ(worker->stats().running, 2u);
  EXPECT_EQ(worker->stats().due, 0u);
  EXPECT_EQ((other ? other : worker)->stats().running, other ? 0u : 2u);
  gate.open();
  EXPECT_TRUE(all_see(0));
  EXPECT_EQ(worker->stats().running, 0u);
}

TEST_P(StoreMetrics, FailedTimersAreCountedUntilTheyAreRetriedOrRemoved) {
  std::atomic<bool> fails{true};
  const StorePtr store = open();
  store->handle("kind", [&fails](WFStoredTimer* timer) {
    if (fails) {
      timer->give_up("told to");
    }
  });
  const auto counts = [&store](uint64_t failed_timers, uint64_t stored) {
    return eventually([&] {
      const WFTimerStoreStats stats = store->stats();
      return stats.failed_timers == failed_timers && stats.stored == stored;
    });
  };
  for (const char* name : {"a", "b", "c"}) {
    store->schedule({name, seconds(0), "kind"});
  }
  EXPECT_TRUE(counts(3, 3));
  fails = false;
  EXPECT_EQ(store->remove_failed("a").count, 1u);
  EXPECT_EQ(store->retry_failed("b").count, 1u);
  EXPECT_TRUE(counts(1, 1));
}

// Counts that could be taken for each other are different numbers, as far as that is possible: what
// runs here is leased, and it is the only process.
TEST_P(StoreMetrics, EachCountIsInTheTextUnderItsName) {
  SeenRuns runs;
  store_test::Gate gate;
  WFStoreOptions options;
  options.lease = hours(1);  // it does not end by itself
  const StorePtr store = open(options);
  store->handle("ends", [](WFStoredTimer*) {});
  store->handle("retries", [](WFStoredTimer* timer) {
    if (timer->attempt() == 1) {
      timer->retry_after(seconds(0));
    }
  });
  store->handle("fails", [](WFStoredTimer* timer) { timer->give_up("told to"); });
  WFStoreHandlerOptions seven;
  seven.max_running = 7;
  store->handle("waits", gate.handler(runs, *store), seven);
  WFStoreTimer late{"late", std::chrono::system_clock::now() - hours(1), "ends"};
  late.skip_if_later = std::chrono::minutes(1);
  ASSERT_TRUE(store->schedule(late).ok());
  const std::pair<const char*, int> kinds[] = {
      {"ends", 2}, {"retries", 3}, {"fails", 4}, {"waits", 9}, {"has no handler", 6}};
  for (const auto& [kind, n] : kinds) {
    for (int i = 0; i < n; i++) {
      ASSERT_TRUE(store->schedule({kind + std::to_string(i), seconds(0), kind}).ok());
    }
  }
  for (int i = 0; i < 8; i++) {
    ASSERT_TRUE(store->schedule({"to be cancelled", hours(1), "ends"}).ok());
  }
  ASSERT_TRUE(store->schedule({"to be moved", hours(1), "ends"}).ok());
  for (int i = 0; i < 9; i++) {
    ASSERT_TRUE(store->reschedule("to be moved", hours(2)).ok());
  }
  EXPECT_EQ(store->cancel("to be cancelled").answers.size(), 8u);
  EXPECT_TRUE(eventually([&store] { return store->stats().failed_timers == 4; }));
  EXPECT_EQ(store->remove_failed("fails0").count, 1u);

  // Those that wait, have failed, have no handler or run.
  const std::map<std::string, double> expected = {
      {"_timers", 1 + 3 + 6 + 9},
      {"_failed_timers", 3},
      {"_due", 6 + 2},
      {"_unhandled", 6},
      {"_leased", 7},
      {"_running", 7},
      {"_scheduled_total", 1 + 2 + 3 + 4 + 9 + 6 + 8 + 1},
      {"_cancelled_total", 8},
      {"_rescheduled_total", 9},
      {"_begun_total", 2 + 3 * 2 + 4 + 7},
      {"_ended_total.acknowledged", 2 + 3},
      {"_ended_total.retried", 3},
      {"_ended_total.failed", 4},
      {"_ended_total.missed", 1},
      {"_ended_total.lost", 0},
      {"_ended_total.in_doubt", 0},
      {"_errors_total", 0}};
  std::map<std::string, double> values;
  const bool are_there = eventually([&] {
    values = values_of(store->to_prometheus("s", ""));
    return std::all_of(expected.begin(), expected.end(), [&](const auto& each) {
      return values.count(each.first) == 1 && values.at(each.first) == each.second;
    });
  });
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(values[name], value) << name;
  }
  EXPECT_TRUE(are_there);
  const std::string place = GetParam();
  EXPECT_EQ(values.at("_commit_seconds_count") > 0, place == "Sqlite" || place == "Owned");
  EXPECT_EQ(values.at("_round_trip_seconds_count") > 0, place == "Redis");
  // One for each schedule, the nine moves, the cancel and the removal.
  EXPECT_EQ(values.at("_request_seconds_count"), 34 + 9 + 1 + 1);
  gate.open();
}

TEST_P(StoreMetrics, TheTextForPrometheus) {
  SeenRuns runs;
  const StorePtr store = open();
  store->handle("kind", runs.handler(*store));
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  ASSERT_TRUE(eventually([&] { return store->stats().acknowledged == 1; }));
  std::istringstream text(store->to_prometheus("a \"name\"\\\n", "prefix"));
  std::map<std::string, double> values;
  std::map<std::string, std::string> types;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string first, second, third, fourth;
    if (line[0] == '#') {
      words >> first >> second >> third >> fourth;
      EXPECT_EQ(first, "#");
      EXPECT_FALSE(fourth.empty()) << line;
      if (second == "TYPE") {
        EXPECT_TRUE(types.emplace(third, fourth).second) << "twice: " << third;
      } else {
        EXPECT_EQ(second, "HELP");
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    const std::string series = line.substr(0, space);
    EXPECT_THAT(series, HasSubstr("store=\"a \\\"name\\\"\\\\\\n\""));
    EXPECT_EQ(series.rfind("prefix_", 0), 0u) << line;
    EXPECT_EQ(series.back(), '}');
    EXPECT_TRUE(values.emplace(series, std::stod(line.substr(space + 1))).second) << line;
  }
  const std::string label = "{store=\"a \\\"name\\\"\\\\\\n\"";
  EXPECT_EQ(values.at("prefix_scheduled_total" + label + "}"), 1);
  EXPECT_EQ(values.at("prefix_begun_total" + label + "}"), 1);
  EXPECT_EQ(values.at("prefix_ended_total" + label + ",how=\"acknowledged\"}"), 1);
  EXPECT_EQ(values.at("prefix_ended_total" + label + ",how=\"lost\"}"), 0);
  EXPECT_EQ(values.at("prefix_lateness_seconds_count" + label + "}"), 1);
  EXPECT_EQ(values.at("prefix_lateness_seconds_bucket" + label + ",le=\"+Inf\"}"), 1);
  EXPECT_EQ(values.at("prefix_errors_total" + label + "}"), 0);
  EXPECT_EQ(types.at("prefix_timers"), "gauge");
  EXPECT_EQ(types.at("prefix_failed_timers"), "gauge");
  EXPECT_EQ(values.at("prefix_failed_timers" + label + "}"), 0);
  EXPECT_EQ(types.at("prefix_errors_total"), "counter");
  EXPECT_EQ(types.at("prefix_ended_total"), "counter");
  EXPECT_EQ(types.at("prefix_lateness_seconds"), "histogram");
  for (const char* const times :
       {"prefix_group_seconds", "prefix_commit_seconds", "prefix_round_trip_seconds"}) {
    EXPECT_EQ(types.at(times), "histogram");
  }
  for (const char* const gauge :
       {"prefix_due", "prefix_overdue", "prefix_unhandled", "prefix_leased", "prefix_running"}) {
    EXPECT_EQ(types.at(gauge), "gauge");
    EXPECT_EQ(values.count(gauge + label + "}"), 1u);
  }
  EXPECT_EQ(values.at("prefix_ended_total" + label + ",how=\"in_doubt\"}"), 0);
  EXPECT_EQ(types.at("prefix_request_seconds"), "histogram");
  EXPECT_EQ(values.at("prefix_request_seconds_count" + label + "}"), 1);
}

// A page with several stores has the head of each metric once, and below it a line for each store.
TEST_P(StoreMetrics, SeveralStoresAreOneText) {
  const StorePtr store = open();
  const StorePtr other = open_store("memory:other");
  store->schedule({"a", hours(1), "kind"});
  const std::string text =
      WFTimerStore::to_prometheus({{"one", store.get()}, {"two", other.get()}}, "p");
  EXPECT_THAT(text, HasSubstr("# TYPE p_scheduled_total counter\n"
                              "p_scheduled_total{store=\"one\"} 1\n"
                              "p_scheduled_total{store=\"two\"} 0\n"));
  std::set<std::string> heads;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') {
      EXPECT_TRUE(heads.insert(line).second) << "twice: " << line;
      family = line.substr(7, line.find(' ', 7) - 7);
    } else {
      EXPECT_EQ(line.rfind(family, 0), 0u) << line;  // with the others of its metric
    }
  }
  const std::vector<std::pair<std::string, const WFTimerStore*>> none;
  EXPECT_EQ(WFTimerStore::to_prometheus(none, "p"), "");
}

INSTANTIATE_TEST_SUITE_P(Each, StoreMetrics, testing::Values("Memory", "Sqlite", "Owned", "Redis"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

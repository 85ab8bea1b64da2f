#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "StoreKit.h"
#include "support/Eventually.h"
#include "workflow/WFTimerStore.h"

// What a store answers to requests, and that its timers run. Everything about time that must be
// exact is in StoreTime_test.cc.

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using store_test::fresh_url;
using store_test::Gate;
using store_test::open_store;
using store_test::SeenRun;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<WFStoreVerdict> verdicts(const WFStoreResult& result) {
  std::vector<WFStoreVerdict> all;
  for (const WFStoreAnswer& answer : result.answers) {
    all.push_back(answer.verdict);
  }
  return all;
}

std::vector<std::string> names_in(const WFStoreResult& result) {
  std::vector<std::string> all;
  for (const WFStoreInfo& info : result.timers) {
    all.push_back(info.name);
  }
  return all;
}

std::vector<uint64_t> numbers(const WFStoreResult& result) {
  std::vector<uint64_t> all;
  for (const WFStoreInfo& info : result.timers) {
    all.push_back(info.timer);
  }
  return all;
}

bool gone(WFTimerStore& store, const std::string& name) {
  return eventually([&] { return store.count(name).count == 0; });
}

// Runs -------------------------------------------------------------------------------------------

TEST(TimerStore, AHandlerSeesWhatWasStored) {
  SeenRuns runs;
  const StorePtr store = open_store();
  store->handle("remind", runs.handler(*store));
  const auto before = store->now();
  const WFStoreResult stored =
      store->schedule({"remind/42", milliseconds(20), "remind", std::string("pay\0load", 8)});
  EXPECT_TRUE(stored.ok());
  ASSERT_TRUE(runs.wait_for(1));
  const SeenRun run = runs.at(0);
  EXPECT_EQ(run.name, "remind/42");
  EXPECT_EQ(run.kind, "remind");
  EXPECT_EQ(run.payload, std::string("pay\0load", 8));
  EXPECT_EQ(run.timer, stored.timer);
  EXPECT_EQ(run.attempt, 1u);
  EXPECT_GT(run.fence, 0u);
  EXPECT_GE(run.due, before + milliseconds(20));
  EXPECT_GE(run.began, run.due);
  EXPECT_GE(run.lateness, microseconds(0));
  EXPECT_LE(run.lateness, run.began - run.due);
}

TEST(TimerStore, ATimerWithoutANameOrPayloadIsATimer) {
  SeenRuns runs;
  const StorePtr store = open_store();
  store->handle("kind", runs.handler(*store));
  EXPECT_TRUE(store->schedule({"", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).payload, "");
}

TEST(TimerStore, ADateInThePastIsDueAtOnce) {
  SeenRuns runs;
  const StorePtr store = open_store();
  WFStoreHandlerOptions one_at_a_time;
  one_at_a_time.max_running = 1;
  EXPECT_TRUE(store->schedule({"a", system_clock::from_time_t(1), "kind"}).ok());
  EXPECT_TRUE(store->schedule({"b", system_clock::from_time_t(-1000), "kind"}).ok());
  store->handle("kind", runs.handler(*store), one_at_a_time);
  ASSERT_TRUE(runs.wait_for(2));
  EXPECT_EQ(runs.at(0).name, "b");
  EXPECT_EQ(runs.at(0).due, system_clock::from_time_t(0));
  EXPECT_EQ(runs.at(1).due, system_clock::from_time_t(1));
}

TEST(TimerStore, ANegativeDelayMeansNever) {
  const StorePtr store = open_store();
  EXPECT_TRUE(store->schedule({"a", seconds(-1), "kind"}).ok());
  EXPECT_TRUE(store->schedule({"b", hours::max(), "kind"}).ok());
  const WFStoreResult listed = store->list("");
  ASSERT_EQ(listed.timers.size(), 2u);
  EXPECT_EQ(listed.timers[0].due, system_clock::time_point::max());
  EXPECT_EQ(listed.timers[1].due, system_clock::time_point::max());
}

TEST(TimerStore, DeadlinesOfOtherClocksAreDueThen) {
  SeenRuns runs;
  const StorePtr store = open_store();
  store->handle("kind", runs.handler(*store));
  const auto before = store->now();
  store->schedule({"steady", WFTimer::steady_now() + milliseconds(30), "kind"});
  store->schedule({"boot", WFBootClock::now() + milliseconds(30), "kind"});
  store->schedule({"wall", WFTimer::wall_now() + milliseconds(30), "kind"});
  ASSERT_TRUE(runs.wait_for(3));
  for (const SeenRun& run : runs.all()) {
    EXPECT_GE(run.due, before + milliseconds(29)) << run.name;
    EXPECT_LE(run.due, run.began) << run.name;
  }
}

TEST(TimerStore, ARunIsAcknowledgedWhenItsSeriesHasEnded) {
  SeenRuns runs;
  Gate gate;
  WFStoreOptions options;
  options.owner = "this one";
  const StorePtr store = open_store(options);
  store->handle("kind", gate.handler(runs, *store));
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  const WFStoreResult listed = store->list("");
  ASSERT_EQ(listed.timers.size(), 1u);
  EXPECT_EQ(listed.timers[0].stage, WFStoreStage::kRunning);
  EXPECT_EQ(listed.timers[0].owner, "this one");
  EXPECT_EQ(listed.timers[0].attempts, 1u);
  EXPECT_EQ(store->stats().running, 1u);
  gate.open();
  EXPECT_TRUE(gone(*store, "a"));
  EXPECT_EQ(runs.count(), 1u);
  const WFStoreResult cancelled = store->cancel("a");
  EXPECT_THAT(verdicts(cancelled), ElementsAre(WFStoreVerdict::kDone));
  EXPECT_EQ(cancelled.answers[0].outcome, WFStoreOutcome::kDone);
  EXPECT_GE(cancelled.answers[0].when, runs.at(0).began);
  EXPECT_TRUE(eventually([&] { return store->stats().running == 0; }));
}

TEST(TimerStore, TasksOfTheSeriesRunBeforeTheEndOfTheRun) {
  SeenRuns runs;
  std::atomic<int> ran{0};
  const StorePtr store = open_store();
  store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
    for (int i = 0; i < 3; i++) {
      *series_of(timer) << WFTaskFactory::create_go_task("queue", [&ran] { ran++; });
    }
  }));
  store->schedule({"a", seconds(0), "kind"});
  EXPECT_TRUE(gone(*store, "a"));
  EXPECT_EQ(ran, 3);
}

// Schedule ---------------------------------------------------------------------------------------

TEST(TimerStore, AScheduleHasAReceiptANumberAndAnId) {
  const StorePtr store = open_store();
  const WFStoreResult first = store->schedule({"a", hours(1), "kind"});
  const WFStoreResult second = store->schedule({"a", hours(1), "kind"});
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(first.message.empty());
  EXPECT_TRUE(first.answers.empty());
  EXPECT_EQ(first.receipt.to_string(), "memory");
  EXPECT_GT(first.timer, 0u);
  EXPECT_GT(second.timer, first.timer);
  EXPECT_NE(first.request.session, 0u);
  EXPECT_NE(first.request.number, 0u);
  EXPECT_EQ(second.request.session, first.request.session);
  EXPECT_NE(second.request, first.request);
}

TEST(TimerStore, KeepStoresOnlyTheFirst) {
  const StorePtr store = open_store();
  WFStoreTimer timer = {"a", hours(1), "kind", "first", WF_TIMER_KEEP};
  EXPECT_TRUE(store->schedule(timer).ok());
  timer.payload = "second";
  const WFStoreResult refused = store->schedule(timer);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(refused.error, EEXIST);
  EXPECT_EQ(refused.timer, 0u);
  EXPECT_FALSE(refused.message.empty());
  EXPECT_EQ(store->list("a").timers.at(0).payload, "first");
  store->cancel("a");
  EXPECT_TRUE(store->schedule(timer).ok());
}

TEST(TimerStore, ReplaceEndsThoseThatWait) {
  const StorePtr store = open_store();
  store->schedule({"a", hours(1), "kind", "1"});
  store->schedule({"a", hours(1), "kind", "2"});
  const WFStoreResult replaced = store->schedule({"a", hours(1), "kind", "3", WF_TIMER_REPLACE});
  EXPECT_THAT(verdicts(replaced), ElementsAre(WFStoreVerdict::kWon, WFStoreVerdict::kWon));
  const WFStoreResult listed = store->list("a");
  EXPECT_THAT(numbers(listed), ElementsAre(replaced.timer));
  EXPECT_EQ(listed.timers[0].payload, "3");
}

TEST(TimerStore, TwoRequestsOfOneIdAreOne) {
  const StorePtr store = open_store();
  WFStoreTimer timer = {"a", hours(1), "kind"};
  timer.request = WFStoreRequestId{12345, 1};
  const WFStoreResult first = store->schedule(timer);
  const WFStoreResult second = store->schedule(timer);
  EXPECT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second.timer, first.timer);
  EXPECT_EQ(second.request, *timer.request);
  EXPECT_EQ(store->count("a").count, 1u);
}

// Cancel -----------------------------------------------------------------------------------------

TEST(TimerStore, ACancelledTimerNeverRuns) {
  SeenRuns runs;
  const StorePtr store = open_store();
  store->schedule({"a", milliseconds(50), "kind"});
  store->schedule({"b", milliseconds(60), "kind"});
  const WFStoreResult cancelled = store->cancel("a");
  EXPECT_THAT(verdicts(cancelled), ElementsAre(WFStoreVerdict::kWon));
  EXPECT_GT(cancelled.answers[0].timer, 0u);
  EXPECT_EQ(cancelled.answers[0].attempts, 0u);
  EXPECT_EQ(cancelled.receipt.to_string(), "memory");
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_THAT(runs.names(), ElementsAre("b"));
}

TEST(TimerStore, ACancelledRunIsToldAndGoesOn) {
  SeenRuns runs;
  Gate gate;
  std::atomic<bool> cancelled_at_the_end{false};
  const StorePtr store = open_store();
  store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
    EXPECT_FALSE(timer->cancelled());
    EXPECT_GT(timer->lease_left(), seconds(1));
    EXPECT_EQ(WFScope::current(), timer->scope());
    timer->retry_after(seconds(0));  // does not follow after a cancel
    *series_of(timer) << gate.wait()
                      << WFTaskFactory::create_timer_task(0, 0, [&, timer](WFTimerTask*) {
                           cancelled_at_the_end =
                               timer->cancelled() && timer->scope().error() == ECANCELED;
                         });
  }));
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  const WFStoreResult cancelled = store->cancel("a");
  ASSERT_THAT(verdicts(cancelled), ElementsAre(WFStoreVerdict::kRunning));
  EXPECT_EQ(cancelled.answers[0].fence, runs.at(0).fence);
  EXPECT_EQ(cancelled.answers[0].timer, runs.at(0).timer);
  EXPECT_EQ(cancelled.answers[0].attempts, 1u);
  EXPECT_FALSE(cancelled.answers[0].owner.empty());
  EXPECT_GT(cancelled.answers[0].lease_left, microseconds(0));
  EXPECT_LE(cancelled.answers[0].lease_left, seconds(30));
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_THAT(gate.errors(), ElementsAre(ECANCELED));
  EXPECT_TRUE(gone(*store, "a"));
  EXPECT_TRUE(cancelled_at_the_end);
  EXPECT_EQ(runs.count(), 1u);
  gate.open();
}

// Reschedule -------------------------------------------------------------------------------------

TEST(TimerStore, ARescheduleMovesWhatWaits) {
  SeenRuns runs;
  const StorePtr store = open_store();
  store->handle("kind", runs.handler(*store));
  store->schedule({"a", hours(1), "kind"});
  store->schedule({"b", hours(1), "kind"});
  EXPECT_EQ(store->reschedule("b", hours(2)).answers.size(), 1u);
  const WFStoreResult moved = store->reschedule("a", seconds(0));
  EXPECT_EQ(moved.verdict(), WFStoreVerdict::kWon);
  EXPECT_EQ(moved.receipt.to_string(), "memory");
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).name, "a");
  EXPECT_EQ(runs.at(0).attempt, 1u);
}

TEST(TimerStore, TheOldestAreMovedFirst) {
  const StorePtr store = open_store();
  std::vector<uint64_t> stored;
  for (int i = 0; i < 3; i++) {
    stored.push_back(store->schedule({"a", hours(1), "kind"}).timer);
  }
  const auto date = std::chrono::floor<seconds>(store->now()) + hours(100);
  EXPECT_EQ(store->reschedule("a", date, 2).answers.size(), 2u);
  const WFStoreResult listed = store->list("a");
  ASSERT_EQ(listed.timers.size(), 3u);
  EXPECT_EQ(listed.timers[0].due, date);
  EXPECT_EQ(listed.timers[1].due, date);
  EXPECT_LT(listed.timers[2].due, date);
}

TEST(TimerStore, ARescheduleOfARunHasOneSuccessor) {
  SeenRuns runs;
  Gate gate;
  const StorePtr store = open_store();
  store->handle("kind", gate.handler(runs, *store));
  store->schedule({"a", seconds(0), "kind", "payload"});
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(store->reschedule("a", hours(1)).verdict(), WFStoreVerdict::kAfterRun);
  const WFStoreResult again = store->reschedule("a", seconds(0));
  EXPECT_THAT(verdicts(again), ElementsAre(WFStoreVerdict::kAfterRun));
  EXPECT_EQ(again.answers[0].timer, runs.at(0).timer);
  EXPECT_EQ(store->count("a").count, 2u);
  gate.open();
  ASSERT_TRUE(runs.wait_for(2));
  EXPECT_TRUE(gone(*store, "a"));
  EXPECT_EQ(runs.at(1).payload, "payload");
  EXPECT_EQ(runs.at(1).attempt, 1u);
  EXPECT_NE(runs.at(1).timer, runs.at(0).timer);
  EXPECT_GT(runs.at(1).fence, runs.at(0).fence);
  EXPECT_EQ(runs.count(), 2u);
}

// Ask --------------------------------------------------------------------------------------------

TEST(TimerStore, AskGivesTheAnswerAgain) {
  const StorePtr store = open_store();
  const WFStoreResult stored = store->schedule({"a", hours(1), "kind"});
  const WFStoreResult moved = store->reschedule("a", hours(2));
  const WFStoreResult cancelled = store->cancel("a");
  const WFStoreResult cancelled_twice = store->cancel("a");

  const WFStoreResult asked = store->ask(stored.request);
  EXPECT_TRUE(asked.ok());
  EXPECT_EQ(asked.timer, stored.timer);
  EXPECT_EQ(asked.receipt.to_string(), "memory");
  EXPECT_EQ(store->ask(moved.request).verdict(), WFStoreVerdict::kWon);
  EXPECT_EQ(store->ask(cancelled.request).verdict(), WFStoreVerdict::kWon);
  EXPECT_EQ(store->ask(cancelled.request).answers.at(0).timer, stored.timer);
  EXPECT_EQ(store->ask(cancelled_twice.request).verdict(), WFStoreVerdict::kDone);
}

TEST(TimerStore, AskedAnotherStoreOfTheSameTimers) {
  const std::string url = fresh_url();
  const StorePtr one = open_store(url);
  const StorePtr other = open_store(url);
  const WFStoreResult stored = one->schedule({"a", hours(1), "kind"});
  EXPECT_EQ(other->ask(stored.request).timer, stored.timer);
}

TEST(TimerStore, AskUsesUpAnIdThatWasNotSeen) {
  const StorePtr store = open_store();
  WFStoreTask* const task = store->create_schedule_task({"a", hours(1), "kind"}, nullptr);
  const WFStoreRequestId id = task->request_id();
  const WFStoreResult asked = store->ask(id);
  EXPECT_TRUE(asked.ok());
  EXPECT_EQ(asked.verdict(), WFStoreVerdict::kUnknown);
  EXPECT_EQ(asked.timer, 0u);
  EXPECT_EQ(store->ask(id).verdict(), WFStoreVerdict::kUnknown);

  test_support::Tally ended;
  task->set_callback([&ended](WFStoreTask* done) {
    EXPECT_EQ(done->get_state(), WFT_STATE_SYS_ERROR);
    EXPECT_EQ(done->get_error(), ECANCELED);
    ended.add();
  });
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(store->count("").count, 0u);
}

TEST(TimerStore, AskIsToldWhatMayBeForgotten) {
  WFStoreOptions options;
  options.remembered = 2;
  const StorePtr store = open_store(options);
  const WFStoreResult first = store->schedule({"a", hours(1), "kind"});
  const WFStoreResult second = store->schedule({"a", hours(1), "kind"});
  store->cancel("a");
  EXPECT_EQ(store->ask(second.request).timer, second.timer);
  const WFStoreResult asked = store->ask(first.request);
  EXPECT_EQ(asked.error, ENODATA);
  EXPECT_FALSE(asked.message.empty());
}

// List and count ---------------------------------------------------------------------------------

TEST(TimerStore, AListIsInTheOrderOfNamesAndNumbers) {
  const StorePtr store = open_store();
  for (const char* name : {"b", "a", "ab", "b", "c", "a"}) {
    store->schedule({name, hours(1), "kind", "of " + std::string(name)});
  }
  EXPECT_THAT(names_in(store->list("")), ElementsAre("a", "a", "ab", "b", "b", "c"));
  EXPECT_THAT(names_in(store->list("a")), ElementsAre("a", "a", "ab"));
  EXPECT_THAT(names_in(store->list("b")), ElementsAre("b", "b"));
  EXPECT_THAT(names_in(store->list("d")), ElementsAre());
  EXPECT_EQ(store->count("").count, 6u);
  EXPECT_EQ(store->count("a").count, 3u);
  EXPECT_EQ(store->count("d").count, 0u);
  const WFStoreInfo last = store->list("c").timers.at(0);
  EXPECT_EQ(last.kind, "kind");
  EXPECT_EQ(last.payload, "of c");
  EXPECT_EQ(last.stage, WFStoreStage::kWaiting);
  EXPECT_EQ(last.attempts, 0u);
  EXPECT_TRUE(last.owner.empty());
  EXPECT_TRUE(last.reason.empty());
  EXPECT_GT(last.due, store->now() + seconds(3000));
}

TEST(TimerStore, ACursorGoesOnWhereTheListStopped) {
  const StorePtr store = open_store();
  const std::vector<std::string> stored = {"", "a", "a", "a", "a:1", "a\n\x01", "b", "b"};
  for (const std::string& name : stored) {
    store->schedule({name, hours(1), "kind"});
  }
  for (size_t page = 1; page <= stored.size() + 1; page++) {
    for (const char* prefix : {"", "a", "b"}) {
      const std::vector<uint64_t> all = numbers(store->list(prefix));
      std::vector<uint64_t> in_pages;
      std::string cursor;
      do {
        const WFStoreResult listed = store->list(prefix, cursor, page);
        ASSERT_TRUE(listed.ok());
        EXPECT_LE(listed.timers.size(), page);
        for (const uint64_t timer : numbers(listed)) {
          in_pages.push_back(timer);
        }
        cursor = listed.cursor;
      } while (!cursor.empty());
      EXPECT_EQ(in_pages, all) << "pages of " << page << " of \"" << prefix << "\"";
    }
  }
}

TEST(TimerStore, ACursorStaysValidWhenItsTimerIsGone) {
  const StorePtr store = open_store();
  for (const char* name : {"a", "b", "c"}) {
    store->schedule({name, hours(1), "kind"});
  }
  const WFStoreResult first = store->list("", "", 2);
  store->cancel("b");
  EXPECT_THAT(names_in(store->list("", first.cursor, 2)), ElementsAre("c"));
}

// Wrong arguments --------------------------------------------------------------------------------

TEST(TimerStore, WhatIsTooLongIsRefused) {
  const StorePtr store = open_store();
  const auto refused = [](const WFStoreResult& result, const std::string& message) {
    EXPECT_EQ(result.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(result.error, EMSGSIZE);
    EXPECT_EQ(result.message, message);
  };
  const std::string longest_name(1024, 'n');
  const std::string longest_kind(255, 'k');
  const std::string longest_payload(64 * 1024, 'p');
  EXPECT_TRUE(store->schedule({longest_name, hours(1), longest_kind, longest_payload}).ok());
  EXPECT_EQ(store->list("").timers.at(0).payload, longest_payload);
  const std::string name_message = "the name has 1025 bytes; at most 1024 are allowed";
  const std::string prefix_message = "the prefix has 1025 bytes; at most 1024 are allowed";
  const std::string name = longest_name + "n";
  refused(store->schedule({name, hours(1), "kind"}), name_message);
  refused(store->schedule({"a", hours(1), longest_kind + "k"}),
          "the kind has 256 bytes; at most 255 are allowed");
  refused(store->schedule({"a", hours(1), "kind", longest_payload + "p"}),
          "the payload has 65537 bytes; at most 65536 are allowed");
  refused(store->cancel(name), name_message);
  refused(store->reschedule(name, hours(1)), name_message);
  refused(store->count(name), prefix_message);
  refused(store->list(name), prefix_message);
  refused(store->list_failed(name), prefix_message);
  refused(store->retry_failed(name), name_message);
  refused(store->remove_failed(name), name_message);
  EXPECT_EQ(store->count("").count, 1u);
}

TEST(TimerStore, WrongArgumentsAreNamed) {
  const StorePtr store = open_store();
  const auto refused = [](const WFStoreResult& result, const std::string& message) {
    EXPECT_EQ(result.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(result.error, EINVAL);
    EXPECT_EQ(result.message, message);
  };
  refused(store->schedule({"a", hours(1), ""}), "the kind is empty");
  refused(store->schedule({"a", WFStoreDue::every(microseconds(999)), "kind"}),
          "the period is shorter than a millisecond");
  refused(store->schedule({"a", WFStoreDue::every(seconds(0)), "kind"}),
          "the period is shorter than a millisecond");
  refused(store->schedule({"a", WFStoreDue::every(seconds(-1)), "kind"}),
          "the period is shorter than a millisecond");
  refused(store->schedule({"a", *WFCron::parse("0 0 30 2 *"), "kind"}),
          "the cron expression is never due");
  refused(store->reschedule("a", WFStoreDue::every(microseconds(1))),
          "the period is shorter than a millisecond");
  WFStoreTimer timer = {"a", hours(1), "kind", "", static_cast<WFTimerPolicy>(3)};
  refused(store->schedule(timer),
          "the policy is none of WF_TIMER_APPEND, WF_TIMER_REPLACE, WF_TIMER_KEEP");
  timer.policy = WF_TIMER_APPEND;
  for (const WFStoreRequestId id :
       {WFStoreRequestId{1, 0}, WFStoreRequestId{1, UINT64_MAX}, WFStoreRequestId{UINT64_MAX, 1}}) {
    timer.request = id;
    refused(store->schedule(timer), "the request id is out of range");
    refused(store->ask(id), "the request id is out of range");
  }
  for (const char* cursor : {"1", ":", "x:a", "-1:a", "1a:b", "99999999999999999999:a"}) {
    refused(store->list("", cursor),
            "the cursor is not one of a list: \"" + std::string(cursor) + "\"");
    refused(store->list_failed("", cursor),
            "the cursor is not one of a list: \"" + std::string(cursor) + "\"");
  }
  refused(store->list("", "\n"), "the cursor is not one of a list: \"\\x0a\"");
  EXPECT_EQ(store->count("").count, 0u);
  EXPECT_TRUE(store->schedule({"a", WFStoreDue::every(milliseconds(1), hours(1)), "kind"}).ok());
}

TEST(TimerStore, WrongHandlersAreRefused) {
  const StorePtr store = open_store();
  const auto refused = [&](const std::string& kind, const WFTimerStore::Handler& handler,
                           size_t max_running) {
    WFStoreHandlerOptions options;
    options.max_running = max_running;
    errno = 0;
    return store->handle(kind, handler, options) == -1 ? errno : 0;
  };
  const auto handler = [](WFStoredTimer*) {};
  EXPECT_EQ(refused("", handler, 1), EINVAL);
  EXPECT_EQ(refused("kind", nullptr, 1), EINVAL);
  EXPECT_EQ(refused("kind", handler, 0), EINVAL);
  EXPECT_EQ(refused(std::string(256, 'k'), handler, 1), EMSGSIZE);
  EXPECT_EQ(refused("kind", handler, 1), 0);
}

// Open -------------------------------------------------------------------------------------------

TEST(TimerStore, WhatCannotBeOpenedSaysWhy) {
  const auto why = [](const std::string& url, const WFStoreOptions& options = {}) {
    std::string message;
    errno = 0;
    const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url, options, &message));
    return (store ? "open" : std::to_string(errno)) + " " + message;
  };
  const std::string invalid = std::to_string(EINVAL) + " ";
  WFStoreOptions options;
  options.create = false;
  EXPECT_THAT(why(fresh_url(), options), HasSubstr(std::to_string(ENOENT) + " "));
  options = {};
  const std::string lease = "WFStoreOptions::lease is not between one second and one day";
  options.lease = milliseconds(999);
  EXPECT_EQ(why(fresh_url(), options), invalid + lease);
  options.lease = hours(25);
  EXPECT_EQ(why(fresh_url(), options), invalid + lease);
  options = {};
  options.remembered = 1'000'001;
  EXPECT_EQ(why(fresh_url(), options), invalid + "WFStoreOptions::remembered is above one million");
  options = {};
  options.catch_up_rate = 0;
  EXPECT_EQ(why(fresh_url(), options), invalid + "WFStoreOptions::catch_up_rate is 0");
  options = {};
  options.max_queued = 0;
  EXPECT_EQ(why(fresh_url(), options), invalid + "WFStoreOptions::max_queued is 0");
  options = {};
  options.owner = std::string(256, 'o');
  EXPECT_EQ(why(fresh_url(), options),
            std::to_string(EMSGSIZE) + " WFStoreOptions::owner has more than 255 bytes");
  EXPECT_EQ(WFTimerStore::open("nothing"), nullptr);
}

TEST(TimerStore, TheLimitsOfOptionsAreAllowed) {
  WFStoreOptions options;
  options.lease = seconds(1);
  options.remembered = 0;
  options.owner = std::string(255, 'o');
  options.catch_up_rate = 1;
  options.max_queued = 1;
  EXPECT_TRUE(open_store(options)->schedule({"a", hours(1), "kind"}).ok());
  options.lease = hours(24);
  options.remembered = 1'000'000;
  EXPECT_TRUE(open_store(options)->schedule({"a", hours(1), "kind"}).ok());
}

TEST(TimerStore, AReceiptSaysWhatItIsWorth) {
  WFStoreReceipt receipt;
  EXPECT_EQ(receipt.to_string(), "unknown");
  receipt.level = WFStoreReceipt::kFile;
  EXPECT_EQ(receipt.to_string(), "file");
  receipt.level = WFStoreReceipt::kEverySecond;
  EXPECT_EQ(receipt.to_string(), "everysec");
  receipt.level = WFStoreReceipt::kFsync;
  EXPECT_EQ(receipt.to_string(), "fsync");
  receipt = {WFStoreReceipt::kReplicas, 2};
  EXPECT_EQ(receipt.to_string(), "replicas(2)");
}

}  // namespace

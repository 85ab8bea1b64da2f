#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "store/BackendAround.h"
#include "store/FaultyBackend.h"
#include "store/PlaceOfTimers.h"
#include "store/StoreKit.h"
#include "support/Background.h"
#include "support/Eventually.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTimerStore.h"

// Requests as tasks: in scopes and series, from handlers and many threads, when the store is slow,
// full, closed or fails; and how a store is closed.

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store_test::FaultyBackend;
using store_test::fresh_url;
using store_test::Gate;
using store_test::open_store;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::Background;
using test_support::eventually;
using test_support::Tally;

// A backend that carries out nothing while it is held.
class HeldBackend final : public store_test::BackendAround {
 public:
  // Thread-safe.
  class Hold {
   public:
    void hold() {
      const std::lock_guard lock(mutex_);
      held_ = true;
    }
    void release() {
      const std::lock_guard lock(mutex_);
      held_ = false;
      changed_.notify_all();
    }
    // Lets one group of requests pass while it is held.
    void let_one_pass() {
      const std::lock_guard lock(mutex_);
      passes_++;
      changed_.notify_all();
    }
    // How many groups have come.
    size_t came() {
      const std::lock_guard lock(mutex_);
      return came_;
    }
    // Waits until a group of requests waits for release().
    void wait_for_group() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return waiting_; });
    }
    void pass() {
      std::unique_lock lock(mutex_);
      waiting_ = true;
      came_++;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_ || passes_ > 0; });
      passes_ -= held_ ? 1 : 0;
      waiting_ = false;
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false;
    bool waiting_ = false;
    size_t passes_ = 0;
    size_t came_ = 0;
  };

  HeldBackend(std::unique_ptr<workflow::StoreBackend> backend, Hold& hold)
      : BackendAround(std::move(backend)), hold_(hold) {}

  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    hold_.pass();
    return backend_->execute(requests);
  }

 private:
  Hold& hold_;
};

StorePtr open_held(HeldBackend::Hold& hold, const WFStoreOptions& options = {}) {
  return store_test::open_wrapped(fresh_url(), options,
                                  [&hold](std::unique_ptr<workflow::StoreBackend> backend,
                                          const workflow::StoreBackendOptions&) {
                                    return std::make_unique<HeldBackend>(std::move(backend), hold);
                                  });
}

// A backend that takes no end of a run, as if another process had the timer by now.
class LosingBackend final : public store_test::BackendAround {
 public:
  using BackendAround::BackendAround;

  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    const bool works = backend_->execute(requests);
    for (workflow::StoreRequest* request : requests) {
      if (auto* const finish = std::get_if<workflow::FinishRequest>(&request->what)) {
        finish->accepted = false;
      }
    }
    return works;
  }
};

// A backend whose first claim that takes timers is answered when their leases are over.
class LateBackend final : public store_test::BackendAround {
 public:
  using BackendAround::BackendAround;

  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    const bool works = backend_->execute(requests);
    for (const workflow::StoreRequest* request : requests) {
      const auto* claim = std::get_if<workflow::ClaimRequest>(&request->what);
      if (claim && !claim->claimed.empty() && !std::exchange(was_late_, true)) {
        while (now_us() < claim->claimed[0].lease_end_us) {
          std::this_thread::sleep_for(milliseconds(10));
        }
      }
    }
    return works;
  }

 private:
  bool was_late_ = false;
};

// How a task has ended, and a wait for it.
class Ended {
 public:
  WFTimerStore::Callback callback() {
    return [this](WFStoreTask* task) {
      result = task->result();
      EXPECT_EQ(task->get_state(), result.state);
      EXPECT_EQ(task->get_error(), result.error);
      EXPECT_EQ(task->request_id(), result.request);
      tally.add();
    };
  }
  const WFStoreResult& wait() {
    EXPECT_TRUE(tally.wait_for(1));
    return result;
  }

  WFStoreResult result;
  Tally tally;
};

// A store that is at work on its first request until finish(), and has seen no other.
class BusyStore {
 public:
  BusyStore() {
    hold_.hold();
    store_->create_schedule_task({"first", hours(1), "kind"}, first_.callback())->start();
    hold_.wait_for_group();
  }
  WFTimerStore* operator->() const { return store_.get(); }
  // The first request is carried out, and then its timer is the only one.
  void finish() {
    hold_.release();
    EXPECT_TRUE(first_.wait().ok());
    EXPECT_EQ(store_->count("").count, 1u);
  }

 private:
  HeldBackend::Hold hold_;
  Ended first_;
  const StorePtr store_ = open_held(hold_);
};

// Of a task that ended early.
void expect_withdrawn(const WFStoreResult& result, int error) {
  EXPECT_EQ(result.error, error);
  EXPECT_EQ(result.message, "ended before the store had seen the request");
  EXPECT_TRUE(result.answers.empty());
}

// Tasks ------------------------------------------------------------------------------------------

TEST(StoreRequests, TasksJoinSeries) {
  const StorePtr store = open_store();
  std::vector<uint64_t> counts;
  WFFacilities::WaitGroup done(1);
  SeriesWork* const series =
      Workflow::create_series_work(store->create_schedule_task({"a", hours(1), "kind"}, nullptr),
                                   [&done](const SeriesWork*) { done.done(); });
  const auto note = [&counts](WFStoreTask* task) { counts.push_back(task->result().count); };
  *series << store->create_count_task("", note)
          << store->create_reschedule_task("a", hours(2), nullptr)
          << store->create_cancel_task("a", nullptr) << store->create_count_task("", note);
  series->start();
  done.wait();
  EXPECT_EQ(counts, (std::vector<uint64_t>{1, 0}));
}

TEST(StoreRequests, ADismissedTaskIsNoRequest) {
  const StorePtr store = open_store();
  store->create_schedule_task({"a", hours(1), "kind"}, [](WFStoreTask*) { ADD_FAILURE(); })
      ->dismiss();
  EXPECT_EQ(store->count("").count, 0u);
}

TEST(StoreRequests, AScopeWithdrawsWhatTheStoreHasNotSeen) {
  BusyStore store;
  Ended second;
  WFFacilities::WaitGroup done(1);
  WFScopeTask* const inside = WFTaskFactory::create_scope_task(
      store->create_schedule_task({"second", hours(1), "kind"}, second.callback()),
      [&done](WFScopeTask*) { done.done(); });
  const WFScope scope = inside->scope();
  inside->start();
  EXPECT_TRUE(scope.cancel(EPIPE));
  done.wait();
  expect_withdrawn(second.wait(), EPIPE);
  store.finish();
  EXPECT_EQ(store->ask(second.result.request).verdict(), WFStoreVerdict::kUnknown);
}

TEST(StoreRequests, ADeadlineEndsEachKindOfTask) {
  BusyStore store;
  std::array<Ended, 5> ended;
  const std::array tasks = {
      store->create_schedule_task({"a", hours(1), "kind"}, ended[0].callback()),
      store->create_cancel_task("first", ended[1].callback()),
      store->create_reschedule_task("first", hours(2), ended[2].callback()),
      store->create_count_task("", ended[3].callback()),
      store->create_list_task("", "", 10, ended[4].callback()),
  };
  for (WFStoreTask* task : tasks) {
    with_deadline(task, milliseconds(1))->start();
  }
  for (Ended& one : ended) {
    expect_withdrawn(one.wait(), ETIMEDOUT);
  }
  store.finish();
}

TEST(StoreRequests, ATaskHasTheVerdicts) {
  const StorePtr store = open_store();
  const uint64_t first = store->schedule({"a", hours(1), "kind"}).timer;
  const uint64_t second = store->schedule({"a", hours(2), "kind"}).timer;
  std::vector<WFStoreAnswer> verdicts;
  WFFacilities::WaitGroup done(1);
  store
      ->create_cancel_task("a",
                           [&](WFStoreTask* task) {
                             verdicts = task->verdicts();
                             done.done();
                           })
      ->start();
  done.wait();
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(verdicts[0].timer, first);
  EXPECT_EQ(verdicts[1].verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(verdicts[1].timer, second);
}

TEST(StoreRequests, WhatTheStoreWasAtWorkOnIsInDoubtAndCanBeAskedFor) {
  HeldBackend::Hold hold;
  const StorePtr store = open_held(hold);
  hold.hold();
  Ended ended;
  WFScopeTask* const inside = WFTaskFactory::create_scope_task(
      store->create_schedule_task({"a", hours(1), "kind"}, ended.callback()), nullptr);
  const WFScope scope = inside->scope();
  inside->start();
  hold.wait_for_group();
  EXPECT_TRUE(scope.set_deadline(milliseconds(1)));
  EXPECT_EQ(ended.wait().error, ETIMEDOUT);
  EXPECT_EQ(ended.result.verdict(), WFStoreVerdict::kInDoubt);
  ASSERT_EQ(ended.result.answers.size(), 1u);
  EXPECT_EQ(ended.result.message, "ended before the store had answered");
  hold.release();
  const WFStoreResult asked = store->ask(ended.result.request);
  EXPECT_TRUE(asked.ok());
  EXPECT_GT(asked.timer, 0u);
  EXPECT_EQ(store->list("").timers.at(0).timer, asked.timer);
}

TEST(StoreRequests, WhatChangesNothingIsNotInDoubt) {
  HeldBackend::Hold hold;
  const StorePtr store = open_held(hold);
  hold.hold();
  Ended ended;
  WFScopeTask* const inside =
      WFTaskFactory::create_scope_task(store->create_count_task("", ended.callback()), nullptr);
  const WFScope scope = inside->scope();
  inside->start();
  hold.wait_for_group();
  scope.cancel();
  EXPECT_EQ(ended.wait().error, ECANCELED);
  EXPECT_TRUE(ended.result.answers.empty());
  hold.release();
}

TEST(StoreRequests, ATaskInAnEndedScopeIsNoRequest) {
  const StorePtr store = open_store();
  Ended ended;
  WFScopeTask* const inside = WFTaskFactory::create_scope_task(
      store->create_schedule_task({"a", hours(1), "kind"}, ended.callback()), nullptr);
  inside->scope().cancel(EPIPE);
  inside->start();
  EXPECT_EQ(ended.wait().error, EPIPE);
  EXPECT_EQ(store->count("").count, 0u);
}

TEST(StoreRequests, MoreThanMayWaitAreRefused) {
  HeldBackend::Hold hold;
  WFStoreOptions options;
  options.max_queued = 2;
  const StorePtr store = open_held(hold, options);
  hold.hold();
  Ended ended[4];
  store->create_schedule_task({"at work", hours(1), "kind"}, ended[0].callback())->start();
  hold.wait_for_group();
  for (int i = 1; i < 4; i++) {
    store->create_schedule_task({"waits", hours(1), "kind"}, ended[i].callback())->start();
  }
  EXPECT_EQ(ended[3].wait().error, EAGAIN);
  EXPECT_EQ(ended[3].result.message, "too many requests wait for the store");
  EXPECT_TRUE(ended[3].result.answers.empty());
  EXPECT_EQ(ended[1].tally.count(), 0u);
  hold.release();
  for (int i = 0; i < 3; i++) {
    EXPECT_TRUE(ended[i].wait().ok());
  }
  EXPECT_EQ(store->count("waits").count, 2u);
}

// A store remembers the last requests of a process. A task that is started late is one of them.
TEST(StoreRequests, ATaskThatIsStartedLateCanBeAskedFor) {
  const test_support::FastDir directory;
  for (const std::string& url : {fresh_url(), "sqlite:" + directory.path("shared"),
                                 "sqlite:" + directory.path("owned") + "?layout=owned"}) {
    SCOPED_TRACE(url);
    WFStoreOptions options;
    options.remembered = 3;
    const StorePtr store = open_store(url, options);
    Ended ended;
    WFStoreTask* const late =
        store->create_schedule_task({"late", hours(1), "k"}, ended.callback());
    for (int i = 0; i < 10; i++) {
      EXPECT_TRUE(store->schedule({"a", hours(1), "k"}).ok());
    }
    late->start();
    ASSERT_TRUE(ended.wait().ok());
    const WFStoreResult asked = store->ask(ended.result.request);
    EXPECT_TRUE(asked.ok()) << asked.message;
    EXPECT_EQ(asked.timer, ended.result.timer);
  }
}

TEST(StoreRequests, TheIdOfATaskIsKnownBeforeItIsStarted) {
  const StorePtr store = open_store();
  Ended ended[2];
  WFStoreTask* const first = store->create_cancel_task("a", ended[0].callback());
  WFStoreTask* const second = store->create_cancel_task("a", ended[1].callback());
  const WFStoreRequestId id = first->request_id();
  EXPECT_NE(id.number, 0U);
  EXPECT_EQ(first->request_id(), id);
  EXPECT_NE(second->request_id(), id);
  first->start();
  second->start();
  EXPECT_EQ(ended[0].wait().request, id);
  EXPECT_NE(ended[1].wait().request, id);
  EXPECT_EQ(store->ask(id).verdict(), WFStoreVerdict::kUnknown);
  // What was refused has an id as well, under which nothing was done.
  const WFStoreResult refused = store->cancel(std::string(1025, 'n'));
  EXPECT_EQ(refused.error, EMSGSIZE);
  EXPECT_EQ(store->ask(refused.request).verdict(), WFStoreVerdict::kUnknown);
}

// Threads ----------------------------------------------------------------------------------------

TEST(StoreRequests, CallsMayBlockInHandlersAndGoTasks) {
  constexpr int kEach = 100;  // more than there are threads
  SeenRuns runs;
  std::atomic<int> scheduled{0};
  const StorePtr store = open_store();
  WFStoreHandlerOptions options;
  options.max_running = kEach;
  store->handle("second", runs.handler(*store));
  store->handle(
      "first",
      [&](WFStoredTimer* timer) {
        if (store->schedule({"from a handler", seconds(0), "second"}).ok()) {
          scheduled++;
        }
        *series_of(timer) << WFTaskFactory::create_go_task("queue", [&] {
          if (store->schedule({"from a task", seconds(0), "second"}).ok()) {
            scheduled++;
          }
        });
      },
      options);
  for (int i = 0; i < kEach; i++) {
    store->create_schedule_task({"a", milliseconds(10), "first"}, nullptr)->start();
  }
  EXPECT_TRUE(runs.wait_for(2 * kEach));
  EXPECT_TRUE(eventually([&] { return scheduled == 2 * kEach; }));
}

TEST(StoreRequests, ManyThreadsAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kEach = 100;
  const StorePtr store = open_store();
  std::atomic<size_t> won{0};
  {
    std::vector<std::unique_ptr<Background>> threads;
    for (int t = 0; t < kThreads; t++) {
      threads.push_back(std::make_unique<Background>([&, t] {
        for (int i = 0; i < kEach; i++) {
          const std::string name = std::to_string(t) + "/" + std::to_string(i);
          EXPECT_TRUE(store->schedule({name, hours(1), "kind"}).ok());
          EXPECT_TRUE(store->schedule({"shared", hours(1), "kind"}).ok());
          for (const WFStoreAnswer& answer : store->cancel("shared", 2).answers) {
            won += answer.verdict == WFStoreVerdict::kWon;
          }
          EXPECT_EQ(store->cancel(name).verdict(), WFStoreVerdict::kWon);
        }
      }));
    }
  }
  EXPECT_EQ(won + store->count("").count, kThreads * kEach);
}

// Close ------------------------------------------------------------------------------------------

TEST(StoreRequests, CloseWaitsForTheHandlers) {
  SeenRuns runs;
  Gate gate;
  const std::string url = fresh_url();
  const StorePtr other = open_store(url);
  const StorePtr store = open_store(url);
  store->handle("kind", gate.handler(runs, *store));
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  bool closed = false;
  Background closing([&] { closed = store->close(); });
  EXPECT_FALSE(closing.done_within(milliseconds(20)));
  gate.open();
  ASSERT_TRUE(closing.done());
  EXPECT_TRUE(closed);
  // The store has learnt of the end of the run.
  EXPECT_EQ(other->count("").count, 0u);
  EXPECT_EQ(store->stats().acknowledged, 1u);
}

TEST(StoreRequests, CloseHasALimit) {
  SeenRuns runs;
  Gate gate;
  const std::string url = fresh_url();
  const StorePtr other = open_store(url);
  const StorePtr store = open_store(url);
  store->handle("kind", gate.handler(runs, *store));
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_FALSE(store->close(milliseconds(10)));
  EXPECT_FALSE(store->close(seconds(0)));
  gate.open();
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_TRUE(eventually([&] { return store->stats().running == 0; }));
  // What it did is not acknowledged: its lease goes on.
  EXPECT_EQ(other->list("").timers.at(0).stage, WFStoreStage::kRunning);
  EXPECT_TRUE(store->close());
}

// While a group is carried out, somebody asks for the next thing. So there is always work.
TEST(StoreRequests, CloseEndsAlthoughThereIsAlwaysWork) {
  HeldBackend::Hold hold;
  const StorePtr store = open_held(hold);
  hold.hold();
  std::atomic<bool> refused{false};
  Tally answered;
  size_t asked = 0;
  const auto ask = [&] {
    asked++;
    store
        ->create_schedule_task({"a", hours(1), "kind"},
                               [&](WFStoreTask* task) {
                                 refused = refused || task->result().error == ESHUTDOWN;
                                 answered.add();
                               })
        ->start();
  };
  ask();
  hold.wait_for_group();
  bool closed = false;
  Background closing([&] { closed = store->close(seconds(-1)); });
  EXPECT_TRUE(eventually([&] {
    const size_t came = hold.came();
    ask();
    hold.let_one_pass();
    EXPECT_TRUE(eventually([&] { return refused || hold.came() > came; }));
    return refused.load();
  }));
  hold.release();
  ASSERT_TRUE(closing.done());
  EXPECT_TRUE(closed);
  EXPECT_TRUE(answered.wait_for(asked));
}

// The run ends while close() waits for the group before. If all goes as quickly as usual, nothing
// more is accepted when the store learns that its lease was lost.
TEST(StoreRequests, WhatIsLostDuringTheCloseIsReportedBeforeItsEnd) {
  HeldBackend::Hold hold;
  SeenRuns runs;
  Gate gate;
  std::atomic<int> lost{0};
  std::atomic<bool> refuses{false};
  Tally answered;
  size_t asked = 0;
  const StorePtr store =
      store_test::open_wrapped(fresh_url(), {},
                               [&hold](std::unique_ptr<workflow::StoreBackend> backend,
                                       const workflow::StoreBackendOptions&) {
                                 return std::make_unique<HeldBackend>(
                                     std::make_unique<LosingBackend>(std::move(backend)), hold);
                               });
  const auto ask = [&] {
    asked++;
    store
        ->create_count_task("",
                            [&](WFStoreTask* task) {
                              refuses = refuses || task->result().error == ESHUTDOWN;
                              answered.add();
                            })
        ->start();
    return refuses.load();
  };
  WFStoreHandlerOptions options;
  options.on_lost = [&lost](const WFStoreInfo&, uint64_t) { lost++; };
  ASSERT_EQ(store->handle("kind", gate.handler(runs, *store), options), 0);
  ASSERT_TRUE(store->schedule({"a", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  hold.hold();
  ask();
  hold.wait_for_group();
  int lost_at_the_end = -1;
  Background closing([&] {
    EXPECT_TRUE(store->close(seconds(-1)));
    lost_at_the_end = lost;
  });
  EXPECT_FALSE(closing.done_within(milliseconds(20)));
  const size_t came = hold.came();
  gate.open();
  ASSERT_TRUE(gate.wait_for_ended(1));
  hold.let_one_pass();
  EXPECT_TRUE(eventually([&] { return hold.came() > came; }));
  EXPECT_EQ(lost, 0);
  for (int i = 0; i < 50 && !ask(); i++) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  hold.release();
  ASSERT_TRUE(closing.done());
  EXPECT_EQ(lost_at_the_end, 1);
  EXPECT_TRUE(answered.wait_for(asked));
}

class StoreCloses : public testing::TestWithParam<const char*> {};

TEST_P(StoreCloses, WhatItHasNotWaitedForRunsElsewhere) {
  const store_test::PlaceOfTimers place(GetParam());
  WFStoreOptions options;
  options.lease = seconds(2);
  SeenRuns runs;
  SeenRuns later_runs;
  Gate gate;
  const StorePtr store = open_store(place.url(), options);
  store->handle("kind", gate.handler(runs, *store));
  ASSERT_TRUE(store->schedule({"a", seconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_FALSE(store->close(milliseconds(10)));

  const StorePtr other = open_store(place.url(), options);
  other->handle("kind", later_runs.handler(*other));
  ASSERT_TRUE(later_runs.wait_for(1));
  EXPECT_GT(later_runs.at(0).attempt, runs.at(0).attempt);
  EXPECT_GT(later_runs.at(0).fence, runs.at(0).fence);
  EXPECT_TRUE(eventually([&] { return other->count("").count == 0; }));
  gate.open();
  ASSERT_TRUE(gate.wait_for_ended(1));
  EXPECT_TRUE(store->close());
  EXPECT_EQ(store->stats().acknowledged, 0u);
  EXPECT_EQ(other->stats().acknowledged, 1u);
}

INSTANTIATE_TEST_SUITE_P(Places, StoreCloses, testing::Values("Sqlite", "Owned", "Redis"),
                         [](const auto& info) { return std::string(info.param); });

TEST(StoreRequests, AHandlerCannotCloseItsOwnStore) {
  std::atomic<bool> refused{false};
  std::atomic<bool> other_closed{false};
  Tally handled;
  const StorePtr other = open_store();
  const StorePtr store = open_store();
  store->handle("kind", [&](WFStoredTimer* timer) {
    const auto try_to_close = [&] {
      errno = 0;
      refused = !store->close() && errno == EDEADLK;
    };
    try_to_close();
    EXPECT_TRUE(refused);
    refused = false;
    *series_of(timer) << store->create_count_task("", [&, try_to_close](WFStoreTask*) {
      try_to_close();
      other_closed = other->close();
      handled.add();
    });
  });
  store->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(handled.wait_for(1));
  EXPECT_TRUE(refused);
  EXPECT_TRUE(other_closed);
  EXPECT_TRUE(store->schedule({"b", hours(1), "kind"}).ok());  // it had no effect
}

TEST(StoreRequests, AClosedStoreRefuses) {
  const StorePtr store = open_store();
  store->schedule({"a", hours(1), "kind"});
  EXPECT_TRUE(store->close());
  EXPECT_TRUE(store->close());
  const WFStoreResult refused = store->schedule({"a", hours(1), "kind"});
  EXPECT_EQ(refused.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(refused.error, ESHUTDOWN);
  EXPECT_EQ(refused.message, "the store is closed");
  EXPECT_EQ(store->cancel("a").error, ESHUTDOWN);
  EXPECT_EQ(store->list("").error, ESHUTDOWN);
  EXPECT_EQ(store->ask({1, 1}).error, ESHUTDOWN);
  errno = 0;
  EXPECT_EQ(store->handle("kind", [](WFStoredTimer*) {}), -1);
  EXPECT_EQ(errno, ESHUTDOWN);
  EXPECT_EQ(store->stats().scheduled, 1u);
}

TEST(StoreRequests, RequestsUnderWayAreCarriedOutWhenAStoreIsDestroyed) {
  HeldBackend::Hold hold;
  const std::string url = fresh_url();
  const StorePtr other = open_store(url);
  std::unique_ptr<WFTimerStore> store(
      store_test::open_wrapped(url, {},
                               [&hold](std::unique_ptr<workflow::StoreBackend> backend,
                                       const workflow::StoreBackendOptions&) {
                                 return std::make_unique<HeldBackend>(std::move(backend), hold);
                               })
          .release());
  hold.hold();
  Ended ended[10];
  WFStoreTask* const late = store->create_schedule_task({"late", hours(1), "kind"}, nullptr);
  for (Ended& one : ended) {
    store->create_schedule_task({"a", hours(1), "kind"}, one.callback())->start();
  }
  Background destroying([&] { store.reset(); });
  hold.wait_for_group();
  hold.release();
  ASSERT_TRUE(destroying.done());
  for (Ended& one : ended) {
    EXPECT_TRUE(one.wait().ok());
  }
  EXPECT_EQ(other->count("").count, 10u);
  // A task may outlive its store.
  Ended of_late;
  late->set_callback(of_late.callback());
  late->start();
  EXPECT_EQ(of_late.wait().error, ESHUTDOWN);
}

// A store that fails -----------------------------------------------------------------------------

TEST(StoreRuns, NoneBeginsWhenItsLeaseIsOver) {
  WFStoreOptions options;
  options.lease = std::chrono::seconds(1);
  const StorePtr store = store_test::open_wrapped(
      fresh_url(), options,
      [](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
        return std::make_unique<LateBackend>(std::move(backend));
      });
  SeenRuns runs;
  ASSERT_EQ(store->handle("kind", runs.handler(*store)), 0);
  ASSERT_TRUE(store->schedule({"a", milliseconds(0), "kind"}).ok());
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_GE(runs.at(0).attempt, 2U);  // the first one was lost before it had begun
}

// A store whose backend fails when the test says so.
class FailingStore {
 protected:
  void open(const WFStoreOptions& options = {}) {
    store_ = store_test::open_wrapped(url_, options,
                                      [this](std::unique_ptr<workflow::StoreBackend> backend,
                                             const workflow::StoreBackendOptions&) {
                                        auto faulty =
                                            std::make_unique<FaultyBackend>(std::move(backend));
                                        backend_ = faulty.get();
                                        return faulty;
                                      });
  }

  const std::string url_ = fresh_url();
  FaultyBackend* backend_ = nullptr;
  StorePtr store_;
};

class StoreFails : public testing::TestWithParam<FaultyBackend::Fault>, protected FailingStore {};
class StoreDamaged : public testing::Test, protected FailingStore {};

// Otherwise it would take timers that never start.
TEST_F(StoreDamaged, AStoreThatCannotStartTimersBecauseItIsDamagedTakesNoRequests) {
  open();
  SeenRuns runs;
  backend_->fail_claims(true);
  store_->handle("kind", runs.handler(*store_));
  ASSERT_TRUE(eventually([this] { return store_->stats().errors > 0; }));
  for (int i = 0; i < 3; i++) {
    const WFStoreResult refused = store_->schedule({"a", seconds(0), "kind"});
    EXPECT_EQ(refused.error, EILSEQ);
    EXPECT_EQ(refused.message, "the backend was told to be damaged");
    EXPECT_EQ(store_->count("").error, EILSEQ);
  }
  backend_->fail_claims(false);
  EXPECT_TRUE(eventually([this] { return store_->schedule({"b", seconds(0), "kind"}).ok(); }));
  EXPECT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).name, "b");

  backend_->fail_claims(true);
  EXPECT_TRUE(eventually([this] { return store_->count("").error == EILSEQ; }));
  EXPECT_TRUE(store_->close(seconds(30)));
}

TEST_P(StoreFails, AStoreWhoseRequestsFailIsOpenedAgainWithPauses) {
  open();
  SeenRuns runs;
  store_->handle("kind", runs.handler(*store_));
  const auto began = std::chrono::steady_clock::now();
  backend_->fail_always(GetParam());
  ASSERT_TRUE(store_->schedule({"a", hours(1), "kind"}).error == EIO);
  ASSERT_TRUE(eventually([this] { return backend_->reopens() >= 6; }));
  // At once, and then after 50, 100, 200, 400 and 800 ms, or with the look around each second.
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(700));
  backend_->fail_always(FaultyBackend::Fault::kNone);
  EXPECT_TRUE(eventually([this] { return store_->schedule({"b", hours(1), "kind"}).ok(); }));
}

TEST_P(StoreFails, CloseReturnsAlthoughTheStoreFailsAndAHandlerRuns) {
  open();
  // The handler shares it, because nothing waits for a handler that outlasts its store.
  struct Shared {
    WFFacilities::WaitGroup begun{1};
    WFFacilities::WaitGroup release{1};
  };
  const auto shared = std::make_shared<Shared>();
  store_->handle("kind", [shared](WFStoredTimer*) {
    shared->begun.done();
    shared->release.wait();
  });
  ASSERT_TRUE(store_->schedule({"a", seconds(0), "kind"}).ok());
  shared->begun.wait();
  backend_->fail_always(GetParam());
  Background closing([this] { EXPECT_FALSE(store_->close(milliseconds(10))); });
  EXPECT_TRUE(closing.done());
  shared->release.done();
}

TEST_P(StoreFails, AskingInVainKeepsTheIdAndTheDoubt) {
  open();
  backend_->fail_always(GetParam());
  const WFStoreResult asked = store_->ask({7, 8});
  EXPECT_EQ(asked.error, EIO);
  EXPECT_EQ(asked.verdict(), WFStoreVerdict::kInDoubt);
  EXPECT_EQ(asked.request, (WFStoreRequestId{7, 8}));
  backend_->fail_always(FaultyBackend::Fault::kNone);
}

TEST_P(StoreFails, ARequestIsToldWhetherItIsInDoubt) {
  open();
  backend_->fail_next(GetParam());
  const WFStoreResult failed = store_->schedule({"a", hours(1), "kind"});
  EXPECT_EQ(failed.error, EIO);
  EXPECT_EQ(failed.message, "the backend was told to fail");
  const bool in_doubt = GetParam() != FaultyBackend::Fault::kRefuse;
  EXPECT_EQ(failed.answers.size(), in_doubt ? 1u : 0u);
  EXPECT_EQ(failed.verdict(), in_doubt ? WFStoreVerdict::kInDoubt : WFStoreVerdict::kNone);
  const WFStoreResult asked = store_->ask(failed.request);
  EXPECT_EQ(asked.timer != 0, GetParam() == FaultyBackend::Fault::kAfter);
  EXPECT_EQ(store_->count("").count, asked.timer != 0 ? 1u : 0u);
  EXPECT_EQ(store_->stats().errors, 1u);
}

TEST_P(StoreFails, ACancelAndAMoveInDoubtCanBeAskedFor) {
  open();
  const bool in_doubt = GetParam() != FaultyBackend::Fault::kRefuse;
  const bool was_done = GetParam() == FaultyBackend::Fault::kAfter;
  const auto expect_fault = [&](const WFStoreResult& failed) {
    EXPECT_EQ(failed.error, EIO);
    EXPECT_EQ(failed.verdict(), in_doubt ? WFStoreVerdict::kInDoubt : WFStoreVerdict::kNone);
    EXPECT_NE(failed.request.number, 0u);
    EXPECT_EQ(store_->ask(failed.request).verdict(),
              was_done ? WFStoreVerdict::kWon : WFStoreVerdict::kUnknown);
  };
  ASSERT_TRUE(store_->schedule({"a", hours(1), "kind"}).ok());
  const auto due = store_->list("").timers.at(0).due;
  backend_->fail_next(GetParam());
  expect_fault(store_->reschedule("a", hours(2)));
  EXPECT_EQ(store_->list("").timers.at(0).due > due, was_done);
  backend_->fail_next(GetParam());
  expect_fault(store_->cancel("a"));
  EXPECT_EQ(store_->count("").count, was_done ? 0u : 1u);
}

TEST_P(StoreFails, EachRequestIsAnsweredOnceWhileItCannotBeOpened) {
  open();
  backend_->fail_next(GetParam());
  backend_->fail_reopen(3);
  constexpr size_t kRequests = 50;
  Tally ended;
  std::atomic<int> wrong{0};
  for (size_t i = 0; i < kRequests; i++) {
    store_
        ->create_schedule_task({"a", hours(1), "kind"},
                               [&](WFStoreTask* task) {
                                 const int error = task->get_error();
                                 wrong += error != 0 && error != EIO;
                                 ended.add();
                               })
        ->start();
  }
  EXPECT_TRUE(ended.wait_for(kRequests));
  EXPECT_TRUE(eventually([this] { return store_->schedule({"b", hours(1), "kind"}).ok(); }));
  EXPECT_EQ(ended.count(), kRequests);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(store_->stats().errors, 4u);
}

TEST_P(StoreFails, TheEndOfARunIsToldAgain) {
  SeenRuns runs;
  Gate gate;
  open();
  store_->handle("kind", gate.handler(runs, *store_));
  store_->schedule({"a", seconds(0), "kind"});
  ASSERT_TRUE(runs.wait_for(1));
  backend_->fail_next(GetParam());
  backend_->fail_reopen(2);
  gate.open();
  EXPECT_TRUE(eventually([this] {
    const WFStoreResult counted = store_->count("");
    return counted.ok() && counted.count == 0;
  }));
  EXPECT_EQ(runs.count(), 1u);
  store_.reset();
}

TEST_P(StoreFails, ARequestIsAnsweredWhenTheStoreIsClosedMeanwhile) {
  open();
  backend_->fail_next(GetParam());
  backend_->fail_reopen(1'000'000);
  EXPECT_EQ(store_->schedule({"a", hours(1), "kind"}).error, EIO);
  Ended ended;
  store_->create_schedule_task({"b", hours(1), "kind"}, ended.callback())->start();
  EXPECT_TRUE(store_->close());
  EXPECT_EQ(ended.wait().error, EIO);
}

INSTANTIATE_TEST_SUITE_P(Faults, StoreFails,
                         testing::Values(FaultyBackend::Fault::kRefuse,
                                         FaultyBackend::Fault::kBefore,
                                         FaultyBackend::Fault::kAfter));

}  // namespace

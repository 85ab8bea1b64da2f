#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "StoreKit.h"
#include "support/Eventually.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// Threads that schedule, cancel, move and count durable timers of a few names through two stores on
// the same timers, while handlers run and one of the stores is closed; then an account:
//
// 1. Each request was answered once.
// 2. Each timer that was stored has ended in one way: a cancel has won it, or it ran.
// 3. No timer began after a cancel had won it, and none that was refused ran.
// 4. The counters of the stores agree with what was seen.
//
// In rounds whose runtime is stopped meanwhile only the first of these is exact.

namespace race {
namespace {

using std::chrono::microseconds;
using test_support::TestRandom;
using workflow::Runtime;

class StoreRound final : public Round {
 public:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kEach = 25;

  StoreRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    const std::string url = store_test::fresh_url();
    for (auto& store : stores_) {
      std::string message;
      store.reset(WFTimerStore::open(url, &message));
      if (!store) {
        require(is_stopped_meanwhile(), message);  // it was stopped already
        return;
      }
    }
    for (auto& store : stores_) {
      WFStoreHandlerOptions options;
      options.max_running = 8;
      store->handle(
          "kind", [this](WFStoredTimer* timer) { handle(timer); }, options);
    }
    for (size_t t = 0; t < kThreads; t++) {
      start_thread([this, t] { run(t); });
    }
    start_thread([this] {
      TestRandom random(test_support::test_seed(), this->number() * 10 + kThreads);
      pause_us(random.below(2000));
      closed_at_once_ = random.one_in(2);
      require(stores_[1]->close(closed_at_once_ ? microseconds(0) : microseconds(60'000'000)) ||
                  closed_at_once_ || is_stopped_meanwhile(),
              "close() has not waited for the handlers");
    });
  }

  std::string finish() override {
    join_threads();
    if (!stores_[0] || !stores_[1]) return problem();
    if (!ended_.wait_for(started_)) {
      return std::to_string(started_) + " requests, " + std::to_string(ended_.count()) + " answers";
    }
    if (!is_stopped_meanwhile()) {
      wait_until_empty();
    }
    const bool closed = stores_[0]->close() && stores_[1]->close();
    require(closed, "handlers still run");
    if (!is_stopped_meanwhile()) {
      account();
    }
    return problem();
  }

  size_t outcomes(int state) const override {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(state);
    return found == states_.end() ? 0 : found->second;
  }

 private:
  struct Timer {
    bool stored = false;
    bool won = false;
    int runs = 0;
    bool begun_after = false;
  };

  void run(size_t thread) {
    TestRandom random(test_support::test_seed(), number() * 10 + thread);
    for (size_t i = 0; i < kEach; i++) {
      WFTimerStore& store = *stores_[random.below(2)];
      const std::string name = "n" + std::to_string(random.below(4));
      switch (random.below(6)) {
        case 0:
        case 1:
        case 2:
          start(store.create_schedule_task(
              {name, microseconds(random.below(3000)), "kind", std::to_string(random.below(1000))},
              [this](WFStoreTask* task) {
                if (task->get_state() == WFT_STATE_SUCCESS) {
                  const std::lock_guard lock(mutex_);
                  timers_[task->result().timer].stored = true;
                }
                note(task);
              }));
          break;
        case 3:
        case 4:
          start(store.create_cancel_task(name, 1 + random.below(3), [this](WFStoreTask* task) {
            note_cancelled(task->verdicts());
            note(task);
          }));
          break;
        case 5:
          start(store.create_reschedule_task(name, microseconds(random.below(3000)),
                                             [this](WFStoreTask* task) { note(task); }));
          break;
      }
      if (random.one_in(4)) {
        pause_us(random.below(300));
      }
    }
  }

  void start(WFStoreTask* task) {
    started_++;
    task->start();
  }

  void note(WFStoreTask* task) {
    {
      const std::lock_guard lock(mutex_);
      states_[task->get_state()]++;
    }
    ended_.add();
  }

  void note_cancelled(const std::vector<WFStoreAnswer>& answers) {
    const std::lock_guard lock(mutex_);
    for (const WFStoreAnswer& answer : answers) {
      if (answer.verdict == WFStoreVerdict::kWon) {
        timers_[answer.timer].won = true;
      }
    }
  }

  void handle(WFStoredTimer* timer) {
    begun_++;
    {
      const std::lock_guard lock(mutex_);
      Timer& known = timers_[timer->timer()];
      known.runs++;
      known.begun_after |= known.won;
    }
    if (timer->timer() % 3 == 0) {
      *series_of(timer) << WFTimer::create(microseconds(timer->timer() % 500), nullptr);
    } else if (timer->timer() % 7 == 0 && timer->attempt() == 1) {
      timer->retry_after(microseconds(100));
    }
  }

  // Waits until no timer waits. What a store has not acknowledged that was closed at once, and what
  // is blocked by that, would run when its lease is over.
  void wait_until_empty() {
    const auto waits = [](const WFStoreInfo& info) { return info.stage == WFStoreStage::kWaiting; };
    const auto is_done = [&] {
      const WFStoreResult left = stores_[0]->list("");
      const bool none_waits = std::none_of(left.timers.begin(), left.timers.end(), waits);
      return left.timers.empty() ||
             (closed_at_once_ && none_waits && stores_[0]->stats().running == 0);
    };
    require(test_support::eventually(is_done), "timers are left");
  }

  void account() {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, timer] : timers_) {
      const std::string which = "timer " + std::to_string(number);
      require(!timer.begun_after, which + " began after it was cancelled");
      if (!closed_at_once_ && timer.stored) {
        require(timer.won || timer.runs > 0, which + " neither ran nor was cancelled");
      }
    }
    uint64_t begun = 0;
    uint64_t scheduled = 0;
    uint64_t ended = 0;
    for (const auto& store : stores_) {
      const WFTimerStoreStats stats = store->stats();
      begun += stats.begun;
      scheduled += stats.scheduled;
      ended += stats.acknowledged + stats.retried + stats.failed;
      require(stats.running == 0, "runs are left");
      require(stats.errors == 0, "the store has failed");
    }
    require(begun == begun_, "not as many runs as were begun");
    require(closed_at_once_ || ended == begun_, "not as many ends as runs");
    const auto stored = static_cast<uint64_t>(std::count_if(
        timers_.begin(), timers_.end(), [](const auto& entry) { return entry.second.stored; }));
    require(scheduled == stored, "not as many stored as answered");
  }

  std::unique_ptr<WFTimerStore> stores_[2];
  bool closed_at_once_ = false;
  std::atomic<size_t> started_{0};
  std::atomic<uint64_t> begun_{0};
  test_support::Tally ended_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Timer> timers_;
  std::map<int, size_t> states_;
};

TEST(StoreRace, AccountsAreExact) {
  const uint64_t count = rounds(200);
  const Totals totals = run_rounds(count, begin<StoreRound>());
  EXPECT_GT(totals.succeeded, count * 10);
}

TEST(StoreRace, StoppedMeanwhile) {
  const uint64_t count = rounds(100);
  const Totals totals = run_stopped_rounds(count, 3000, begin<StoreRound>());
  EXPECT_GT(totals.succeeded, 0u);
  EXPECT_GT(totals.aborted + totals.failed, 0u);
}

}  // namespace
}  // namespace race

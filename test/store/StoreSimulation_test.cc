#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "FaultyBackend.h"
#include "StoreKit.h"
#include "support/Seeds.h"
#include "support/TestSeed.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTimerStore.h"

// Several stores on the same timers, as processes have them, under every interleaving that many
// seeds find. Threads schedule, cancel, move and ask at random, handlers last, stores fail, and are
// closed and opened again. The ledger judges:
//
// 1. Each timer that was stored, and not ended by a cancel or another timer, ran.
// 2. A timer that was cancelled as won does not begin afterwards. One that ran when it was
//    cancelled begins no further run. A timer that was not stored never runs.
// 3. No run begins before its time, which is one that was asked for.
// 4. No run begins while an earlier run of the timer takes its lease for live.
// 5. Each request has one answer.
// 6. In the end no timer is left but failed ones.

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using store_test::FaultyBackend;
using test_support::TestRandom;

constexpr uint64_t kSeeds = 1000;
constexpr size_t kNames = 4;
const char* const kKinds[] = {"a", "b"};

// What all worlds have seen, to show that they see everything.
struct Totals {
  uint64_t worlds = 0;
  uint64_t runs = 0;
  uint64_t second_runs = 0;
  uint64_t in_doubt = 0;
  std::map<WFStoreVerdict, uint64_t> verdicts;
};

class World {
 public:
  World(uint64_t seed, Totals& totals)
      : totals_(totals), random_(seed), simulation_(seed, options(seed)) {
    WFStoreOptions store_options;
    store_options.lease = seconds(2);
    options_ = store_options;
    keeper_ = open_process();
    for (int i = 0; i < 2; i++) {
      processes_.push_back(open_process());
    }
  }

  void play() {
    const size_t actors = 2 + random_.below(3);
    for (size_t i = 0; i < actors; i++) {
      simulation_.spawn([this] { act(); });
    }
    simulation_.spawn([this] { restart(); });
    // Until then the leases of this kind may end and nobody claims the timers again.
    simulation_.spawn([this] {
      simulation_.sleep_for(milliseconds(random_.below(15'000)));
      handle_kind(*keeper_->store, kKinds[1]);
    });
    const WFSimulationResult result = simulation_.run();
    EXPECT_TRUE(result.ok()) << result.description;
    check();
    close_all();
    const WFSimulationResult stopped = simulation_.stop();
    EXPECT_TRUE(stopped.ok()) << stopped.description;
    EXPECT_EQ(requests_, answers_);
  }

 private:
  struct Process {
    // Its handlers use the store until the last of them has ended.
    std::unique_ptr<WFTimerStore> store;
    FaultyBackend* backend = nullptr;  // the store's
    bool healthy = true;
  };
  using ProcessPtr = std::shared_ptr<Process>;

  // A timer that was scheduled, by the number that is its payload.
  struct Scheduled {
    std::string name;
    bool stored = false;
    uint64_t timer = 0;
    bool blocked = false;  // at first
    int runs = 0;
  };
  // A timer by its number in the store.
  struct Known {
    bool won = false;            // a cancel or replace has ended it while it waited
    uint64_t lost_attempts = 0;  // kWonAfter: how many runs had begun
    bool lost = false;
    uint64_t cancelled_fence = 0;  // it was cancelled during that run
    bool withdrawn = false;        // a reschedule came after that
    uint64_t last_fence = 0;
    int runs = 0;
    std::vector<WFStoredTimer*> active;
  };

  static WFSimulationOptions options(uint64_t seed) {
    WFSimulationOptions options;
    options.handler_threads = 1 + static_cast<int>(seed % 3);
    return options;
  }

  ProcessPtr open_process() {
    auto process = std::make_shared<Process>();
    workflow::StoreFailure failure;
    const auto make = [&](const workflow::StoreBackendOptions& backend_options,
                          workflow::StoreFailure* why) {
      auto faulty = std::make_unique<FaultyBackend>(
          workflow::open_memory_backend("simulated", backend_options, &why->error, &why->message));
      process->backend = faulty.get();
      return faulty;
    };
    process->store.reset(workflow::StoreOpener::open(options_, make, &failure));
    EXPECT_TRUE(process->store) << failure.message;
    for (const char* kind : kKinds) {
      // The keeper handles the first kind from now on, and the second from some time on.
      if (keeper_ ? random_.below(3) > 0 : kind == kKinds[0]) {
        handle_kind(*process->store, kind);
      }
    }
    return process;
  }

  void handle_kind(WFTimerStore& store, const char* kind) {
    WFStoreHandlerOptions options;
    options.max_running = 1 + random_.below(4);
    options.retry_delay = milliseconds(100);
    options.max_attempts = 0;
    const auto handler = [this, &store](WFStoredTimer* timer) { handle(store, timer); };
    EXPECT_EQ(store.handle(kind, handler, options), 0);
  }

  ProcessPtr any_process() {
    const size_t i = random_.below(processes_.size() + 1);
    return i < processes_.size() ? processes_[i] : keeper_;
  }
  std::string any_name() { return "n" + std::to_string(random_.below(kNames)); }
  milliseconds any_delay() { return milliseconds(random_.below(5000)); }

  // Handlers -------------------------------------------------------------------------------------

  void handle(WFTimerStore& store, WFStoredTimer* timer) {
    begin(store, timer);
    for (uint64_t i = random_.below(3); i > 0; i--) {
      *series_of(timer) << WFTimer::create(milliseconds(random_.below(3000)), nullptr);
    }
    if (random_.one_in(8)) {
      timer->retry_after(milliseconds(random_.below(1000)));
    } else if (random_.one_in(12)) {
      timer->retry();
    } else if (random_.one_in(12)) {
      timer->give_up("at random");
    } else if (random_.one_in(6)) {
      cancel(store, timer->name());  // waits, on a thread of the library
    }
    *series_of(timer) << WFTimer::create(seconds(0), [this, timer](WFTimerTask*) {
      std::erase(known_[timer->timer()].active, timer);
    });
  }

  void begin(const WFTimerStore& store, WFStoredTimer* timer) {
    const uint64_t id = std::stoull(timer->payload());
    ASSERT_LT(id, scheduled_.size());
    Scheduled& scheduled = scheduled_[id];
    scheduled.runs++;
    Known& known = known_[timer->timer()];
    known.runs++;
    totals_.runs++;
    totals_.second_runs += known.runs == 2;
    EXPECT_EQ(timer->name(), scheduled.name);
    EXPECT_GE(store.now(), timer->due());
    EXPECT_TRUE(asked_[timer->name()].contains(timer->due())) << timer->name();
    EXPECT_FALSE(known.won) << "timer " << timer->timer() << " was cancelled";
    EXPECT_FALSE(known.lost && timer->attempt() > known.lost_attempts)
        << "timer " << timer->timer() << " was cancelled when its lease was over";
    EXPECT_FALSE(known.cancelled_fence != 0 && !known.withdrawn &&
                 timer->fence() > known.cancelled_fence)
        << "timer " << timer->timer() << " was cancelled while it ran";
    EXPECT_NE(timer->fence(), known.last_fence);
    for (const WFStoredTimer* const other : known.active) {
      EXPECT_EQ(other->lease_left(), microseconds(0)) << "two leases of " << timer->timer();
    }
    known.last_fence = std::max(known.last_fence, timer->fence());
    known.active.push_back(timer);
  }

  // Actors ---------------------------------------------------------------------------------------

  void act() {
    for (uint64_t i = 5 + random_.below(10); i > 0; i--) {
      simulation_.sleep_for(milliseconds(random_.one_in(3) ? 0 : random_.below(1500)));
      const ProcessPtr process = any_process();
      switch (random_.below(8)) {
        case 0:
        case 1:
        case 2:
          schedule(*process->store);
          break;
        case 3:
          cancel(*process->store, any_name());
          break;
        case 4:
          reschedule(*process->store);
          break;
        case 5:
          note_counted(process->store->list("", "", 3).state);
          break;
        case 6:
          give_up_early(*process->store);
          break;
        case 7:
          if (process != keeper_) {
            process->backend->fail_next(static_cast<FaultyBackend::Fault>(1 + random_.below(3)));
            // Some are away for longer than a lease.
            process->backend->fail_reopen(
                static_cast<int>(random_.below(random_.one_in(2) ? 5 : 50)));
          }
          break;
      }
    }
  }

  // Closes processes, some of them while handlers run, and opens others.
  void restart() {
    for (uint64_t i = random_.below(4); i > 0; i--) {
      simulation_.sleep_for(milliseconds(random_.below(4000)));
      ProcessPtr& process = processes_[random_.below(processes_.size())];
      process->store->close(milliseconds(random_.one_in(2) ? 0 : random_.below(3000)));
      closed_.push_back(process);
      process = open_process();
    }
  }

  // Counts a request that has been answered.
  void note_counted(int state) {
    EXPECT_TRUE(state == WFT_STATE_SUCCESS || state == WFT_STATE_SYS_ERROR);
  }

  // Finds out what has become of a request that nobody has answered.
  WFStoreResult settle(WFStoreResult result) {
    if (result.ok() || result.verdict() != WFStoreVerdict::kInDoubt) return result;
    totals_.in_doubt++;
    WFStoreResult asked = keeper_->store->ask(result.request);
    EXPECT_NE(asked.error, ENODATA);
    return asked;
  }

  void schedule(WFTimerStore& store) {
    const size_t id = scheduled_.size();
    WFStoreTimer timer;
    timer.name = any_name();
    timer.kind = kKinds[random_.below(2)];
    timer.payload = std::to_string(id);
    timer.policy = static_cast<WFTimerPolicy>(random_.below(3));
    timer.due = any_due(store, timer.name);
    scheduled_.emplace_back().name = timer.name;
    replaces_[timer.name] += timer.policy == WF_TIMER_REPLACE;
    note_schedule(id, settle(store.schedule(timer)));
  }

  void note_schedule(size_t id, const WFStoreResult& result) {
    scheduled_[id].stored = result.ok() && result.timer != 0;
    scheduled_[id].timer = result.timer;
    for (const WFStoreAnswer& answer : result.answers) {
      scheduled_[id].blocked |= answer.verdict == WFStoreVerdict::kAfterRun;
      note_ended(answer);
    }
  }

  void note_ended(const WFStoreAnswer& answer) {
    totals_.verdicts[answer.verdict]++;
    Known& known = known_[answer.timer];
    if (answer.verdict == WFStoreVerdict::kWon) {
      known.won = true;
    } else if (answer.verdict == WFStoreVerdict::kWonAfter) {
      known.lost = true;
      known.lost_attempts = answer.attempts;
    }
  }

  void cancel(WFTimerStore& store, const std::string& name) {
    const WFStoreResult result =
        settle(store.cancel(name, random_.one_in(2) ? SIZE_MAX : 1 + random_.below(2)));
    for (const WFStoreAnswer& answer : result.answers) {
      if (answer.verdict == WFStoreVerdict::kRunning) {
        known_[answer.timer].cancelled_fence = answer.fence;
        totals_.verdicts[answer.verdict]++;
      } else {
        note_ended(answer);
      }
    }
  }

  void reschedule(WFTimerStore& store) {
    const std::string name = any_name();
    const WFStoreDue due = any_due(store, name);
    // A run may begin before the answer is here.
    for (const Scheduled& scheduled : scheduled_) {
      if (scheduled.name == name && scheduled.timer != 0) {
        known_[scheduled.timer].withdrawn = true;
      }
    }
    const WFStoreResult result = settle(store.reschedule(name, due));
    for (const WFStoreAnswer& answer : result.answers) {
      known_[answer.timer].withdrawn = true;
    }
  }

  // A request whose task may end before its answer is here. What has become of it is asked.
  void give_up_early(WFTimerStore& store) {
    const size_t id = scheduled_.size();
    const std::string name = any_name();
    WFStoreTimer timer = {name, any_due(store, name), kKinds[random_.below(2)], std::to_string(id)};
    scheduled_.emplace_back().name = name;
    requests_++;
    WFStoreResult result;
    WFFacilities::WaitGroup done(1);
    WFStoreTask* const task = store.create_schedule_task(timer, [&](WFStoreTask* ended) {
      answers_++;
      result = ended->result();
      EXPECT_EQ(result.request, ended->request_id());
    });
    WFScopeTask* const inside =
        WFTaskFactory::create_scope_task(task, [&done](WFScopeTask*) { done.done(); });
    const WFScope scope = inside->scope();
    inside->start();
    if (random_.one_in(2)) {
      WFSimulation::point();
    }
    scope.cancel(ECANCELED);
    done.wait();
    note_schedule(id, settle(result));
  }

  // A time on the clock of the store, which may be asked for from now on.
  WFStoreDue any_due(const WFTimerStore& store, const std::string& name) {
    const auto date = std::chrono::floor<microseconds>(store.now() + any_delay());
    asked_[name].insert(date);
    return date;
  }

  // The end --------------------------------------------------------------------------------------

  void check() {
    for (size_t id = 0; id < scheduled_.size(); id++) {
      const Scheduled& scheduled = scheduled_[id];
      if (!scheduled.stored) {
        EXPECT_EQ(scheduled.runs, 0) << "timer " << id << " was not stored";
        continue;
      }
      const Known& known = known_[scheduled.timer];
      const bool ended = known.won || known.lost || known.cancelled_fence != 0;
      // What is blocked is replaced without an answer.
      const bool replaced = scheduled.blocked && replaces_[scheduled.name] > 1;
      EXPECT_TRUE(known.runs > 0 || ended || replaced) << "timer " << id << " did not run";
    }
    for (const WFStoreInfo& info : keeper_->store->list("").timers) {
      EXPECT_EQ(info.stage, WFStoreStage::kFailed) << info.name << " " << info.timer;
    }
    for (const auto& [number, known] : known_) {
      EXPECT_TRUE(known.active.empty()) << number;
    }
  }

  void close_all() {
    EXPECT_TRUE(keeper_->store->close());
    for (const ProcessPtr& process : processes_) {
      EXPECT_TRUE(process->store->close());
    }
    for (const ProcessPtr& process : closed_) {
      EXPECT_TRUE(process->store->close());
      EXPECT_EQ(process->store->stats().running, 0u);
      EXPECT_EQ(process->store->cancel("x").error, ESHUTDOWN);
    }
  }

  Totals& totals_;
  TestRandom random_;
  WFSimulation simulation_;
  WFStoreOptions options_;
  std::vector<Scheduled> scheduled_;
  std::map<uint64_t, Known> known_;
  std::map<std::string, std::set<system_clock::time_point>> asked_;
  std::map<std::string, int> replaces_;
  int requests_ = 0;
  int answers_ = 0;
  ProcessPtr keeper_;
  std::vector<ProcessPtr> processes_;
  std::vector<ProcessPtr> closed_;
};

TEST(StoreSimulation, TheLedgerOfRandomWorlds) {
  Totals totals;
  for_each_seed(kSeeds, [&totals](uint64_t seed) {
    World world(seed, totals);
    world.play();
    totals.worlds++;
  });
  if (totals.worlds >= 100) {
    EXPECT_GT(totals.runs, totals.worlds);
    EXPECT_GT(totals.second_runs, 0u);
    EXPECT_GT(totals.in_doubt, 0u);
    for (const WFStoreVerdict verdict :
         {WFStoreVerdict::kWon, WFStoreVerdict::kRunning, WFStoreVerdict::kAfterRun,
          WFStoreVerdict::kDone, WFStoreVerdict::kUnknown}) {
      EXPECT_GT(totals.verdicts[verdict], 0u) << static_cast<int>(verdict);
    }
  }
  if (totals.worlds >= 500) {
    EXPECT_GT(totals.verdicts[WFStoreVerdict::kWonAfter], 0u);
  }
}

// A recurring timer whose processes come and go, each closed when its runs have ended.
TEST(StoreSimulation, EachDateHasOneRun) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    TestRandom random(seed);
    WFSimulation simulation(seed);
    std::vector<system_clock::time_point> dates;
    const auto open = [&] {
      std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:simulated"));
      WFTimerStore* const opened = store.get();
      store->handle("kind", [&, opened](WFStoredTimer* timer) {
        EXPECT_EQ(opened->now(), timer->due());
        dates.push_back(timer->due());
        *series_of(timer) << WFTimer::create(milliseconds(random.below(900)), nullptr);
      });
      return store;
    };
    const std::unique_ptr<WFTimerStore> keeper = open();
    std::unique_ptr<WFTimerStore> other = open();
    const auto start = WFTimer::wall_now();
    ASSERT_TRUE(keeper->schedule({"a", WFStoreDue::every(seconds(1)), "kind"}).ok());
    simulation.spawn([&] {
      for (int i = 0; i < 5; i++) {
        simulation.sleep_for(milliseconds(random.below(3000)));
        EXPECT_TRUE(other->close());
        other = open();
      }
    });
    EXPECT_TRUE(simulation.run_for(milliseconds(20'950)).ok());
    ASSERT_EQ(dates.size(), 20u);
    for (size_t i = 0; i < dates.size(); i++) {
      EXPECT_EQ(dates[i], start + seconds(i + 1));
    }
    EXPECT_TRUE(other->close());
    EXPECT_TRUE(keeper->close());
    EXPECT_TRUE(simulation.stop().ok());
  });
}

}  // namespace

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "store/BackendAround.h"
#include "store/CountingBackend.h"
#include "store/FaultyBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/ResidentMemory.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/Tally.h"
#include "workflow/WFSimulation.h"

// How an engine uses its backend: in groups, without hints, and with little memory.

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store_test::CountingBackend;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;

// Waits in execute() until the test lets it go on, and notes how many requests each call has.
class SlowBackend final : public store_test::BackendAround {
 public:
  struct Sizes {
    std::mutex mutex;
    std::vector<size_t> sizes;
    std::atomic<bool> waits{false};
  };
  SlowBackend(std::unique_ptr<workflow::StoreBackend> backend, Sizes& sizes)
      : BackendAround(std::move(backend)), sizes_(sizes) {}
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    {
      const std::lock_guard lock(sizes_.mutex);
      sizes_.sizes.push_back(requests.size());
    }
    while (sizes_.waits) {
      std::this_thread::yield();
    }
    return backend_->execute(requests);
  }

 private:
  Sizes& sizes_;
};

TEST(StoreGroups, WhatArrivesDuringACommitIsTheNextGroup) {
  SlowBackend::Sizes sizes;
  const StorePtr store = store_test::open_wrapped(
      store_test::fresh_url(), {},
      [&](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
        return std::make_unique<SlowBackend>(std::move(backend), sizes);
      });
  constexpr size_t kTimers = 50;
  test_support::Tally stored;
  const auto schedule = [&] {
    store->create_schedule_task({"tea", hours(1), "kind"}, [&](WFStoreTask*) { stored.add(); })
        ->start();
  };
  const auto groups_with = [&](size_t least) {
    const std::lock_guard lock(sizes.mutex);
    size_t groups = 0;
    for (const size_t size : sizes.sizes) {
      groups += size >= least ? 1 : 0;
    }
    return groups;
  };
  sizes.waits = true;
  schedule();
  ASSERT_TRUE(eventually([&] { return groups_with(1) > 0; }));
  for (size_t i = 0; i < kTimers; i++) {
    schedule();
  }
  sizes.waits = false;
  ASSERT_TRUE(stored.wait_for(kTimers + 1));
  EXPECT_EQ(groups_with(kTimers), 1U);
}

// Lets the test send a request before each group is carried out, so that requests always wait. A
// group with a list fails as a whole.
class CrowdedBackend final : public store_test::BackendAround {
 public:
  CrowdedBackend(std::unique_ptr<workflow::StoreBackend> backend, std::function<void()> send)
      : BackendAround(std::move(backend)), send_(std::move(send)) {}
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    send_();
    const bool has_list = std::any_of(requests.begin(), requests.end(), [](const auto* request) {
      return std::holds_alternative<workflow::ListRequest>(request->what);
    });
    if (!has_list) return backend_->execute(requests);
    for (workflow::StoreRequest* request : requests) {
      request->failure = {EIO, "no list works", true};
    }
    return false;
  }

 private:
  const std::function<void()> send_;
};

class StoreCrowded : public testing::Test {
 protected:
  // Opens a store beside which another request of that kind waits whenever a group begins, from the
  // time on at which is_crowded_ is set.
  void open(std::function<WFStoreTask*(WFTimerStore& store, WFTimerStore::Callback end)> make) {
    const auto send = [this, make = std::move(make)] {
      if (!is_crowded_) return;
      sent_++;
      make(*store_, [this](WFStoreTask*) { ended_.add(); })->start();
    };
    store_ = store_test::open_wrapped(
        store_test::fresh_url(), {},
        [&](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
          auto inside = std::make_unique<store_test::FaultyBackend>(std::move(backend));
          faulty_ = inside.get();
          return std::make_unique<CrowdedBackend>(std::move(inside), send);
        });
    ASSERT_TRUE(store_);
    ASSERT_EQ(store_->handle("kind", runs_.handler(*store_)), 0);
  }
  void expect_a_run() {
    EXPECT_TRUE(runs_.wait_for(1));
    is_crowded_ = false;
    store_->close(test_support::kPatience);
    EXPECT_TRUE(ended_.wait_for(sent_));
  }

  SeenRuns runs_;
  std::atomic<bool> is_crowded_{false};
  test_support::Tally ended_;
  size_t sent_ = 0;
  store_test::FaultyBackend* faulty_ = nullptr;
  StorePtr store_;
};

TEST_F(StoreCrowded, RequestsThatKeepComingAfterAFailureHoldUpNoTimer) {
  open([](WFTimerStore& store, WFTimerStore::Callback end) {
    return store.create_schedule_task({"later", hours(1), "kind"}, std::move(end));
  });
  is_crowded_ = true;
  EXPECT_TRUE(store_->schedule({"tea", milliseconds(200), "kind"}).ok());
  faulty_->fail_next(store_test::FaultyBackend::Fault::kRefuse);
  expect_a_run();
}

TEST_F(StoreCrowded, RequestsThatAlwaysFailHoldUpNoTimer) {
  open([](WFTimerStore& store, WFTimerStore::Callback end) {
    return store.create_list_task("", "", 10, std::move(end));
  });
  EXPECT_TRUE(store_->schedule({"tea", milliseconds(200), "kind"}).ok());
  is_crowded_ = true;
  EXPECT_FALSE(store_->list("").ok());
  expect_a_run();
}

// How long groups wait for callers that come again after an answer, in the virtual time of a
// simulation, in which each group takes `group_time`.
class StoreGather : public testing::Test {
 protected:
  class TimedBackend final : public store_test::BackendAround {
   public:
    TimedBackend(std::unique_ptr<workflow::StoreBackend> backend, StoreGather& test)
        : BackendAround(std::move(backend)), test_(test) {}
    bool execute(std::span<workflow::StoreRequest* const> requests) override {
      test_.simulation_->sleep_for(test_.group_time_);
      return backend_->execute(requests);
    }

   private:
    StoreGather& test_;
  };

  // Runs `body` on a virtual thread for each of some seeds.
  void simulate(std::chrono::nanoseconds group_time, const std::function<void()>& body) {
    group_time_ = group_time;
    for (uint64_t seed = 1; seed <= 20 && !HasFailure(); seed++) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      WFSimulationOptions options;
      options.spurious_wakeups = false;
      WFSimulation simulation(seed, options);
      simulation_ = &simulation;
      store_ = store_test::open_wrapped(store_test::fresh_url(), {},
                                        [this](std::unique_ptr<workflow::StoreBackend> backend,
                                               const workflow::StoreBackendOptions&) {
                                          return std::make_unique<TimedBackend>(std::move(backend),
                                                                                *this);
                                        });
      simulation.spawn(body);
      const WFSimulationResult result = simulation.run();
      EXPECT_TRUE(result.ok()) << result.description;
      store_.reset();
      EXPECT_TRUE(simulation.stop().ok());
    }
  }

  // How long a request takes.
  std::chrono::nanoseconds time_of_request() {
    const int64_t began_ns = simulation_->now_ns();
    EXPECT_TRUE(store_->count("").ok());
    return std::chrono::nanoseconds(simulation_->now_ns() - began_ns);
  }
  // Two requests that are one group, because they come while another one is carried out. Returns
  // how long they take. Only the caller of one of them may come again.
  std::chrono::nanoseconds time_of_group() {
    store_->create_count_task("", nullptr)->start();
    simulation_->sleep_for(group_time_ / 2);
    store_->create_count_task("", nullptr)->start();
    return time_of_request();
  }

  std::chrono::nanoseconds group_time_{};
  WFSimulation* simulation_ = nullptr;
  StorePtr store_;
};

TEST_F(StoreGather, ALoneCallerNeverWaits) {
  simulate(milliseconds(4), [this] {
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(time_of_request(), milliseconds(4));
      simulation_->sleep_for(microseconds(300) * i);
    }
    // This is what its user sees.
    const WFTimerStoreStats stats = store_->stats();
    EXPECT_EQ(stats.request.count, 10U);
    EXPECT_EQ(stats.request.max, milliseconds(4));
    EXPECT_EQ(stats.request.sum, milliseconds(40));
  });
}

TEST_F(StoreGather, TheWaitForCallersEndsWhenNobodyComes) {
  struct Case {
    std::chrono::nanoseconds group_time;
    std::chrono::nanoseconds bound;
  };
  // A quarter of the time of the group, and at most 2 ms.
  for (const Case& each :
       {Case{milliseconds(4), milliseconds(1)}, Case{milliseconds(40), milliseconds(2)}}) {
    simulate(each.group_time, [this, &each] {
      // They wait for the caller of the first request, who has gone.
      EXPECT_EQ(time_of_group(), each.group_time / 2 + each.bound + each.group_time);
      // One of the two has come again, and the other one does not.
      EXPECT_EQ(time_of_request(), each.bound + each.group_time);
    });
  }
}

TEST_F(StoreGather, TheWaitForCallersEndsWhenAllHaveCome) {
  simulate(milliseconds(4), [this] {
    time_of_group();
    store_->create_count_task("", nullptr)->start();
    EXPECT_EQ(time_of_request(), milliseconds(4));
  });
}

// Leaves what is due when it is asked for the first time, as a backend does whose timers others
// were about to take.
class HesitantBackend final : public store_test::BackendAround {
 public:
  using BackendAround::BackendAround;
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    workflow::ClaimRequest* claim = nullptr;
    for (workflow::StoreRequest* request : requests) {
      auto* const asked = std::get_if<workflow::ClaimRequest>(&request->what);
      claim = asked ? asked : claim;
    }
    if (!claim || has_left_) return backend_->execute(requests);
    const std::vector<workflow::ClaimRequest::Kind> kinds = claim->kinds;
    for (workflow::ClaimRequest::Kind& kind : claim->kinds) {
      kind.max = kind.max_overdue = 0;
    }
    const bool works = backend_->execute(requests);
    claim->kinds = kinds;
    claim->again = has_left_ = claim->more;
    return works;
  }

 private:
  bool has_left_ = false;
};

// In a simulation no look of each second makes up for a claim that is missing.
TEST(StoreGroups, WhatABackendLeavesIsClaimedAMomentLater) {
  SeenRuns runs;
  WFSimulation simulation(1);
  StorePtr store = store_test::open_wrapped(
      store_test::fresh_url(), {},
      [](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
        return std::make_unique<HesitantBackend>(std::move(backend));
      });
  simulation.spawn([&] {
    WFStoreHandlerOptions options;
    options.max_running = 1;
    EXPECT_EQ(store->handle("kind", runs.handler(*store), options), 0);
    EXPECT_TRUE(store->schedule({"tea", milliseconds(10), "kind"}).ok());
    simulation.sleep_for(hours(1));
  });
  EXPECT_TRUE(simulation.run().ok());
  ASSERT_EQ(runs.count(), 1U);
  EXPECT_GT(runs.at(0).lateness, microseconds(0));
  EXPECT_LE(runs.at(0).lateness, milliseconds(2));
  store.reset();
  EXPECT_TRUE(simulation.stop().ok());
}

// Notes when it is asked for timers.
class TimedClaims final : public store_test::BackendAround {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Times {
    std::mutex mutex;
    std::vector<Time> times;
  };
  TimedClaims(std::unique_ptr<workflow::StoreBackend> backend, Times& times)
      : BackendAround(std::move(backend)), times_(times) {}
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    for (const workflow::StoreRequest* request : requests) {
      if (std::holds_alternative<workflow::ClaimRequest>(request->what)) {
        const std::lock_guard lock(times_.mutex);
        times_.times.push_back(std::chrono::steady_clock::now());
      }
    }
    return backend_->execute(requests);
  }

 private:
  Times& times_;
};

// Real time: a simulated or manual clock does without these looks.
TEST(StoreGroups, AStoreLooksOnceASecondAlthoughNothingHappens) {
  TimedClaims::Times claims;
  const auto began = std::chrono::steady_clock::now();
  const StorePtr store = store_test::open_wrapped(
      store_test::fresh_url(), {},
      [&](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
        return std::make_unique<TimedClaims>(std::move(backend), claims);
      });
  store->handle("kind", [](WFStoredTimer*) {});
  // The first claim comes because there is a handler, and three because of looks.
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(claims.mutex);
    return claims.times.size() >= 4;
  }));
  const std::lock_guard lock(claims.mutex);
  for (size_t i = 0; i < claims.times.size(); i++) {
    EXPECT_GE(claims.times[i] - began, seconds(i)) << "look " << i;
  }
}

// Takes the clock of the store for one that is ten seconds ahead. That of a Redis is known to
// within the time that a reply takes.
class FastClock final : public store_test::BackendAround {
 public:
  using BackendAround::BackendAround;
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    return backend_->execute(requests);
  }
  int64_t now_us() override { return backend_->now_us() + 10 * workflow::kUsPerSec; }
};

TEST(StoreGroups, NoDateRunsEarlyWhereTheClockOfTheStoreIsNotKnownExactly) {
  SeenRuns runs;
  const StorePtr store = store_test::open_wrapped(
      store_test::fresh_url(), {},
      [](std::unique_ptr<workflow::StoreBackend> backend, const workflow::StoreBackendOptions&) {
        return std::make_unique<FastClock>(std::move(backend));
      });
  store->handle("kind", runs.handler(*store));
  const WFStoreDue due = WFStoreDue::every(seconds(1), std::chrono::system_clock::now());
  EXPECT_TRUE(store->schedule({"a", due, "kind"}).ok());
  EXPECT_TRUE(eventually([&runs] { return runs.count() > 0; }));
  EXPECT_LE(runs.at(0).due, std::chrono::system_clock::now());
}

// A hint of another process may be missing: then its timers are found within about a second.
TEST(StoreGroups, ATimerIsFoundWithoutAHint) {
  const std::string url = store_test::fresh_url();
  SeenRuns runs;
  const StorePtr other = store_test::open_store(url);
  workflow::StoreFailure failure;
  const auto make = [&](workflow::StoreBackendOptions options, workflow::StoreFailure* why) {
    options.changed = nullptr;
    return workflow::open_memory_backend(url.substr(url.find(':') + 1), options, &why->error,
                                         &why->message);
  };
  const StorePtr store(workflow::StoreOpener::open({}, make, &failure));
  ASSERT_TRUE(store) << failure.message;
  store->handle("kind", runs.handler(*store));
  for (size_t i = 1; i <= 2; i++) {
    ASSERT_TRUE(other->schedule({"tea", seconds(0), "kind"}).ok());
    ASSERT_TRUE(runs.wait_for(i));
  }
  // Generously: a busy machine looks later, but no timer waits for another reason to look.
  EXPECT_LT(runs.at(1).lateness, seconds(30));
}

// The page through which processes tell each other is gone: each of two stores has one of its own.
TEST(StoreGroups, ATimerInAFileIsFoundWithoutTheSharedPage) {
  const test_support::FastDir directory;
  const std::string path = directory.path("timers");
  CountingBackend::Counts counts;
  SeenRuns runs;
  workflow::StoreFailure failure;
  const auto make = [&](workflow::StoreBackendOptions options, workflow::StoreFailure* why) {
    options.changed = [&counts, changed = options.changed] {
      ++counts.news;
      changed();
    };
    return std::make_unique<CountingBackend>(
        workflow::open_sqlite_backend(path, options, &why->error, &why->message), counts);
  };
  const StorePtr store(workflow::StoreOpener::open({}, make, &failure));
  ASSERT_TRUE(store) << failure.message;
  store->handle("kind", runs.handler(*store));
  ASSERT_TRUE(store->schedule({"later", hours(1), "kind"}).ok());
  ASSERT_EQ(std::remove((path + "-queue").c_str()), 0);
  const StorePtr other = store_test::open_store("sqlite:" + path);
  ASSERT_TRUE(other->schedule({"now", seconds(0), "kind"}).ok());
  const int claims = counts.claims;
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).name, "now");
  // The first look finds it, unless that was under way just then.
  EXPECT_LE(counts.found_at, claims + 2);
  EXPECT_EQ(counts.news, 0);
  EXPECT_LT(runs.at(0).lateness, seconds(30));  // generously, as above
  // Each goes on with the file, and sees what the other one has stored.
  EXPECT_EQ(other->cancel("later").verdict(), WFStoreVerdict::kWon);
  EXPECT_EQ(store->cancel("later").verdict(), WFStoreVerdict::kDone);
}

// Stores timers in one place after `first` others. Their memory must not be in this process.
void expect_flat_memory(const std::string& url, int first) {
  const StorePtr store = store_test::open_store(url);
  ASSERT_TRUE(store);
  store->handle("kind", [](WFStoredTimer*) {});
  const std::string payload(200, 'p');
  const auto add = [&](int count) {
    for (int i = 0; i < count;) {
      test_support::Tally stored;
      size_t batch = 0;
      for (; batch < 1000 && i < count; batch++, i++) {
        store
            ->create_schedule_task({"timer " + std::to_string(i), hours(1), "kind", payload},
                                   [&](WFStoreTask* task) {
                                     EXPECT_TRUE(task->result().ok());
                                     stored.add();
                                   })
            ->start();
      }
      ASSERT_TRUE(stored.wait_for(batch));
    }
  };
  add(test_support::kSanitized ? 5'000 : first);
  const long before_kib = test_support::used_kib();
  add(test_support::kSanitized ? 5'000 : 60'000);
  const long after_kib = test_support::used_kib();
  std::printf("%ld KiB, then %ld KiB\n", before_kib, after_kib);
  // A block of 48 bytes for each of them would take as much. A sanitizer keeps what was freed.
  EXPECT_TRUE(test_support::kSanitized || after_kib - before_kib < 60'000 * 48 / 1024);
}

TEST(StoreGroups, MemoryDoesNotGrowWithTheNumberOfTimersInAFile) {
  const test_support::FastDir directory;
  // First so many that the cache of 16 MB is full.
  expect_flat_memory("sqlite:" + directory.path("timers"), 90'000);
}

TEST(StoreGroups, MemoryDoesNotGrowWithTheNumberOfTimersInARedis) {
  const redis_test::RedisServer server;
  expect_flat_memory(server.url() + "&namespace=many", 20'000);
}

}  // namespace

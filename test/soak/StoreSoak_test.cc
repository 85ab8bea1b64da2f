#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "soak/LoadLedger.h"
#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/ResidentMemory.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// A store of durable timers under load for a while: WORKFLOW_SOAK_SECONDS (script/soak). What it
// keeps in memory, in its file and its log, or in its server, stays as large as it is.

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test_support::env_number;
using test_support::FastDir;

bool is_long() {
  return std::getenv("WORKFLOW_SOAK_SECONDS") != nullptr;
}

enum class Where { kShared, kOwned, kRedis };

std::string name_of(const testing::TestParamInfo<Where>& info) {
  return info.param == Where::kShared ? "Shared" : info.param == Where::kOwned ? "Owned" : "Redis";
}

// A place for a store. A file is on a disk if the test may take long, where commits are slow, and
// else in memory.
class Place {
 public:
  explicit Place(Where where)
      : is_owned_(where == Where::kOwned),
        server_(where == Where::kRedis ? std::make_unique<redis_test::RedisServer>() : nullptr) {}
  bool is_redis() const { return server_ != nullptr; }
  std::string url() const {
    if (server_) return server_->url() + "&namespace=soak&shards=1";
    return "sqlite:" + path("") + (is_owned_ ? "?layout=owned" : "");
  }
  // How large the file is, or what the server has in its memory.
  long kib() const { return server_ ? server_kib() : file_kib(""); }
  long log_kib() const { return server_ ? 0 : file_kib("-wal"); }

 private:
  long server_kib() const {
    const std::string line = "\nused_memory:";
    const std::string said = redis_test::info(server_->url(), "memory");
    const size_t begin = said.find(line);
    EXPECT_NE(begin, std::string::npos);
    return begin == std::string::npos ? 0 : std::stol(said.substr(begin + line.size())) / 1024;
  }
  long file_kib(const std::string& suffix) const {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path(suffix), error);
    return error ? 0 : static_cast<long>(bytes / 1024);
  }
  std::string path(const std::string& suffix) const {
    const std::string name = "timers" + suffix;
    return is_long() ? disk_.path(name) : fast_.path(name);
  }

  const bool is_owned_;
  const std::unique_ptr<redis_test::RedisServer> server_;
  const test_support::TempDir disk_;
  const FastDir fast_;
};

// The memory of a server is known exactly. What it has of timers varies with the load.
bool is_flat_at(const Place& place, long before_kib, long after_kib) {
  if (!place.is_redis()) return test_support::is_flat(before_kib, after_kib);
  return after_kib <= before_kib + before_kib / 20 + 256;
}

// Timers that come and go at a rate. Nine of ten are due in an hour and are cancelled a little
// later, and one is due soon and runs. A ledger judges what the store says and does.
class Load {
 public:
  // Operations per second.
  static constexpr int64_t kRate = 10'000;
  // So many timers wait to be cancelled.
  static constexpr size_t kStored = 1'000;

  // At most `max_under_way` operations are under way at a time, so a slow machine has a lower rate.
  // The load has to end within `longest`.
  Load(WFTimerStore& store, int64_t max_under_way, seconds longest)
      : store_(store),
        max_under_way_(max_under_way),
        // A timer takes two operations, or one if it runs.
        ledger_(static_cast<size_t>(longest.count() * kRate * 6 / 10)) {
    WFStoreHandlerOptions options;
    options.max_running = 1000;
    store_.handle(
        "load",
        [this](WFStoredTimer* timer) {
          begun += ledger_.has_started(number_of(timer->name()), timer->attempt()) ? 1 : 0;
        },
        options);
  }

  // What is to be done by now, since the last call.
  void go_on() {
    const auto now = steady_clock::now();
    const auto elapsed = std::min<steady_clock::duration>(now - last_, milliseconds(100));
    last_ = now;
    owed_ += std::chrono::duration<double>(elapsed).count() * static_cast<double>(kRate);
    for (; owed_ >= 1 && under_way < max_under_way_; owed_--) {
      if (!cancel_one(kStored)) {
        schedule_one();
      }
    }
    owed_ = std::min(owed_, static_cast<double>(kRate));
  }

  // Whether so many timers wait as shall, and the store has forgotten the first requests.
  bool is_full(size_t remembered) {
    const std::lock_guard lock(mutex_);
    return stored_.size() >= kStored && static_cast<size_t>(operations) > 2 * remembered;
  }

  // Ends all that is left. Returns whether all is over in time.
  bool finish() {
    const auto end = steady_clock::now() + test_support::kPatience;
    for (;;) {
      while (cancel_one(0)) {
      }
      // In this order: a callback may leave something to be cancelled.
      if (under_way == 0 && begun == soon && !cancel_one(0)) return true;
      if (steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  // The memory of the ledger.
  long ledger_kib() const { return static_cast<long>(ledger_.kib()); }
  std::string first_fault() const { return ledger_.first_fault(); }

  std::atomic<int64_t> scheduled{0}, soon{0}, begun{0}, cancelled{0}, operations{0};
  std::atomic<int64_t> under_way{0};

 private:
  static constexpr std::string_view kPrefix = "load ";

  static std::string name_of(size_t number) {
    return std::string(kPrefix) + std::to_string(number);
  }
  static size_t number_of(const std::string& name) {
    return std::stoull(name.substr(kPrefix.size()));
  }

  void schedule_one() {
    ASSERT_FALSE(ledger_.is_full());
    constexpr milliseconds kSoon{100};
    const size_t number = ledger_.begin(kSoon);
    const bool is_soon = soak::LoadLedger::is_soon(number);
    under_way++;
    WFStoreTimer timer;
    timer.name = name_of(number);
    timer.due = is_soon ? std::chrono::nanoseconds(kSoon) : hours(1);
    timer.kind = "load";
    timer.payload = std::string(100, 'p');
    store_
        .create_schedule_task(timer,
                              [this, number, is_soon](WFStoreTask* task) {
                                if (task->result().ok()) {
                                  ledger_.is_stored(number);
                                }
                                scheduled++;
                                soon += is_soon ? 1 : 0;
                                if (!is_soon) {
                                  const std::lock_guard lock(mutex_);
                                  stored_.push_back(number);
                                }
                                end_one();
                              })
        ->start();
  }

  // False if there are not more than so many.
  bool cancel_one(size_t more_than) {
    size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stored_.size() <= more_than) return false;
      number = stored_.front();
      stored_.pop_front();
    }
    under_way++;
    store_
        .create_cancel_task(name_of(number),
                            [this, number](WFStoreTask* task) {
                              if (task->result().verdict() == WFStoreVerdict::kWon) {
                                ledger_.is_cancelled(number);
                              }
                              cancelled++;
                              end_one();
                            })
        ->start();
    return true;
  }

  void end_one() {
    operations++;
    under_way--;
  }

  WFTimerStore& store_;
  const int64_t max_under_way_;
  soak::LoadLedger ledger_;
  double owed_ = 0;
  steady_clock::time_point last_ = steady_clock::now();
  std::mutex mutex_;
  std::deque<size_t> stored_;
};

// The largest value of a part of the samples.
long largest(const std::vector<long>& samples, size_t part, size_t parts) {
  const auto place = [&](size_t of) {
    return samples.begin() + static_cast<std::ptrdiff_t>(samples.size() * of / parts);
  };
  return *std::max_element(place(part), place(part + 1));
}

class StoreSoak : public testing::TestWithParam<Where> {};

TEST_P(StoreSoak, WhatItKeepsStaysFlatUnderLoad) {
  const Place place(GetParam());
  const milliseconds time = seconds(env_number("WORKFLOW_SOAK_SECONDS", place.is_redis() ? 2 : 5));
  WFStoreOptions options;
  // What a store remembers fills the file first. In a short test that has to be soon.
  options.remembered = is_long() ? 10'000 : 500;
  std::string message;
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(place.url(), options, &message));
  ASSERT_TRUE(store) << message;
  // Until it is full, while it is measured, and until everything has ended.
  const seconds longest = std::chrono::ceil<seconds>(time + 2 * test_support::kPatience);
  // Few for a Redis and in a short test, or the number of timers, and of the requests that wait for
  // a busy machine, would vary by more than what is looked for.
  Load load(*store, place.is_redis() || !is_long() ? 500 : 5'000, longest);
  // The memory in use by the process, and what is resident of it, both without the ledger.
  std::vector<long> used_kib;
  std::vector<long> resident_kib;
  std::vector<long> place_kib;
  std::vector<long> log_kib;
  EXPECT_TRUE(test_support::eventually([&] {
    load.go_on();
    return load.is_full(options.remembered);
  }));
  const int64_t operations_before = load.operations;
  const auto begin = steady_clock::now();
  for (size_t next = 1; next <= 40;) {
    load.go_on();
    std::this_thread::sleep_for(milliseconds(1));
    if (steady_clock::now() - begin >= time * next / 40) {
      used_kib.push_back(test_support::used_kib() - load.ledger_kib());
      resident_kib.push_back(test_support::resident_kib() - load.ledger_kib());
      place_kib.push_back(place.kib());
      log_kib.push_back(place.log_kib());
      next++;
    }
  }
  const int64_t rate = (load.operations - operations_before) * 1000 / time.count();
  EXPECT_TRUE(load.finish());
  // The last runs have begun, and their ends may be under way.
  EXPECT_TRUE(test_support::eventually([&store] {
    const WFStoreResult left = store->count("load ");
    return left.ok() && left.count == 0;
  }));
  store->close(test_support::kPatience);
  std::printf(
      "%s: %lld s; %lld operations per second; %lld timers, %lld cancelled, %lld begun; in the "
      "second and last quarter in use %ld and %ld KiB, resident %ld and %ld KiB, file or server "
      "%ld "
      "and %ld KiB, log %ld and %ld KiB\n",
      place.url().c_str(), static_cast<long long>(time.count() / 1000),
      static_cast<long long>(rate), static_cast<long long>(load.scheduled),
      static_cast<long long>(load.cancelled), static_cast<long long>(load.begun),
      largest(used_kib, 1, 4), largest(used_kib, 3, 4), largest(resident_kib, 1, 4),
      largest(resident_kib, 3, 4), largest(place_kib, 1, 4), largest(place_kib, 3, 4),
      largest(log_kib, 1, 4), largest(log_kib, 3, 4));
  EXPECT_EQ(load.first_fault(), "");
  EXPECT_EQ(load.scheduled, load.cancelled + load.begun);
  EXPECT_GT(load.cancelled, 500);
  EXPECT_GE(load.cancelled * 10, load.scheduled * 9);
  if (is_long() && !test_support::kSanitized) {
    // What is flat at a trickle says little.
    EXPECT_GE(rate, Load::kRate * 95 / 100);
  }
  EXPECT_TRUE(test_support::is_flat(largest(used_kib, 1, 4), largest(used_kib, 3, 4)));
  if (time >= minutes(1)) {  // until then fragmentation grows
    EXPECT_TRUE(test_support::is_flat(largest(resident_kib, 1, 4), largest(resident_kib, 3, 4)));
  }
  EXPECT_TRUE(is_flat_at(place, largest(place_kib, 1, 4), largest(place_kib, 3, 4)));
  // It begins anew at 64 MB, after the commit that is under way then.
  EXPECT_LE(*std::max_element(log_kib.begin(), log_kib.end()), 80 * 1024);
}

INSTANTIATE_TEST_SUITE_P(Places, StoreSoak,
                         testing::Values(Where::kShared, Where::kOwned, Where::kRedis), name_of);

// Stores so many timers that have been due for two hours, as if nobody had been there.
void store_overdue(workflow::StoreBackend& backend, int64_t count) {
  constexpr int64_t kBatch = 1000;
  for (int64_t first = 0; first < count; first += kBatch) {
    std::vector<workflow::StoreRequest> requests;
    const int64_t long_ago_us = backend.now_us() - 7200 * test_support::kSecondUs;
    for (int64_t i = first; i < std::min(first + kBatch, count); i++) {
      requests.push_back(test_support::make_request(
          test_support::schedule("overdue " + std::to_string(i), long_ago_us + i)));
    }
    std::vector<workflow::StoreRequest*> pointers;
    for (workflow::StoreRequest& request : requests) {
      pointers.push_back(&request);
    }
    ASSERT_TRUE(backend.execute(pointers));
  }
}

class StoreSoakLateness : public testing::TestWithParam<Where> {
 protected:
  std::string url() const { return place_.url(); }
  std::unique_ptr<workflow::StoreBackend> open_backend(std::string* message) const {
    const auto options = test_support::options_of(workflow::system_clock(), 1);
    int error = 0;
    if (place_.is_redis()) return workflow::open_redis_backend(url(), options, &error, message);
    const std::string place = url().substr(sizeof "sqlite:" - 1);
    return workflow::open_sqlite_backend(place, options, &error, message);
  }

 private:
  const Place place_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Places, StoreSoakLateness,
                         testing::Values(Where::kShared, Where::kOwned, Where::kRedis), name_of);

// If new timers had to wait for those that are overdue, they would be late by many seconds.
TEST_P(StoreSoakLateness, ANewTimerIsInTimeAmongMostOverdueOnes) {
  const int64_t count = is_long() ? 1'000'000 : test_support::kSanitized ? 20'000 : 100'000;
  constexpr size_t kFresh = 100;
  std::string message;
  {
    const auto backend = open_backend(&message);
    ASSERT_TRUE(backend) << message;
    store_overdue(*backend, count);
  }
  std::mutex mutex;
  std::vector<double> late_ms;
  std::atomic<int64_t> overdue{0};
  test_support::Tally fresh;
  std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url(), &message));
  ASSERT_TRUE(store) << message;
  store->handle("kind", [&](WFStoredTimer* timer) {
    if (timer->name() != "fresh") {
      overdue++;
      return;
    }
    {
      const std::lock_guard lock(mutex);
      late_ms.push_back(static_cast<double>(timer->lateness().count()) / 1000);
    }
    fresh.add();
  });
  for (size_t i = 0; i < kFresh; i++) {
    ASSERT_TRUE(store->schedule({"fresh", milliseconds(10), "kind"}).ok());
  }
  ASSERT_TRUE(fresh.wait_for(kFresh));
  const int64_t begun = overdue;
  store->close(test_support::kPatience);
  std::sort(late_ms.begin(), late_ms.end());
  std::printf("%lld overdue, of which %lld had begun; new timers late by %.1f ms, p99 %.1f ms\n",
              static_cast<long long>(count), static_cast<long long>(begun), late_ms[kFresh / 2],
              late_ms[kFresh - 1]);
  // The overdue ones together take many seconds. How late a timer is on a machine that does nothing
  // else is measured by the benchmarks.
  if (is_long() && !test_support::kSanitized) {
    EXPECT_LT(late_ms[kFresh / 2], 20);
    EXPECT_LT(late_ms[kFresh * 9 / 10], 100);
  }
  EXPECT_LT(late_ms[kFresh / 2], 1000);
  EXPECT_GT(begun, 0);
  EXPECT_LT(begun, count);
}

}  // namespace

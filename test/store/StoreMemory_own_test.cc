#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "store/BackendAround.h"
#include "store/StoreKit.h"
#include "support/Descriptors.h"
#include "support/Eventually.h"
#include "support/MemoryFaults.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFGlobal.h"

// Each allocation of a store and of the library's threads fails in its turn. Every request has an
// answer, what was receipted is not lost, and the store goes on.

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::eventually;
using test_support::kSanitized;

// Lets the thread of the store count among those whose allocations fail.
class CountedBackend final : public store_test::BackendAround {
 public:
  using BackendAround::BackendAround;
  bool execute(std::span<workflow::StoreRequest* const> requests) override {
    fault::counts_here = true;
    return backend_->execute(requests);
  }
  void close() override {
    fault::counts_here = false;
    BackendAround::close();
  }
};

class StoreMemory : public testing::TestWithParam<const char*> {
 protected:
  StoreMemory() {
    WORKFLOW_library_init(&GLOBAL_SETTINGS_DEFAULT);
    if (kind() == "Redis") {
      server_ = std::make_unique<redis_test::RedisServer>();
    }
  }

  std::string kind() const { return GetParam(); }
  std::string url() const {
    return kind() == "Redis" ? server_->url() + "&namespace=memory&shards=2"
                             : directory_.path("timers");
  }

  // A store whose own thread counts. A lost run begins again after a second.
  store_test::StorePtr open_counted() {
    const auto open =
        kind() == "Redis" ? &workflow::open_redis_backend : &workflow::open_sqlite_backend;
    const auto make = [&](const workflow::StoreBackendOptions& options,
                          workflow::StoreFailure* why) -> std::unique_ptr<workflow::StoreBackend> {
      auto backend = open(url(), options, &why->error, &why->message);
      return backend ? std::make_unique<CountedBackend>(std::move(backend)) : nullptr;
    };
    WFStoreOptions options;
    options.lease = seconds(1);
    options.remembered = 100'000;
    workflow::StoreFailure failure;
    store_test::StorePtr store(workflow::StoreOpener::open(options, make, &failure));
    EXPECT_TRUE(store) << failure.message;
    return store;
  }

  // Runs `body` while the first allocation, the second and so on fails, and `more` after it. Under
  // a sanitizer, and of very many allocations, some.
  template <class BODY>
  void fail_each(long more, const BODY& body) {
    test_support::TestRandom random(test_support::test_seed());
    long n = 1;
    long rounds = 0;
    for (int without = 0; without < 5 && !HasFatalFailure(); rounds++) {
      fault::arm(n, more);
      body(n);
      without = fault::disarm() == 0 ? without + 1 : 0;
      const long most = (kSanitized ? 40 : 8) + n / 8;
      n += n < 10 ? 1 : 1 + static_cast<long>(random.below(static_cast<uint64_t>(most)));
    }
    std::printf("%ld rounds, up to allocation %ld\n", rounds, n);
    EXPECT_GT(n, 50);
  }

  const test_support::FastDir directory_;
  std::unique_ptr<redis_test::RedisServer> server_;
};

// What was receipted, and what has begun. Thread-safe.
class Ledger {
 public:
  void must_run(const std::string& name) {
    const std::lock_guard lock(mutex_);
    must_run_.insert(name);
  }
  void must_not_run(const std::string& name) {
    const std::lock_guard lock(mutex_);
    must_not_run_.insert(name);
  }
  void begin(const std::string& name) {
    const std::lock_guard lock(mutex_);
    begun_.insert(name);
  }
  bool has_begun(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return begun_.count(name) != 0;
  }
  // The first that must run and has not; empty if there is none.
  std::string missing() const {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : must_run_) {
      if (begun_.count(name) == 0) return name;
    }
    return {};
  }
  std::string wrong() const {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : must_not_run_) {
      if (begun_.count(name) != 0) return name;
    }
    return {};
  }
  size_t receipts() const { return must_run_.size(); }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> must_run_;
  std::set<std::string> must_not_run_;
  std::set<std::string> begun_;
};

// The true answer to a request. It is asked for again while there is no memory. One that was not
// carried out, and never will be, has not succeeded.
WFStoreResult settle(WFTimerStore& store, WFStoreResult result) {
  if (result.verdict() != WFStoreVerdict::kInDoubt) return result;
  const WFStoreRequestId request = result.request;
  EXPECT_TRUE(eventually([&] {
    result = store.ask(request);
    return result.verdict() != WFStoreVerdict::kInDoubt && result.error != ENOMEM;
  }));
  if (result.ok() && result.verdict() == WFStoreVerdict::kUnknown) {
    result.state = WFT_STATE_SYS_ERROR;
    result.error = ECANCELED;
  }
  return result;
}

TEST_P(StoreMemory, WhatWasReceiptedIsNotLost) {
  for (const long more : {0L, 30L}) {
    Ledger ledger;
    const store_test::StorePtr store = open_counted();
    WFStoreHandlerOptions handler;
    handler.retry_delay = milliseconds(1);
    handler.max_attempts = 0;
    ASSERT_EQ(
        store->handle(
            "kind", [&ledger](WFStoredTimer* timer) { ledger.begin(timer->name()); }, handler),
        0);
    ASSERT_TRUE(store->schedule({"first", seconds(0), "kind"}).ok());
    fail_each(more, [&](long n) {
      const std::string number = std::to_string(more) + '/' + std::to_string(n);
      const std::string now = "now " + number;
      const std::string later = "later " + number;
      const std::string moved = "moved " + number;
      const WFStoreResult scheduled = settle(*store, store->schedule({now, seconds(0), "kind"}));
      const WFStoreResult stored = settle(*store, store->schedule({later, hours(1), "kind"}));
      const WFStoreResult cancelled = settle(*store, store->cancel(later));
      const WFStoreResult waiting = settle(*store, store->schedule({moved, hours(1), "kind"}));
      const WFStoreResult rescheduled = settle(*store, store->reschedule(moved, seconds(0)));
      if (scheduled.ok() && scheduled.timer != 0) {
        ledger.must_run(now);
        EXPECT_TRUE(eventually([&] { return ledger.has_begun(now) || fault::failures > 0; }));
      } else {
        ledger.must_not_run(now);
      }
      if (stored.ok() && stored.timer != 0 && cancelled.ok()) {
        EXPECT_EQ(cancelled.verdict(), WFStoreVerdict::kWon) << later;
      }
      ledger.must_not_run(later);
      if (waiting.ok() && rescheduled.ok()) {
        EXPECT_EQ(rescheduled.verdict(), WFStoreVerdict::kWon) << moved;
        ledger.must_run(moved);
      }
    });
    EXPECT_TRUE(eventually([&] { return ledger.missing().empty(); })) << ledger.missing();
    EXPECT_EQ(ledger.wrong(), "");
    // Two in each of the last five rounds, in which nothing fails. How many of the others bring one
    // depends on the seed.
    EXPECT_GE(ledger.receipts(), 10U);
    // The last failure may have closed the store, which is opened again after a pause.
    EXPECT_TRUE(eventually([&] { return store->schedule({"last", seconds(0), "kind"}).ok(); }));
    EXPECT_TRUE(eventually([&] { return ledger.has_begun("last"); }));
    EXPECT_TRUE(store->close(test_support::kPatience));
  }
}

// Opening may throw, or say that there is no memory. Then it has changed nothing.
TEST_P(StoreMemory, WhatCannotBeOpenedIsOpenedLater) {
  ASSERT_TRUE(open_counted()->schedule({"tea", hours(1), "kind"}).ok());
  const std::string place = kind() == "Redis" ? url() : "sqlite:" + url();
  // Whatever is made at the first use.
  delete WFTimerStore::open(place);
  const size_t descriptors = test_support::descriptor_count();
  long failed = 0;
  fail_each(0, [&](long n) {
    std::unique_ptr<WFTimerStore> store;
    fault::counts_here = true;
    try {
      store.reset(WFTimerStore::open(place));
      failed += store ? 0 : 1;
    } catch (const std::bad_alloc&) {
      failed++;
    }
    fault::counts_here = false;
    const WFStoreResult count = store ? store->count("tea") : WFStoreResult();
    EXPECT_TRUE(!store || !count.ok() || count.count == 1) << n;
  });
  EXPECT_GT(failed, 0);
  EXPECT_EQ(open_counted()->count("tea").count, 1U);
  EXPECT_TRUE(eventually([&] { return test_support::descriptor_count() <= descriptors; }));
}

// A store in memory is made for tests, and promises nothing when memory runs out.
std::string backend_of(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
TEST(RedisValueMemory, ACopyThatFailsChangesNothing) {
  protocol::RedisValue from;
  from.set_array(3);
  from[0].set_string(std::string(100, 'a'));
  from[1].set_array(2);
  from[1][1].set_error(std::string(100, 'b'));
  from[2].set_int(3);
  fault::counts_here = true;
  int failures = 0;
  for (long n = 1;; n++, failures++) {
    protocol::RedisValue to;
    to.set_string("before");
    fault::arm(n);
    try {
      to = from;
    } catch (const std::bad_alloc&) {
    }
    if (fault::disarm() == 0) {
      EXPECT_EQ(to.debug_string(), from.debug_string());
      break;
    }
    EXPECT_EQ(to.debug_string(), "\"before\"");
  }
  fault::counts_here = false;
  EXPECT_EQ(failures, 4);  // two arrays and two texts
}

INSTANTIATE_TEST_SUITE_P(Backends, StoreMemory, testing::Values("Sqlite", "Redis"), backend_of);

}  // namespace

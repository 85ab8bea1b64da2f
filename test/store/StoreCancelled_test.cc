#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "store/PlaceOfTimers.h"
#include "store/StoreKit.h"
#include "store/StoreOpener.h"
#include "support/Eventually.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// A run is under way in one store, while another store of the same place cancels its timer. Real
// time, since messages of a Redis and of other processes need some.

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_test::Gate;
using store_test::open_store;
using store_test::SeenRuns;
using store_test::StorePtr;
using test_support::eventually;
using testing::ElementsAre;

// Ends what waits when the test is over, also if it has failed.
struct Opens {
  ~Opens() { gate.open(); }
  Gate& gate;
};

class StoreCancelled : public testing::TestWithParam<const char*> {
 protected:
  // A store that hears nothing from others.
  StorePtr open_deaf(const WFStoreOptions& options) {
    const std::string kind = GetParam();
    workflow::StoreFailure failure;
    const auto make = [&](workflow::StoreBackendOptions its, workflow::StoreFailure* why) {
      its.changed = [] {};
      const std::string& url = place_.url();
      if (kind == "Redis") {
        return workflow::open_redis_backend(url, its, &why->error, &why->message);
      }
      const std::string rest = url.substr(url.find(':') + 1);
      return kind == "Sqlite"
                 ? workflow::open_sqlite_backend(rest, its, &why->error, &why->message)
                 : workflow::open_memory_backend(rest, its, &why->error, &why->message);
    };
    StorePtr store(workflow::StoreOpener::open(options, make, &failure));
    EXPECT_TRUE(store) << failure.message;
    return store;
  }

  // Runs a timer in a store, and cancels it in another one. Its series waits until it is told.
  void cancel_elsewhere(StorePtr its_store) {
    SeenRuns runs;
    Gate gate;
    std::atomic<bool> told{false};
    const StorePtr store = std::move(its_store);  // goes before what its handler uses
    const Opens opens{gate};
    const StorePtr other = open_store(place_.url());
    store->handle("kind", runs.handler(*store, [&](WFStoredTimer* timer) {
      EXPECT_FALSE(timer->cancelled());
      *series_of(timer) << gate.wait()
                        << WFTaskFactory::create_timer_task(0, 0, [&, timer](WFTimerTask*) {
                             told = timer->cancelled() && timer->scope().error() == ECANCELED;
                             timer->retry_after(seconds(0));
                           });
    }));
    const uint64_t timer = store->schedule({"tea", seconds(0), "kind"}).timer;
    ASSERT_TRUE(runs.wait_for(1));
    const WFStoreResult cancelled = other->cancel("tea");
    ASSERT_EQ(cancelled.answers.size(), 1U);
    EXPECT_EQ(cancelled.verdict(), WFStoreVerdict::kRunning);
    EXPECT_EQ(cancelled.answers[0].owner, "the owner");
    EXPECT_EQ(cancelled.answers[0].timer, timer);
    EXPECT_EQ(cancelled.answers[0].fence, runs.at(0).fence);
    ASSERT_TRUE(gate.wait_for_ended(1));
    EXPECT_THAT(gate.errors(), ElementsAre(ECANCELED));
    // The retry would keep it in the store until its second run.
    ASSERT_TRUE(eventually([&] { return other->count("tea").count == 0; }));
    EXPECT_TRUE(told);
    EXPECT_EQ(runs.count(), 1U);
    const WFStoreResult again = other->cancel("tea");
    ASSERT_EQ(again.answers.size(), 1U);
    EXPECT_EQ(again.verdict(), WFStoreVerdict::kDone);
    EXPECT_EQ(again.answers[0].outcome, WFStoreOutcome::kCancelled);
  }

  static WFStoreOptions options_of_owner(seconds lease) {
    WFStoreOptions options;
    options.owner = "the owner";
    options.lease = lease;
    return options;
  }

  store_test::PlaceOfTimers place_{GetParam()};
};

// It extends its leases after hours, so another one must tell it.
TEST_P(StoreCancelled, TheOwnerIsToldAndNoRetryFollows) {
  cancel_elsewhere(open_store(place_.url(), options_of_owner(hours(24))));
}

TEST_P(StoreCancelled, AnOwnerThatHearsNothingLearnsOfItWhenItExtendsItsLeases) {
  cancel_elsewhere(open_deaf(options_of_owner(seconds(9))));
}

INSTANTIATE_TEST_SUITE_P(Each, StoreCancelled, testing::Values("Memory", "Sqlite", "Redis"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

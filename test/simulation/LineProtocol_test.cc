// Guards, resource pools and message queues under every interleaving that many seeds find: see
// WaitingLedger for what is asserted of each scenario beside its own.

#include <gtest/gtest.h>

#include <functional>

#include "WaitingLedger.h"
#include "support/Seeds.h"
#include "workflow/WFMessageQueue.h"

namespace {

// Guards --------------------------------------------------------------------------------------

// What holders of "r" do: nobody else does it meanwhile.
class Resource {
 public:
  explicit Resource(bool safely) : safely_(safely) {}

  // In the callback of a holder.
  std::function<void()> user() {
    return [this] {
      EXPECT_EQ(users_, 0);
      users_++;
      WFSimulation::point();
      users_--;
      uses_++;
      passed_ += safely_ ? WFTaskFactory::release_guard_safe("r", this)
                         : WFTaskFactory::release_guard("r", this);
    };
  }
  int uses() const { return uses_; }
  int passed() const { return passed_; }

 private:
  const bool safely_;
  int users_ = 0;
  int uses_ = 0;
  int passed_ = 0;
};

TEST(LineProtocol, ReleaseMeetsDispatchAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    Resource resource(seed % 3 == 0);
    for (int thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&] {
        ledger.guard("r", resource.user())->start();
        ledger.guard("r", resource.user())->start();
        ledger.dismiss(ledger.guard("r", nullptr));
      });
    }
    end(ledger, seed);
    EXPECT_LE(resource.uses(), 6);
    if (seed % 2) {
      EXPECT_EQ(resource.uses(), 6);
    }
  });
}

TEST(LineProtocol, ReleaseMeetsTheStopWhileGuardsWait) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    Resource resource(seed % 3 == 0);
    ledger.guard("r", nullptr)->start();
    for (int i = 0; i < 4; i++) {
      ledger.simulation().spawn([&] { ledger.guard("r", resource.user())->start(); });
    }
    ledger.simulation().spawn([&] {
      ledger.simulation().sleep_for(static_cast<int64_t>(seed % 3));
      WFTaskFactory::release_guard("r", nullptr);
    });
    end(ledger, seed);
    EXPECT_LE(resource.passed(), resource.uses());
  });
}

TEST(LineProtocol, CancelledSeriesPassTheResourceOn) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    Resource resource(seed % 3 == 0);
    int ended = 0;
    // Holds the series that wait in line back until they are cancelled or not.
    ledger.guard("r", nullptr)->start();
    ledger.run();
    for (int i = 0; i < 3; i++) {
      WFConditional* guard = ledger.guard("r", resource.user());
      ledger.record_of(guard).may_be_cancelled = i != 1;
      SeriesWork* series = Workflow::create_series_work(guard, [&](const SeriesWork*) { ended++; });
      series->start();
      if (i != 1) {
        // The holder has not released: the series runs.
        series->cancel();
      }
    }
    for (int i = 0; i < 2; i++) {
      ledger.simulation().spawn([&] { ledger.guard("r", resource.user())->start(); });
    }
    int passed = 0;
    ledger.simulation().spawn([&] { passed = WFTaskFactory::release_guard("r", nullptr); });
    end(ledger, seed);
    EXPECT_EQ(ended, 3);
    EXPECT_LE(resource.uses(), 3);
    if (seed % 2) {
      EXPECT_EQ(passed, 1);
      EXPECT_EQ(resource.uses(), 3);
    }
  });
}

// Pools and queues ------------------------------------------------------------------------------

TEST(LineProtocol, PostMeetsGetAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFResourcePool pool(2);
    WaitingLedger ledger(seed, threads_of(seed));
    int users = 0;
    int uses = 0;
    for (int thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&] {
        for (int i = 0; i < 2; i++) {
          ledger
              .getter(pool,
                      [&] {
                        users++;
                        EXPECT_LE(users, 2);
                        WFSimulation::point();
                        users--;
                        uses++;
                        pool.post(nullptr);
                      })
              ->start();
        }
        ledger.dismiss(ledger.getter(pool, nullptr));
      });
    }
    end(ledger, seed);
    EXPECT_LE(uses, 6);
    if (seed % 2) {
      EXPECT_EQ(uses, 6);
    }
  });
}

TEST(LineProtocol, MessagesAreNeitherLostNorDoubled) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFMessageQueue queue;
    WaitingLedger ledger(seed, threads_of(seed));
    constexpr size_t kMessages = 6;
    int got[kMessages] = {};
    void* slots[kMessages] = {};
    const auto take = [&](size_t i) {
      ledger
          .getter(
              queue,
              [&, i] { got[static_cast<int*>(slots[i]) - static_cast<int*>(ledger.message(0))]++; },
              &slots[i])
          ->start();
    };
    for (size_t thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&, thread] {
        queue.post(ledger.message(2 * thread));
        queue.post(ledger.message(2 * thread + 1));
      });
      ledger.simulation().spawn([&, thread] {
        take(thread);
        take(thread + 3);
      });
    }
    end(ledger, seed);
    for (const int times : got) {
      EXPECT_LE(times, 1);
      EXPECT_TRUE(times == 1 || seed % 2 == 0);
    }
  });
}

TEST(LineProtocol, WhatIsPostedWhileGettersAreAbortedIsKept) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    constexpr size_t kPosts = 3;
    WFResourcePool pool(0);
    {
      WaitingLedger ledger(seed, threads_of(seed));
      for (int i = 0; i < 4; i++) {
        ledger.getter(pool, nullptr)->start();
      }
      for (size_t i = 0; i < kPosts; i++) {
        ledger.simulation().spawn([&] { pool.post(nullptr); });
      }
      ledger.close();
      const size_t taken = ledger.ended(WFT_STATE_SUCCESS);
      for (size_t i = 0; i < kPosts; i++) {
        ledger.getter(pool, nullptr)->start();
      }
      EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS), kPosts) << taken << " taken before";
    }
    // Nobody is in line any more whose simulation is gone.
    pool.post(nullptr);
  });
}

TEST(LineProtocol, CancelledSeriesGiveTheirResourceBack) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFResourcePool pool(1);
    WaitingLedger ledger(seed, threads_of(seed));
    int uses = 0;
    ledger.getter(pool, nullptr)->start();
    ledger.run();
    for (int i = 0; i < 4; i++) {
      WFConditional* getter = ledger.getter(pool, [&] {
        uses++;
        pool.post(nullptr);
      });
      ledger.record_of(getter).may_be_cancelled = i % 2;
      SeriesWork* series = Workflow::create_series_work(getter, nullptr);
      series->start();
      if (i % 2) {
        series->cancel();
      }
    }
    ledger.simulation().spawn([&] { pool.post(nullptr); });
    end(ledger, seed);
    EXPECT_LE(uses, 2);
    if (seed % 2) {
      EXPECT_EQ(uses, 2);
    }
  });
}

}  // namespace

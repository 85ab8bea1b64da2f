#include "kernel/CancelScope.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/Runtime.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Mutex.h"

using ScopeKind = workflow::CancelScope::Kind;
using test_support::Tally;
using test_support::TestRandom;
using workflow::CancelRegistration;
using workflow::CancelScope;
using workflow::Mutex;
using workflow::MutexLock;
using workflow::Runnable;
using workflow::Runtime;

namespace {

struct DropReference {
  void operator()(CancelScope* scope) const { scope->release(); }
};
using ScopeRef = std::unique_ptr<CancelScope, DropReference>;

class Waiter;

// The registration of a series, which runs one waiter after the other.
class Series final : public CancelRegistration {
 public:
  Waiter* waiter = nullptr;

 private:
  void on_cancel(int reason) override;
};

// Where waiters wait, so that others find them.
struct Place {
  Mutex mutex;
  std::set<Waiter*> waiters WF_GUARDED_BY(mutex);
};

// A task that waits until it is finished or cancelled. It deletes itself in its turn on a handler,
// as tasks do.
class Waiter final : public Runnable {
 public:
  using Callback = std::function<void(int error)>;

  Waiter(CancelScope& scope, Series& series, Place& place, Callback callback)
      : scope_(scope), series_(series), place_(place), callback_(std::move(callback)) {}

  // May free this.
  void start() {
    series_.waiter = this;
    const int refused = scope_.enter(series_, ScopeKind::kOther);
    if (refused != 0) {
      error_ = refused;
      Runtime::current().handlers().post(this);
      return;
    }
    int reason = 0;
    {
      MutexLock lock(place_.mutex);
      reason = scope_.reason();
      if (reason == 0) {
        place_.waiters.insert(this);
      }
    }
    if (reason != 0) {
      complete(reason);
    }
  }

  // Ends one waiter of the place, whichever, as if what it waits for had come.
  static bool finish_one(Place& place) {
    Waiter* waiter = nullptr;
    {
      MutexLock lock(place.mutex);
      if (place.waiters.empty()) return false;
      waiter = *place.waiters.begin();
      place.waiters.erase(waiter);
    }
    waiter->complete(0);
    return true;
  }

  void on_cancel(int reason) {
    calls_++;
    bool owns = false;
    {
      MutexLock lock(place_.mutex);
      owns = place_.waiters.erase(this) == 1;
    }
    if (owns) {
      complete(reason);
    }
    EXPECT_EQ(calls_, 1);  // this has not been freed
  }

  void run_queued() override {
    const Callback callback = std::move(callback_);
    const int error = error_;
    delete this;
    callback(error);
  }

 private:
  void complete(int error) {
    error_ = error;
    if (scope_.leave(series_, this)) {
      Runtime::current().handlers().post(this);
    }
  }

  CancelScope& scope_;
  Series& series_;
  Place& place_;
  Callback callback_;
  int error_ = -1;
  int calls_ = 0;
};

void Series::on_cancel(int reason) {
  waiter->on_cancel(reason);
}

class CancelScopeTest : public testing::Test {
 protected:
  Waiter* waiter() {
    return new Waiter(*scope_, series_, place_, [this](int error) {
      error_ = error;
      ended_.add();
    });
  }

  ScopeRef scope_{new CancelScope};
  Series series_;
  Place place_;
  std::atomic<int> error_{-1};
  Tally ended_;
};

// Calls a function instead of ending anything.
class RegisteredFunction final : public CancelRegistration {
 public:
  explicit RegisteredFunction(std::function<void(int)> function) : function_(std::move(function)) {}

 private:
  void on_cancel(int reason) override { function_(reason); }

  const std::function<void(int)> function_;
};

}  // namespace

TEST_F(CancelScopeTest, EndsWhatWaits) {
  waiter()->start();
  EXPECT_EQ(scope_->reason(), 0);
  EXPECT_TRUE(scope_->cancel(ECANCELED));
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(error_, ECANCELED);
  EXPECT_EQ(scope_->reason(), ECANCELED);
}

TEST_F(CancelScopeTest, LetsNothingEnterAfterwards) {
  EXPECT_TRUE(scope_->cancel(ETIMEDOUT));
  waiter()->start();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(error_, ETIMEDOUT);
}

TEST_F(CancelScopeTest, TheFirstReasonCounts) {
  EXPECT_TRUE(scope_->cancel(ETIMEDOUT));
  EXPECT_FALSE(scope_->cancel(ECANCELED));
  EXPECT_EQ(scope_->reason(), ETIMEDOUT);
}

TEST_F(CancelScopeTest, DoesNotTouchWhatHasEnded) {
  waiter()->start();
  EXPECT_TRUE(Waiter::finish_one(place_));
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(error_, 0);
  EXPECT_TRUE(scope_->cancel(ECANCELED));
  EXPECT_EQ(ended_.count(), 1u);
}

TEST_F(CancelScopeTest, ARegistrationServesOneTargetAfterTheOther) {
  for (size_t i = 1; i <= 3; i++) {
    waiter()->start();
    EXPECT_TRUE(Waiter::finish_one(place_));
    EXPECT_TRUE(ended_.wait_for(i));
  }
  waiter()->start();
  EXPECT_TRUE(scope_->cancel(ECANCELED));
  EXPECT_TRUE(ended_.wait_for(4));
  EXPECT_EQ(error_, ECANCELED);
}

TEST_F(CancelScopeTest, CallsEachThatHasNotLeft) {
  std::vector<int> order;
  std::vector<std::unique_ptr<RegisteredFunction>> probes;
  for (int i = 0; i < 5; i++) {
    probes.push_back(
        std::make_unique<RegisteredFunction>([&order, i](int) { order.push_back(i); }));
    EXPECT_EQ(scope_->enter(*probes.back(), ScopeKind::kOther), 0);
  }
  EXPECT_TRUE(scope_->leave(*probes[2], nullptr));
  EXPECT_TRUE(scope_->cancel(ECANCELED));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 3, 4}));  // the slot, then the list
}

// Whatever a target calls of its scope, it finds no lock held.
TEST_F(CancelScopeTest, HoldsNoLockWhileItCalls) {
  RegisteredFunction other([](int) {});
  RegisteredFunction probe([&](int reason) {
    EXPECT_EQ(reason, ECANCELED);
    EXPECT_EQ(scope_->reason(), ECANCELED);
    EXPECT_EQ(scope_->enter(other, ScopeKind::kOther), ECANCELED);
    EXPECT_FALSE(scope_->cancel(ETIMEDOUT));
  });
  EXPECT_EQ(scope_->enter(probe, ScopeKind::kOther), 0);
  EXPECT_TRUE(scope_->cancel(ECANCELED));
}

// The target ends on another thread while the canceller calls it.
TEST_F(CancelScopeTest, ATargetThatEndsWhileItIsCalledIsPostedAfterTheCall) {
  std::atomic<bool> call_is_over{false};
  std::atomic<bool> posted_early{false};
  Tally posted;
  class Posted final : public Runnable {
   public:
    explicit Posted(std::function<void()> function) : function_(std::move(function)) {}
    ~Posted() override = default;
    void run_queued() override { function_(); }

   private:
    const std::function<void()> function_;
  } item([&] {
    posted_early = !call_is_over;
    posted.add();
  });
  CancelRegistration* called = nullptr;
  RegisteredFunction probe([&](int) {
    std::thread ender([&] { EXPECT_FALSE(scope_->leave(*called, &item)); });
    ender.join();
    EXPECT_FALSE(posted.wait_for(1, std::chrono::milliseconds(20)));
    call_is_over = true;
  });
  called = &probe;
  EXPECT_EQ(scope_->enter(probe, ScopeKind::kOther), 0);
  EXPECT_TRUE(scope_->cancel(ECANCELED));
  EXPECT_TRUE(posted.wait_for(1));
  EXPECT_FALSE(posted_early);
}

TEST_F(CancelScopeTest, ANestedScopeEndsWithTheOuterOne) {
  const ScopeRef outer(new CancelScope);
  RegisteredFunction nested([this](int reason) { scope_->cancel(reason); });
  EXPECT_EQ(outer->enter(nested, ScopeKind::kTimer), 0);
  waiter()->start();
  EXPECT_TRUE(outer->cancel(ETIMEDOUT));
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(error_, ETIMEDOUT);
  EXPECT_EQ(scope_->reason(), ETIMEDOUT);
}

TEST_F(CancelScopeTest, EndsTimersOnlyIfAskedTo) {
  std::vector<int> called;
  RegisteredFunction timer([&](int reason) { called.push_back(reason); });
  RegisteredFunction late([](int) {});
  waiter()->start();
  EXPECT_EQ(scope_->enter(timer, ScopeKind::kTimer), 0);
  scope_->cancel_timers(ECANCELED);
  EXPECT_EQ(called, std::vector<int>{ECANCELED});
  EXPECT_EQ(scope_->reason(), 0);
  EXPECT_EQ(scope_->enter(late, ScopeKind::kTimer), ECANCELED);
  EXPECT_EQ(ended_.count(), 0u);
  EXPECT_TRUE(scope_->cancel(ETIMEDOUT));
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(error_, ETIMEDOUT);
  EXPECT_EQ(scope_->reason_for(ScopeKind::kTimer), ECANCELED);
}

// Finishers, cancellers and starts race; every waiter ends once, with a reason that fits.
TEST(CancelScopeStress, EveryWaiterEndsOnce) {
  const uint64_t rounds = static_cast<uint64_t>(
      test_support::env_number("WORKFLOW_TEST_ROUNDS", test_support::kSanitized ? 100 : 1000));
  constexpr size_t kMostSeries = 20;
  constexpr size_t kTasks = 5;
  for (uint64_t round = 0; round < rounds; round++) {
    TestRandom random(test_support::test_seed(), round);
    const ScopeRef scope(new CancelScope);
    // With one the slot is used, with two the slot and the list, with many almost only the list.
    const size_t count = random.one_in(2) ? 1 + random.below(2) : kMostSeries;
    std::vector<Series> registrations(count);
    std::vector<std::atomic<int>> reasons(count);
    Place place;
    Tally series_ended;
    // Each series starts its next task in the callback of the one before, until one is cancelled.
    std::function<void(size_t, size_t)> step = [&](size_t series, size_t tasks_left) {
      if (tasks_left == 0) {
        series_ended.add();
        return;
      }
      auto* const waiter =
          new Waiter(*scope, registrations[series], place, [&, series, tasks_left](int error) {
            int expected = 0;
            if (error != 0 && !reasons[series].compare_exchange_strong(expected, error)) {
              EXPECT_EQ(expected, error);
            }
            step(series, tasks_left - 1);
          });
      waiter->start();
    };
    const bool early = random.one_in(4);
    std::thread starter([&] {
      for (size_t series = 0; series < count; series++) {
        step(series, kTasks);
      }
    });
    if (!early) {
      starter.join();
    }
    std::atomic<bool> over{false};
    std::thread finisher([&] {
      while (!over) {
        Waiter::finish_one(place);
      }
    });
    std::atomic<int> winners{0};
    std::thread other([&] { winners += scope->cancel(ETIMEDOUT); });
    winners += scope->cancel(ECANCELED);
    other.join();
    if (early) {
      starter.join();
    }
    ASSERT_TRUE(series_ended.wait_for(count)) << "round " << round;
    over = true;
    finisher.join();
    EXPECT_EQ(winners, 1);
    for (const std::atomic<int>& reason : reasons) {
      EXPECT_TRUE(reason == 0 || reason == scope->reason());
    }
  }
}

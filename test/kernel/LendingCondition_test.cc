#include "kernel/LendingCondition.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kernel/HandlerPool.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "util/Time.h"

using test_support::Item;
using test_support::Tally;
using workflow::HandlerPool;
using workflow::LendingCondition;
using workflow::monotonic_ns;
using workflow::Mutex;
using workflow::MutexLock;

namespace {

// One worker that waits for a word under a condition.
class LendingConditionTest : public ::testing::Test {
 protected:
  LendingConditionTest() { EXPECT_TRUE(pool_.start()); }
  ~LendingConditionTest() override { pool_.stop(); }

  // A worker that waits as soon as it has the mutex.
  void start_to_wait() {
    pool_.post(new Item([this] {
      LendingCondition::Waiter waiter;
      about_to_lock_.add();
      MutexLock lock(mutex_);
      while (!told_) {
        condition_.wait(mutex_, waiter);
      }
      woken_ = true;
    }));
    EXPECT_TRUE(about_to_lock_.wait_for(1));
  }

  void tell() WF_REQUIRES(mutex_) {
    told_ = true;
    condition_.notify_all();
  }

  HandlerPool pool_{1};
  Mutex mutex_;
  LendingCondition condition_;
  Tally about_to_lock_;
  Tally reached_;
  Tally may_end_;
  bool told_ WF_GUARDED_BY(mutex_) = false;
  bool woken_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace

TEST_F(LendingConditionTest, WhoHasNotBegunToWaitIsBusy) {
  MutexLock lock(mutex_);
  start_to_wait();
  EXPECT_FALSE(pool_.idle());
  tell();
}

TEST_F(LendingConditionTest, WhoWaitsIsBlockedUntilItIsNotified) {
  start_to_wait();
  pool_.wait_quiet();
  MutexLock lock(mutex_);
  EXPECT_TRUE(pool_.idle());
  EXPECT_FALSE(woken_);
  tell();
  // It cannot have woken: the mutex is held here.
  EXPECT_FALSE(pool_.idle());
}

TEST_F(LendingConditionTest, AWakeUpChangesWhatWaitQuietReturns) {
  start_to_wait();
  const uint64_t before = pool_.wait_quiet();
  EXPECT_EQ(pool_.wait_quiet(), before);
  {
    MutexLock lock(mutex_);
    tell();
  }
  EXPECT_NE(pool_.wait_quiet(), before);
}

TEST_F(LendingConditionTest, WhoWaitsInVainWaitsAgain) {
  start_to_wait();
  pool_.wait_quiet();
  {
    MutexLock lock(mutex_);
    condition_.notify_all();
  }
  pool_.wait_quiet();
  MutexLock lock(mutex_);
  EXPECT_FALSE(woken_);
  tell();
}

TEST_F(LendingConditionTest, AWaiterWhoseTimeIsUpIsBusyAgain) {
  pool_.post(new Item([this] {
    LendingCondition::Waiter waiter;
    {
      MutexLock lock(mutex_);
      while (condition_.wait_until(mutex_, waiter, monotonic_ns() + 1'000'000)) {
      }
    }
    reached_.add();
    may_end_.wait_for(1);
  }));
  EXPECT_TRUE(reached_.wait_for(1));
  EXPECT_FALSE(pool_.idle());
  may_end_.add();
}

TEST_F(LendingConditionTest, AWaitLendsItsThread) {
  start_to_wait();
  pool_.post(new Item([this] { reached_.add(); }));
  EXPECT_TRUE(reached_.wait_for(1));
  MutexLock lock(mutex_);
  tell();
}

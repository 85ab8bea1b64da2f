// Pools whose supervisor could not be started: nobody looks after what their threads keep to
// themselves, so they keep nothing.

#include <gtest/gtest.h>

#include "ShortItems.h"
#include "kernel/BlockingScope.h"
#include "support/Tally.h"
#include "support/ThreadFaults.h"

namespace {

using namespace test_support;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::HandlerPool;

class Unsupervised : public testing::Test {
 protected:
  explicit Unsupervised() { test_support::threads_left = kThreads; }
  ~Unsupervised() override { test_support::threads_left = -1; }

  // All threads but the supervisor.
  static constexpr int kThreads = 2;
};

}  // namespace

TEST_F(Unsupervised, ItemsBehindABlockedOneRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<HandlerPool>(kThreads);
  EXPECT_EQ(test_support::threads_left, 0);
}

TEST_F(Unsupervised, EachPostWakesAThreadWhileAnotherOneBlocks) {
  Tally begun;
  Tally released;
  Tally others;
  ShortItems<HandlerPool> handlers(kThreads);
  post(*handlers, [&] {
    begun.add();
    EXPECT_TRUE(released.wait_for(1));
  });
  EXPECT_TRUE(begun.wait_for(1));
  for (size_t count = 1; count <= 100; count++) {
    post(*handlers, [&] { others.add(); });
    EXPECT_TRUE(others.wait_for(count));
  }
  released.add();
}

TEST_F(Unsupervised, ComputationsBehindABlockedOneRunElsewhere) {
  expect_items_behind_a_blocked_one_run_elsewhere<ComputePool>(kThreads);
  EXPECT_EQ(test_support::threads_left, 0);
}

// A wait that tells brings a thread without the supervisor, if the system has one.
TEST_F(Unsupervised, LendsWhileAThreadWaitsThatTells) {
  Tally others;
  ShortItems<HandlerPool> pool(kThreads);
  test_support::threads_left = -1;
  for (size_t i = 0; i < 2 * kThreads; i++) {
    post(*pool, [&] {
      const BlockingScope blocking;
      EXPECT_TRUE(others.wait_for(1));
    });
  }
  post(*pool, [&] { others.add(); });
  EXPECT_TRUE(others.wait_for(1));
}

#include "kernel/ComputePool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "PostFunction.h"
#include "kernel/BlockingScope.h"
#include "kernel/Simulation.h"
#include "support/Item.h"
#include "support/Tally.h"
#include "workflow/detail/Runnable.h"

using namespace test_support;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::ComputeQueue;
using workflow::Runnable;

namespace {

// Keeps the only thread of a pool busy until it is opened, so that what is posted meanwhile waits.
class Gate {
 public:
  explicit Gate(ComputePool& pool) {
    post(pool, "gate", [this] {
      closed_.add();
      EXPECT_TRUE(opened_.wait_for(1));
    });
    EXPECT_TRUE(closed_.wait_for(1));
  }
  void open() { opened_.add(); }

 private:
  Tally closed_;
  Tally opened_;
};

}  // namespace

TEST(ComputePool, OneQueueStartsInOrderOfPosting) {
  std::vector<int> order;
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  for (int i = 0; i < 1000; i++) {
    post(pool, "queue", [&order, i] { order.push_back(i); });
  }
  pool.stop();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ComputePool, QueuesTakeTurns) {
  std::vector<std::string> order;
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  Gate gate(pool);
  for (int i = 0; i < 1000; i++) {
    post(pool, "long", [&order] { order.push_back("long"); });
  }
  for (const char* queue : {"a", "b", "c"}) {
    for (int i = 0; i < 10; i++) {
      post(pool, queue, [&order, queue] { order.push_back(queue); });
    }
  }
  gate.open();
  pool.stop();
  ASSERT_EQ(order.size(), 1030u);
  for (size_t turn = 0; turn < 10; turn++) {
    std::vector<std::string> round(order.begin() + static_cast<std::ptrdiff_t>(4 * turn),
                                   order.begin() + static_cast<std::ptrdiff_t>(4 * turn + 4));
    EXPECT_EQ(round, (std::vector<std::string>{"long", "a", "b", "c"})) << "turn " << turn;
  }
}

TEST(ComputePool, AShortQueueDoesNotWaitForALongOne) {
  std::vector<int> order;
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  Gate gate(pool);
  for (int i = 0; i < 500; i++) {
    post(pool, "long", [&order] { order.push_back(0); });
  }
  post(pool, "short", [&order] { order.push_back(1); });
  gate.open();
  pool.stop();
  EXPECT_EQ(std::find(order.begin(), order.end(), 1) - order.begin(), 1);
}

TEST(ComputePool, ItemsOfOneQueueMayRunSideBySide) {
  ComputePool pool(2);
  ASSERT_TRUE(pool.start());
  Tally begun;
  for (int i = 0; i < 2; i++) {
    post(pool, "queue", [&begun] {
      begun.add();
      EXPECT_TRUE(begun.wait_for(2));
    });
  }
  EXPECT_TRUE(begun.wait_for(2));
  pool.stop();
}

// In virtual time, in which a thread takes all items that wait.
TEST(ComputePool, AQueueOfTheUsersPassesToAnotherPoolWhenItsLastItemBegins) {
  constexpr int kItems = 5;
  constexpr int64_t kItemNs = 1000;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    workflow::Simulation simulation(seed, {});
    ComputePool pool(1);
    ComputePool other(1);
    ASSERT_TRUE(pool.start());
    ASSERT_TRUE(other.start());
    const auto queue = std::make_shared<ComputeQueue>();
    int begun = 0;
    bool passed = false;
    for (int i = 0; i < kItems; i++) {
      ASSERT_TRUE(pool.post(queue.get(), new Item([&] {
                              begun++;
                              simulation.sleep_for(kItemNs);
                            })));
    }
    for (int i = 1; i <= kItems; i++) {
      simulation.run_for(i == 1 ? kItemNs / 2 : kItemNs);
      EXPECT_EQ(begun, i);
      Item* const item = new Item([&passed] { passed = true; });
      const bool taken = other.post(queue.get(), item);
      EXPECT_EQ(taken, i == kItems) << "after item " << i << ", seed " << seed;
      if (!taken) {
        delete item;
      }
    }
    simulation.run_for(kItemNs);
    EXPECT_TRUE(passed) << "seed " << seed;
    pool.stop();
    other.stop();
    if (HasFailure()) return;
  }
}

TEST(ComputePool, ANameIsOneQueue) {
  ComputePool pool(1);
  EXPECT_EQ(pool.queue("a"), pool.queue("a"));
  EXPECT_NE(pool.queue("a"), pool.queue("b"));
  EXPECT_NE(pool.queue(""), pool.queue(std::string(1, '\0')));
  EXPECT_EQ(pool.queue(std::string(64 * 1024, 'x')), pool.queue(std::string(64 * 1024, 'x')));
}

TEST(ComputePool, RefusesAfterStop) {
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  ComputeQueue* queue = pool.queue("queue");
  pool.stop();
  Item item([] { ADD_FAILURE() << "ran though it was refused"; });
  EXPECT_FALSE(pool.post(queue, &item));
}

TEST(ComputePool, NothingIsLostBetweenStopAndPost) {
  for (int round = 0; round < 300; round++) {
    ComputePool pool(2);
    ASSERT_TRUE(pool.start());
    ComputeQueue* queue = pool.queue("queue");
    std::atomic<int> runs{0};
    int taken = 0;
    std::thread poster([&] {
      for (int i = 0; i < 50; i++) {
        Item* item = new Item([&runs] { runs++; });
        if (pool.post(queue, item)) {
          taken++;
        } else {
          delete item;
        }
      }
    });
    pool.stop();
    poster.join();
    ASSERT_EQ(runs, taken) << "round " << round;
  }
}

TEST(ComputePool, LendsAThreadToWhatBlocks) {
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  Tally second;
  Tally first;
  post(pool, "queue", [&] {
    BlockingScope scope;
    EXPECT_TRUE(second.wait_for(1));
    first.add();
  });
  post(pool, "queue", [&second] { second.add(); });
  EXPECT_TRUE(first.wait_for(1));
  pool.stop();
}

TEST(ComputePool, ManyQueuesFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kItems = 5000;
  ComputePool pool(2);
  ASSERT_TRUE(pool.start());
  std::atomic<int> runs{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < kItems; i++) {
        post(pool, std::to_string(i % 37), [&runs] { runs++; });
      }
    });
  }
  threads.clear();  // joins them
  pool.stop();
  EXPECT_EQ(runs, kThreads * kItems);
}

TEST(ComputePool, WhatRunsDuringTheStopMayPost) {
  for (int round = 0; round < 200; round++) {
    ComputePool pool(2);
    ASSERT_TRUE(pool.start());
    ComputeQueue* const other = pool.queue("other");
    std::atomic<int> taken{0};
    std::atomic<int> children{0};
    post(pool, "queue", [&] {
      for (int i = 0; i < 3; i++) {
        post(pool, "queue", [&] { post(pool, "third", [&] { children++; }); });
      }
    });
    std::thread poster([&] {
      for (int i = 0; i < 20; i++) {
        Item* item = new Item([&taken] { taken--; });
        if (pool.post(other, item)) {
          taken++;
        } else {
          delete item;
        }
      }
    });
    pool.stop();
    poster.join();
    ASSERT_EQ(children, 3) << "round " << round;
    ASSERT_EQ(taken, 0) << "round " << round;
  }
}

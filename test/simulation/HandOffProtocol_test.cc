// How items reach the workers of the handlers' pool, under every interleaving that many seeds find:
// each item runs once, those of one thread in order if there is one worker, and an item that blocks
// until others have run does not keep them from running.

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <random>
#include <vector>

#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "kernel/Runtime.h"
#include "kernel/Simulation.h"
#include "support/Seeds.h"
#include "util/Mutex.h"

using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::ComputeQueue;
using workflow::CondVar;
using workflow::HandlerPool;
using workflow::Mutex;
using workflow::MutexLock;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::Simulation;

namespace {

// Counts the items that have run, and lets some of them wait for others.
class HandOffLedger {
 public:
  explicit HandOffLedger(size_t posters) : next_(posters, 0) {}

  void ran(size_t poster, size_t number, bool ordered) {
    MutexLock lock(mutex_);
    runs_++;
    if (ordered) {
      EXPECT_EQ(number, next_[poster]);
    }
    next_[poster]++;
    changed_.notify_all();
  }
  void wait_for(size_t runs) {
    MutexLock lock(mutex_);
    while (runs_ < runs) {
      changed_.wait(mutex_);
    }
  }
  size_t runs() {
    MutexLock lock(mutex_);
    return runs_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t runs_ WF_GUARDED_BY(mutex_) = 0;
  std::vector<size_t> next_ WF_GUARDED_BY(mutex_);
};

struct HandOffItem final : public Runnable {
  ~HandOffItem() override = default;
  void run_queued() override {
    if (waits_for > 0 && tells) {
      const BlockingScope blocking;
      ledger->wait_for(waits_for);
    } else if (waits_for > 0) {
      ledger->wait_for(waits_for);
    }
    ledger->ran(poster, number, ordered);
  }

  HandOffLedger* ledger = nullptr;
  HandlerPool* pool = nullptr;
  size_t poster = 0;
  size_t number = 0;
  size_t waits_for = 0;  // how many others must have run
  bool tells = false;    // whether it waits in a BlockingScope
  bool ordered = false;
};

struct HandOffPlan {
  int threads = 2;
  size_t posters = 2;
  size_t items = 6;  // of each
  bool waits = false;
  bool stops = false;
};

void play_hand_off(uint64_t seed, const HandOffPlan& plan) {
  std::mt19937_64 random(seed);
  const size_t count = plan.posters * plan.items;
  HandOffLedger ledger(plan.posters);
  std::vector<HandOffItem> items(count);
  Simulation simulation(seed, {.handler_threads = plan.threads});
  HandlerPool& pool = simulation.runtime().handlers();
  for (size_t i = 0; i < count; i++) {
    HandOffItem& item = items[i];
    item.ledger = &ledger;
    item.pool = &pool;
    item.poster = i / plan.items;
    item.number = i % plan.items;
    item.ordered = plan.threads == 1 && !plan.waits;
  }
  if (plan.waits) {
    HandOffItem& waiting = items[random() % count];
    waiting.waits_for = count - 1;
    waiting.tells = random() % 2 == 0;
  }
  for (size_t poster = 0; poster < plan.posters; poster++) {
    simulation.spawn([&, poster, batch = 1 + random() % 3] {
      for (size_t i = 0; i < plan.items;) {
        RunnableList list;
        for (size_t n = 0; n < batch && i < plan.items; n++, i++) {
          list.push_back(&items[poster * plan.items + i]);
        }
        pool.post(list);
      }
    });
  }
  if (plan.stops) {
    EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
  }
  const auto result = simulation.run();
  EXPECT_EQ(result.outcome, Simulation::Outcome::kQuiet) << result.description;
  EXPECT_EQ(ledger.runs(), count);
}

// A computation that posts another one to another queue.
struct QueueItem final : public Runnable {
  ~QueueItem() override = default;
  void run_queued() override {
    ledger->ran(poster, number, ordered);
    if (child) {
      EXPECT_TRUE(pool->post(child_queue, child));
    }
  }

  HandOffLedger* ledger = nullptr;
  ComputePool* pool = nullptr;
  ComputeQueue* child_queue = nullptr;
  QueueItem* child = nullptr;
  size_t poster = 0;
  size_t number = 0;
  bool ordered = false;
};

// Each of two threads posts to a queue of its own and, now and then, to one that they share. With
// one worker, those of each thread in its own queue are seen to begin in order.
void play_queues(uint64_t seed, int threads, bool stops) {
  constexpr size_t kPosters = 2;
  constexpr size_t kOfEach = 5;
  std::mt19937_64 random(seed);
  // The last two count what went to the shared queue and what was posted by items.
  HandOffLedger ledger(kPosters + 2);
  std::vector<QueueItem> items(kPosters * kOfEach);
  std::vector<QueueItem> children(items.size());
  std::atomic<size_t> taken{0};
  Simulation simulation(seed, {.compute_threads = threads});
  ComputePool& pool = simulation.runtime().compute();
  std::vector<ComputeQueue*> queues;
  for (const char* name : {"first", "second", "shared"}) {
    queues.push_back(pool.queue(name));
  }
  for (size_t poster = 0; poster < kPosters; poster++) {
    simulation.spawn([&, poster, seed = random()] {
      std::mt19937_64 choice(seed);
      size_t number = 0;
      for (size_t i = poster * kOfEach; i < (poster + 1) * kOfEach; i++) {
        const bool shared = choice() % 4 == 0;
        QueueItem& item = items[i];
        item.ledger = &ledger;
        item.pool = &pool;
        item.poster = shared ? kPosters : poster;
        item.number = number;
        item.ordered = !shared && threads == 1;
        if (choice() % 3 == 0) {
          children[i].ledger = &ledger;
          children[i].poster = kPosters + 1;
          item.child = &children[i];
          item.child_queue = queues[choice() % queues.size()];
        }
        const bool has_child = item.child != nullptr;
        if (pool.post(queues[item.poster], &item)) {
          number += shared ? 0 : 1;
          taken += has_child ? 2 : 1;
        } else {
          EXPECT_TRUE(stops);
        }
      }
    });
  }
  if (stops) {
    EXPECT_EQ(simulation.stop().outcome, Simulation::Outcome::kQuiet);
  }
  const auto result = simulation.run();
  EXPECT_EQ(result.outcome, Simulation::Outcome::kQuiet) << result.description;
  EXPECT_EQ(ledger.runs(), taken);
}

}  // namespace

TEST(HandOffProtocol, EachItemRunsOnce) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_hand_off(seed, {.threads = 3}); });
}

TEST(HandOffProtocol, OneWorkerKeepsTheOrderOfEachPoster) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_hand_off(seed, {.threads = 1}); });
}

TEST(HandOffProtocol, AnItemThatBlocksHoldsNothingUp) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    play_hand_off(seed, {.threads = 1 + static_cast<int>(seed % 3), .items = 8, .waits = true});
  });
}

TEST(HandOffProtocol, NothingIsLostBetweenPostAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_hand_off(seed, {.threads = 2, .stops = true}); });
}

TEST(HandOffProtocol, AQueueOfComputationsKeepsTheOrderOfEachPoster) {
  for_each_seed(kSeeds, [](uint64_t seed) { play_queues(seed, 1, false); });
}

TEST(HandOffProtocol, EachComputationRunsOnce) {
  for_each_seed(kSeeds,
                [](uint64_t seed) { play_queues(seed, 1 + static_cast<int>(seed % 3), false); });
}

TEST(HandOffProtocol, NoComputationIsLostBetweenPostAndStop) {
  for_each_seed(kSeeds,
                [](uint64_t seed) { play_queues(seed, 1 + static_cast<int>(seed % 2), true); });
}

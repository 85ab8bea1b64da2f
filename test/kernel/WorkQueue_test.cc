#include "kernel/WorkQueue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "util/Mutex.h"

using workflow::Mutex;
using workflow::MutexLock;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::WorkQueue;

namespace {

class CountedItem final : public Runnable {
 public:
  ~CountedItem() override = default;
  // Release and acquire: who sees that it has run may put it into a list again.
  void run_queued() override { runs_.fetch_add(1, std::memory_order_release); }
  int runs() const { return runs_.load(std::memory_order_acquire); }

 private:
  std::atomic<int> runs_{0};
};

template <size_t N>
void fill(WorkQueue& queue, std::array<CountedItem, N>& items) {
  RunnableList list;
  for (CountedItem& item : items) {
    list.push_back(&item);
  }
  queue.fill(list);
}

}  // namespace

TEST(WorkQueue, ItsOwnerRemovesTheOldest) {
  WorkQueue queue;
  std::array<CountedItem, WorkQueue::kMax> items;
  for (int round = 0; round < 3; round++) {
    EXPECT_EQ(queue.pop(), nullptr);
    fill(queue, items);
    EXPECT_EQ(queue.size(), items.size());
    for (CountedItem& item : items) {
      EXPECT_EQ(queue.pop(), &item);
    }
    EXPECT_EQ(queue.size(), 0u);
  }
}

TEST(WorkQueue, OthersRemoveTheNewestHalf) {
  WorkQueue queue;
  std::array<CountedItem, 5> items;
  fill(queue, items);
  RunnableList taken;
  queue.take_back(WorkQueue::Part::kHalf, taken);
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken.pop_front(), &items[2]) << "oldest first";
  queue.take_back(WorkQueue::Part::kHalf, taken);
  EXPECT_EQ(taken.back(), &items[1]);
  EXPECT_EQ(queue.pop(), &items[0]);
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST(WorkQueue, OthersRemoveAll) {
  WorkQueue queue;
  std::array<CountedItem, 3> items;
  fill(queue, items);
  EXPECT_EQ(queue.pop(), &items[0]);
  RunnableList taken;
  queue.take_back(WorkQueue::Part::kAll, taken);
  EXPECT_EQ(taken.pop_front(), &items[1]);
  EXPECT_EQ(taken.pop_front(), &items[2]);
  queue.take_back(WorkQueue::Part::kAll, taken);
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST(WorkQueueStress, RemovesEachItemOnce) {
  constexpr int kRounds = 20'000;
  WorkQueue queue;
  Mutex mutex;
  std::array<CountedItem, 6> items;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      RunnableList taken;
      {
        MutexLock lock(mutex);
        queue.take_back(WorkQueue::Part::kHalf, taken);
      }
      while (Runnable* const item = taken.pop_front()) {
        item->run_queued();
      }
    }
  });
  for (int round = 0; round < kRounds; round++) {
    {
      MutexLock lock(mutex);
      fill(queue, items);
    }
    while (Runnable* const item = queue.pop()) {
      item->run_queued();
    }
    // An item is in one list at a time: the other thread may still have some of them in its own.
    while (std::any_of(items.begin(), items.end(),
                       [&](const CountedItem& item) { return item.runs() <= round; })) {
      std::this_thread::yield();
    }
  }
  over = true;
  other.join();
  for (const CountedItem& item : items) {
    EXPECT_EQ(item.runs(), kRounds);
  }
}

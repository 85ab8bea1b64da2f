#include "kernel/Intake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

using workflow::Intake;
using workflow::Runnable;
using workflow::RunnableList;

namespace {

// An item that knows which thread has pushed it, and as which of its items.
class Numbered final : public Runnable {
 public:
  Numbered() = default;
  Numbered(size_t thread, size_t number) : thread_(thread), number_(number) {}
  ~Numbered() override = default;
  void run_queued() override {}
  size_t thread() const { return thread_; }
  size_t number() const { return number_; }

 private:
  size_t thread_ = 0;
  size_t number_ = 0;
};

std::vector<Numbered> numbered(size_t thread, size_t count) {
  std::vector<Numbered> items;
  for (size_t i = 0; i < count; i++) {
    items.emplace_back(thread, i);
  }
  return items;
}

RunnableList list_of(std::vector<Numbered>& items, size_t from, size_t to) {
  RunnableList list;
  for (size_t i = from; i < to; i++) {
    list.push_back(&items[i]);
  }
  return list;
}

std::vector<size_t> numbers_of(RunnableList& list) {
  std::vector<size_t> numbers;
  while (Runnable* const item = list.pop_front()) {
    numbers.push_back(static_cast<Numbered*>(item)->number());
  }
  return numbers;
}

}  // namespace

TEST(Intake, TakesReturnsItemsInTheOrderOfThePushes) {
  Intake intake;
  std::vector<Numbered> items = numbered(0, 7);
  RunnableList taken;
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 3}, {3, 4}, {4, 6}}) {
    RunnableList list = list_of(items, from, to);
    EXPECT_TRUE(intake.push(list));
    EXPECT_TRUE(list.empty());
  }
  EXPECT_FALSE(intake.empty());
  intake.take(taken);
  EXPECT_TRUE(intake.empty());
  RunnableList last = list_of(items, 6, 7);
  EXPECT_TRUE(intake.push(last));
  intake.take(taken);
  EXPECT_EQ(taken.size(), 7u);
  EXPECT_EQ(numbers_of(taken), (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Intake, CannotBeClosedWhileItHoldsSomething) {
  Intake intake;
  std::vector<Numbered> items = numbered(0, 1);
  RunnableList list = list_of(items, 0, 1);
  EXPECT_TRUE(intake.push(list));
  EXPECT_FALSE(intake.close());
  RunnableList taken;
  intake.take(taken);
  EXPECT_EQ(taken.size(), 1u);
  EXPECT_TRUE(intake.close());
  EXPECT_TRUE(intake.close());
  EXPECT_TRUE(intake.empty());
}

TEST(Intake, TakesNothingWhenClosedAndLeavesTheListAsItWas) {
  Intake intake;
  EXPECT_TRUE(intake.close());
  std::vector<Numbered> items = numbered(0, 3);
  RunnableList list = list_of(items, 0, 3);
  EXPECT_FALSE(intake.push(list));
  EXPECT_EQ(list.size(), 3u);
  RunnableList taken;
  intake.take(taken);
  EXPECT_TRUE(taken.empty());
  EXPECT_FALSE(intake.push(list)) << "it stays closed";
  EXPECT_EQ(numbers_of(list), (std::vector<size_t>{0, 1, 2}));
}

TEST(IntakeStress, KeepsTheOrderOfEachThreadAndLosesNothing) {
  static constexpr size_t kThreads = 3;
  static constexpr size_t kItems = 20'000;
  Intake intake;
  std::vector<std::vector<Numbered>> items;
  for (size_t t = 0; t < kThreads; t++) {
    items.push_back(numbered(t, kItems));
  }
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; t++) {
    threads.emplace_back([&intake, &own = items[t], t] {
      for (size_t i = 0; i < kItems;) {
        const size_t end = std::min(i + 1 + (i + t) % 3, kItems);
        RunnableList list = list_of(own, i, end);
        EXPECT_TRUE(intake.push(list));
        i = end;
      }
    });
  }
  std::vector<size_t> next(kThreads, 0);
  for (size_t total = 0; total < kThreads * kItems;) {
    RunnableList taken;
    intake.take(taken);
    total += taken.size();
    while (Runnable* const runnable = taken.pop_front()) {
      const auto* const item = static_cast<Numbered*>(runnable);
      ASSERT_EQ(item->number(), next[item->thread()]++);
    }
  }
  threads.clear();  // joins them
  EXPECT_TRUE(intake.close());
}

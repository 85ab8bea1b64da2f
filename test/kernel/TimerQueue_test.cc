#include "kernel/TimerQueue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "util/Pages.h"

using test_support::TestRandom;
using workflow::kNever;
using workflow::Pages;
using workflow::TimerLeaf;
using workflow::TimerLeaves;
using workflow::TimerQueue;
using workflow::TimerQueueNode;

namespace {

constexpr size_t kLeaf = TimerLeaf::kCapacity;

struct QueuedTimer : TimerQueueNode {
  size_t place = 0;  // in Model::queued_
  std::multimap<int64_t, QueuedTimer*>::iterator expected;
};

// A queue beside the obvious slow version of it. Each operation is done on both and compared.
class Model {
 public:
  ~Model() {
    while (size() > 0) {
      queue_.erase(queued_.back());
      forget(queued_.back());
    }
  }

  size_t size() const { return queued_.size(); }
  const TimerQueue& queue() const { return queue_; }

  void insert(int64_t deadline_ns) {
    QueuedTimer* timer = idle_.empty() ? &timers_.emplace_back() : idle_.back();
    if (!idle_.empty()) {
      idle_.pop_back();
    }
    const bool earliest = expected_.empty() || deadline_ns < expected_.begin()->first;
    ASSERT_FALSE(timer->queued());
    ASSERT_EQ(queue_.insert(timer, deadline_ns), earliest);
    ASSERT_TRUE(timer->queued());
    timer->expected = expected_.emplace(deadline_ns, timer);
    timer->place = queued_.size();
    queued_.push_back(timer);
    compare();
  }

  void move(size_t place, int64_t deadline_ns) {
    QueuedTimer* timer = queued_[place];
    expected_.erase(timer->expected);
    const int64_t others_ns = expected_.empty() ? kNever : expected_.begin()->first;
    timer->expected = expected_.emplace(deadline_ns, timer);
    const bool earliest = queue_.move(timer, deadline_ns);
    ASSERT_EQ(earliest, queue_.earliest() == timer);
    ASSERT_TRUE(earliest ? deadline_ns <= others_ns : deadline_ns >= others_ns);
    ASSERT_EQ(queue_.deadline_ns(timer), deadline_ns);
    compare();
  }

  void erase(size_t place) {
    QueuedTimer* timer = queued_[place];
    ASSERT_EQ(queue_.deadline_ns(timer), timer->expected->first);
    queue_.erase(timer);
    ASSERT_FALSE(timer->queued());
    forget(timer);
    compare();
  }

  void pop_due(int64_t now_ns) {
    expect_popped(queue_.pop_due(now_ns), !expected_.empty() && expected_.begin()->first <= now_ns);
  }

  // Memory comes back in between, as a poller gives it back.
  void release() { queue_.take_surplus(); }

  void pop() { expect_popped(queue_.pop(), !expected_.empty()); }

 private:
  void expect_popped(TimerQueueNode* node, bool due) {
    ASSERT_EQ(node != nullptr, due);
    if (node) {
      QueuedTimer* timer = static_cast<QueuedTimer*>(node);
      ASSERT_FALSE(timer->queued());
      ASSERT_EQ(timer->expected->first, expected_.begin()->first);
      forget(timer);
    }
    compare();
  }

  void forget(QueuedTimer* timer) {
    expected_.erase(timer->expected);
    queued_[timer->place] = queued_.back();
    queued_[timer->place]->place = timer->place;
    queued_.pop_back();
    idle_.push_back(timer);
  }

  void compare() {
    ASSERT_EQ(queue_.size(), expected_.size());
    ASSERT_EQ(queue_.empty(), expected_.empty());
    ASSERT_EQ(queue_.earliest_ns(), expected_.empty() ? kNever : expected_.begin()->first);
  }

  TimerQueue queue_;
  std::multimap<int64_t, QueuedTimer*> expected_;
  std::deque<QueuedTimer> timers_;
  std::vector<QueuedTimer*> queued_;
  std::vector<QueuedTimer*> idle_;
};

// Deadlines of several shapes, so that equal ones, extremes and orderly rows are all frequent.
int64_t random_deadline(TestRandom& random, int64_t now_ns) {
  switch (random.below(8)) {
    case 0:
      return now_ns + static_cast<int64_t>(random.below(4));  // mostly equal to others
    case 1:
      return kNever;
    case 2:
      return now_ns + 1'000'000;  // a constant timeout: later than all before it
    case 3:
      return now_ns - static_cast<int64_t>(random.below(1000));  // overdue
    case 4:
      return random.one_in(2) ? kNever - 1 : 0;
    default:
      return now_ns + static_cast<int64_t>(random.below(2'000'000));
  }
}

// `size_wanted` draws the queue towards a size, so that leaves come and go.
void random_operation(TestRandom& random, Model& model, int64_t now_ns, size_t size_wanted) {
  if (model.size() > 0 && random.one_in(4)) {
    model.move(random.below(model.size()), random_deadline(random, now_ns));
    return;
  }
  const bool grow = model.size() < size_wanted ? !random.one_in(4) : random.one_in(4);
  if (grow) {
    model.insert(random_deadline(random, now_ns));
    return;
  }
  if (random.one_in(1000)) {
    model.release();
  }
  switch (random.below(4)) {
    case 0:
      model.pop_due(now_ns);
      break;
    case 1:
      model.pop();
      break;
    default:
      if (model.size() > 0) {
        model.erase(random.below(model.size()));
      }
  }
}

}  // namespace

// A poller that takes a surplus once for each erase gets all of it.
TEST(TimerQueue, AnErasedLeafIsSurplusButForOne) {
  constexpr size_t kLeaves = 20;
  std::vector<QueuedTimer> timers(kLeaves * kLeaf);
  TimerQueue queue;
  const size_t before = Pages::count();
  for (QueuedTimer& timer : timers) {
    queue.insert(&timer, 1);
    ASSERT_FALSE(queue.has_surplus());
  }
  EXPECT_LE(Pages::count(), before + kLeaves + 3);  // and the new timers, a table, and the order
  for (QueuedTimer& timer : timers) {
    queue.erase(&timer);
    const bool has_surplus = queue.has_surplus();
    ASSERT_EQ(queue.take_surplus() != nullptr, has_surplus);
    ASSERT_FALSE(queue.has_surplus());
  }
  EXPECT_LE(Pages::count(), before + 5);  // and two leaves, and a spare one
}

// Timers with one delay fill their leaves, because each is due later than those before.
TEST(TimerQueue, TimersInOrderFillTheirLeaves) {
  constexpr size_t kLeaves = 20;
  std::vector<QueuedTimer> timers(2 * kLeaves * kLeaf);
  TimerQueue queue;
  const size_t before = Pages::count();
  for (size_t i = 0; i < timers.size(); i += 2) {
    const auto started_ns = static_cast<int64_t>(i);
    queue.insert(&timers[i], started_ns + 1'000'000);
    queue.insert(&timers[i + 1], started_ns + 60'000'000);
  }
  EXPECT_LE(Pages::count(), before + 2 * kLeaves + 5);
  queue.check_invariants();
}

// Each is later than all in the full leaf, and earlier than those that came before it.
TEST(TimerQueue, TimersInReverseOrderBehindAFullLeafShareLeaves) {
  constexpr size_t kLeaves = 10;
  std::vector<QueuedTimer> timers((1 + kLeaves) * kLeaf);
  TimerQueue queue;
  const size_t before = Pages::count();
  for (size_t i = 0; i < timers.size(); i++) {
    queue.insert(&timers[i], static_cast<int64_t>(i < kLeaf ? i : 3 * timers.size() - i));
  }
  EXPECT_LE(Pages::count(), before + 10 * kLeaves);
  queue.check_invariants();
}

// A timer that comes and goes behind a full leaf does not need another page each time.
TEST(TimerQueue, ALeafBehindAFullOneStays) {
  std::vector<QueuedTimer> timers(2 * kLeaf);
  TimerQueue queue;
  for (size_t i = 0; i < timers.size(); i++) {
    queue.insert(&timers[i], static_cast<int64_t>(i));
  }
  QueuedTimer last;
  queue.insert(&last, 1'000'000);
  const size_t pages = Pages::count();
  for (int64_t i = 1; i < 100; i++) {
    queue.erase(&last);
    ASSERT_FALSE(queue.has_surplus());
    queue.check_invariants();
    queue.insert(&last, 1'000'000 + i);
    ASSERT_EQ(Pages::count(), pages);
  }
}

// All leaves are emptied by moves, the first one, too.
TEST(TimerQueue, MovesEmptyLeaves) {
  constexpr size_t kLeaves = 12;
  Model model;
  const auto end = static_cast<int64_t>(kLeaves * kLeaf);
  for (int64_t i = 0; i < end && !HasFatalFailure(); i++) {
    model.insert(i);
  }
  const size_t pages = Pages::count();
  for (size_t place = 0; place < model.size() && !HasFatalFailure(); place++) {
    model.move(place, end + static_cast<int64_t>(place));
    model.release();
    if (place % 499 == 0) {
      model.queue().check_invariants();
    }
  }
  model.queue().check_invariants();
  EXPECT_LE(Pages::count(), pages + 3);
}

// Small leaves are joined with the one behind, or with the one before.
TEST(TimerQueue, AnEmptiedHalfOfTheLeavesIsGivenBack) {
  constexpr size_t kLeaves = 20;
  for (const bool from_front : {true, false}) {
    std::vector<QueuedTimer> timers(kLeaves * kLeaf);
    TimerQueue queue;
    for (size_t i = 0; i < timers.size(); i++) {
      queue.insert(&timers[i], static_cast<int64_t>(i));
    }
    const size_t pages = Pages::count();
    // 200 timers of each leaf stay.
    for (size_t k = 0; k < timers.size(); k++) {
      const size_t i = from_front ? k : timers.size() - 1 - k;
      if (i % kLeaf >= 200) {
        queue.erase(&timers[i]);
        queue.take_surplus();
      }
    }
    queue.check_invariants();
    EXPECT_LE(Pages::count(), pages - kLeaves * 2 / 3);
  }
}

TEST(TimerLeaves, NumbersAreUsedAgain) {
  TimerLeaves leaves;
  for (int i = 0; i < 200'000; i++) {  // more than there are numbers
    TimerLeaf* const one = leaves.take();
    TimerLeaf* const two = leaves.take();
    ASSERT_NE(one->number(), two->number());
    ASSERT_EQ(leaves.at(one->number()), one);
    leaves.give(one);
    leaves.give(two);
    leaves.take_surplus();
  }
}

// What is left when most timers have been cancelled, in no order, takes about four times the memory
// that it needs, or less.
TEST(TimerQueue, SmallLeavesAreJoined) {
  constexpr size_t kLeaves = 40;
  TestRandom random(test_support::test_seed());
  std::vector<QueuedTimer> timers(kLeaves * kLeaf);
  TimerQueue queue;
  const size_t before = Pages::count();
  for (QueuedTimer& timer : timers) {
    queue.insert(&timer, static_cast<int64_t>(random.below(1'000'000)));
  }
  for (QueuedTimer& timer : timers) {
    if (!random.one_in(10)) {
      queue.erase(&timer);
      queue.take_surplus();
    }
  }
  queue.check_invariants();
  EXPECT_LE(Pages::count(), before + 5 * queue.size() / kLeaf + 5);
}

TEST(TimerQueue, BehavesLikeAMultimap) {
  const int operations = test_support::kSanitized ? 400'000 : 4'000'000;
  TestRandom random(test_support::test_seed());
  Model model;
  size_t size_wanted = 0;
  int64_t now_ns = 1'000'000;
  for (int i = 0; i < operations && !HasFatalFailure(); i++) {
    if (random.one_in(20'000)) {
      size_wanted = random.below(random.one_in(2) ? 100 : 10 * kLeaf);
      model.queue().check_invariants();
    }
    now_ns += static_cast<int64_t>(random.below(10));
    random_operation(random, model, now_ns, size_wanted);
  }
  model.queue().check_invariants();
}

// Timers of few different deadlines, so that many leaves have only equal ones.
TEST(TimerQueue, EqualDeadlinesFillManyLeaves) {
  TestRandom random(test_support::test_seed());
  Model model;
  for (const size_t deadlines : {size_t{1}, size_t{2}, size_t{5}}) {
    for (size_t i = 0; i < 10 * kLeaf && !HasFatalFailure(); i++) {
      model.insert(static_cast<int64_t>(random.below(deadlines)));
    }
    model.queue().check_invariants();
    for (size_t i = 0; i < 9 * kLeaf && !HasFatalFailure(); i++) {
      random.one_in(3) ? model.pop() : model.erase(random.below(model.size()));
      model.move(random.below(model.size()), static_cast<int64_t>(random.below(deadlines)));
      if (i % 499 == 0) {
        model.queue().check_invariants();
      }
    }
  }
}

TEST(TimerQueue, GrowsAndShrinksWhereALeafIsFull) {
  TestRandom random(test_support::test_seed());
  Model model;
  for (const size_t boundary : {kLeaf, 2 * kLeaf, 3 * kLeaf}) {
    while (model.size() < boundary + 3 && !HasFatalFailure()) {
      // Each is later than those before, so the leaves are full.
      model.insert(static_cast<int64_t>(1000 * model.size() + random.below(1000)));
      if (model.size() + 3 >= boundary) {
        model.queue().check_invariants();
      }
    }
    // To and fro, taking from the front, from the back and from the middle.
    for (int i = 0; i < 200 && !HasFatalFailure(); i++) {
      if (random.one_in(2)) {
        model.insert(static_cast<int64_t>(random.below(1000 * model.size())));
      } else if (random.one_in(3)) {
        model.pop();
      } else {
        model.erase(random.one_in(2) ? model.size() - 1 : random.below(model.size()));
      }
      model.release();
      model.queue().check_invariants();
    }
  }
  while (model.size() > 0 && !HasFatalFailure()) {
    model.erase(random.below(model.size()));
    if (model.size() % 509 == 0 || model.size() < 5) {
      model.release();
      model.queue().check_invariants();
    }
  }
}

TEST(TimerQueue, ComesOutInOrderOfDeadlines) {
  TestRandom random(test_support::test_seed());
  std::vector<QueuedTimer> timers(50'000);
  TimerQueue queue;
  std::vector<int64_t> deadlines;
  for (QueuedTimer& timer : timers) {
    deadlines.push_back(static_cast<int64_t>(random.below(30'000)));
    queue.insert(&timer, deadlines.back());
  }
  std::sort(deadlines.begin(), deadlines.end());
  for (const int64_t deadline_ns : deadlines) {
    ASSERT_EQ(queue.earliest_ns(), deadline_ns);
    ASSERT_NE(queue.pop(), nullptr);
  }
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST(TimerQueue, EmptyHasNoDeadline) {
  TimerQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.earliest_ns(), kNever);
  EXPECT_EQ(queue.pop_due(kNever), nullptr);
  EXPECT_EQ(queue.pop(), nullptr);
  queue.check_invariants();
}

TEST(TimerQueue, InsertTellsWhetherTheEarliestChanged) {
  TimerQueue queue;
  QueuedTimer a, b, c, d;
  EXPECT_TRUE(queue.insert(&a, 100));
  EXPECT_FALSE(queue.insert(&b, 200));
  EXPECT_FALSE(queue.insert(&c, 100)) << "an equal deadline changes nothing";
  EXPECT_TRUE(queue.insert(&d, 99));
}

TEST(TimerQueue, DueMeansDeadlineNotLaterThanNow) {
  TimerQueue queue;
  QueuedTimer timer;
  queue.insert(&timer, 100);
  EXPECT_EQ(queue.pop_due(99), nullptr);
  EXPECT_TRUE(timer.queued());
  EXPECT_EQ(queue.pop_due(100), &timer);
  EXPECT_FALSE(timer.queued());
}

TEST(TimerQueue, NeverIsNotDueButCanBePopped) {
  TimerQueue queue;
  QueuedTimer timer;
  EXPECT_TRUE(queue.insert(&timer, kNever));
  EXPECT_EQ(queue.earliest_ns(), kNever);
  EXPECT_EQ(queue.pop_due(kNever - 1), nullptr);
  EXPECT_EQ(queue.pop(), &timer);
}

TEST(TimerQueue, TakesTheExtremeDeadlines) {
  TimerQueue queue;
  QueuedTimer least, zero, greatest;
  queue.insert(&greatest, kNever);
  queue.insert(&zero, 0);
  queue.insert(&least, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(queue.pop(), &least);
  EXPECT_EQ(queue.pop(), &zero);
  EXPECT_EQ(queue.pop(), &greatest);
}

TEST(TimerQueue, TakesManyOfTheExtremeDeadlines) {
  TestRandom random(test_support::test_seed());
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  Model model;
  const auto insert = [&] {
    model.insert(random.one_in(2) ? kLeast + static_cast<int64_t>(random.below(3))
                                  : kNever - static_cast<int64_t>(random.below(3)));
  };
  for (size_t i = 0; i < 5 * kLeaf && !HasFatalFailure(); i++) {
    insert();
  }
  model.queue().check_invariants();
  for (size_t i = 0; i < 5 * kLeaf && !HasFatalFailure(); i++) {
    insert();
    model.pop();
  }
  model.queue().check_invariants();
}

TEST(TimerQueue, ANodeCanComeBack) {
  TimerQueue queue;
  QueuedTimer timer;
  for (int64_t i = 0; i < 3; i++) {
    queue.insert(&timer, i);
    EXPECT_EQ(queue.deadline_ns(&timer), i);
    queue.erase(&timer);
    EXPECT_TRUE(queue.empty());
    queue.insert(&timer, -i);
    EXPECT_EQ(queue.pop(), &timer);
  }
  queue.check_invariants();
}

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <new>
#include <vector>

#include "kernel/TimerQueue.h"
#include "support/MemoryFaults.h"
#include "support/TestSeed.h"

// A timer queue that gets no memory.

using test_support::TestRandom;
using workflow::TimerLeaf;
using workflow::TimerQueue;
using workflow::TimerQueueNode;

namespace {

constexpr size_t kLeaf = TimerLeaf::kCapacity;
constexpr size_t kLeaves = 12;

// Calls a function whose allocations fail, from the `first` on. Returns how many have failed.
template <class Function>
long without_memory(long first, Function function) {
  fault::counts_here = true;
  fault::arm(first, LONG_MAX / 2);
  function();
  const long failures = fault::disarm();
  fault::counts_here = false;
  return failures;
}

// Inserts timers until the next one needs memory.
void fill(TimerQueue& queue, std::vector<TimerQueueNode>& nodes, TestRandom& random) {
  size_t count = 0;
  bool is_full = false;
  while (!is_full) {
    const auto deadline_ns = static_cast<int64_t>(1000 * count + random.below(1000));
    if (count < kLeaves * kLeaf - 1) {
      queue.insert(&nodes[count++], deadline_ns);
      continue;
    }
    without_memory(1, [&] {
      try {
        queue.insert(&nodes[count], deadline_ns);
        count++;
      } catch (const std::bad_alloc&) {
        is_full = true;
      }
    });
  }
  EXPECT_FALSE(nodes[count].queued());
  EXPECT_EQ(queue.size(), count);
  queue.check_invariants();
}

}  // namespace

// The first needs a leaf, a table of leaves and an order. The other one divides a full leaf.
TEST(TimerQueueMemory, AnInsertThatFailsChangesNothing) {
  TestRandom random(test_support::test_seed());
  for (const bool is_first : {true, false}) {
    int failures = 0;
    for (bool succeeds = false; !succeeds; failures += !succeeds) {
      TimerQueue queue;
      std::vector<TimerQueueNode> nodes((kLeaves + 1) * kLeaf);
      if (!is_first) {
        fill(queue, nodes, random);
      }
      const size_t size = queue.size();
      const auto deadline_ns = static_cast<int64_t>(500 * size);  // in the middle
      without_memory(failures + 1, [&] {
        try {
          queue.insert(&nodes[size], deadline_ns);
          succeeds = true;
        } catch (const std::bad_alloc&) {
        }
      });
      queue.check_invariants();
      ASSERT_EQ(queue.size(), size + succeeds);
      ASSERT_EQ(nodes[size].queued(), succeeds);
    }
    EXPECT_EQ(failures, is_first ? 3 : 1);
  }
}

// All leaves but one are full, and timers move to and fro.
TEST(TimerQueueMemory, AMoveNeedsNone) {
  TestRandom random(test_support::test_seed());
  for (const size_t holes : {size_t{0}, size_t{1}, size_t{5}, size_t{3000}}) {
    TimerQueue queue;
    std::vector<TimerQueueNode> nodes((kLeaves + 1) * kLeaf);
    fill(queue, nodes, random);
    for (size_t i = 0; i < holes; i++) {
      TimerQueueNode& node = nodes[random.below(kLeaves * kLeaf)];
      if (node.queued()) {
        queue.erase(&node);
        while (queue.take_surplus()) {
        }
      }
    }
    std::vector<TimerQueueNode*> queued;
    for (TimerQueueNode& node : nodes) {
      if (node.queued()) {
        queued.push_back(&node);
      }
    }
    const auto latest = static_cast<int64_t>(1000 * queued.size());
    long failures = 0;
    for (int i = 0; i < 3000; i++) {
      TimerQueueNode* const node = queued[random.below(queued.size())];
      const int64_t deadline_ns = random.one_in(10) ? latest / 2 : random.between(-9, latest + 9);
      bool is_earliest = false;
      failures += without_memory(1, [&] { is_earliest = queue.move(node, deadline_ns); });
      ASSERT_EQ(queue.deadline_ns(node), deadline_ns);
      ASSERT_EQ(is_earliest, queue.earliest() == node);
      if (i % 100 == 0) {
        queue.check_invariants();
      }
    }
    queue.check_invariants();
    EXPECT_TRUE(failures > 0 || holes > 5);
    std::vector<int64_t> deadlines;
    for (const TimerQueueNode* node : queued) {
      deadlines.push_back(queue.deadline_ns(node));
    }
    std::sort(deadlines.begin(), deadlines.end());
    for (const int64_t deadline_ns : deadlines) {
      ASSERT_EQ(queue.earliest_ns(), deadline_ns);
      queue.pop();
    }
    EXPECT_TRUE(queue.empty());
  }
}

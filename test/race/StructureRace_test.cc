#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <thread>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/RaceKit.h"
#include "support/RandomStructure.h"
#include "support/Tally.h"
#include "support/TestSeed.h"

using race::rounds;
using test_support::RandomStructure;
using test_support::TestRandom;
using workflow::Runtime;
using workflow::ThreadContext;

// Random trees of all structures, started, cancelled and dismissed on many threads, and an account
// of every series and task: see RandomStructure.

namespace {

// Until all that was started has ended and is freed; false when that takes too long.
bool wait_for_all(std::deque<RandomStructure>& structures) {
  const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
  for (RandomStructure& structure : structures) {
    while (!structure.all_freed()) {
      structure.release();
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
  }
  return true;
}

struct Totals {
  size_t records = 0;
  size_t called_back = 0;

  void account(const std::deque<RandomStructure>& structures, uint64_t round) {
    for (const RandomStructure& structure : structures) {
      ASSERT_EQ(structure.account(), "") << "round " << round;
      records += structure.records();
      called_back += structure.called_back();
    }
  }
  void print() const {
    std::printf("%zu series and tasks: %zu ran\n", records, called_back);
    // It was a race: each side won a good many.
    EXPECT_GT(called_back, records / 10);
    EXPECT_LT(called_back, records);
  }
};

// Each thread starts or dismisses structures, and cancels branches of its own and of a neighbour's.
void run_structure_rounds(uint64_t count, size_t threads) {
  const uint64_t seed = test_support::test_seed();
  Totals totals;
  for (uint64_t round = 0; round < count; round++) {
    std::deque<RandomStructure> structures;
    for (size_t i = 0; i < threads; i++) {
      structures
          .emplace_back(RandomStructure::Options{
              .seed = seed, .stream = round * threads + i, .gates = i == 0 ? 1u : 2u})
          .build();
    }
    std::vector<std::jthread> running;
    for (size_t i = 0; i < threads; i++) {
      running.emplace_back([&, i] {
        TestRandom random(seed, ~(round * threads + i));
        RandomStructure& own = structures[i];
        if (i == 0 && random.one_in(4)) {
          own.dismiss();
        } else {
          own.start();
          own.cancel(random.below(100));
          own.open_gate();
        }
        if (i + 1 < threads) {
          RandomStructure& next = structures[i + 1];
          for (uint64_t cancels = random.below(3); cancels > 0; cancels--) {
            std::this_thread::yield();
            next.cancel(random.below(100));
          }
          next.open_gate();
        }
      });
    }
    running.clear();  // joins them
    ASSERT_TRUE(wait_for_all(structures)) << "round " << round;
    totals.account(structures, round);
    if (testing::Test::HasFatalFailure()) return;
  }
  totals.print();
}

}  // namespace

TEST(StructureRace, ManyThreads) {
  run_structure_rounds(rounds(400), 4);
}

TEST(StructureRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1, .compute_threads = 1});
  run_structure_rounds(rounds(400), 3);
}

// Nothing is cancelled: all of it runs.
TEST(StructureRace, EverythingRunsOnce) {
  const uint64_t seed = test_support::test_seed();
  for (uint64_t round = 0; round < rounds(400); round++) {
    std::deque<RandomStructure> structures;
    std::vector<std::jthread> running;
    for (uint64_t i = 0; i < 3; i++) {
      RandomStructure& structure = structures.emplace_back(
          RandomStructure::Options{.seed = seed, .stream = round * 3 + i, .cancels = false});
      structure.build();
      running.emplace_back([&structure] { structure.start(); });
    }
    running.clear();  // joins them
    ASSERT_TRUE(wait_for_all(structures)) << "round " << round;
    for (const RandomStructure& structure : structures) {
      ASSERT_EQ(structure.account(), "") << "round " << round;
      ASSERT_EQ(structure.called_back(), structure.records());
    }
  }
}

// The runtime stops at any moment, and the threads go on: what they start then is aborted.
TEST(StructureRace, StoppedMeanwhile) {
  const uint64_t seed = test_support::test_seed();
  TestRandom random(seed);
  Totals totals;
  for (uint64_t round = 0; round < rounds(200); round++) {
    race::RandomRuntime runtime(random);
    std::deque<RandomStructure> structures;
    for (uint64_t i = 0; i < 12; i++) {
      structures.emplace_back(RandomStructure::Options{
          .seed = seed, .stream = round * 12 + i, .depth = 2, .cancels = i % 2 == 0});
    }
    std::vector<std::jthread> running;
    for (size_t thread = 0; thread < 3; thread++) {
      running.emplace_back([&, thread] {
        ThreadContext::current().runtime = runtime.get();
        for (size_t i = thread; i < structures.size(); i += 3) {
          structures[i].build();
          structures[i].start();
        }
      });
    }
    race::pause_us(random.below(2000));
    runtime.stop();
    running.clear();  // joins them
    ASSERT_TRUE(wait_for_all(structures)) << "round " << round;
    totals.account(structures, round);
    if (testing::Test::HasFatalFailure()) return;
  }
  totals.print();
}

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/RandomStructure.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFTask.h"

// Random trees of all structures, started, cancelled and dismissed on many threads, and an account
// of every series and task: see RandomStructure.

namespace race {
namespace {

using test_support::RandomStructure;
using test_support::TestRandom;
using workflow::Runtime;

// Derived rounds add structures, and threads that start them. A series or task that was called back
// counts as one that succeeded.
class StructureRound : public Round {
 public:
  using Round::Round;

  // Waits until all that was started has ended and is freed.
  std::string finish() override {
    join_threads();
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    for (RandomStructure& structure : structures_) {
      while (!structure.all_freed()) {
        structure.release();
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > give_up) return "something does not end";
      }
      const std::string account = structure.account();
      require(account.empty(), account);
      records_ += structure.records();
      called_back_ += structure.called_back();
    }
    return problem();
  }
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS ? called_back_ : 0;
  }
  size_t tasks() const override { return records_; }

 protected:
  // `count` of them are in each round. Sets the seed and the stream of `options`.
  RandomStructure& add(size_t count, RandomStructure::Options options) {
    options.seed = test_support::test_seed();
    options.stream = number() * count + structures_.size();
    return structures_.emplace_back(options);
  }

  std::deque<RandomStructure> structures_;

 private:
  size_t records_ = 0;
  size_t called_back_ = 0;
};

// Each thread starts or dismisses a structure, and cancels branches of it and of a neighbour's.
class CancelledRound final : public StructureRound {
 public:
  CancelledRound(uint64_t number, Runtime* runtime, size_t threads)
      : StructureRound(number, runtime) {
    for (size_t i = 0; i < threads; i++) {
      add(threads, {.gates = i == 0 ? 1u : 2u}).build();
    }
    for (size_t i = 0; i < threads; i++) {
      start_thread([this, i] { run(i); });
    }
  }

 private:
  void run(size_t i) {
    TestRandom random(test_support::test_seed(), ~(number() * structures_.size() + i));
    RandomStructure& own = structures_[i];
    if (i == 0 && random.one_in(4)) {
      own.dismiss();
    } else {
      own.start();
      own.cancel(random.below(100));
      own.open_gate();
    }
    if (i + 1 < structures_.size()) {
      RandomStructure& next = structures_[i + 1];
      for (uint64_t cancels = random.below(3); cancels > 0; cancels--) {
        std::this_thread::yield();
        next.cancel(random.below(100));
      }
      next.open_gate();
    }
  }
};

// Nothing is cancelled: all of it runs.
class UndisturbedRound final : public StructureRound {
 public:
  UndisturbedRound(uint64_t number, Runtime* runtime) : StructureRound(number, runtime) {
    for (size_t i = 0; i < 3; i++) {
      RandomStructure& structure = add(3, {.cancels = false});
      structure.build();
      start_thread([&structure] { structure.start(); });
    }
  }
};

// The threads go on when the runtime has stopped: what they start then is aborted.
class StoppedRound final : public StructureRound {
 public:
  StoppedRound(uint64_t number, Runtime* runtime) : StructureRound(number, runtime) {
    for (size_t i = 0; i < 12; i++) {
      add(12, {.depth = 2, .cancels = i % 2 == 0});
    }
    for (size_t thread = 0; thread < 3; thread++) {
      start_thread([this, thread] {
        for (size_t i = thread; i < structures_.size(); i += 3) {
          structures_[i].build();
          structures_[i].start();
        }
      });
    }
  }
};

// It was a race: a good many of the tasks ran, and others did not.
void expect_race(const Totals& totals) {
  EXPECT_GT(totals.succeeded, totals.tasks / 10);
  EXPECT_LT(totals.succeeded, totals.tasks);
}

TEST(StructureRace, ManyThreads) {
  expect_race(run_rounds(rounds(400), begin<CancelledRound>(size_t{4})));
}

TEST(StructureRace, OneHandlerOnePoller) {
  Runtime::configure({.poller_threads = 1, .handler_threads = 1, .compute_threads = 1});
  expect_race(run_rounds(rounds(400), begin<CancelledRound>(size_t{3})));
}

TEST(StructureRace, EverythingRunsOnce) {
  const Totals totals = run_rounds(rounds(400), begin<UndisturbedRound>());
  EXPECT_EQ(totals.succeeded, totals.tasks);
}

TEST(StructureRace, StoppedMeanwhile) {
  expect_race(run_stopped_rounds(rounds(200), 2000, begin<StoppedRound>()));
}

}  // namespace
}  // namespace race

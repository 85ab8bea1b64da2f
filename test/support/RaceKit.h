#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernel/Runtime.h"
#include "support/TestSeed.h"
#include "util/Mutex.h"

// This kit is for races: tests whose threads make random calls, and which then check an account of
// everything that happened. A race takes many rounds. All random numbers follow from test_seed(),
// which is printed, and from the number of the round.

namespace race {

// How many rounds a race takes: WORKFLOW_RACE_ROUNDS, or half of `many`, which take about a second.
// Under a sanitizer it is a quarter.
uint64_t rounds(uint64_t many);

// Lets other threads come to any state.
void pause_us(uint64_t us);

// One round. It begins when it is constructed.
class Round {
 public:
  // `runtime` is stopped meanwhile. Null means the runtime of the process, which no thread stops.
  explicit Round(uint64_t number, workflow::Runtime* runtime = nullptr)
      : number_(number), runtime_(runtime) {}
  virtual ~Round() = default;
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // Waits until everything has ended, and checks the account. Returns what is wrong, or an empty
  // text. Called once.
  virtual std::string finish() = 0;

  // Returns the number of tasks that ended in `state`. Called after finish().
  virtual size_t outcomes(int state) const = 0;
  // Returns the number of all tasks. Tasks that never ended do not count, unless a round says
  // otherwise.
  virtual size_t tasks() const;

 protected:
  uint64_t number() const { return number_; }
  workflow::Runtime* runtime() const { return runtime_; }
  bool is_stopped_meanwhile() const { return runtime_ != nullptr; }

  // Lets this thread use the runtime of the round. The test's thread and those of start_thread() do
  // so anyway.
  void enter() const;

  void start_thread(std::function<void()> body);
  void join_threads();

  // If `holds` is false, stores what is wrong. Only the first problem is kept. Thread-safe.
  void require(bool holds, std::string_view what);
  std::string problem() const;

 private:
  const uint64_t number_;
  workflow::Runtime* const runtime_;
  std::vector<std::thread> threads_;
  mutable workflow::Mutex mutex_;
  std::string problem_ WF_GUARDED_BY(mutex_);
};

// What became of the tasks of all rounds.
struct Totals {
  size_t tasks = 0;
  size_t succeeded = 0;
  size_t failed = 0;  // cancelled, or too late
  size_t aborted = 0;

  void add(const Round& round);
  void print() const;
};

// Returns whether enough of each outcome was seen for the test to mean something. How many rounds
// that takes depends on the seed and on how busy the machine is.
using Enough = std::function<bool(const Totals&)>;

// Enough is that each outcome was seen more than `many` times.
Enough each_outcome(size_t many);

// Whether another round follows. A race runs `count` rounds. If `enough` is set and returns false
// then, the race goes on until it returns true, for at most 20 * `count` rounds.
bool goes_on(uint64_t rounds_done, uint64_t count, const Totals& totals, const Enough& enough);

using Begin = std::function<std::unique_ptr<Round>(uint64_t number, workflow::Runtime* runtime)>;

// Runs so many rounds, up to the first that fails. Prints and returns the totals. `enough`: see
// goes_on().
Totals run_rounds(uint64_t count, const Begin& begin, const Enough& enough = nullptr);

// Runs rounds, each with a runtime of its own that has some threads of each kind. The runtime is
// stopped at a random moment, at most so long after the round began. goes_on() calls `enough`.
Totals run_stopped_rounds(uint64_t count, uint64_t longest_us, const Begin& begin,
                          const Enough& enough = nullptr);

// Begins rounds of type R, which is constructed with (number, runtime, more...).
template <class R, class... More>
Begin begin(const More&... more) {
  return [=](uint64_t number, workflow::Runtime* runtime) {
    return std::make_unique<R>(number, runtime, more...);
  };
}

// Returns whether it was a race: each side won more than this number of rounds.
void expect_each_side_won(const Totals& totals, size_t many);

// A runtime with up to three or four threads of each kind, which this thread uses while it lives.
class RandomRuntime {
 public:
  explicit RandomRuntime(test_support::TestRandom& random);
  ~RandomRuntime();

  workflow::Runtime* get() { return &runtime_; }
  void stop() { runtime_.stop(); }

 private:
  workflow::Runtime runtime_;
};

}  // namespace race

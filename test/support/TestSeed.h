#pragma once

#include <cstdint>
#include <random>

namespace test_support {

// Returns the seed of this process's random tests: WORKFLOW_TEST_SEED from the environment, or else
// a fresh one. Every call returns the same seed. The first call prints it, so that a failure can be
// replayed.
uint64_t test_seed();

// Returns the number in an environment variable, or `fallback` if that is not set.
int64_t env_number(const char* name, int64_t fallback);

// A generator of random numbers, which are the same on every machine for the same seed. Threads or
// rounds that draw from one seed have different numbers for `stream`.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed, uint64_t stream = 0)
      : engine_(seed * 0x9e3779b97f4a7c15 + stream) {}

  // Returns a number that is uniform in [0, n).
  uint64_t below(uint64_t n) { return engine_() % n; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace test_support

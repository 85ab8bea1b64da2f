#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "util/Sanitizers.h"

#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

// The number of seeds for most scenarios.
inline constexpr uint64_t kSeeds = 800;

// The seed of the scenario that runs. It is printed if the process dies in the scenario.
inline unsigned long long running_seed = 0;

inline void tell_running_seed() {
  std::fprintf(stderr, "died with WORKFLOW_TEST_SEED=%llu\n", running_seed);
}

inline void tell_seed_at_death() {
#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
  __sanitizer_set_death_callback(tell_running_seed);
#else
  struct sigaction action = {};
  action.sa_handler = [](int) { tell_running_seed(); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
    ::sigaction(signal, &action, nullptr);
  }
#endif
}

// Runs scenario(seed) for many seeds until one fails; a failing seed is printed.
//   WORKFLOW_TEST_SEED   replays this seed only
//   WORKFLOW_SIM_SEEDS   how many seeds, instead of `count`
// Under sanitizers, which make each seed up to a hundred times dearer, `count` is cut to a tenth.
template <class Scenario>
void for_each_seed(uint64_t count, Scenario&& scenario) {
#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
  count = count / 10 + 1;
#endif
  uint64_t first = 1;
  if (const char* seeds = std::getenv("WORKFLOW_SIM_SEEDS")) {
    count = std::strtoull(seeds, nullptr, 10);
  }
  if (const char* seed = std::getenv("WORKFLOW_TEST_SEED")) {
    first = std::strtoull(seed, nullptr, 10);
    count = 1;
  }
  tell_seed_at_death();
  for (uint64_t seed = first; seed < first + count; seed++) {
    running_seed = seed;
    scenario(seed);
    if (::testing::Test::HasFailure()) {
      std::fprintf(stderr, "failed with WORKFLOW_TEST_SEED=%llu\n",
                   static_cast<unsigned long long>(seed));
      return;
    }
  }
}

// The same for scenario(ledger), with a ledger for each seed that is closed behind it. What the
// ledger's tasks use when it closes must not be a local variable of the scenario.
template <class Ledger, class Scenario>
void for_each_ledger(uint64_t count, Scenario&& scenario) {
  for_each_seed(count, [&scenario](uint64_t seed) {
    Ledger ledger(seed);
    scenario(ledger);
    ledger.close();
  });
}

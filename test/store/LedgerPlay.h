#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/LedgerRounds.h"
#include "store/SqliteChild.h"
#include "support/TestSeed.h"

// What the programs have in common whose processes use a store while there are faults.

namespace store_test {

using Children = std::vector<std::unique_ptr<test_support::SqliteChild>>;

// So many rounds have one store.
inline constexpr int64_t kRoundsOfStore = 12;

// WORKFLOW_STORE_KILLS sets the number of rounds.
inline int64_t rounds(int64_t usual) {
  return test_support::env_number("WORKFLOW_STORE_KILLS", usual);
}

// Plays rounds until there were enough and enough has happened, which depends on what else the
// machine has to do, or fifty times as many. `begin_store` is called before a round without a
// store.
inline void play(LedgerRounds& ledger, int64_t rounds,
                 const std::function<void(int64_t)>& begin_store,
                 const std::function<void(int64_t)>& play_round,
                 const std::function<bool()>& saw_enough) {
  bool has_store = false;
  int64_t round = 0;
  for (; round < rounds || (!saw_enough() && round < 50 * rounds); round++) {
    if (!has_store) {
      begin_store(round);
    }
    play_round(round);
    if (testing::Test::HasFatalFailure()) return;
    has_store = (round + 1) % kRoundsOfStore != 0 && round + 1 < rounds;
    if (!has_store) {
      ASSERT_EQ(ledger.end_store(), "") << "WORKFLOW_TEST_SEED=" << test_support::test_seed();
    }
  }
  ledger.print(round);
  EXPECT_TRUE(saw_enough());
}

// Reads lines until there is that one.
inline bool says(test_support::SqliteChild& child, const std::string& line) {
  for (;;) {
    const std::optional<std::string> said = child.line();
    if (!said || *said == line) return said.has_value();
  }
}

inline std::string name_of_round(int64_t round) {
  return "r" + std::to_string(round) + '-';  // so that 1 and 10 are not taken for 11 and 0
}

template <class PARAM>
std::string name_of(const testing::TestParamInfo<PARAM>& info) {
  return info.param.name;
}

// The end of the main() of such a program.
inline int run_tests_or_part(int argc, char** argv) {
  if (is_a_ledger_process()) return 0;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace store_test

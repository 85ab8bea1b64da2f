#pragma once

#include <cstdint>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"

namespace race {

// How many rounds a race takes: WORKFLOW_RACE_ROUNDS, or so many, which take a second or two.
inline uint64_t rounds(uint64_t by_default) {
  return static_cast<uint64_t>(test_support::env_number(
      "WORKFLOW_RACE_ROUNDS",
      static_cast<int64_t>(test_support::kSanitized ? by_default / 4 : by_default)));
}

}  // namespace race

#pragma once

#include <gtest/gtest.h>

#include "support/Tally.h"

namespace test_support {

// What a callback leaves to the end of its thread, which takes until `released`.
struct Lingering {
  ~Lingering() {
    if (ending) {
      ending->add();
      EXPECT_TRUE(released->wait_for(1));
    }
  }
  Tally* ending = nullptr;
  const Tally* released = nullptr;
};

inline thread_local Lingering lingering;

}  // namespace test_support

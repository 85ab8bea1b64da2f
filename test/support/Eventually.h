#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "support/Tally.h"

namespace test_support {

// Waits until `condition` holds. Returns false if it does not hold in time.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // lets other threads run
  }
  return true;
}

}  // namespace test_support

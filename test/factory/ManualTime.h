#pragma once

#include <chrono>

#include "workflow/WFManualClock.h"

namespace probes {

// Moves the manual clock.
inline void advance(std::chrono::nanoseconds duration) {
  WFManualClock::advance(duration.count());
}

}  // namespace probes

#pragma once

#include <cstdint>

#include "util/Time.h"

namespace workflow {

// Where the pollers read time from. Thread-safe; never goes back.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;

  // True when the operating system's timers follow this clock, so that a timerfd may be armed with
  // its deadlines. Otherwise whoever moves the clock wakes the pollers.
  virtual bool is_system_clock() const { return false; }
};

// CLOCK_MONOTONIC. Lives as long as the process.
Clock& system_clock();

}  // namespace workflow

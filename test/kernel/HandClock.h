#pragma once

#include <atomic>
#include <cstdint>

#include "util/Clock.h"

// A clock that stands still until it is moved.
class HandClock final : public workflow::Clock {
 public:
  int64_t now_ns() override { return now_ns_; }
  void set(int64_t now_ns) { now_ns_ = now_ns; }

 private:
  std::atomic<int64_t> now_ns_{1000};
};

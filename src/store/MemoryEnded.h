#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "workflow/WFTimerStore.h"

namespace workflow {

// The last timers of a store in memory that have ended (rule 13 of StoreBackend).
//
// Not thread-safe. Pure: it knows no clock.
//
// Invariants:
// 1. `order_` has the timers in the order in which they ended.
// 2. latest() finds the last one of a name among those in `order_`.
// 3. Every timer that ended at since_us() or later is in `order_`.
class MemoryEnded {
 public:
  struct Ended {
    std::string name;
    uint64_t timer = 0;
    WFStoreOutcome outcome = WFStoreOutcome::kNone;
    int64_t when_us = 0;
  };

  explicit MemoryEnded(int64_t since_us) : since_us_(since_us) {}

  void remember(Ended ended);
  // Forgets the oldest ones, so that at most `remembered` stay.
  void trim(size_t remembered);

  // Null if none of that name is remembered. Valid until the next call.
  const Ended* latest(const std::string& name) const;
  int64_t since_us() const { return since_us_; }

 private:
  std::deque<Ended> order_;
  // How many have been forgotten: the position of a timer is its place in `order_` plus this.
  uint64_t forgotten_ = 0;
  std::unordered_map<std::string, uint64_t> latest_;  // to positions
  int64_t since_us_;
};

}  // namespace workflow

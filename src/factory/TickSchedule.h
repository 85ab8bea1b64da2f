#pragma once

#include <cstdint>

#include "workflow/WFTimer.h"

namespace workflow {

// When the ticks of a periodic timer are due. Pure: it knows no clock.
class TickSchedule {
 public:
  virtual ~TickSchedule() = default;

  struct Next {
    int64_t due_ns;
    uint64_t missed;  // ticks that are left out before that one
  };
  // The tick that was due at `due_ns` is over at `now_ns`, which is earlier only if the clock was
  // set back.
  virtual Next next(int64_t due_ns, int64_t now_ns) = 0;
};

// Ticks that have the same distance from each other.
class EvenTicks final : public TickSchedule {
 public:
  // `every_ns` > 0.
  EvenTicks(int64_t every_ns, WFTimerPace pace) : every_ns_(every_ns), pace_(pace) {}
  Next next(int64_t due_ns, int64_t now_ns) override;

 private:
  const int64_t every_ns_;
  const WFTimerPace pace_;
};

}  // namespace workflow

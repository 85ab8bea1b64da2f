#pragma once

#include <cstdint>
#include <optional>

#include "workflow/WFCron.h"
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

  // When the first tick of a timer that is started at `now_ns` is due; empty: when it was created
  // with.
  virtual std::optional<int64_t> first(int64_t /*now_ns*/) { return std::nullopt; }
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

// Ticks at the dates of a cron expression; times are those of the wall clock.
class CronTicks final : public TickSchedule {
 public:
  explicit CronTicks(const WFCron& cron) : cron_(cron) {}
  Next next(int64_t due_ns, int64_t now_ns) override;
  std::optional<int64_t> first(int64_t now_ns) override { return after(now_ns); }

  // kNever: there is none.
  int64_t after(int64_t time_ns) const;

 private:
  static constexpr uint64_t kMaxMissed = 1000;  // are counted, at about 1 us each

  const WFCron cron_;
};

}  // namespace workflow

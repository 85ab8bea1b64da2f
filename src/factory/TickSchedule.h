#pragma once

#include <cstdint>
#include <optional>

#include "workflow/WFCron.h"
#include "workflow/WFTimer.h"

namespace workflow {

// Says when the ticks of a periodic timer are due. It knows no clock: the caller passes the time.
class TickSchedule {
 public:
  virtual ~TickSchedule() = default;

  struct Next {
    int64_t due_ns;
    uint64_t missed;  // how many ticks are left out before that one
  };
  // Returns the tick after the one that was due at `due_ns`. `now_ns` is the present time; it is
  // earlier than `due_ns` only if the clock was set back.
  virtual Next next(int64_t due_ns, int64_t now_ns) = 0;

  // When the first tick of a timer that is started at `now_ns` is due. Empty: at the time that the
  // timer was created with.
  virtual std::optional<int64_t> first(int64_t /*now_ns*/) { return std::nullopt; }
};

// Ticks at equal distances.
class EvenTicks final : public TickSchedule {
 public:
  // `every_ns` is positive.
  EvenTicks(int64_t every_ns, WFTimerPace pace) : every_ns_(every_ns), pace_(pace) {}
  Next next(int64_t due_ns, int64_t now_ns) override;

 private:
  const int64_t every_ns_;
  const WFTimerPace pace_;
};

// Ticks at the dates of a cron expression. Times are those of the wall clock.
class CronTicks final : public TickSchedule {
 public:
  explicit CronTicks(const WFCron& cron) : cron_(cron) {}
  Next next(int64_t due_ns, int64_t now_ns) override;
  std::optional<int64_t> first(int64_t now_ns) override { return after(now_ns); }

  // The first date after `time_ns`, or kNever if there is none.
  int64_t after(int64_t time_ns) const;

 private:
  static constexpr uint64_t kMaxMissed = 1000;  // counting costs about 1 us each

  const WFCron cron_;
};

}  // namespace workflow

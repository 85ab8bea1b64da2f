#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace workflow {

// Which days of a month a cron expression means. A set of days is a word with bit d for day d (1 to
// 31). A set of weekdays is a word with bit 0 for Sunday to bit 6 for Saturday.
struct CronDays {
  // The day-of-month field.
  uint32_t of_month = 0;             // 15
  uint32_t near_day = 0;             // 15W: the day from Monday to Friday nearest to the 15th
  uint32_t before_last = 0;          // L-3; L is bit 0
  uint32_t near_before_last = 0;     // L-3W; LW is bit 0
  bool month_field_is_open = false;  // it has a * or ?
  // The day-of-week field.
  uint32_t of_week = 0;                       // 5
  uint32_t last_of_week = 0;                  // 5L: the last Friday
  std::array<uint32_t, 7> ordinal_of_week{};  // 5#2: bit 2 of the Friday's
  bool week_field_is_open = false;            // it has a * or ?

  // The days of this month that match. If one of the two fields is open, a day must match both;
  // otherwise it must match one of them.
  uint32_t in_month(std::chrono::year_month month) const;
};

// Which readings of a clock a cron expression matches. It knows nothing of time zones. A plain
// value; each member alone must be valid.
struct CronRules {
  uint64_t seconds = 0;  // bit s for second s, and so on
  uint64_t minutes = 0;
  uint32_t hours = 0;
  uint32_t months = 0;  // bit 1 for January
  CronDays days;
  // True if the hour field has a *, a step, or all hours. Then the timer is due whenever the clock
  // shows a matching time, also when the clock shows that time twice; else once for each such time
  // (WFCron).
  bool every_reading = false;

  bool has_month(std::chrono::month month) const { return months >> unsigned{month} & 1; }

  // The first matching reading after this one; empty if there will never be one. The search covers
  // 400 years, after which the calendar repeats. It costs a few ns for each month that it passes.
  std::optional<std::chrono::local_seconds> next(std::chrono::local_seconds after) const;

 private:
  // The first matching time of day that is not before `from`.
  std::optional<std::chrono::seconds> time_of_day(std::chrono::seconds from) const;
  std::optional<std::chrono::local_days> day_from(std::chrono::local_days from) const;
};

}  // namespace workflow

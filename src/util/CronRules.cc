#include "util/CronRules.h"

#include <bit>

namespace workflow {

namespace {

namespace chrono = std::chrono;

// After this many months the calendar repeats exactly, including weekdays.
constexpr int kMonthsOfCycle = 400 * 12;

// Every seventh day, beginning with bit 0.
constexpr uint32_t kWeekly = 1u << 0 | 1u << 7 | 1u << 14 | 1u << 21 | 1u << 28;

// The lowest bit that is set, among `from` and above; `none` if there is no such bit.
unsigned lowest_bit(uint64_t word, unsigned from, unsigned none) {
  const uint64_t rest = word >> from << from;
  return rest == 0 ? none : static_cast<unsigned>(std::countr_zero(rest));
}

struct MonthShape {
  unsigned last_day;
  unsigned first_weekday;  // 0 is Sunday

  uint32_t all() const { return ((1u << last_day) - 1) << 1; }
  unsigned first(unsigned weekday) const { return 1 + (weekday + 7 - first_weekday) % 7; }
  uint32_t each(unsigned weekday) const { return kWeekly << first(weekday) & all(); }

  // The day of this month from Monday to Friday that is nearest to `day`.
  unsigned nearest_workday(unsigned day) const {
    const unsigned weekday = (first_weekday + day - 1) % 7;
    if (weekday == 6) return day > 1 ? day - 1 : day + 2;
    if (weekday == 0) return day < last_day ? day + 1 : day - 2;
    return day;
  }
};

template <class Use>
void for_each_bit(uint32_t word, Use use) {
  for (; word != 0; word &= word - 1)
    use(static_cast<unsigned>(std::countr_zero(word)));
}

uint32_t days_of_month_field(const CronDays& days, const MonthShape& month) {
  uint32_t result = days.of_month;
  for_each_bit(days.near_day & month.all(),
               [&](unsigned day) { result |= 1u << month.nearest_workday(day); });
  for_each_bit(days.before_last, [&](unsigned before) {
    if (before < month.last_day) result |= 1u << (month.last_day - before);
  });
  for_each_bit(days.near_before_last, [&](unsigned before) {
    if (before < month.last_day) result |= 1u << month.nearest_workday(month.last_day - before);
  });
  return result;
}

uint32_t days_of_week_field(const CronDays& days, const MonthShape& month) {
  uint32_t result = 0;
  for_each_bit(days.of_week, [&](unsigned weekday) { result |= month.each(weekday); });
  for_each_bit(days.last_of_week,
               [&](unsigned weekday) { result |= std::bit_floor(month.each(weekday)); });
  for (unsigned weekday = 0; weekday < 7; ++weekday) {
    for_each_bit(days.ordinal_of_week[weekday], [&](unsigned ordinal) {
      result |= 1u << (ordinal - 1) * 7 << month.first(weekday) & month.each(weekday);
    });
  }
  return result;
}

}  // namespace

uint32_t CronDays::in_month(chrono::year_month month) const {
  const chrono::sys_days first_day(month / 1);
  const MonthShape shape{unsigned{(month / chrono::last).day()},
                         chrono::weekday(first_day).c_encoding()};
  const uint32_t by_month = days_of_month_field(*this, shape);
  const uint32_t by_week = days_of_week_field(*this, shape);
  const bool both = month_field_is_open || week_field_is_open;
  return (both ? by_month & by_week : by_month | by_week) & shape.all();
}

std::optional<chrono::seconds> CronRules::time_of_day(chrono::seconds from) const {
  const chrono::hh_mm_ss start(from);
  const auto start_hour = static_cast<unsigned>(start.hours().count());
  const auto start_minute = static_cast<unsigned>(start.minutes().count());
  const auto start_second = static_cast<unsigned>(start.seconds().count());
  const unsigned first_minute = lowest_bit(minutes, 0, 60);
  const unsigned first_second = lowest_bit(seconds, 0, 60);
  const auto at = [](unsigned hour, unsigned minute, unsigned second) {
    return chrono::hours(hour) + chrono::minutes(minute) + chrono::seconds(second);
  };
  if (hours >> start_hour & 1) {
    if (minutes >> start_minute & 1) {
      const unsigned second = lowest_bit(seconds, start_second, 60);
      if (second < 60) return at(start_hour, start_minute, second);
    }
    const unsigned minute = lowest_bit(minutes, start_minute + 1, 60);
    if (minute < 60) return at(start_hour, minute, first_second);
  }
  const unsigned hour = lowest_bit(hours, start_hour + 1, 24);
  if (hour < 24) return at(hour, first_minute, first_second);
  return std::nullopt;
}

std::optional<chrono::local_days> CronRules::day_from(chrono::local_days from) const {
  const chrono::year_month_day start(from);
  chrono::year_month month = start.year() / start.month();
  uint32_t ahead = ~0u << unsigned{start.day()};
  // One month more, because the days of the first month before the start are searched last.
  for (int i = 0; i <= kMonthsOfCycle; ++i) {
    if (has_month(month.month())) {
      const uint32_t matching = days.in_month(month) & ahead;
      if (matching != 0) {
        const chrono::day day(static_cast<unsigned>(std::countr_zero(matching)));
        return chrono::local_days(month / day);
      }
    }
    ahead = ~0u;
    month += chrono::months(1);
  }
  return std::nullopt;
}

std::optional<chrono::local_seconds> CronRules::next(chrono::local_seconds after) const {
  const chrono::local_seconds from = after + chrono::seconds(1);
  const chrono::local_days today = chrono::floor<chrono::days>(from);
  std::optional<chrono::local_days> day = day_from(today);
  if (day == today) {
    if (const auto time = time_of_day(from - today)) return *day + *time;
    day = day_from(today + chrono::days(1));
  }
  const auto time = time_of_day(chrono::seconds(0));
  if (!day || !time) return std::nullopt;
  return *day + *time;
}

}  // namespace workflow

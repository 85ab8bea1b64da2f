#pragma once

#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "support/TestSeed.h"

// Random expressions, and the obvious slow way to see when they are due: minute by minute, with the
// zones of the C library. Shares nothing with the code that is tested.
namespace cron_test {

class SlowField {
 public:
  using Rule = std::function<bool(const std::tm&)>;

  // A field of values from `least` to `most`, which `value_of` finds in a reading.
  SlowField(int least, int most, int (*value_of)(const std::tm&))
      : least_(least), most_(most), value_of_(value_of) {}

  const std::string& text() const { return text_; }
  bool is_open() const { return is_open_; }
  bool has_step() const { return has_step_; }

  bool matches(const std::tm& reading) const {
    for (const Rule& rule : rules_)
      if (rule(reading)) return true;
    return false;
  }

  void add(const std::string& text, Rule rule) {
    text_ += (text_.empty() ? "" : ",") + text;
    rules_.push_back(std::move(rule));
  }

  void add_star() {
    add("*", [](const std::tm&) { return true; });
    is_open_ = true;
  }

  void add_random(test_support::TestRandom& random) {
    const int size = most_ - least_ + 1;
    // Small ones more often: clocks are set in the first hours of a day.
    const int greatest = random.one_in(2) ? least_ + 3 : most_;
    int from = static_cast<int>(random.between(least_, greatest));
    int to = from;
    std::string text = std::to_string(from);
    const uint64_t form = random.below(8);
    if (form == 0) {
      from = least_;
      to = most_;
      text = "*";
      is_open_ = true;
    } else if (form < 3) {
      to = static_cast<int>(random.between(least_, most_));
      text += "-" + std::to_string(to);
    } else if (form == 3) {
      to = most_;
    }
    int step = 1;
    if (form == 3 || (form < 3 && random.one_in(2))) {
      step = static_cast<int>(random.between(1, size));
      text += "/" + std::to_string(step);
      has_step_ = true;
    }
    if (to < from) to += size;
    std::vector<bool> holds(static_cast<size_t>(most_) + 1);
    for (int value = from; value <= to; value += step)
      holds[static_cast<size_t>(value > most_ ? value - size : value)] = true;
    add(text, [holds, value_of = value_of_](const std::tm& reading) {
      return holds[static_cast<size_t>(value_of(reading))];
    });
  }

 private:
  int least_;
  int most_;
  int (*value_of_)(const std::tm&);
  std::string text_;
  std::vector<Rule> rules_;
  bool is_open_ = false;
  bool has_step_ = false;
};

// The day with that number in the month of `reading`.
inline std::tm day_of_month(const std::tm& reading, int day) {
  std::tm other{};
  other.tm_year = reading.tm_year;
  other.tm_mon = reading.tm_mon;
  other.tm_mday = day;
  const std::time_t time = timegm(&other);
  gmtime_r(&time, &other);
  return other;
}

inline int last_day(const std::tm& reading) {
  int day = 31;
  while (day_of_month(reading, day).tm_mon != reading.tm_mon)
    --day;
  return day;
}

// Whether no other day from Monday to Friday of the month is nearer to `day` than `reading` is.
inline bool is_nearest_workday(const std::tm& reading, int day) {
  if (day < 1 || day > last_day(reading)) return false;
  int nearest = 100;
  for (int other = 1; other <= last_day(reading); ++other) {
    const int weekday = day_of_month(reading, other).tm_wday;
    if (weekday == 0 || weekday == 6) continue;
    if (std::abs(other - day) < std::abs(nearest - day)) nearest = other;
  }
  return reading.tm_mday == nearest;
}

class SlowCron {
 public:
  explicit SlowCron(test_support::TestRandom& random) {
    fill(minutes_, random, 1);
    fill(hours_, random, 3);
    add_special_days(random);
    fill(month_days_, random, 2);
    fill(months_, random, 5);
    add_special_weekdays(random);
    fill(week_days_, random, 2);
  }

  std::string text() const {
    return minutes_.text() + " " + hours_.text() + " " + month_days_.text() + " " + months_.text() +
           " " + week_days_.text();
  }

  // The minutes after `start` up to `end` when it is due, where the variable TZ says.
  std::vector<std::time_t> between(std::time_t start, std::time_t end) const {
    std::vector<std::time_t> due;
    constexpr std::time_t kMinute = 60;
    // Clocks that were set back shortly before have shown more than they show.
    const std::time_t first = start - start % kMinute - 4 * 24 * 60 * kMinute;
    std::time_t seen = reading_at(first);
    for (std::time_t time = first; time <= end; time += kMinute) {
      const std::time_t reading = reading_at(time);
      bool is_due = every_reading() && matches(reading);
      for (; seen < reading; seen += kMinute)
        is_due = is_due || (!every_reading() && matches(seen + kMinute));
      if (is_due && time > start) due.push_back(time);
    }
    return due;
  }

 private:
  static void fill(SlowField& field, test_support::TestRandom& random, uint64_t stars) {
    if (field.text().empty() && random.below(stars + 3) < stars) {
      field.add_star();
      return;
    }
    if (field.text().empty()) field.add_random(random);
    while (random.one_in(3))
      field.add_random(random);
  }

  void add_special_days(test_support::TestRandom& random) {
    if (!random.one_in(4)) return;
    const int day = static_cast<int>(random.between(1, 31));
    const int before = static_cast<int>(random.between(1, 30));
    switch (random.below(5)) {
      case 0:
        month_days_.add("L", [](const std::tm& t) { return t.tm_mday == last_day(t); });
        break;
      case 1:
        month_days_.add("LW", [](const std::tm& t) { return is_nearest_workday(t, last_day(t)); });
        break;
      case 2:
        month_days_.add("L-" + std::to_string(before),
                        [before](const std::tm& t) { return t.tm_mday == last_day(t) - before; });
        break;
      case 3:
        month_days_.add("L-" + std::to_string(before) + "W", [before](const std::tm& t) {
          return is_nearest_workday(t, last_day(t) - before);
        });
        break;
      default:
        month_days_.add(std::to_string(day) + "W",
                        [day](const std::tm& t) { return is_nearest_workday(t, day); });
    }
  }

  void add_special_weekdays(test_support::TestRandom& random) {
    if (!random.one_in(4)) return;
    const int weekday = static_cast<int>(random.below(7));
    const int week = static_cast<int>(random.between(1, 5));
    if (random.one_in(2)) {
      week_days_.add(std::to_string(weekday) + "L", [weekday](const std::tm& t) {
        return t.tm_wday == weekday && t.tm_mday + 7 > last_day(t);
      });
    } else {
      week_days_.add(std::to_string(weekday) + "#" + std::to_string(week),
                     [weekday, week](const std::tm& t) {
                       return t.tm_wday == weekday && (t.tm_mday + 6) / 7 == week;
                     });
    }
  }

  bool every_reading() const {
    if (hours_.is_open() || hours_.has_step()) return true;
    std::tm reading{};
    for (reading.tm_hour = 0; reading.tm_hour < 24; ++reading.tm_hour)
      if (!hours_.matches(reading)) return false;
    return true;
  }

  bool matches(std::time_t reading) const {
    std::tm t{};
    gmtime_r(&reading, &t);
    if (!minutes_.matches(t) || !hours_.matches(t) || !months_.matches(t)) return false;
    if (month_days_.is_open() || week_days_.is_open()) {
      return month_days_.matches(t) && week_days_.matches(t);
    }
    return month_days_.matches(t) || week_days_.matches(t);
  }

  static std::time_t reading_at(std::time_t time) {
    std::tm t{};
    localtime_r(&time, &t);
    return time + t.tm_gmtoff;
  }

  SlowField minutes_{0, 59, [](const std::tm& t) { return t.tm_min; }};
  SlowField hours_{0, 23, [](const std::tm& t) { return t.tm_hour; }};
  SlowField month_days_{1, 31, [](const std::tm& t) { return t.tm_mday; }};
  SlowField months_{1, 12, [](const std::tm& t) { return t.tm_mon + 1; }};
  SlowField week_days_{0, 6, [](const std::tm& t) { return t.tm_wday; }};
};

}  // namespace cron_test

#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace workflow {
struct CronSchedule;
}  // namespace workflow

// The part of an expression that is wrong.
enum WFCronField {
  WF_CRON_EXPRESSION = 0,  // no single field: a wrong number of fields, an unknown @name
  WF_CRON_SECOND = 1,
  WF_CRON_MINUTE = 2,
  WF_CRON_HOUR = 3,
  WF_CRON_DAY_OF_MONTH = 4,
  WF_CRON_MONTH = 5,
  WF_CRON_DAY_OF_WEEK = 6,
  WF_CRON_TIME_ZONE = 7,
};

struct WFCronError {
  WFCronField field = WF_CRON_EXPRESSION;
  // The wrong part of `text`, in bytes. A length of 0 means that something is missing at that
  // position.
  size_t position = 0;
  size_t length = 0;
  // One line without a newline, which begins with the name of the field. It is printable ASCII,
  // even where it quotes text that is not.
  std::string message;
  // The expression or, for WF_CRON_TIME_ZONE, the name of the zone.
  std::string text;

  // For people to read: the message, below it the text, and below that carets that mark the place.
  // These are three lines, the last without a newline. A long text is cut around the place.
  std::string to_string() const;
};

// The times at which something recurs: a cron expression in a time zone. docs/timers.md describes
// the grammar, and what happens when clocks are changed.
//
// A value that never changes. Copies share the parsed expression, and any thread may use any of
// them. Nothing throws, except that next() for several times may run out of memory.
class WFCron {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  // There are no moves, because a moved-from WFCron would be useless.
  WFCron(const WFCron &) = default;
  WFCron &operator=(const WFCron &) = default;

  // Parses an expression: five fields (minute, hour, day of month, month, day of week), six fields
  // (a second before them), or one of @yearly @annually @monthly @weekly @daily @midnight @hourly.
  // Spaces and tabs separate the fields, and are allowed before and after them; a newline is not.
  //
  // `time_zone` is a name from the system's time zone database, such as "Europe/Berlin". An empty
  // name is UTC. "localtime" is the zone of the system: the one that the environment variable TZ
  // names, by its name or by the absolute path of its file, or /etc/localtime if TZ is not set or
  // empty. A TZ that names no zone is an error. Each zone is read from its file once per process.
  //
  // If the expression or the zone is wrong, the result is empty, and *error says which one, where
  // and why.
  static std::optional<WFCron> parse(std::string_view expression, std::string_view time_zone = {},
                                     WFCronError *error = nullptr);

  // The first time after `after`; it is always a whole second. Empty if there is none, as for 30
  // February, or if it is beyond the range of TimePoint, which ends in the year 2262. The time is
  // found field by field: this takes about a microsecond, and somewhat more if the time is years
  // away.
  std::optional<TimePoint> next(TimePoint after) const;

  // The first `n` times after `after`, or fewer if there are no more.
  std::vector<TimePoint> next(TimePoint after, size_t n) const;

  // The expression that was given to parse().
  const std::string &expression() const;
  // The name that was given to parse(); "UTC" for an empty name.
  const std::string &time_zone() const;

 private:
  explicit WFCron(std::shared_ptr<const workflow::CronSchedule> schedule);

  std::shared_ptr<const workflow::CronSchedule> schedule_;
};

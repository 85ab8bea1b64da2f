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

// Where an expression is wrong.
enum WFCronField {
  WF_CRON_EXPRESSION = 0,  // not in one field: their number, an unknown @name
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
  // What is wrong, in bytes of `text`; the length may be 0: something is missing there.
  size_t position = 0;
  size_t length = 0;
  // One line, without its end, that begins with the name of the field. Printable ASCII, also where
  // it quotes what is not.
  std::string message;
  // The expression; for WF_CRON_TIME_ZONE the name of the zone.
  std::string text;

  // For humans: the message, below it the text, below that carets at the place. Three lines without
  // the last end of line. A long text is cut around the place.
  std::string to_string() const;
};

// When something recurs: a cron expression in a time zone. The grammar, and what happens when
// clocks are changed, are described in docs/timers.md.
//
// A value that never changes: copies share what was parsed, and any thread may use any of them.
// Nothing throws but the vector, without memory.
class WFCron {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  // No moves: one that was moved from would be of no use.
  WFCron(const WFCron &) = default;
  WFCron &operator=(const WFCron &) = default;

  // Five fields (minute, hour, day of month, month, day of week), six (a second before them), or
  // one of @yearly @annually @monthly @weekly @daily @midnight @hourly. Spaces and tabs stand
  // between them, and may stand before and behind; the end of a line may not.
  //
  // `time_zone` is a name of the system's time zone database, as "Europe/Berlin"; empty is UTC;
  // "localtime" is what the system is set to: the zone that the environment variable TZ names, and
  // /etc/localtime if TZ is not set or empty. A TZ that names no zone is an error. A zone is read
  // from its file once per process.
  //
  // Empty when one of them is wrong, and then *error says which, where and why.
  static std::optional<WFCron> parse(std::string_view expression, std::string_view time_zone = {},
                                     WFCronError *error = nullptr);

  // The first time after `after`, a whole second. Empty when there is none, as for 30 February, or
  // when it is behind the range of TimePoint, which ends in the year 2262. A time is looked for
  // field by field: about a microsecond, and some more when it is years away.
  std::optional<TimePoint> next(TimePoint after) const;

  // The first `n` times after `after`; fewer when there are no more.
  std::vector<TimePoint> next(TimePoint after, size_t n) const;

  // As given to parse().
  const std::string &expression() const;
  // As given to parse(); "UTC" for an empty one.
  const std::string &time_zone() const;

 private:
  explicit WFCron(std::shared_ptr<const workflow::CronSchedule> schedule);

  std::shared_ptr<const workflow::CronSchedule> schedule_;
};

#pragma once

#include <cctz/time_zone.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace workflow {

// A time zone of the system's database: it says what the clocks of the zone show at which time. A
// value that is cheap to copy, and may be used on any thread, also while the process exits. Zones
// that were read stay in memory for ever. They cannot grow beyond the database, because a name
// without a file is not remembered.
class TimeZone {
 public:
  // Finds a zone by its name in the database, such as "Europe/Berlin". "UTC" needs no database.
  // "localtime" is the zone that TZ or the system is set to; only TZ may also give the path of a
  // zone's file. Empty if there is no such zone, or if there was no memory to open its file; in the
  // latter case the zone is not found later either. Allocates memory, and may throw std::bad_alloc.
  static std::optional<TimeZone> find(std::string_view name);

  // What "localtime" stands for: the name of a zone or the path of its file in the environment
  // variable TZ, or "/etc/localtime" if that is not set or empty.
  static std::string local_name();

  // What the clocks show at `time`.
  std::chrono::local_seconds reading(std::chrono::sys_seconds time) const;

  // The latest reading that the clocks have shown up to `time`. It is later than what they show if
  // they were set back.
  std::chrono::local_seconds latest_reading(std::chrono::sys_seconds time) const;

  // The time at which the clocks first show `reading`, or a later one because they are set forward
  // beyond it.
  std::chrono::sys_seconds first_reaches(std::chrono::local_seconds reading) const;

  // The next time after `time` at which the clocks are set; empty if they never are. The change may
  // be one after which they show the same as before.
  std::optional<std::chrono::sys_seconds> next_change(std::chrono::sys_seconds time) const;

  // The clocks of two zones never differ by more than this, and no change of a zone's clocks is
  // larger.
  static constexpr std::chrono::seconds kLongestChange = std::chrono::hours(72);

 private:
  explicit TimeZone(cctz::time_zone zone) : zone_(zone) {}

  cctz::time_zone zone_;
};

}  // namespace workflow

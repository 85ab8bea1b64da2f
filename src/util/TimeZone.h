#pragma once

#include <cctz/time_zone.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace workflow {

// A time zone of the system's database: what its clocks show when. A value that is cheap to copy;
// any thread, also while the process ends. What is read of the database stays in memory for good,
// and is at most what the database holds: a name without a file is not remembered.
class TimeZone {
 public:
  // By its name in the database, as "Europe/Berlin"; "UTC" needs none, "localtime" is what the
  // system is set to. Empty when there is no such zone. Takes memory, and may throw std::bad_alloc.
  static std::optional<TimeZone> find(std::string_view name);

  // What "localtime" stands for: the name in the environment variable TZ, or "/etc/localtime" if
  // that is not set, is empty or names that file.
  static std::string local_name();

  // What the clocks show.
  std::chrono::local_seconds reading(std::chrono::sys_seconds time) const;

  // The latest they have shown by then. It is later than what they show when they were set back.
  std::chrono::local_seconds latest_reading(std::chrono::sys_seconds time) const;

  // When they first show this or, because they are set forward beyond it, more.
  std::chrono::sys_seconds first_reaches(std::chrono::local_seconds reading) const;

  // When they are set the next time after this one; empty when they never are. That they then show
  // something else is not promised.
  std::optional<std::chrono::sys_seconds> next_change(std::chrono::sys_seconds time) const;

  // No clock of any zone is farther than this from another one's, or from what it showed before.
  static constexpr std::chrono::seconds kLongestChange = std::chrono::hours(72);

 private:
  explicit TimeZone(cctz::time_zone zone) : zone_(zone) {}

  cctz::time_zone zone_;
};

}  // namespace workflow

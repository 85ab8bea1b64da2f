#include "workflow/WFCron.h"

#include <algorithm>
#include <new>
#include <utility>

#include "util/CronFieldReader.h"
#include "util/CronParser.h"
#include "util/CronRules.h"
#include "util/TimeZone.h"

namespace workflow {

// The data that the copies of one WFCron share. Constant after construction.
struct CronSchedule {
  std::string expression;
  std::string zone_name;
  CronRules rules;
  TimeZone zone;
  bool never;  // none of the days that it asks for exists
};

}  // namespace workflow

namespace {

namespace chrono = std::chrono;
using workflow::CronSchedule;
using workflow::TimeZone;

constexpr std::string_view kUtc = "UTC";

// The next time, if each matching reading counts once: when the clock first reaches it, or passes
// it because it is set forward.
chrono::sys_seconds next_reached(const CronSchedule& schedule, chrono::sys_seconds after) {
  const chrono::local_seconds seen = schedule.zone.latest_reading(after);
  return schedule.zone.first_reaches(*schedule.rules.next(seen));
}

// The next time at which the clock shows a matching reading.
chrono::sys_seconds next_shown(const CronSchedule& schedule, chrono::sys_seconds after) {
  const TimeZone& zone = schedule.zone;
  chrono::sys_seconds begin = after + chrono::seconds(1);
  for (;;) {
    // If the clock is not set, it shows all readings that follow.
    const chrono::local_seconds shown = zone.reading(begin);
    const chrono::local_seconds wanted = *schedule.rules.next(shown - chrono::seconds(1));
    const chrono::sys_seconds found = begin + (wanted - shown);
    const auto change = zone.next_change(begin);
    if (!change || found < *change) return found;
    // No reading between `shown` and `wanted` matches. At times far from both `begin` and `found`
    // the clock shows only such readings, however it is set. So changes at those times do not
    // matter.
    const bool is_far = *change - begin >= TimeZone::kLongestChange;
    begin = is_far ? std::max(*change, found - TimeZone::kLongestChange) : *change;
  }
}

std::optional<chrono::sys_seconds> next_time(const CronSchedule& schedule,
                                             chrono::sys_seconds after) {
  constexpr auto kLast = chrono::floor<chrono::seconds>(WFCron::TimePoint::max());
  if (schedule.never || after >= kLast) return std::nullopt;
  const chrono::sys_seconds found =
      schedule.rules.every_reading ? next_shown(schedule, after) : next_reached(schedule, after);
  if (found > kLast) return std::nullopt;
  return found;
}

// "localtime" itself is always valid; if it fails, the name that it stands for is wrong.
std::string unknown_zone(std::string_view name) {
  if (name != "localtime") return "time zone: " + workflow::quoted(name) + " is unknown";
  const std::string local = TimeZone::local_name();
  const std::string said = "time zone: localtime is " + workflow::quoted(local);
  if (local == "/etc/localtime") return said + ", which is no time zone";
  return said + ", because TZ says so, and that is " +
         (local.starts_with('/') ? "no file of a time zone" : "unknown");
}

std::shared_ptr<const CronSchedule> make_schedule(std::string_view expression,
                                                  std::string_view zone_name, WFCronError* error) {
  const auto rules = workflow::parse_cron(expression, error);
  if (!rules) {
    error->text = expression;
    return nullptr;
  }
  const auto zone = TimeZone::find(zone_name);
  if (!zone) {
    error->field = WF_CRON_TIME_ZONE;
    error->position = 0;
    error->length = zone_name.size();
    error->message = unknown_zone(zone_name);
    error->text = zone_name;
    return nullptr;
  }
  const bool never = !rules->next(chrono::local_seconds(chrono::seconds(0)));
  return std::make_shared<const CronSchedule>(
      CronSchedule{std::string(expression), std::string(zone_name), *rules, *zone, never});
}

}  // namespace

std::string WFCronError::to_string() const {
  // How many characters are shown before and after the error.
  constexpr size_t kContext = 60;
  const size_t at = std::min(position, text.size());
  const size_t begin = at > kContext ? at - kContext : 0;
  const size_t marked = std::min(length, text.size() - at);
  const size_t end = std::min(text.size(), at + std::min(marked, kContext) + kContext);
  std::string result = message + "\n  ";
  for (size_t i = begin; i < end; ++i)
    result += text[i] >= ' ' && text[i] < 0x7f ? text[i] : (text[i] == '\t' ? ' ' : '?');
  result.append("\n  ").append(at - begin, ' ');
  result.append(std::max<size_t>(1, std::min(marked, end - at)), '^');
  return result;
}

WFCron::WFCron(std::shared_ptr<const CronSchedule> schedule) : schedule_(std::move(schedule)) {}

std::optional<WFCron> WFCron::parse(std::string_view expression, std::string_view time_zone,
                                    WFCronError* error) {
  try {
    WFCronError found;
    auto schedule = make_schedule(expression, time_zone.empty() ? kUtc : time_zone, &found);
    if (schedule != nullptr) return WFCron(std::move(schedule));
    if (error != nullptr) *error = std::move(found);
  } catch (const std::bad_alloc&) {
    if (error != nullptr) {
      *error = WFCronError();
      error->message = "no memory";  // short enough to need no allocation
    }
  }
  return std::nullopt;
}

std::optional<WFCron::TimePoint> WFCron::next(TimePoint after) const {
  const auto found = next_time(*schedule_, chrono::floor<chrono::seconds>(after));
  if (!found) return std::nullopt;
  return TimePoint(*found);
}

std::vector<WFCron::TimePoint> WFCron::next(TimePoint after, size_t n) const {
  std::vector<TimePoint> times;
  while (times.size() < n) {
    const auto time = next(times.empty() ? after : times.back());
    if (!time) break;
    times.push_back(*time);
  }
  return times;
}

const std::string& WFCron::expression() const {
  return schedule_->expression;
}

const std::string& WFCron::time_zone() const {
  return schedule_->zone_name;
}

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "Fuzzing.h"
#include "workflow/WFCron.h"

// The first byte chooses a zone, the second one a time, the rest is the expression.

using fuzzing::require;

namespace {

using TimePoint = WFCron::TimePoint;

constexpr const char* kZones[] = {"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"};

// Sixteen months apart, from 1950 to 2290: beyond the end of the clock.
TimePoint time_of(uint8_t chosen) {
  using std::chrono::seconds;
  const seconds since_epoch((int64_t{chosen} - 15) * 42'000'000);
  const auto end = std::chrono::floor<seconds>(TimePoint::max().time_since_epoch());
  return TimePoint(std::min(since_epoch, end));
}

void check_error(std::string_view expression, const WFCronError& error) {
  require(error.field != WF_CRON_TIME_ZONE && error.text == expression);
  require(error.position <= expression.size());
  require(error.length <= expression.size() - error.position);
  require(error.message.size() > 10 && error.message.size() < 250);
  const std::string text = error.to_string();
  require(text.size() < 600);
  size_t lines = 1;
  for (const char c : text) {
    require(c == '\n' || (c >= ' ' && c < 0x7f));
    lines += c == '\n' ? 1 : 0;
  }
  require(lines == 3 && text.back() == '^');
}

void check_times(const WFCron& cron, TimePoint start) {
  const std::vector<TimePoint> times = cron.next(start, 5);
  TimePoint before = start;
  for (const TimePoint time : times) {
    require(time > before);
    require(time == std::chrono::floor<std::chrono::seconds>(time));
    // It is the next one of all times since the one before.
    require(cron.next(time - TimePoint::duration(1)) == time);
    require(cron.next(before + (time - before) / 2) == time);
    before = time;
  }
  if (times.size() < 5) require(!cron.next(before).has_value());
}

void check(const char* zone, TimePoint start, std::string_view expression) {
  WFCronError error;
  const auto cron = WFCron::parse(expression, zone, &error);
  if (!cron) {
    check_error(expression, error);
    return;
  }
  require(error.message.empty());
  require(cron->expression() == expression && cron->time_zone() == zone);
  check_times(*cron, start);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const char* zone = kZones[data[0] % std::size(kZones)];
  const std::string expression(reinterpret_cast<const char*>(data + 2), size - 2);
  check(zone, time_of(data[1]), expression);
  for (size_t cut = 0; fuzzing::cut_everywhere && cut < expression.size(); ++cut)
    check(zone, time_of(data[1]), std::string_view(expression).substr(0, cut));
  return 0;
}

#include "util/TimeZone.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "util/UniqueFd.h"

namespace workflow {

namespace {

namespace chrono = std::chrono;

constexpr std::string_view kLocal = "localtime";
constexpr const char* kLocalFile = "/etc/localtime";
constexpr size_t kLongestName = 255;
constexpr cctz::civil_second kEpoch(1970, 1, 1);

cctz::civil_second civil(chrono::local_seconds reading) {
  return kEpoch + reading.time_since_epoch().count();
}

chrono::local_seconds reading_of(const cctz::civil_second& civil) {
  return chrono::local_seconds(chrono::seconds(civil - kEpoch));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '+' || c == '/';
}

// cctz accepts more names than the files of the database: other files, and "libc:" and "Fixed/"
// followed by anything. Zones of the folder "right" count leap seconds, which the clocks of a
// system do not.
bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || name.starts_with("right/")) return false;
  for (char c : name)
    if (!is_name_character(c)) return false;
  return !name.starts_with('/') && name.find("//") == name.npos && !name.ends_with('/');
}

bool is_zone_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char magic[4];
  return file.valid() && ::read(file.get(), magic, sizeof(magic)) == sizeof(magic) &&
         std::string_view(magic, sizeof(magic)) == "TZif";
}

// cctz remembers each name that it does not find for ever. It is asked only for files that exist,
// so that what it remembers is bounded.
std::optional<cctz::time_zone> load(const std::string& name, const std::string& path) {
  cctz::time_zone zone;
  if (!is_zone_file(path) || !cctz::load_time_zone(name, &zone)) return std::nullopt;
  return zone;
}

std::optional<cctz::time_zone> find_by_name(std::string_view name) {
  if (!is_name(name)) return std::nullopt;
  if (name == "UTC") return cctz::utc_time_zone();
  const char* folder = std::getenv("TZDIR");
  if (folder == nullptr || *folder == '\0') folder = "/usr/share/zoneinfo";
  return load(std::string(name), std::string(folder).append("/").append(name));
}

std::optional<cctz::time_zone> find_local() {
  const std::string name = TimeZone::local_name();
  if (!name.starts_with('/')) return find_by_name(name);
  // POSIX: without any setting the zone is UTC.
  if (name == kLocalFile && ::access(kLocalFile, F_OK) != 0) return cctz::utc_time_zone();
  return load(name, name);
}

}  // namespace

std::string TimeZone::local_name() {
  std::string_view name;
  if (const char* variable = std::getenv("TZ")) name = variable;
  if (name.starts_with(':')) name.remove_prefix(1);
  return std::string(name.empty() ? kLocalFile : name);
}

std::optional<TimeZone> TimeZone::find(std::string_view name) {
  const auto zone = name == kLocal ? find_local() : find_by_name(name);
  if (!zone) return std::nullopt;
  return TimeZone(*zone);
}

chrono::local_seconds TimeZone::reading(chrono::sys_seconds time) const {
  return chrono::local_seconds(time.time_since_epoch() +
                               chrono::seconds(zone_.lookup(time).offset));
}

chrono::local_seconds TimeZone::latest_reading(chrono::sys_seconds time) const {
  chrono::local_seconds latest = reading(time);
  cctz::time_zone::civil_transition change;
  chrono::sys_seconds before = time + chrono::seconds(1);
  while (zone_.prev_transition(before, &change)) {
    before = zone_.lookup(change.to).trans;
    if (before < time - kLongestChange) break;
    latest = std::max(latest, reading_of(change.from - 1));
  }
  return latest;
}

chrono::sys_seconds TimeZone::first_reaches(chrono::local_seconds reading) const {
  return cctz::convert(civil(reading), zone_);
}

std::optional<chrono::sys_seconds> TimeZone::next_change(chrono::sys_seconds time) const {
  cctz::time_zone::civil_transition change;
  if (!zone_.next_transition(time, &change)) return std::nullopt;
  return zone_.lookup(change.to).trans;
}

}  // namespace workflow

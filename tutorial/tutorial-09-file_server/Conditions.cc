#include "Conditions.h"

#include <strings.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

using protocol::HttpHeaderMap;

namespace {

// All lines of a field as one (RFC 9110, 5.3).
std::string list_of(const HttpHeaderMap& fields, const char* name) {
  std::string list;
  for (const std::string& line : fields.get_strict(name))
    list += (list.empty() ? "" : ",") + line;
  return list;
}

// A field that holds one date; none when it is absent, repeated or no date: then it is ignored.
std::optional<time_t> date_of(const HttpHeaderMap& fields, const char* name) {
  const std::vector<std::string> lines = fields.get_strict(name);
  return lines.size() == 1 ? from_http_date(lines[0]) : std::nullopt;
}

// Whether a list of entity tags, or "*", names this one. A tag may hold commas. `weak`: W/ before a
// tag does not matter, else such a tag never matches (RFC 9110, 8.8.3.2).
bool names_tag(std::string_view list, const std::string& etag, bool weak) {
  if (list == "*") return true;
  while (!etag.empty()) {
    list.remove_prefix(std::min(list.find_first_not_of(" \t,"), list.size()));
    const bool is_weak = list.substr(0, 2) == "W/";
    if (is_weak) list.remove_prefix(2);
    if (list.empty() || list[0] != '"') return false;
    const size_t end = list.find('"', 1);
    if (end == std::string_view::npos) return false;
    if (list.substr(0, end + 1) == etag && (weak || !is_weak)) return true;
    list.remove_prefix(end + 1);
  }
  return false;
}

// The decimal number at the beginning of `text`, which is taken off; too large is the largest.
std::optional<off_t> take_number(std::string_view& text) {
  constexpr off_t kLargest = INT64_MAX;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return std::nullopt;
  off_t number = 0;
  for (const char c : text.substr(0, digits)) {
    const off_t digit = c - '0';
    number = number > (kLargest - digit) / 10 ? kLargest : number * 10 + digit;
  }
  text.remove_prefix(digits);
  return number;
}

}  // namespace

Validators validators_of(const struct stat& facts, time_t now) {
  Validators validators;
  // A second is more than any file system's tick, and as much as a date can tell. A time in the
  // future tells nothing.
  if (facts.st_mtim.tv_sec >= now - 1) return validators;
  // The time of change is in it, too, because nobody can set it back, as cp -p does with the other.
  char etag[128];
  std::snprintf(etag, sizeof etag, "\"%jx-%jx-%jx.%lx-%jx.%lx\"", uintmax_t{facts.st_ino},
                static_cast<uintmax_t>(facts.st_size), static_cast<uintmax_t>(facts.st_mtim.tv_sec),
                facts.st_mtim.tv_nsec, static_cast<uintmax_t>(facts.st_ctim.tv_sec),
                facts.st_ctim.tv_nsec);
  validators.etag = etag;
  validators.modified = facts.st_mtim.tv_sec;
  return validators;
}

std::string to_http_date(time_t time) {
  struct tm parts = {};
  ::gmtime_r(&time, &parts);
  char text[64];
  // In the C locale: this program sets no other.
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

std::optional<time_t> from_http_date(const std::string& text) {
  // The form of today, that of RFC 850, and that of asctime().
  for (const char* form :
       {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
    struct tm parts = {};
    const char* end = ::strptime(text.c_str(), form, &parts);
    if (end && *end == '\0') {
      return ::timegm(&parts);
    }
  }
  return std::nullopt;
}

int check_conditions(const HttpHeaderMap& fields, const Validators& current) {
  if (fields.key_exists("If-Match")) {
    if (!names_tag(list_of(fields, "If-Match"), current.etag, false))
      return HttpStatusPreconditionFailed;
  } else if (const auto date = date_of(fields, "If-Unmodified-Since"); date && current.modified) {
    if (*current.modified > *date) return HttpStatusPreconditionFailed;
  }

  if (fields.key_exists("If-None-Match")) {
    if (names_tag(list_of(fields, "If-None-Match"), current.etag, true))
      return HttpStatusNotModified;
  } else if (const auto date = date_of(fields, "If-Modified-Since"); date && current.modified) {
    if (*current.modified <= *date) return HttpStatusNotModified;
  }
  return HttpStatusOK;
}

int check_range(const HttpHeaderMap& fields, const Validators& current, off_t file_size,
                Range& range) {
  range = {0, file_size};
  const std::vector<std::string> lines = fields.get_strict("Range");
  if (lines.size() != 1) return HttpStatusOK;
  // By a tag, compared strongly. A date is a weak validator, and clients that have a tag, as ours
  // do, must not use it (RFC 9110, 13.1.5).
  if (fields.key_exists("If-Range")) {
    const std::string condition = list_of(fields, "If-Range");
    if (current.etag.empty() || condition != current.etag) return HttpStatusOK;
  }

  std::string_view text = lines[0];
  constexpr std::string_view kUnit = "bytes=";
  if (text.size() < kUnit.size() || ::strncasecmp(text.data(), kUnit.data(), kUnit.size()) != 0)
    return HttpStatusOK;
  text.remove_prefix(kUnit.size());

  const auto first = take_number(text);
  if (text.empty() || text[0] != '-') return HttpStatusOK;
  text.remove_prefix(1);
  const auto last = take_number(text);
  if (!text.empty() || (!first && !last) || (first && last && *first > *last)) return HttpStatusOK;

  if (!first) {
    // The last so many bytes. An empty file has all of them, but no range to name.
    if (*last == 0) return HttpStatusRequestedRangeNotSatisfiable;
    if (file_size == 0) return HttpStatusOK;
    range.size = std::min(*last, file_size);
    range.first = file_size - range.size;
  } else {
    if (*first >= file_size) return HttpStatusRequestedRangeNotSatisfiable;
    range.first = *first;
    range.size = std::min(last.value_or(file_size - 1), file_size - 1) - *first + 1;
  }
  return HttpStatusPartialContent;
}

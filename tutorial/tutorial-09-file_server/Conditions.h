#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>

#include "workflow/HttpUtil.h"

// What tells one version of a file from another (RFC 9110, 8.8). Absent for a file that has just
// changed: it may change again without its times telling.
struct Validators {
  std::string etag;  // in quotes, strong; empty: absent
  std::optional<time_t> modified;
};

Validators validators_of(const struct stat& facts, time_t now);

// RFC 9110, 5.6.7: written in the preferred form, read in all three.
std::string to_http_date(time_t time);
std::optional<time_t> from_http_date(const std::string& text);

// What the conditions of a GET or HEAD request say, in the order of precedence of RFC 9110, 13.2.2:
// 200 (go on), 304 or 412.
int check_conditions(const protocol::HttpHeaderMap& fields, const Validators& current);

struct Range {
  off_t first;
  off_t size;
};

// Which part of a file a GET request asks for: 200 and the whole, 206, or 416 (RFC 9110, 14). More
// than one range, what is not understood, and an If-Range that does not hold mean the whole.
int check_range(const protocol::HttpHeaderMap& fields, const Validators& current, off_t file_size,
                Range& range);

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "workflow/HttpLimits.h"

namespace protocol {

// Finds the end of a message's head in contiguous bytes that grow at the end, and checks on the
// way what concerns lines: CRLF and nothing else ends a line, no line is folded, start line and
// sizes are as they must be.
//
// Invariant: the verdict is a function of the bytes alone. Everything is decided when a line is
// complete, in the order of the lines; the exceptions (first byte, size of an incomplete line)
// are decided alike for the complete line before anything else is looked at.
class HttpHeadScanner {
 public:
  enum class Result { kMore, kComplete, kRefused };

  // `bytes` begins at offset 0 of the same head on every call (but see drop_front) and holds at
  // least what it held before.
  Result scan(const char* bytes, size_t size, bool is_request, const HttpLimits& limits);

  // The head is [start, end) without empty lines before it; `end` once it is complete.
  size_t start() const { return start_; }
  size_t end() const { return line_start_; }
  // The caller forgets the bytes before start().
  void drop_front();

  // A byte other than those of empty lines was seen.
  bool has_started() const { return started_; }
  int refusal() const { return refusal_; }
  size_t field_bytes() const { return line_start_ - fields_start_; }
  size_t field_count() const { return field_count_; }

  // Method, target, version or version, status, reason of the head given, which is that found.
  std::string_view start_part(const char* head, int index) const {
    return {head + parts_[index].offset, parts_[index].size};
  }

 private:
  struct Part {
    uint32_t offset;
    uint32_t size;
  };

  int judge_complete_line(std::string_view line, bool is_request, const HttpLimits& limits);
  int judge_incomplete_line(std::string_view line, const HttpLimits& limits) const;
  int judge_start_line(std::string_view line, bool is_request, const HttpLimits& limits);
  int judge_field_line(std::string_view line, const HttpLimits& limits);
  int parse_request_line(std::string_view line);
  int parse_status_line(std::string_view line);

  size_t start_ = 0;
  size_t line_start_ = 0;
  size_t scanned_ = 0;
  size_t fields_start_ = 0;  // 0 until the start line is complete
  uint32_t field_count_ = 0;
  int refusal_ = 0;
  uint32_t empty_lines_ = 0;
  bool started_ = false;
  bool complete_ = false;
  Part parts_[3] = {};
};

}  // namespace protocol

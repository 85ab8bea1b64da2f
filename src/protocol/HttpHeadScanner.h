#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "workflow/HttpLimits.h"

namespace protocol {

// Finds the end of a message's head in contiguous bytes that grow at the end. On the way it checks
// the lines: only CRLF ends a line, no line is folded, and the start line and all sizes are valid.
//
// Invariant: the verdict depends on the bytes alone, not on how they are split. Each line is judged
// when it is complete, in the order of the lines. Two things are judged earlier: the first byte and
// the size of an incomplete line. For a complete line the same two are judged first, so the verdict
// is the same.
class HttpHeadScanner {
 public:
  enum class Result { kMore, kComplete, kRefused };

  // On every call `bytes` begins at offset 0 of the same head (but see drop_front), and holds at
  // least what it held before.
  Result scan(const char* bytes, size_t size, bool is_request, const HttpLimits& limits);

  // The head is [start, end), without empty lines before it. end() is valid when it is complete.
  size_t start() const { return start_; }
  size_t end() const { return line_start_; }
  // From now on the caller's bytes begin at the present start().
  void drop_front();

  // Whether a byte was seen that does not belong to an empty line.
  bool has_started() const { return started_; }
  int refusal() const { return refusal_; }
  size_t field_bytes() const { return line_start_ - fields_start_; }
  size_t field_count() const { return field_count_; }

  // The part `index` of the start line: method, target and version of a request, or version, status
  // and reason of a response. `head` points to the head that was found.
  std::string_view start_part(const char* head, int index) const {
    return {head + parts_[index].offset, parts_[index].size};
  }

 private:
  struct Part {
    uint32_t offset;
    uint32_t size;
  };

  int check_complete_line(std::string_view line, bool is_request, const HttpLimits& limits);
  int check_incomplete_line(std::string_view line, const HttpLimits& limits) const;
  int check_start_line(std::string_view line, bool is_request, const HttpLimits& limits);
  int check_field_line(std::string_view line, const HttpLimits& limits);
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

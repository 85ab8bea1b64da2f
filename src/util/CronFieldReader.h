#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "workflow/WFCron.h"

namespace workflow {

// A part of an expression, and its position in the expression.
struct CronText {
  size_t position;
  std::string_view text;
};

// What the fields of one kind may contain.
struct CronFieldKind {
  WFCronField field;
  std::string_view name;
  unsigned least;
  unsigned most;                 // the highest value; 7 for Sunday is allowed too
  std::string_view value_names;  // three letters each, beginning with the name of `least`

  unsigned count() const { return most - least + 1; }
};

inline constexpr std::array<CronFieldKind, 6> kCronFieldKinds{{
    {WF_CRON_SECOND, "second", 0, 59, {}},
    {WF_CRON_MINUTE, "minute", 0, 59, {}},
    {WF_CRON_HOUR, "hour", 0, 23, {}},
    {WF_CRON_DAY_OF_MONTH, "day of month", 1, 31, {}},
    {WF_CRON_MONTH, "month", 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"},
    {WF_CRON_DAY_OF_WEEK, "day of week", 0, 6, "SUNMONTUEWEDTHUFRISAT"},
}};

// The meaning of one field: sets as in CronDays, with bit v for value v.
struct CronField {
  uint64_t values = 0;
  bool is_open = false;  // an item begins with * or is ?
  bool has_step = false;
  uint32_t near_day = 0;
  uint32_t before_last = 0;
  uint32_t near_before_last = 0;
  uint32_t last_of_week = 0;
  std::array<uint32_t, 7> ordinal_of_week{};
};

// Reads one field, which consists of items separated by commas. To be used once, by one thread.
class CronFieldReader {
 public:
  CronFieldReader(const CronFieldKind& kind, CronText text, WFCronError* error)
      : kind_(kind), text_(text), error_(error) {}

  // Returns false if the field is wrong. Then all members of the error are set except its text.
  bool read(CronField* result);

 private:
  bool read_item();
  bool read_open();
  bool read_from_the_end();
  bool read_values();
  bool read_after_value(unsigned value);
  bool read_weekday_suffix(unsigned weekday);
  bool read_range(unsigned from, unsigned to);
  // The highest value that a number may have; 7 also means Sunday.
  unsigned most_written() const;
  bool read_value(unsigned* value);
  // Reads a number. `taker` is what precedes the number, for messages; null for a value of the
  // field.
  bool read_number(unsigned least, unsigned most, const char* taker, unsigned* number);
  bool end_of_item();

  bool at_end() const { return at_ == item_end_; }
  char peek() const { return at_end() ? '\0' : text_.text[at_]; }
  // Consumes the next character if it is `c`. A letter `c` must be a capital, and matches in either
  // case.
  bool take(char c);
  // The rest of the item up to the first byte that is neither a letter nor a digit. If such a byte
  // comes first, only this byte.
  std::string_view word() const;
  bool fail(size_t begin, size_t length, const std::string& message);

  const CronFieldKind& kind_;
  CronText text_;
  WFCronError* error_;
  CronField field_;
  size_t at_ = 0;        // the next byte of the field
  size_t item_end_ = 0;  // the end of the item
};

bool equal_in_any_case(std::string_view a, std::string_view b);

// Returns user input in a form that a message may contain: printable ASCII only, and not too long.
std::string quoted(std::string_view text);

}  // namespace workflow

#include "util/CronFieldReader.h"

#include <algorithm>

namespace workflow {

namespace {

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return upper(c) >= 'A' && upper(c) <= 'Z';
}

constexpr unsigned kTooLarge = 1000;

}  // namespace

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return upper(x) == upper(y); });
}

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 24;
  std::string result = "\"";
  for (char c : text.substr(0, kLongest))
    result += c > ' ' && c < 0x7f ? c : '?';
  if (text.size() > kLongest) result += "...";
  return result += '"';
}

bool CronFieldReader::read(CronField* result) {
  const std::string_view text = text_.text;
  for (;;) {
    item_end_ = std::min(text.find(',', at_), text.size());
    if (!read_item() || !end_of_item()) return false;
    if (item_end_ == text.size()) break;
    at_ = item_end_ + 1;
  }
  *result = field_;
  return true;
}

bool CronFieldReader::read_item() {
  const bool in_month_days = kind_.field == WF_CRON_DAY_OF_MONTH;
  const bool in_days = in_month_days || kind_.field == WF_CRON_DAY_OF_WEEK;
  switch (upper(peek())) {
    case '\0':
      if (at_end()) return fail(at_, 0, "a value is missing");
      break;
    case '*':
      return read_open();
    case '?':
      if (in_days) return read_open();
      return fail(at_, 1, "\"?\" is for the days of month and of week, write \"*\"");
    case 'L':
      if (in_month_days) return read_from_the_end();
      if (in_days && word().size() == 1) {
        return fail(at_, 1,
                    "\"L\" stands behind a weekday, as in 5L, the last Friday of the month");
      }
      break;
    default:
      break;
  }
  return read_values();
}

// "*", "?" or "*/5".
bool CronFieldReader::read_open() {
  field_.is_open = true;
  if (!take('?')) take('*');
  return read_range(kind_.least, kind_.most);
}

// "L", "L-3", "LW" or "L-3W".
bool CronFieldReader::read_from_the_end() {
  take('L');
  unsigned before = 0;
  if (take('-') && !read_number(1, kind_.most - 1, "\"L-\" takes ", &before)) return false;
  uint32_t& days = take('W') ? field_.near_before_last : field_.before_last;
  days |= 1u << before;
  return true;
}

// An item that begins with a number or name.
bool CronFieldReader::read_values() {
  unsigned value = 0;
  if (!read_value(&value)) return false;
  if (kind_.field == WF_CRON_DAY_OF_MONTH && take('W')) {
    field_.near_day |= 1u << value;
    return true;
  }
  if (kind_.field == WF_CRON_DAY_OF_WEEK && (upper(peek()) == 'L' || peek() == '#')) {
    return read_weekday_suffix(value % 7);
  }
  return read_after_value(value);
}

bool CronFieldReader::read_weekday_suffix(unsigned weekday) {
  if (take('L')) {
    field_.last_of_week |= 1u << weekday;
    return true;
  }
  take('#');
  unsigned ordinal = 0;
  if (!read_number(1, 5, "\"#\" takes ", &ordinal)) return false;
  field_.ordinal_of_week[weekday] |= 1u << ordinal;
  return true;
}

// "5", "5-8", "5-8/2" or "5/2".
bool CronFieldReader::read_after_value(unsigned value) {
  if (take('-')) {
    unsigned to = 0;
    if (!read_value(&to)) return false;
    return read_range(value, to);
  }
  if (peek() == '/') return read_range(value > kind_.most ? kind_.least : value, kind_.most);
  return read_range(value, value);
}

// Adds the values of a range, with the step that follows in the text. If `to` is less than `from`
// the range goes on from the greatest value to the least.
bool CronFieldReader::read_range(unsigned from, unsigned to) {
  unsigned step = 1;
  if (take('/')) {
    field_.has_step = true;
    if (!read_number(1, kind_.count(), "\"/\" takes ", &step)) return false;
  }
  // Sunday counts as 7 only if the range then does not wrap.
  if (from > kind_.most && to < from) from = kind_.least;
  const unsigned length = to >= from ? to - from : to + kind_.count() - from;
  for (unsigned i = 0; i <= length; i += step) {
    const unsigned value = kind_.least + (from - kind_.least + i) % kind_.count();
    field_.values |= uint64_t{1} << value;
  }
  return true;
}

unsigned CronFieldReader::most_written() const {
  return kind_.field == WF_CRON_DAY_OF_WEEK ? kind_.most + 1 : kind_.most;
}

bool CronFieldReader::read_value(unsigned* value) {
  const std::string_view names = kind_.value_names;
  if (is_letter(peek()) && !names.empty()) {
    const std::string_view name = text_.text.substr(at_, std::min<size_t>(3, item_end_ - at_));
    for (unsigned i = 0; i < names.size() / 3; ++i) {
      if (!equal_in_any_case(name, names.substr(i * 3, 3))) continue;
      at_ += 3;
      *value = kind_.least + i;
      return true;
    }
  }
  return read_number(kind_.least, most_written(), nullptr, value);
}

bool CronFieldReader::read_number(unsigned least, unsigned most, const char* taker,
                                  unsigned* number) {
  const size_t begin = at_;
  unsigned result = 0;
  for (; is_digit(peek()); ++at_)
    result = std::min(result * 10 + static_cast<unsigned>(peek() - '0'), kTooLarge);
  if (at_ > begin && result >= least && result <= most) {
    *number = result;
    return true;
  }
  const size_t length = at_ > begin ? at_ - begin : word().size();
  std::string message =
      length == 0 ? "a number is missing" : quoted(text_.text.substr(begin, length)) + " is wrong";
  message.append(": ").append(taker == nullptr ? "write " : taker);
  message += std::to_string(least) + " to " + std::to_string(most);
  if (const std::string_view names = kind_.value_names; taker == nullptr && !names.empty()) {
    message.append(" or ").append(names.substr(0, 3)).append(" to ");
    message.append(names.substr(names.size() - 3));
  }
  return fail(begin, length, message);
}

bool CronFieldReader::end_of_item() {
  if (at_end()) return true;
  const std::string_view rest = text_.text.substr(at_, item_end_ - at_);
  return fail(at_, rest.size(), quoted(rest) + " does not belong here");
}

bool CronFieldReader::take(char c) {
  if (at_end() || upper(peek()) != c) return false;
  ++at_;
  return true;
}

std::string_view CronFieldReader::word() const {
  size_t end = at_;
  while (end < item_end_ && (is_letter(text_.text[end]) || is_digit(text_.text[end])))
    ++end;
  if (end == at_ && !at_end()) ++end;
  return text_.text.substr(at_, end - at_);
}

bool CronFieldReader::fail(size_t begin, size_t length, const std::string& message) {
  error_->field = kind_.field;
  error_->position = text_.position + begin;
  error_->length = length;
  error_->message = std::string(kind_.name).append(": ").append(message);
  return false;
}

}  // namespace workflow

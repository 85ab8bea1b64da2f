#include "util/CronParser.h"

#include <algorithm>
#include <string>
#include <vector>

#include "util/CronFieldReader.h"

namespace workflow {

namespace {

struct Macro {
  std::string_view name;
  std::string_view expression;
};

constexpr Macro kMacros[] = {
    {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},
    {"@weekly", "0 0 * * 0"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"},
    {"@hourly", "0 * * * *"},
};

constexpr uint32_t kAllHours = (1u << 24) - 1;
constexpr std::string_view kBlanks = " \t";

// The message for names that this parser does not accept, although other programs accept some of
// them.
std::string why_not(std::string_view name) {
  if (equal_in_any_case(name, "@reboot")) {
    return "@reboot is no time: start the task when the program starts";
  }
  if (equal_in_any_case(name.substr(0, 6), "@every")) {
    return "@every is no time of the day: use a periodic timer";
  }
  return quoted(name) +
         " is unknown; there are @yearly @annually @monthly @weekly @daily @midnight @hourly";
}

// Reads one expression. To be used once.
class CronParser {
 public:
  CronParser(std::string_view expression, WFCronError* error)
      : expression_(expression), error_(error) {}

  std::optional<CronRules> parse() {
    if (const size_t end = expression_.find_first_of("\r\n"); end != expression_.npos) {
      return fail(end, 1, "the end of a line does not belong to it");
    }
    split();
    if (!fields_.empty() && fields_[0].text.front() == '@') return parse_macro();
    if (fields_.size() < 5 || fields_.size() > 6) return wrong_count();
    return parse_fields();
  }

 private:
  void split() {
    for (size_t at = 0;;) {
      at = expression_.find_first_not_of(kBlanks, at);
      if (at == expression_.npos) return;
      const size_t end = std::min(expression_.find_first_of(kBlanks, at), expression_.size());
      fields_.push_back({at, expression_.substr(at, end - at)});
      at = end;
    }
  }

  std::nullopt_t fail(size_t position, size_t length, std::string message) {
    error_->field = WF_CRON_EXPRESSION;
    error_->position = position;
    error_->length = length;
    error_->message = "expression: " + std::move(message);
    return std::nullopt;
  }

  std::optional<CronRules> parse_macro() {
    const CronText& name = fields_[0];
    for (const Macro& macro : kMacros) {
      if (!equal_in_any_case(name.text, macro.name)) continue;
      if (fields_.size() > 1) {
        return fail(fields_[1].position, end_of_fields() - fields_[1].position,
                    "nothing may follow " + std::string(macro.name));
      }
      return CronParser(macro.expression, error_).parse();
    }
    return fail(name.position, name.text.size(), why_not(name.text));
  }

  std::nullopt_t wrong_count() {
    const std::string wanted =
        "there are 5 (minute, hour, day of month, month, day of week) or, with the second first, 6";
    if (fields_.empty()) return fail(0, expression_.size(), "no fields; " + wanted);
    const std::string count = std::to_string(fields_.size());
    if (fields_.size() < 5) {
      return fail(end_of_fields(), 0,
                  count + (fields_.size() == 1 ? " field; " : " fields; ") + wanted);
    }
    return fail(fields_[6].position, end_of_fields() - fields_[6].position,
                count + " fields; " + wanted + ". No field is for years");
  }

  std::optional<CronRules> parse_fields() {
    CronRules rules;
    CronField fields[6];
    const size_t first = 6 - fields_.size();
    if (first == 1) fields[0].values = 1;  // second 0
    for (size_t i = first; i < 6; ++i) {
      CronFieldReader reader(kCronFieldKinds[i], fields_[i - first], error_);
      if (!reader.read(&fields[i])) return std::nullopt;
    }
    const CronField& hours = fields[2];
    const CronField& month_days = fields[3];
    const CronField& week_days = fields[5];
    rules.seconds = fields[0].values;
    rules.minutes = fields[1].values;
    rules.hours = static_cast<uint32_t>(hours.values);
    rules.months = static_cast<uint32_t>(fields[4].values);
    rules.every_reading = hours.is_open || hours.has_step || rules.hours == kAllHours;
    rules.days.of_month = static_cast<uint32_t>(month_days.values);
    rules.days.near_day = month_days.near_day;
    rules.days.before_last = month_days.before_last;
    rules.days.near_before_last = month_days.near_before_last;
    rules.days.month_field_is_open = month_days.is_open;
    rules.days.of_week = static_cast<uint32_t>(week_days.values);
    rules.days.last_of_week = week_days.last_of_week;
    rules.days.ordinal_of_week = week_days.ordinal_of_week;
    rules.days.week_field_is_open = week_days.is_open;
    return rules;
  }

  size_t end_of_fields() const { return fields_.back().position + fields_.back().text.size(); }

  std::string_view expression_;
  WFCronError* error_;
  std::vector<CronText> fields_;
};

}  // namespace

std::optional<CronRules> parse_cron(std::string_view expression, WFCronError* error) {
  return CronParser(expression, error).parse();
}

}  // namespace workflow

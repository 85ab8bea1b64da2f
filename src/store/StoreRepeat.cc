#include "store/StoreRepeat.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>

#include "store/StoreTime.h"

namespace workflow {

namespace {

using std::chrono::microseconds;
using std::chrono::system_clock;

// system_clock counts nanoseconds in an int64_t.
constexpr int64_t kLastDateUs = std::numeric_limits<int64_t>::max() / 1000;

// Takes the text up to the next space off `text`.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<int64_t> number(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

StoreRepeat::StoreRepeat(const WFStoreDue& due, int64_t first_us, bool every_missed_date)
    : cron_(due.cron()),
      period_us_(us_from_ns(due.period_ns())),
      first_us_(first_us),
      every_missed_date_(every_missed_date) {}

std::string StoreRepeat::to_text() const {
  const char* const missed = every_missed_date_ ? " each " : " latest ";
  if (cron_) return "cron" + (missed + cron_->time_zone()) + " " + cron_->expression();
  return "every" + (missed + std::to_string(period_us_)) + " " + std::to_string(first_us_);
}

std::optional<StoreRepeat> StoreRepeat::parse(const std::string& text) {
  std::string_view rest = text;
  const std::string_view kind = take_word(rest);
  const std::string_view missed = take_word(rest);
  if (missed != "each" && missed != "latest") return std::nullopt;
  StoreRepeat repeat;
  repeat.every_missed_date_ = missed == "each";
  if (kind == "cron") {
    const std::string_view zone = take_word(rest);
    repeat.cron_ = WFCron::parse(rest, zone);
    return repeat.cron_ ? std::optional(repeat) : std::nullopt;
  }
  const std::optional<int64_t> period_us = number(take_word(rest));
  const std::optional<int64_t> first_us = number(take_word(rest));
  if (kind != "every" || !period_us || *period_us <= 0) return std::nullopt;
  if (!first_us || *first_us < 0) return std::nullopt;  // StoreDue makes none before 1970
  repeat.period_us_ = *period_us;
  repeat.first_us_ = *first_us;
  return repeat;
}

int64_t StoreRepeat::next_us(int64_t after_us) const {
  if (after_us >= kLastDateUs) return kNeverUs;
  if (cron_) {
    const auto date = cron_->next(system_clock::time_point(microseconds(after_us)));
    return date ? std::chrono::ceil<microseconds>(date->time_since_epoch()).count() : kNeverUs;
  }
  if (after_us < first_us_) return first_us_;
  const int64_t passed = (after_us - first_us_) / period_us_;
  int64_t next = 0;
  const bool too_late = __builtin_mul_overflow(passed + 1, period_us_, &next) ||
                        __builtin_add_overflow(next, first_us_, &next);
  return too_late ? kNeverUs : next;
}

int64_t StoreRepeat::date_to_run_us(int64_t due_us, int64_t now_us) const {
  // A clock may say anything, but there are no dates after the last one.
  now_us = std::min(now_us, kLastDateUs);
  if (every_missed_date_ || next_us(due_us) > now_us) return due_us;
  return cron_ ? latest_of_cron_us(due_us, now_us)
               : first_us_ + (now_us - first_us_) / period_us_ * period_us_;
}

int64_t StoreRepeat::latest_of_cron_us(int64_t due_us, int64_t now_us) const {
  // Looks back from now, twice as far each time, until there is a date. Few are left after it.
  int64_t date_us = kNeverUs;
  for (int64_t back_us = kUsPerSec; date_us > now_us; back_us *= 2) {
    date_us = next_us(std::max(now_us - back_us, due_us));
  }
  for (int64_t next = next_us(date_us); next <= now_us; next = next_us(date_us)) {
    date_us = next;
  }
  return date_us;
}

}  // namespace workflow

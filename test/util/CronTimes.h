#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "workflow/WFCron.h"

// Times as text, "2026-03-29 01:00:00", in UTC.
namespace cron_test {

using Texts = std::vector<std::string>;
using TimePoint = WFCron::TimePoint;

inline TimePoint at(const std::string& text) {
  std::tm fields{};
  EXPECT_EQ(std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%d", &fields.tm_year, &fields.tm_mon,
                        &fields.tm_mday, &fields.tm_hour, &fields.tm_min, &fields.tm_sec),
            6)
      << text;
  fields.tm_year -= 1900;
  fields.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(timegm(&fields));
}

inline std::string text_of(TimePoint time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm fields{};
  gmtime_r(&seconds, &fields);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &fields);
  return text;
}

inline WFCron parse(std::string_view expression, std::string_view zone = {}) {
  WFCronError error;
  const auto cron = WFCron::parse(expression, zone, &error);
  if (!cron) {
    ADD_FAILURE() << error.to_string();
    return *WFCron::parse("* * * * *");
  }
  return *cron;
}

// The first `n` times after that one.
inline Texts after(const WFCron& cron, const std::string& start, size_t n) {
  Texts texts;
  for (const TimePoint time : cron.next(at(start), n))
    texts.push_back(text_of(time));
  return texts;
}

inline Texts after(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression), start, n);
}

// The days of the first `n` times, which are all at midnight.
inline Texts days_after(std::string_view expression, const std::string& start, size_t n) {
  Texts days;
  for (const std::string& text : after(expression, start + " 00:00:00", n)) {
    EXPECT_EQ(text.substr(10), " 00:00:00");
    days.push_back(text.substr(0, 10));
  }
  return days;
}

}  // namespace cron_test

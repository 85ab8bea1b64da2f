#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "CronTimes.h"
#include "SlowCron.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "util/TimeZone.h"
#include "workflow/WFCron.h"

// Random expressions against those that are looked at minute by minute.

using cron_test::SlowCron;
using test_support::env_number;
using test_support::test_seed;
using test_support::TestRandom;

namespace {

constexpr std::time_t kDay = 24 * 60 * 60;
constexpr std::time_t kYear = 365 * kDay;

// Those with unusual changes, and some without any.
constexpr const char* kZones[] = {"Europe/Berlin",
                                  "America/New_York",
                                  "Australia/Lord_Howe",
                                  "America/Sao_Paulo",
                                  "Pacific/Apia",
                                  "Africa/Casablanca",
                                  "Antarctica/Troll",
                                  "Asia/Tehran",
                                  "America/St_Johns",
                                  "Pacific/Kwajalein",
                                  "Asia/Gaza",
                                  "Asia/Pyongyang",
                                  "America/Caracas",
                                  "Africa/Cairo",
                                  "America/Scoresbysund",
                                  "Pacific/Fakaofo",
                                  "Pacific/Chatham",
                                  "Antarctica/Casey",
                                  "Asia/Kolkata",
                                  "UTC",
                                  "Europe/Dublin",
                                  "America/Havana",
                                  "Pacific/Kiritimati",
                                  "Asia/Amman"};

// In half of the cases shortly before clocks are changed.
std::time_t random_start(const char* zone_name, TestRandom& random) {
  const std::time_t any = random.between(5 * kYear, 90 * kYear);
  const std::chrono::sys_seconds time{std::chrono::seconds(any)};
  const auto change = workflow::TimeZone::find(zone_name)->next_change(time);
  if (!change || random.one_in(2)) return any;
  return change->time_since_epoch().count() - random.between(0, 3 * kDay);
}

std::string list(const std::vector<std::time_t>& times) {
  std::string text;
  for (const std::time_t time : times)
    text += cron_test::text_of(std::chrono::system_clock::from_time_t(time)) + "\n";
  return text;
}

void compare(const SlowCron& slow, const char* zone, std::time_t start, std::time_t end,
             TestRandom& random) {
  const auto expected = slow.between(start, end);
  const WFCron cron = cron_test::parse(slow.text(), zone);
  std::vector<std::time_t> found;
  const auto from_time_t = [](std::time_t time) {
    return std::chrono::system_clock::from_time_t(time);
  };
  auto time = cron.next(from_time_t(start));
  while (time && *time <= from_time_t(end)) {
    found.push_back(std::chrono::system_clock::to_time_t(*time));
    time = cron.next(*time);
  }
  ASSERT_EQ(list(found), list(expected)) << slow.text() << " in " << zone << " from " << start;
  // From times that are none of its own, too, half of them around a change of the clocks.
  const std::chrono::sys_seconds from_start{std::chrono::seconds(start)};
  const auto change = workflow::TimeZone::find(zone)->next_change(from_start);
  for (int i = 0; i < 40; ++i) {
    std::time_t from = random.between(start, end);
    if (change && random.one_in(2)) {
      const std::time_t near = change->time_since_epoch().count() + random.between(-3600, 7200);
      from = std::clamp(near, start, end);
    }
    const auto next = std::upper_bound(expected.begin(), expected.end(), from);
    if (next == expected.end()) continue;
    ASSERT_EQ(cron.next(from_time_t(from)), from_time_t(*next))
        << slow.text() << " in " << zone << " from " << from;
  }
}

}  // namespace

TEST(CronReference, MinuteByMinute) {
  const int64_t rounds = env_number("WORKFLOW_CRON_ROUNDS", test_support::kSanitized ? 15 : 100);
  for (int64_t round = 0; round < rounds; ++round) {
    TestRandom random(test_seed(), static_cast<uint64_t>(round));
    const char* zone = kZones[random.below(std::size(kZones))];
    ASSERT_EQ(setenv("TZ", zone, 1), 0);
    tzset();
    const SlowCron slow(random);
    const std::time_t start = random_start(zone, random);
    const std::time_t length = random.one_in(20) ? kYear : 12 * kDay;
    compare(slow, zone, start, start + length, random);
    if (HasFatalFailure()) return;
  }
}

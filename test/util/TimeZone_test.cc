#include "util/TimeZone.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/TestSeed.h"

using std::chrono::local_seconds;
using std::chrono::seconds;
using std::chrono::sys_seconds;
using workflow::TimeZone;

namespace {

constexpr const char* kDatabase = "/usr/share/zoneinfo";

sys_seconds time_at(int64_t since_epoch) {
  return sys_seconds(seconds(since_epoch));
}

// What the C library says.
local_seconds expected_reading(sys_seconds time) {
  const std::time_t since_epoch = time.time_since_epoch().count();
  std::tm fields{};
  localtime_r(&since_epoch, &fields);
  return local_seconds(time.time_since_epoch() + seconds(fields.tm_gmtoff));
}

void use_in_the_c_library(const std::string& name) {
  ASSERT_EQ(setenv("TZ", name.c_str(), 1), 0);
  tzset();
}

std::vector<std::string> all_zones() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kDatabase)) {
    const std::string name = std::filesystem::relative(entry.path(), kDatabase);
    if (!entry.is_regular_file() || name.starts_with("right/")) continue;
    if (name != "localtime" && TimeZone::find(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

TEST(TimeZone, EveryOneAgreesWithTheCLibrary) {
  const auto names = all_zones();
  EXPECT_GT(names.size(), 300u);
  test_support::TestRandom random(test_support::test_seed());
  for (const std::string& name : names) {
    use_in_the_c_library(name);
    const TimeZone zone = *TimeZone::find(name);
    for (int i = 0; i < 50; ++i) {
      const sys_seconds time = time_at(random.between(0, int64_t{7'200'000'000}));
      ASSERT_EQ(zone.reading(time), expected_reading(time))
          << name << " at " << time.time_since_epoch().count();
      const auto change = zone.next_change(time);
      if (!change) continue;
      ASSERT_GT(*change, time);
      for (const sys_seconds near : {*change - seconds(1), *change}) {
        ASSERT_EQ(zone.reading(near), expected_reading(near))
            << name << " at " << near.time_since_epoch().count();
      }
    }
  }
}

TEST(TimeZone, NoClockIsSetByMoreThanTheLongestChange) {
  for (const std::string& name : all_zones()) {
    const TimeZone zone = *TimeZone::find(name);
    const sys_seconds end = time_at(int64_t{7'200'000'000});
    sys_seconds time = time_at(int64_t{-7'200'000'000});
    for (auto change = zone.next_change(time); change && *change < end;
         change = zone.next_change(time)) {
      time = *change;
      const auto difference = zone.reading(time) - zone.reading(time - seconds(1));
      EXPECT_LT(std::abs(difference.count()), TimeZone::kLongestChange.count()) << name;
    }
  }
}

TEST(TimeZone, LatestReadingIsThatBeforeTheClocksWereSetBack) {
  const TimeZone zone = *TimeZone::find("Europe/Berlin");
  // 2026-10-25 01:00:00 UTC, from 03:00 to 02:00.
  const sys_seconds change = time_at(1792890000);
  const local_seconds latest = zone.reading(change - seconds(1));
  EXPECT_EQ(zone.latest_reading(change - seconds(1)), latest);
  EXPECT_EQ(zone.reading(change), latest - seconds(3599));
  EXPECT_EQ(zone.latest_reading(change), latest);
  EXPECT_EQ(zone.latest_reading(change + seconds(3599)), latest);
  EXPECT_EQ(zone.latest_reading(change + seconds(3600)), latest + seconds(1));
}

TEST(TimeZone, IsReachedBeforeItIsShownOnceMore) {
  const TimeZone zone = *TimeZone::find("Europe/Berlin");
  const sys_seconds change = time_at(1792890000);
  const local_seconds half_past_two(seconds(1792890000 + 5400));
  EXPECT_EQ(zone.first_reaches(half_past_two), change - seconds(1800));
}

TEST(TimeZone, UtcNeedsNoDatabase) {
  ASSERT_EQ(setenv("TZDIR", "/nonexistent", 1), 0);
  EXPECT_FALSE(TimeZone::find("Europe/Berlin"));
  const auto utc = TimeZone::find("UTC");
  ASSERT_TRUE(utc);
  EXPECT_EQ(utc->reading(time_at(1792890000)), local_seconds(seconds(1792890000)));
  EXPECT_EQ(utc->next_change(time_at(0)), std::nullopt);
  ASSERT_EQ(unsetenv("TZDIR"), 0);
}

TEST(TimeZone, NamesThatAreNone) {
  for (const std::string_view name :
       {std::string_view(""), std::string_view("/etc/localtime"),
        std::string_view("../zoneinfo/Europe/Berlin"), std::string_view("Europe/../Europe/Berlin"),
        std::string_view("/usr/share/zoneinfo/Europe/Berlin"), std::string_view("Europe"),
        std::string_view("Europe/"), std::string_view("Europe//Berlin"),
        std::string_view("europe/berlin"), std::string_view("Europe/Berlin "),
        std::string_view("Europe/Berlin\0", 14), std::string_view("zone.tab"),
        std::string_view("leapseconds"), std::string_view("right/Europe/Berlin"),
        std::string_view("libc:UTC"), std::string_view("Fixed/UTC+01:00:00"),
        std::string_view("file:Europe/Berlin"), std::string_view("CET-1CEST,M3.5.0,M10.5.0/3")}) {
    EXPECT_FALSE(TimeZone::find(name)) << name;
  }
  EXPECT_FALSE(TimeZone::find(std::string(100000, 'a')));
}

TEST(TimeZone, LocalIsWhatTheVariableNames) {
  const sys_seconds summer = time_at(1792000000);
  for (const char* value : {"Asia/Tokyo", ":Asia/Tokyo", "/usr/share/zoneinfo/Asia/Tokyo",
                            ":/usr/share/zoneinfo/Asia/Tokyo"}) {
    ASSERT_EQ(setenv("TZ", value, 1), 0);
    const auto zone = TimeZone::find("localtime");
    ASSERT_TRUE(zone) << value;
    EXPECT_EQ(zone->reading(summer).time_since_epoch(),
              summer.time_since_epoch() + std::chrono::hours(9));
  }
  for (const char* value : {"Nowhere/City", "/nonexistent", "/etc/passwd", "/"}) {
    ASSERT_EQ(setenv("TZ", value, 1), 0);
    EXPECT_FALSE(TimeZone::find("localtime")) << value;
  }
}

TEST(TimeZone, LocalIsTheSystemsWithoutTheVariable) {
  ASSERT_EQ(unsetenv("TZ"), 0);
  tzset();
  const auto zone = TimeZone::find("localtime");
  ASSERT_TRUE(zone);
  const sys_seconds time = time_at(1792000000);
  EXPECT_EQ(zone->reading(time), expected_reading(time));
}

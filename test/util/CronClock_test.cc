#include <gtest/gtest.h>

#include <string>

#include "CronTimes.h"
#include "workflow/WFCron.h"

// What happens to times that clocks skip or show twice. Times are in UTC.

using cron_test::after;
using cron_test::parse;
using cron_test::Texts;

namespace {

// In 2026 clocks are set forward at 01:00 UTC on 29 March, from 02:00 to 03:00, and back at 01:00
// UTC on 25 October, from 03:00 to 02:00.
Texts in_berlin(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression, "Europe/Berlin"), start, n);
}

// Forward at 07:00 UTC on 8 March, from 02:00 to 03:00; back at 06:00 UTC on 1 November, from 02:00
// to 01:00.
Texts in_new_york(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression, "America/New_York"), start, n);
}

// By half an hour: back at 15:00 UTC on 4 April, from 02:00 to 01:30; forward at 15:30 UTC on 3
// October, from 02:00 to 02:30.
Texts in_lord_howe(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression, "Australia/Lord_Howe"), start, n);
}

// Forward at 03:00 UTC on 4 November 2018, from midnight to 01:00; back at 02:00 UTC on 18
// February, from midnight to 23:00 of the day before.
Texts in_sao_paulo(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression, "America/Sao_Paulo"), start, n);
}

// At 10:00 UTC on 30 December 2011 the day that began was the 31st.
Texts in_apia(std::string_view expression, const std::string& start, size_t n) {
  return after(parse(expression, "Pacific/Apia"), start, n);
}

}  // namespace

TEST(SkippedTime, ComesOnceRightAfterTheGap) {
  EXPECT_EQ(in_berlin("30 2 * * *", "2026-03-27 12:00:00", 4),
            (Texts{"2026-03-28 01:30:00", "2026-03-29 01:00:00", "2026-03-30 00:30:00",
                   "2026-03-31 00:30:00"}));
  EXPECT_EQ(in_new_york("30 2 * * *", "2026-03-07 00:00:00", 3),
            (Texts{"2026-03-07 07:30:00", "2026-03-08 07:00:00", "2026-03-09 06:30:00"}));
}

TEST(SkippedTime, BeginsWithTheGap) {
  EXPECT_EQ(in_berlin("0 2 * * *", "2026-03-28 12:00:00", 2),
            (Texts{"2026-03-29 01:00:00", "2026-03-30 00:00:00"}));
}

TEST(SkippedTime, EndsBeforeTheEndOfTheGap) {
  EXPECT_EQ(in_berlin("59 59 2 * * *", "2026-03-28 12:00:00", 2),
            (Texts{"2026-03-29 01:00:00", "2026-03-30 00:59:59"}));
}

TEST(SkippedTime, TimesOfOneGapComeTogether) {
  EXPECT_EQ(in_berlin("*/15 2 * * *", "2026-03-28 12:00:00", 2),
            (Texts{"2026-03-29 01:00:00", "2026-03-30 00:00:00"}));
}

TEST(SkippedTime, ComesTogetherWithTheFirstTimeAfterTheGap) {
  EXPECT_EQ(in_berlin("0 2,3,4 * * *", "2026-03-28 12:00:00", 3),
            (Texts{"2026-03-29 01:00:00", "2026-03-29 02:00:00", "2026-03-30 00:00:00"}));
}

TEST(SkippedTime, AskedForRightBeforeAndRightAfter) {
  EXPECT_EQ(in_berlin("30 2 * * *", "2026-03-29 00:59:59", 1), Texts{"2026-03-29 01:00:00"});
  EXPECT_EQ(in_berlin("30 2 * * *", "2026-03-29 01:00:00", 1), Texts{"2026-03-30 00:30:00"});
}

TEST(SkippedTime, OfOneYearOnlyIsNotLost) {
  EXPECT_EQ(in_berlin("30 2 29 3 *", "2025-12-31 00:00:00", 2),
            (Texts{"2026-03-29 01:00:00", "2027-03-29 00:30:00"}));
}

TEST(SkippedTime, DoesNotComeWhereTheHourIsAnyOrHasAStep) {
  EXPECT_EQ(in_berlin("30 * * * *", "2026-03-29 00:00:00", 3),
            (Texts{"2026-03-29 00:30:00", "2026-03-29 01:30:00", "2026-03-29 02:30:00"}));
  EXPECT_EQ(in_berlin("30 */2 * * *", "2026-03-28 22:00:00", 3),
            (Texts{"2026-03-28 23:30:00", "2026-03-29 02:30:00", "2026-03-29 04:30:00"}));
  EXPECT_EQ(in_berlin("30 0-2/2 * * *", "2026-03-28 22:00:00", 2),
            (Texts{"2026-03-28 23:30:00", "2026-03-29 22:30:00"}));
}

TEST(SkippedTime, InAGapOfHalfAnHour) {
  EXPECT_EQ(in_lord_howe("15 2 * * *", "2026-10-02 16:00:00", 2),
            (Texts{"2026-10-03 15:30:00", "2026-10-04 15:15:00"}));
  EXPECT_EQ(in_lord_howe("45 2 * * *", "2026-10-02 18:00:00", 1), Texts{"2026-10-03 15:45:00"});
  EXPECT_EQ(in_lord_howe("15,45 * * * *", "2026-10-03 15:00:00", 3),
            (Texts{"2026-10-03 15:15:00", "2026-10-03 15:45:00", "2026-10-03 16:15:00"}));
}

TEST(SkippedTime, IsMidnight) {
  EXPECT_EQ(in_sao_paulo("@daily", "2018-11-02 12:00:00", 3),
            (Texts{"2018-11-03 03:00:00", "2018-11-04 03:00:00", "2018-11-05 02:00:00"}));
  EXPECT_EQ(in_sao_paulo("0 0 * * SUN", "2018-11-02 12:00:00", 1), Texts{"2018-11-04 03:00:00"});
}

TEST(SkippedDay, ComesRightAfterIt) {
  EXPECT_EQ(in_apia("0 12 * * *", "2011-12-29 12:00:00", 4),
            (Texts{"2011-12-29 22:00:00", "2011-12-30 10:00:00", "2011-12-30 22:00:00",
                   "2011-12-31 22:00:00"}));
  EXPECT_EQ(in_apia("0 12 30 12 *", "2011-01-01 00:00:00", 2),
            (Texts{"2011-12-30 10:00:00", "2012-12-29 22:00:00"}));
}

TEST(SkippedDay, DoesNotComeWhereTheHourIsAny) {
  EXPECT_EQ(in_apia("30 * 30 12 *", "2011-01-01 00:00:00", 1), Texts{"2012-12-29 10:30:00"});
  EXPECT_EQ(in_apia("@hourly", "2011-12-30 08:30:00", 3),
            (Texts{"2011-12-30 09:00:00", "2011-12-30 10:00:00", "2011-12-30 11:00:00"}));
}

TEST(RepeatedTime, ComesOnceTheFirstTime) {
  EXPECT_EQ(in_berlin("30 2 * * *", "2026-10-24 12:00:00", 2),
            (Texts{"2026-10-25 00:30:00", "2026-10-26 01:30:00"}));
  EXPECT_EQ(in_new_york("30 1 * * *", "2026-10-31 12:00:00", 2),
            (Texts{"2026-11-01 05:30:00", "2026-11-02 06:30:00"}));
}

TEST(RepeatedTime, AskedForBetweenTheTwo) {
  for (const char* start : {"2026-10-25 00:30:00", "2026-10-25 00:59:59", "2026-10-25 01:00:00",
                            "2026-10-25 01:29:59", "2026-10-25 01:30:00"}) {
    EXPECT_EQ(in_berlin("30 2 * * *", start, 1), Texts{"2026-10-26 01:30:00"}) << start;
  }
}

TEST(RepeatedTime, AskedForLateBetweenTheTwo) {
  EXPECT_EQ(in_berlin("59 2 * * *", "2026-10-25 01:58:59", 1), Texts{"2026-10-26 01:59:00"});
  // Three is not shown, nor passed, before the clocks are set.
  EXPECT_EQ(in_berlin("0 3 * * *", "2026-10-25 01:15:00", 1), Texts{"2026-10-25 02:00:00"});
}

TEST(RepeatedTime, ComesTwiceAlsoWhenTheNextIsAYearAway) {
  EXPECT_EQ(in_berlin("30 2/24 25 10 *", "2026-10-25 00:15:00", 3),
            (Texts{"2026-10-25 00:30:00", "2026-10-25 01:30:00", "2027-10-25 00:30:00"}));
}

TEST(RepeatedTime, AtTheEndsOfTheRepeatedHour) {
  EXPECT_EQ(in_berlin("0 2 * * *", "2026-10-24 12:00:00", 2),
            (Texts{"2026-10-25 00:00:00", "2026-10-26 01:00:00"}));
  // It is shown once, when the hour is over.
  EXPECT_EQ(in_berlin("0 3 * * *", "2026-10-24 12:00:00", 2),
            (Texts{"2026-10-25 02:00:00", "2026-10-26 02:00:00"}));
}

TEST(RepeatedTime, OfAFixedHourComesOnceEachMinute) {
  EXPECT_EQ(in_berlin("*/20 2 * * *", "2026-10-24 12:00:00", 4),
            (Texts{"2026-10-25 00:00:00", "2026-10-25 00:20:00", "2026-10-25 00:40:00",
                   "2026-10-26 01:00:00"}));
}

TEST(RepeatedTime, ComesTwiceWhereTheHourIsAnyOrHasAStep) {
  const Texts half_hours{"2026-10-25 00:30:00", "2026-10-25 01:30:00", "2026-10-25 02:30:00"};
  EXPECT_EQ(in_berlin("30 * * * *", "2026-10-25 00:00:00", 3), half_hours);
  EXPECT_EQ(in_berlin("30 0-23 * * *", "2026-10-25 00:00:00", 3), half_hours);
  EXPECT_EQ(in_berlin("30 */2 * * *", "2026-10-24 23:00:00", 3),
            (Texts{"2026-10-25 00:30:00", "2026-10-25 01:30:00", "2026-10-25 03:30:00"}));
  EXPECT_EQ(in_new_york("@hourly", "2026-11-01 04:30:00", 3),
            (Texts{"2026-11-01 05:00:00", "2026-11-01 06:00:00", "2026-11-01 07:00:00"}));
}

TEST(RepeatedTime, OfHalfAnHour) {
  EXPECT_EQ(in_lord_howe("45 1 * * *", "2026-04-04 12:00:00", 2),
            (Texts{"2026-04-04 14:45:00", "2026-04-05 15:15:00"}));
  EXPECT_EQ(in_lord_howe("45 * * * *", "2026-04-04 14:00:00", 3),
            (Texts{"2026-04-04 14:45:00", "2026-04-04 15:15:00", "2026-04-04 16:15:00"}));
}

TEST(RepeatedTime, OfTheDayBefore) {
  EXPECT_EQ(in_sao_paulo("30 23 * * *", "2018-02-17 12:00:00", 2),
            (Texts{"2018-02-18 01:30:00", "2018-02-19 02:30:00"}));
  // Midnight is not shown at 02:00: that is when the clocks are set.
  EXPECT_EQ(in_sao_paulo("@daily", "2018-02-17 12:00:00", 2),
            (Texts{"2018-02-18 03:00:00", "2018-02-19 03:00:00"}));
}

TEST(ZonesOfCron, OffsetsCountAsTheyWereThen) {
  EXPECT_EQ(in_berlin("0 12 1 1,7 *", "2026-02-01 00:00:00", 2),
            (Texts{"2026-07-01 10:00:00", "2027-01-01 11:00:00"}));
  EXPECT_EQ(after(parse("0 12 * * *", "Asia/Kathmandu"), "2026-01-01 00:00:00", 1),
            Texts{"2026-01-01 06:15:00"});
}

TEST(ZonesOfCron, KnowTheRulesBeyondTheirLists) {
  // Files list changes until 2037; behind that a rule applies.
  EXPECT_EQ(in_berlin("30 2 * * *", "2050-03-26 12:00:00", 2),
            (Texts{"2050-03-27 01:00:00", "2050-03-28 00:30:00"}));
  EXPECT_EQ(in_berlin("0 12 1 7 *", "2200-01-01 00:00:00", 1), Texts{"2200-07-01 10:00:00"});
}

TEST(ZonesOfCron, WinterTimeThatIsNegativeSummerTime) {
  // Morocco: back by an hour for Ramadan, at 02:00 UTC on 15 February 2026; forward at 02:00 UTC on
  // 22 March.
  const WFCron fixed = parse("30 2 * * *", "Africa/Casablanca");
  EXPECT_EQ(after(fixed, "2026-02-14 12:00:00", 2),
            (Texts{"2026-02-15 01:30:00", "2026-02-16 02:30:00"}));
  EXPECT_EQ(after(fixed, "2026-03-21 12:00:00", 2),
            (Texts{"2026-03-22 02:00:00", "2026-03-23 01:30:00"}));
}

TEST(ZonesOfCron, LongWaitsCrossManyChanges) {
  EXPECT_EQ(in_berlin("30 */12 29 2 MON#5", "2026-01-01 00:00:00", 1),
            Texts{"2028-02-28 23:30:00"});
  EXPECT_EQ(in_berlin("30 */12 */28 2 MON#5", "2044-03-01 00:00:00", 3),
            (Texts{"2072-02-28 23:30:00", "2072-02-29 11:30:00", "2112-02-28 23:30:00"}));
}

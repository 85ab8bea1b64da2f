#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "CronTimes.h"
#include "workflow/WFCron.h"

// What expressions mean, in UTC.

using cron_test::after;
using cron_test::at;
using cron_test::days_after;
using cron_test::parse;
using cron_test::Texts;

TEST(CronFields, FiveBeginWithTheMinute) {
  EXPECT_EQ(after("30 4 * * *", "2026-01-31 04:29:59", 2),
            (Texts{"2026-01-31 04:30:00", "2026-02-01 04:30:00"}));
}

TEST(CronFields, SixBeginWithTheSecond) {
  EXPECT_EQ(after("15 30 4 * * *", "2026-01-31 04:30:00", 2),
            (Texts{"2026-01-31 04:30:15", "2026-02-01 04:30:15"}));
  EXPECT_EQ(after("*/20 * * * * *", "2026-12-31 23:59:20", 3),
            (Texts{"2026-12-31 23:59:40", "2027-01-01 00:00:00", "2027-01-01 00:00:20"}));
}

TEST(CronFields, MayStandApartAsOneLikes) {
  EXPECT_EQ(after(" \t30\t\t4  * * * ", "2026-01-31 00:00:00", 1), Texts{"2026-01-31 04:30:00"});
}

TEST(CronFields, TheNextIsAfterNotAt) {
  EXPECT_EQ(after("30 4 * * *", "2026-01-31 04:30:00", 1), Texts{"2026-02-01 04:30:00"});
}

TEST(CronFields, FractionsOfASecondAreNotLost) {
  const WFCron cron = parse("* * * * * *");
  const auto whole = at("2026-01-31 04:30:00");
  const auto nanosecond =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(1));
  EXPECT_EQ(cron.next(whole - nanosecond), whole);
  EXPECT_EQ(cron.next(whole), whole + std::chrono::seconds(1));
  EXPECT_EQ(cron.next(whole + nanosecond), whole + std::chrono::seconds(1));
}

TEST(CronFields, ListsRangesAndSteps) {
  EXPECT_EQ(after("0,20-22,50-58/4 12 * * *", "2026-01-01 00:00:00", 7),
            (Texts{"2026-01-01 12:00:00", "2026-01-01 12:20:00", "2026-01-01 12:21:00",
                   "2026-01-01 12:22:00", "2026-01-01 12:50:00", "2026-01-01 12:54:00",
                   "2026-01-01 12:58:00"}));
}

TEST(CronFields, AStepAfterAValueGoesToTheEnd) {
  EXPECT_EQ(after("40/7 12 * * *", "2026-01-01 00:00:00", 4),
            (Texts{"2026-01-01 12:40:00", "2026-01-01 12:47:00", "2026-01-01 12:54:00",
                   "2026-01-02 12:40:00"}));
  EXPECT_EQ(days_after("0 0 * * 5/1", "2026-01-01", 3),
            (Texts{"2026-01-02", "2026-01-03", "2026-01-09"}));
}

TEST(CronFields, AStepMayBeAsLongAsTheField) {
  EXPECT_EQ(after("*/60 12 * * *", "2026-01-01 00:00:00", 2),
            (Texts{"2026-01-01 12:00:00", "2026-01-02 12:00:00"}));
  EXPECT_EQ(after("0 */24 * * *", "2026-01-01 12:00:00", 1), Texts{"2026-01-02 00:00:00"});
  EXPECT_EQ(days_after("0 0 */31 * *", "2026-01-02", 2), (Texts{"2026-02-01", "2026-03-01"}));
  EXPECT_EQ(days_after("0 0 * * */7", "2026-01-01", 2), (Texts{"2026-01-04", "2026-01-11"}));
}

TEST(CronFields, AStepLongerThanItsRangeLeavesTheFirst) {
  EXPECT_EQ(after("10-20/30 12 * * *", "2026-01-01 00:00:00", 2),
            (Texts{"2026-01-01 12:10:00", "2026-01-02 12:10:00"}));
}

TEST(CronFields, AStepDoesNotGoOnBehindTheField) {
  EXPECT_EQ(days_after("0 0 */7 * *", "2026-01-21", 4),
            (Texts{"2026-01-22", "2026-01-29", "2026-02-01", "2026-02-08"}));
}

TEST(CronFields, StepsOfWeekdaysEndOnSaturday) {
  const std::string sunday = "2026-01-04";
  const Texts odd{"2026-01-05", "2026-01-07", "2026-01-09", "2026-01-12"};
  const Texts even{"2026-01-06", "2026-01-08", "2026-01-10", "2026-01-11"};
  EXPECT_EQ(days_after("0 0 * * 1/2", sunday, 4), odd);
  EXPECT_EQ(days_after("0 0 * * MON/2", sunday, 4), odd);
  EXPECT_EQ(days_after("0 0 * * 7/2", sunday, 4), even);
  EXPECT_EQ(days_after("0 0 * * 0/2", sunday, 4), even);
}

TEST(CronFields, LeadingZerosMeanNothing) {
  EXPECT_EQ(after("005 04 09 02 *", "2026-01-01 00:00:00", 1), Texts{"2026-02-09 04:05:00"});
  EXPECT_EQ(after("00/030 12 * * *", "2026-01-01 12:00:00", 1), Texts{"2026-01-01 12:30:00"});
  EXPECT_EQ(days_after("0 0 L-03 * *", "2026-01-01", 1), Texts{"2026-01-28"});
  EXPECT_EQ(days_after("0 0 * * 05#02", "2026-01-01", 1), Texts{"2026-01-09"});
}

TEST(CronFields, QuestionMarksInTheDayFieldsAreStars) {
  const std::string start = "2026-01-30";
  const Texts each{"2026-01-31", "2026-02-01"};
  EXPECT_EQ(days_after("0 0 ? * ?", start, 2), each);
  EXPECT_EQ(days_after("0 0 * * ?", start, 2), each);
  EXPECT_EQ(days_after("0 0 ? * 1", start, 2), (Texts{"2026-02-02", "2026-02-09"}));
  EXPECT_EQ(days_after("0 0 ?/30 * *", start, 2), (Texts{"2026-01-31", "2026-02-01"}));
  EXPECT_EQ(days_after("0 0 15 * ?", start, 2), (Texts{"2026-02-15", "2026-03-15"}));
}

TEST(CronFields, RangesWrap) {
  EXPECT_EQ(after("0 22-2/2 * * *", "2026-01-01 12:00:00", 4),
            (Texts{"2026-01-01 22:00:00", "2026-01-02 00:00:00", "2026-01-02 02:00:00",
                   "2026-01-02 22:00:00"}));
  EXPECT_EQ(days_after("0 0 30-2 * *", "2026-02-15", 5),
            (Texts{"2026-03-01", "2026-03-02", "2026-03-30", "2026-03-31", "2026-04-01"}));
  EXPECT_EQ(days_after("0 0 1 NOV-FEB *", "2026-01-15", 4),
            (Texts{"2026-02-01", "2026-11-01", "2026-12-01", "2027-01-01"}));
}

TEST(CronFields, NamesInAnyCase) {
  EXPECT_EQ(days_after("0 0 1 jan,Jul *", "2026-01-15", 2), (Texts{"2026-07-01", "2027-01-01"}));
  EXPECT_EQ(days_after("0 0 * * mon-WED", "2026-01-01", 4),
            (Texts{"2026-01-05", "2026-01-06", "2026-01-07", "2026-01-12"}));
}

TEST(CronFields, SundayIsZeroAndSeven) {
  const Texts sundays{"2026-01-04", "2026-01-11"};
  EXPECT_EQ(days_after("0 0 * * 0", "2026-01-01", 2), sundays);
  EXPECT_EQ(days_after("0 0 * * 7", "2026-01-01", 2), sundays);
  EXPECT_EQ(days_after("0 0 * * sun", "2026-01-01", 2), sundays);
  EXPECT_EQ(days_after("0 0 * * 7-7", "2026-01-01", 2), sundays);
}

TEST(CronFields, RangesOfWeekdaysReachSundayFromBothSides) {
  const Texts weekend{"2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"};
  EXPECT_EQ(days_after("0 0 * * 5-7", "2026-01-01", 4), weekend);
  EXPECT_EQ(days_after("0 0 * * FRI-SUN", "2026-01-01", 4), weekend);
  EXPECT_EQ(days_after("0 0 * * 5-0", "2026-01-01", 4), weekend);
  EXPECT_EQ(days_after("0 0 * * 7-1", "2026-01-01", 3),
            (Texts{"2026-01-04", "2026-01-05", "2026-01-11"}));
  EXPECT_EQ(days_after("0 0 * * 0-7", "2026-01-01", 2), (Texts{"2026-01-02", "2026-01-03"}));
}

TEST(CronDays, EitherFieldWhenBothAreRestricted) {
  EXPECT_EQ(
      days_after("0 0 13 * FRI", "2026-02-01", 6),
      (Texts{"2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27", "2026-03-06", "2026-03-13"}));
  EXPECT_EQ(days_after("0 0 1 * MON", "2026-03-01", 2), (Texts{"2026-03-02", "2026-03-09"}));
}

TEST(CronDays, BothFieldsWhenOneBeginsWithAStar) {
  EXPECT_EQ(days_after("0 0 ? * FRI", "2026-02-01", 2), (Texts{"2026-02-06", "2026-02-13"}));
  EXPECT_EQ(days_after("0 0 13 * ?", "2026-02-01", 2), (Texts{"2026-02-13", "2026-03-13"}));
  // Mondays that are the 1st, 11th, 21st or 31st.
  EXPECT_EQ(days_after("0 0 */10 * MON", "2026-01-01", 3),
            (Texts{"2026-05-11", "2026-06-01", "2026-08-31"}));
}

TEST(CronDays, LastOfTheMonth) {
  EXPECT_EQ(days_after("0 0 L * *", "2027-12-31", 4),
            (Texts{"2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"}));
}

TEST(CronDays, DaysBeforeTheLast) {
  EXPECT_EQ(days_after("0 0 L-3 * *", "2026-01-01", 2), (Texts{"2026-01-28", "2026-02-25"}));
  // Only months with 31 days have one.
  EXPECT_EQ(days_after("0 0 l-30 * *", "2026-01-01", 2), (Texts{"2026-03-01", "2026-05-01"}));
}

TEST(CronDays, LastWeekdayOfTheMonth) {
  EXPECT_EQ(days_after("0 0 LW * *", "2026-01-01", 3),
            (Texts{"2026-01-30", "2026-02-27", "2026-03-31"}));
  // Two days before 31 January is a Thursday, before 31 May 2026 a Friday, before 31 August a
  // Saturday.
  EXPECT_EQ(days_after("0 0 L-2W 1,5,8 *", "2026-01-01", 3),
            (Texts{"2026-01-29", "2026-05-29", "2026-08-28"}));
}

TEST(CronDays, NearestWorkday) {
  // The 15th is a Thursday in January, a Sunday in February and March, a Saturday in August.
  EXPECT_EQ(days_after("0 0 15W 1,2,3,8 *", "2026-01-01", 4),
            (Texts{"2026-01-15", "2026-02-16", "2026-03-16", "2026-08-14"}));
}

TEST(CronDays, NearestWorkdayStaysInTheMonth) {
  // 1 August 2026 is a Saturday, 31 May 2026 a Sunday.
  EXPECT_EQ(days_after("0 0 1W 8 *", "2026-01-01", 1), Texts{"2026-08-03"});
  EXPECT_EQ(days_after("0 0 31W 5 *", "2026-01-01", 1), Texts{"2026-05-29"});
}

TEST(CronDays, NearestWorkdayOfADayThatTheMonthLacksIsNone) {
  EXPECT_EQ(days_after("0 0 31w * *", "2026-04-01", 2), (Texts{"2026-05-29", "2026-07-31"}));
}

TEST(CronDays, LettersInAnyCase) {
  for (const auto& [small, large] :
       {std::pair{"0 0 l * *", "0 0 L * *"}, std::pair{"0 0 l-3 * *", "0 0 L-3 * *"},
        std::pair{"0 0 lw * *", "0 0 LW * *"}, std::pair{"0 0 Lw * *", "0 0 LW * *"},
        std::pair{"0 0 l-3w * *", "0 0 L-3W * *"}, std::pair{"0 0 15w * *", "0 0 15W * *"},
        std::pair{"0 0 * * 5l", "0 0 * * 5L"}, std::pair{"0 0 * * fril", "0 0 * * FRIL"}}) {
    EXPECT_EQ(days_after(small, "2026-01-01", 12), days_after(large, "2026-01-01", 12)) << small;
  }
}

TEST(CronDays, LastFriday) {
  const Texts days{"2026-01-30", "2026-02-27", "2026-03-27"};
  EXPECT_EQ(days_after("0 0 * * 5L", "2026-01-01", 3), days);
  EXPECT_EQ(days_after("0 0 ? * fril", "2026-01-01", 3), days);
  EXPECT_EQ(days_after("0 0 * * 7L", "2026-01-01", 1), Texts{"2026-01-25"});
}

TEST(CronDays, SecondTuesdayAndFifthMonday) {
  EXPECT_EQ(days_after("0 0 * * 2#2", "2026-01-01", 2), (Texts{"2026-01-13", "2026-02-10"}));
  EXPECT_EQ(days_after("0 0 * * MON#5", "2026-01-01", 3),
            (Texts{"2026-03-30", "2026-06-29", "2026-08-31"}));
  EXPECT_EQ(days_after("0 0 * * 2#2,0#1,7#1", "2026-01-01", 2),
            (Texts{"2026-01-04", "2026-01-13"}));
}

TEST(CronDays, LeapDaysSkipTheCenturyThatHasNone) {
  EXPECT_EQ(days_after("0 0 29 2 *", "2090-01-01", 3),
            (Texts{"2092-02-29", "2096-02-29", "2104-02-29"}));
  // Leap days that are Mondays: 40 years without any.
  EXPECT_EQ(days_after("0 0 * 2 MON#5", "2072-03-01", 2), (Texts{"2112-02-29", "2140-02-29"}));
}

TEST(CronDays, OneThatNeverComesIsNone) {
  for (const char* expression :
       {"0 0 30 2 *", "* * 31 4,6,9,11 *", "0 0 L-30 2 *", "* * * 30W 2 *"})
    EXPECT_EQ(parse(expression).next(at("2026-01-01 00:00:00")), std::nullopt) << expression;
}

TEST(CronMacros, AreExpressions) {
  const std::string start = "2026-02-14 12:34:56";
  EXPECT_EQ(after("@yearly", start, 1), Texts{"2027-01-01 00:00:00"});
  EXPECT_EQ(after("@annually", start, 1), Texts{"2027-01-01 00:00:00"});
  EXPECT_EQ(after("@monthly", start, 1), Texts{"2026-03-01 00:00:00"});
  EXPECT_EQ(after("@weekly", start, 1), Texts{"2026-02-15 00:00:00"});
  EXPECT_EQ(after("@daily", start, 1), Texts{"2026-02-15 00:00:00"});
  EXPECT_EQ(after("@DAILY", start, 1), Texts{"2026-02-15 00:00:00"});
  EXPECT_EQ(after(" @Midnight ", start, 1), Texts{"2026-02-15 00:00:00"});
  EXPECT_EQ(after("@hourly", start, 1), Texts{"2026-02-14 13:00:00"});
}

TEST(CronValue, KnowsWhatItWasMadeOf) {
  const WFCron cron = parse(" @daily", "Europe/Berlin");
  EXPECT_EQ(cron.expression(), " @daily");
  EXPECT_EQ(cron.time_zone(), "Europe/Berlin");
  EXPECT_EQ(parse("@daily").time_zone(), "UTC");
}

TEST(CronValue, MayBeMovedFromAndUsed) {
  WFCron cron = parse("@daily");
  const WFCron other = std::move(cron);
  EXPECT_EQ(cron.expression(), other.expression());
  cron = parse("@hourly");
  EXPECT_EQ(other.expression(), "@daily");
  EXPECT_EQ(cron.expression(), "@hourly");
}

TEST(CronValue, NextTimesAreThoseOneByOne) {
  const WFCron cron = parse("7 */5 * * 1-5", "Europe/Berlin");
  auto time = at("2026-03-27 00:00:00");
  for (const auto each : cron.next(time, 50)) {
    time = cron.next(time).value();
    EXPECT_EQ(each, time);
  }
  EXPECT_TRUE(cron.next(time, 0).empty());
}

TEST(CronValue, TimesEndWithTheRangeOfTheClock) {
  constexpr auto kEnd = WFCron::TimePoint::max();
  const WFCron cron = parse("* * * * * *");
  EXPECT_EQ(cron.next(kEnd), std::nullopt);
  EXPECT_EQ(cron.next(kEnd - std::chrono::seconds(2), 10).size(), 2u);
  for (const char* zone : {"UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"}) {
    EXPECT_EQ(parse("0 0 1 1 *", zone).next(kEnd), std::nullopt);
    EXPECT_EQ(parse("@daily", zone).next(kEnd - std::chrono::hours(240), 100).size(), 10u);
    EXPECT_EQ(parse("0 12 29 2 *", zone).next(kEnd - std::chrono::hours(240)), std::nullopt);
  }
}

TEST(CronValue, TimesBeginWithTheRangeOfTheClock) {
  constexpr auto kBegin = WFCron::TimePoint::min();
  for (const char* zone : {"UTC", "Europe/Berlin", "Pacific/Pago_Pago"}) {
    for (const char* expression : {"* * * * * *", "0 12 * * *"}) {
      const auto first = parse(expression, zone).next(kBegin);
      ASSERT_TRUE(first.has_value());
      EXPECT_GT(*first, kBegin);
      EXPECT_LT(*first, kBegin + std::chrono::hours(25));
    }
  }
}

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "workflow/WFCron.h"

// What is said about expressions that are wrong.

namespace {

WFCronError error_of(std::string_view expression, std::string_view zone = {}) {
  WFCronError error;
  EXPECT_FALSE(WFCron::parse(expression, zone, &error).has_value()) << expression;
  return error;
}

// The text that the error points at.
std::string place(std::string_view expression) {
  const WFCronError error = error_of(expression);
  EXPECT_EQ(error.text, expression);
  EXPECT_LE(error.position + error.length, expression.size()) << expression;
  return error.text.substr(error.position, error.length);
}

void expect_wrong(std::string_view expression, WFCronField field, const std::string& where) {
  EXPECT_EQ(error_of(expression).field, field) << expression;
  EXPECT_EQ(place(expression), where) << expression;
}

}  // namespace

TEST(CronError, PointsAtTheField) {
  expect_wrong("60 1 2 3 4 5", WF_CRON_SECOND, "60");
  expect_wrong("60 * * * *", WF_CRON_MINUTE, "60");
  expect_wrong("* 24 * * *", WF_CRON_HOUR, "24");
  expect_wrong("* * 32 * *", WF_CRON_DAY_OF_MONTH, "32");
  expect_wrong("* * 0 * *", WF_CRON_DAY_OF_MONTH, "0");
  expect_wrong("* * * 13 *", WF_CRON_MONTH, "13");
  expect_wrong("* * * 0 *", WF_CRON_MONTH, "0");
  expect_wrong("* * * * 8", WF_CRON_DAY_OF_WEEK, "8");
  expect_wrong("0 0 5 * * 8", WF_CRON_DAY_OF_WEEK, "8");
}

TEST(CronError, PointsInsideTheField) {
  expect_wrong("* 1,2,33,4 * * *", WF_CRON_HOUR, "33");
  expect_wrong("* 1-x5 * * *", WF_CRON_HOUR, "x5");
  EXPECT_EQ(error_of("  *  1,2,33 * * *").position, 9u);
}

TEST(CronError, ShowsThePlaceToHumans) {
  EXPECT_EQ(error_of("0 1,25 * * *").to_string(),
            "hour: \"25\" is wrong: write 0 to 23\n"
            "  0 1,25 * * *\n"
            "      ^^");
  EXPECT_EQ(error_of("* * * foo *").to_string(),
            "month: \"foo\" is wrong: write 1 to 12 or JAN to DEC\n"
            "  * * * foo *\n"
            "        ^^^");
  EXPECT_EQ(error_of("1, * * * *").to_string(),
            "minute: a value is missing\n"
            "  1, * * * *\n"
            "    ^");
}

TEST(CronError, NumbersThatAreMissing) {
  expect_wrong(",1 * * * *", WF_CRON_MINUTE, "");
  expect_wrong("1,,2 * * * *", WF_CRON_MINUTE, "");
  expect_wrong("1- * * * *", WF_CRON_MINUTE, "");
  expect_wrong("*/ * * * *", WF_CRON_MINUTE, "");
  expect_wrong("* * * * 5#", WF_CRON_DAY_OF_WEEK, "");
  expect_wrong("* * L- * *", WF_CRON_DAY_OF_MONTH, "");
  expect_wrong("-5 * * * *", WF_CRON_MINUTE, "-");
  expect_wrong("/5 * * * *", WF_CRON_MINUTE, "/");
}

TEST(CronError, NumbersThatOverflow) {
  const std::string number(100000, '9');
  expect_wrong(number + " * * * *", WF_CRON_MINUTE, number);
  expect_wrong("4294967297 * * * *", WF_CRON_MINUTE, "4294967297");
  expect_wrong("18446744073709551617 * * * *", WF_CRON_MINUTE, "18446744073709551617");
}

TEST(CronError, StepsThatNeverTakeAStep) {
  expect_wrong("*/0 * * * *", WF_CRON_MINUTE, "0");
  // Often meant: every 90 minutes.
  expect_wrong("*/90 * * * *", WF_CRON_MINUTE, "90");
  EXPECT_EQ(error_of("*/90 * * * *").message, "minute: \"90\" is wrong: \"/\" takes 1 to 60");
  EXPECT_TRUE(WFCron::parse("*/60 */24 */31 */12 */7").has_value());
  expect_wrong("* */25 * * *", WF_CRON_HOUR, "25");
}

TEST(CronError, WhatDoesNotBelongToTheField) {
  expect_wrong("L * * * *", WF_CRON_MINUTE, "L");
  expect_wrong("5W * * * *", WF_CRON_MINUTE, "W");
  expect_wrong("* * * * 5W", WF_CRON_DAY_OF_WEEK, "W");
  expect_wrong("* * 5L * *", WF_CRON_DAY_OF_MONTH, "L");
  expect_wrong("* * 5#2 * *", WF_CRON_DAY_OF_MONTH, "#2");
  expect_wrong("* * * * 5#6", WF_CRON_DAY_OF_WEEK, "6");
  expect_wrong("* * * * 1-5#2", WF_CRON_DAY_OF_WEEK, "#2");
  expect_wrong("* * 5W-8 * *", WF_CRON_DAY_OF_MONTH, "-8");
  expect_wrong("* * * MONDAY *", WF_CRON_MONTH, "MONDAY");
  expect_wrong("* * * * MONDAY", WF_CRON_DAY_OF_WEEK, "DAY");
  expect_wrong("1-2-3 * * * *", WF_CRON_MINUTE, "-3");
  expect_wrong("*/2/3 * * * *", WF_CRON_MINUTE, "/3");
  expect_wrong("*5 * * * *", WF_CRON_MINUTE, "5");
  expect_wrong("H * * * *", WF_CRON_MINUTE, "H");
}

TEST(CronError, QuestionMarksOutsideOfDays) {
  expect_wrong("? * * * *", WF_CRON_MINUTE, "?");
  expect_wrong("? * * * * *", WF_CRON_SECOND, "?");
  expect_wrong("* ? * * *", WF_CRON_HOUR, "?");
  expect_wrong("* * * ? *", WF_CRON_MONTH, "?");
  EXPECT_NE(error_of("? * * * *").message.find("write \"*\""), std::string::npos);
}

TEST(CronError, LastOfWhat) {
  expect_wrong("* * * * L", WF_CRON_DAY_OF_WEEK, "L");
  EXPECT_NE(error_of("* * * * L").message.find("5L"), std::string::npos);
}

TEST(CronError, TooFewFields) {
  EXPECT_EQ(error_of("").field, WF_CRON_EXPRESSION);
  EXPECT_EQ(error_of(" \t ").field, WF_CRON_EXPRESSION);
  const WFCronError error = error_of("1 2 3 4 ");
  EXPECT_EQ(error.field, WF_CRON_EXPRESSION);
  EXPECT_EQ(error.position, 7u);
  EXPECT_EQ(error.message.find("expression: 4 fields"), 0u);
}

TEST(CronError, TooManyFields) {
  expect_wrong("0 1 2 3 4 5 2026 x", WF_CRON_EXPRESSION, "2026 x");
}

TEST(CronError, MacrosThatAreNoTimes) {
  expect_wrong("@reboot", WF_CRON_EXPRESSION, "@reboot");
  EXPECT_NE(error_of("@Reboot").message.find("when the program starts"), std::string::npos);
  expect_wrong("@every 90s", WF_CRON_EXPRESSION, "@every");
  EXPECT_NE(error_of("@every 90s").message.find("periodic timer"), std::string::npos);
  expect_wrong(" @fortnightly", WF_CRON_EXPRESSION, "@fortnightly");
  expect_wrong("@daily 5 6", WF_CRON_EXPRESSION, "5 6");
  expect_wrong("@", WF_CRON_EXPRESSION, "@");
}

TEST(CronError, OnlyPrintsWhatIsPrintable) {
  const std::string expression("* * \x1b[2J\xff\0\n * *", 15);
  const WFCronError error = error_of(expression);
  EXPECT_EQ(error.text, expression);
  int lines = 0;
  for (const char c : error.to_string()) {
    if (c == '\n')
      ++lines;
    else
      EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
  }
  EXPECT_EQ(lines, 2);
}

TEST(CronError, LongTextsAreCutAroundThePlace) {
  const std::string many(100000, ' ');
  const WFCronError error = error_of(many + "0 0 0 " + std::string(100000, 'x') + " 0");
  EXPECT_EQ(error.position, 100004u);
  EXPECT_LT(error.message.size(), 100u);
  EXPECT_LT(error.to_string().size(), 500u);
}

TEST(CronError, UnknownZones) {
  const WFCronError error = error_of("* * * * *", "Europe/Berlinn");
  EXPECT_EQ(error.field, WF_CRON_TIME_ZONE);
  EXPECT_EQ(error.to_string(),
            "time zone: \"Europe/Berlinn\" is unknown\n"
            "  Europe/Berlinn\n"
            "  ^^^^^^^^^^^^^^");
}

// "localtime" is no zone of its own: what it stands for is named.
TEST(CronError, SaysWhatTheLocalZoneIs) {
  ASSERT_EQ(setenv("TZ", "CET-1CEST", 1), 0);
  EXPECT_EQ(error_of("* * * * *", "localtime").to_string(),
            "time zone: localtime is \"CET-1CEST\", because TZ says so, and that is unknown\n"
            "  localtime\n"
            "  ^^^^^^^^^");
  ASSERT_EQ(setenv("TZ", ":Nowhere/City", 1), 0);
  EXPECT_NE(error_of("* * * * *", "localtime").message.find("\"Nowhere/City\", because TZ"),
            std::string::npos);
  for (const char* value : {"/nonexistent", ":/etc/passwd"}) {
    ASSERT_EQ(setenv("TZ", value, 1), 0);
    EXPECT_EQ(error_of("* * * * *", "localtime").message,
              std::string("time zone: localtime is \"") + (value + (*value == ':')) +
                  "\", because TZ says so, and that is no file of a time zone");
  }
  for (const char* value :
       {"", ":", "Asia/Tokyo", ":Asia/Tokyo", "/etc/localtime", "/usr/share/zoneinfo/Asia/Tokyo"}) {
    ASSERT_EQ(setenv("TZ", value, 1), 0);
    EXPECT_TRUE(WFCron::parse("* * * * *", "localtime")) << value;
  }
  ASSERT_EQ(unsetenv("TZ"), 0);
  EXPECT_TRUE(WFCron::parse("* * * * *", "localtime"));
}

TEST(CronError, EndsOfLines) {
  for (const std::string expression :
       {"0 0 * * *\n", "0 0 * * *\r\n", "0 0 * * *  \n", "@daily\n", "\n0 0 * * *", "0 0\n* * *"}) {
    const WFCronError error = error_of(expression);
    EXPECT_EQ(error.field, WF_CRON_EXPRESSION);
    EXPECT_EQ(error.position, expression.find_first_of("\r\n"));
    EXPECT_EQ(error.length, 1u);
    EXPECT_NE(error.message.find("the end of a line"), std::string::npos);
  }
}

TEST(CronError, StepsLongerThanTheField) {
  expect_wrong("*/61 * * * *", WF_CRON_MINUTE, "61");
  expect_wrong("*/90 * * * *", WF_CRON_MINUTE, "90");
  expect_wrong("0 */25 * * *", WF_CRON_HOUR, "25");
  expect_wrong("0 0 */32 * *", WF_CRON_DAY_OF_MONTH, "32");
  expect_wrong("0 0 1 */13 *", WF_CRON_MONTH, "13");
  expect_wrong("0 0 * * 1/8", WF_CRON_DAY_OF_WEEK, "8");
}

TEST(CronError, IsTheExpressionsBeforeTheZones) {
  EXPECT_EQ(error_of("* * * * 9", "Nowhere").field, WF_CRON_DAY_OF_WEEK);
}

TEST(CronError, NeedNotBeAskedFor) {
  EXPECT_FALSE(WFCron::parse("").has_value());
  EXPECT_FALSE(WFCron::parse("@daily", "Nowhere").has_value());
}

TEST(CronError, IsLeftAloneBySuccess) {
  WFCronError error;
  error.message = "mine";
  EXPECT_TRUE(WFCron::parse("@daily", "UTC", &error).has_value());
  EXPECT_EQ(error.message, "mine");
}

#include "workflow/StringUtil.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using Parts = std::vector<std::string>;

std::string decoded(std::string text) {
  StringUtil::url_decode(text);
  return text;
}

TEST(StringUtil, DecodesEscapesAndPlus) {
  EXPECT_EQ(decoded("a%20b+c%2B%c3%A9"), "a b c+\xc3\xa9");
  EXPECT_EQ(decoded(""), "");
  EXPECT_EQ(decoded("%00"), std::string(1, '\0'));
}

TEST(StringUtil, LeavesWhatIsNoEscape) {
  EXPECT_EQ(decoded("%"), "%");
  EXPECT_EQ(decoded("%4"), "%4");
  EXPECT_EQ(decoded("%g1%1g%%41"), "%g1%1g%A");
}

TEST(StringUtil, DecodesInPlaceAndReturnsTheLength) {
  char text[] = "%41%42C";
  EXPECT_EQ(StringUtil::url_decode(text, 7), 3u);
  EXPECT_EQ(std::string(text, 3), "ABC");
}

TEST(StringUtil, EncodesUrlsAndComponents) {
  EXPECT_EQ(StringUtil::url_encode("http://h/a b?c=\xc3\xa9&d=%20"),
            "http://h/a%20b?c=%C3%A9&d=%20");
  EXPECT_EQ(StringUtil::url_encode_component("a b/?&=+%~"), "a%20b%2F%3F%26%3D%2B%25~");
}

TEST(StringUtil, EveryByteSurvivesEncodingAsComponent) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all.push_back(static_cast<char>(byte));
  EXPECT_EQ(decoded(StringUtil::url_encode_component(all)), all);
}

TEST(StringUtil, SplitsAtEverySeparator) {
  EXPECT_EQ(StringUtil::split("a,b,,c", ','), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(StringUtil::split("", ','), (Parts{""}));
  EXPECT_EQ(StringUtil::split(",", ','), (Parts{"", ""}));
  EXPECT_EQ(StringUtil::split_filter_empty(",a,,b,", ','), (Parts{"a", "b"}));
  EXPECT_EQ(StringUtil::split_filter_empty("", ','), Parts{});
}

TEST(StringUtil, StripsBothEnds) {
  EXPECT_EQ(StringUtil::strip(" \t\r\n\v\fa b\n "), "a b");
  EXPECT_EQ(StringUtil::strip(" \n"), "");
  EXPECT_EQ(StringUtil::strip(""), "");
}

TEST(StringUtil, StartWith) {
  EXPECT_TRUE(StringUtil::start_with("abc", "ab"));
  EXPECT_TRUE(StringUtil::start_with("abc", ""));
  EXPECT_FALSE(StringUtil::start_with("abc", "b"));
  EXPECT_FALSE(StringUtil::start_with("a", "ab"));
}

}  // namespace

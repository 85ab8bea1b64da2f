#include "workflow/URIParser.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string shown(const char* text) {
  return text == nullptr ? "-" : text;
}

// scheme userinfo host port path query fragment, "-" where absent.
std::string parsed(const std::string& text) {
  ParsedURI uri;
  if (URIParser::parse(text, uri) != 0) {
    EXPECT_EQ(uri.state, int{URI_STATE_INVALID});
    EXPECT_EQ(uri.error, EINVAL);
    EXPECT_EQ(uri.host, nullptr);
    return "invalid";
  }
  EXPECT_EQ(uri.state, int{URI_STATE_SUCCESS});
  return shown(uri.scheme) + " " + shown(uri.userinfo) + " " + shown(uri.host) + " " +
         shown(uri.port) + " " + shown(uri.path) + " " + shown(uri.query) + " " +
         shown(uri.fragment);
}

TEST(URIParser, AllComponents) {
  EXPECT_EQ(parsed("http://u:p@h:80/a/b?q=1#f"), "http u:p h 80 /a/b q=1 f");
}

TEST(URIParser, AbsentComponentsAreNull) {
  EXPECT_EQ(parsed("http://h"), "http - h - - - -");
  EXPECT_EQ(parsed("http://h/"), "http - h - / - -");
  EXPECT_EQ(parsed("http://h?q"), "http - h - - q -");
  EXPECT_EQ(parsed("http://h/?"), "http - h - /  -");
  EXPECT_EQ(parsed("http://h:/x"), "http - h - /x - -");
  EXPECT_EQ(parsed("redis://:pw@h/0"), "redis :pw h - /0 - -");
  EXPECT_EQ(parsed("file:///a"), "file -  - /a - -");
}

TEST(URIParser, PathsKeepTheirSlashes) {
  EXPECT_EQ(parsed("http://h//"), "http - h - // - -");
  EXPECT_EQ(parsed("http://h/a//b/"), "http - h - /a//b/ - -");
  EXPECT_EQ(parsed("/a/b?x"), "- - - - /a/b x -");
  EXPECT_EQ(parsed("a/b"), "- - - - a/b - -");
  EXPECT_EQ(parsed("/"), "- - - - / - -");
  EXPECT_EQ(parsed("mailto:x@y"), "mailto - - - x@y - -");
}

TEST(URIParser, LiteralAddresses) {
  EXPECT_EQ(parsed("http://[::1]:8080/x"), "http - ::1 8080 /x - -");
  EXPECT_EQ(parsed("http://1.2.3.4/x"), "http - 1.2.3.4 - /x - -");
  EXPECT_EQ(parsed("http://[::1/x"), "invalid");
  EXPECT_EQ(parsed("http://[zz]/x"), "invalid");
  EXPECT_EQ(parsed("http://[v1.a]/x"), "invalid");  // looks like a name without its brackets
}

TEST(URIParser, CharactersThatBrowsersEscapeAreEscaped) {
  EXPECT_EQ(parsed("http://h/\xc3\xa9|{}?[a]=\"<>#x#y"),
            "http - h - /%C3%A9%7C%7B%7D %5Ba%5D=%22%3C%3E x%23y");
  EXPECT_EQ(parsed("http://h/100%?a%zz%41"), "http - h - /100%25 a%25zz%41 -");
}

TEST(URIParser, WhatIsNoUriIsRefused) {
  EXPECT_EQ(parsed(""), "invalid");
  EXPECT_EQ(parsed("http://h/a b"), "invalid");
  EXPECT_EQ(parsed("http://h/a\r\nX: y"), "invalid");
  EXPECT_EQ(parsed(" http://h/"), "invalid");
  EXPECT_EQ(parsed("http://h:8a/"), "invalid");
  EXPECT_EQ(parsed("http://h o/"), "invalid");
  EXPECT_EQ(parsed("http://a|b/"), "invalid");
  EXPECT_EQ(parsed("1http://h/"), "invalid");
  EXPECT_EQ(parsed(std::string("http://h/a\0b", 12)), "invalid");
}

TEST(URIParser, ParsingAgainReplacesWhatWasThere) {
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse("http://u@h:1/p?q#f", uri), 0);
  ASSERT_EQ(URIParser::parse("http://other", uri), 0);
  EXPECT_STREQ(uri.host, "other");
  EXPECT_EQ(uri.port, nullptr);
  ASSERT_EQ(URIParser::parse("http://[", uri), -1);
  EXPECT_EQ(uri.host, nullptr);
}

TEST(URIParser, ParsedUriCopiesAndMoves) {
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse("http://h/p", uri), 0);
  ParsedURI copy(uri);
  EXPECT_STREQ(copy.host, "h");
  EXPECT_NE(copy.host, uri.host);
  EXPECT_EQ(copy.query, nullptr);
  ParsedURI moved(std::move(uri));
  EXPECT_STREQ(moved.path, "/p");
  EXPECT_EQ(uri.path, nullptr);
  EXPECT_EQ(uri.state, int{URI_STATE_INIT});
  copy = moved;
  moved = std::move(copy);
  EXPECT_STREQ(moved.host, "h");
  ParsedURI& same = moved;
  moved = same;
  EXPECT_STREQ(moved.host, "h");
}

TEST(URIParser, QueriesSplitIntoPairs) {
  using Strict = std::map<std::string, std::vector<std::string>>;
  using First = std::map<std::string, std::string>;
  std::string query = "a=1&b&a=2&=x&&c=d=e&a=";
  EXPECT_EQ(URIParser::split_query_strict(query),
            (Strict{{"a", {"1", "2", ""}}, {"b", {""}}, {"c", {"d=e"}}}));
  EXPECT_EQ(URIParser::split_query(query), (First{{"a", "1"}, {"b", ""}, {"c", "d=e"}}));
  EXPECT_EQ(URIParser::split_query(""), First{});
}

TEST(URIParser, PathsSplitIntoSegments) {
  EXPECT_EQ(URIParser::split_path("/a//b/c%20d/"), (std::vector<std::string>{"a", "b", "c%20d"}));
  EXPECT_EQ(URIParser::split_path("/"), std::vector<std::string>{});
}

}  // namespace

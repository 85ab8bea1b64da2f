#include "workflow/HttpUtil.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "support/HttpFeeding.h"

using namespace protocol;

namespace {

HttpResponse response_with(std::initializer_list<std::pair<const char*, const char*>> fields) {
  HttpResponse response;
  for (const auto& field : fields)
    response.add_header_pair(field.first, field.second);
  return response;
}

std::string all_fields(const protocol::HttpMessage& message) {
  HttpHeaderCursor cursor(&message);
  std::string name, value, all;
  while (cursor.next(name, value))
    all += name + "=" + value + ";";
  return all;
}

TEST(HttpUtil, StatusSetsCodeAndReason) {
  HttpResponse response;
  EXPECT_TRUE(HttpUtil::set_response_status(&response, HttpStatusNotFound));
  EXPECT_STREQ(response.get_status_code(), "404");
  EXPECT_STREQ(response.get_reason_phrase(), "Not Found");
  EXPECT_TRUE(HttpUtil::set_response_status(&response, 299));
  EXPECT_STREQ(response.get_status_code(), "299");
  EXPECT_STREQ(response.get_reason_phrase(), "Unknown");
  EXPECT_FALSE(HttpUtil::set_response_status(&response, 99));
  EXPECT_FALSE(HttpUtil::set_response_status(&response, 1000));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_STREQ(response.get_status_code(), "299");
}

TEST(HttpUtil, ConstantsAreFoundWithAndWithoutNamespace) {
  EXPECT_EQ(int{HttpStatusOK}, 200);
  EXPECT_EQ(int{protocol::HttpStatusOK}, 200);
  EXPECT_STREQ(HttpMethodGet, "GET");
  EXPECT_STREQ(protocol::HttpMethodGet, "GET");
  using namespace protocol;
  EXPECT_EQ(int{HttpStatusOK}, 200);
}

TEST(HttpUtil, BodyThatIsNotChunkedDecodesToItself) {
  HttpRequest request;
  std::string bytes = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
  size_t size = bytes.size();
  ASSERT_EQ(request.append(bytes.data(), &size), 1);
  EXPECT_EQ(HttpUtil::decode_chunked_body(&request), "abc");
  HttpResponse empty;
  EXPECT_EQ(HttpUtil::decode_chunked_body(&empty), "");
}

TEST(HttpHeaderCursor, WalksInOrderInBothForms) {
  HttpResponse response = response_with({{"A", "1"}, {"B", ""}, {"a", "3"}});
  EXPECT_EQ(all_fields(response), "A=1;B=;a=3;");
  HttpHeaderCursor cursor(&response);
  HttpMessageHeader header;
  ASSERT_TRUE(cursor.next(&header));
  EXPECT_EQ(std::string(static_cast<const char*>(header.name), header.name_len), "A");
  ASSERT_TRUE(cursor.next(&header));
  EXPECT_EQ(header.value_len, 0u);
  ASSERT_TRUE(cursor.next(&header));
  EXPECT_FALSE(cursor.next(&header));
  EXPECT_FALSE(cursor.next(&header));
  cursor.rewind();
  EXPECT_TRUE(cursor.next(&header));
}

TEST(HttpHeaderCursor, FindGoesOnFromWhereItIs) {
  HttpResponse response = response_with({{"A", "1"}, {"B", "2"}, {"a", "3"}});
  HttpHeaderCursor cursor(&response);
  std::string value;
  EXPECT_TRUE(cursor.find("a", value));
  EXPECT_EQ(value, "1");
  EXPECT_TRUE(cursor.find("A", value));
  EXPECT_EQ(value, "3");
  EXPECT_FALSE(cursor.find("A", value));
  EXPECT_FALSE(cursor.find("B", value));
  cursor.rewind();
  HttpMessageHeader header = {"b", 1, nullptr, 0};
  EXPECT_TRUE(cursor.find(&header));
  EXPECT_EQ(std::string(static_cast<const char*>(header.value), header.value_len), "2");
  EXPECT_FALSE(cursor.find(&header));
}

TEST(HttpHeaderCursor, EraseTakesTheLastFound) {
  HttpResponse response = response_with({{"A", "1"}, {"B", "2"}, {"C", "3"}});
  HttpHeaderCursor cursor(&response);
  EXPECT_FALSE(cursor.erase());
  std::string name, value;
  cursor.next(name, value);
  cursor.next(name, value);
  EXPECT_TRUE(cursor.erase());
  EXPECT_FALSE(cursor.erase());
  EXPECT_TRUE(cursor.next(name, value));
  EXPECT_EQ(name, "C");
  EXPECT_FALSE(cursor.next(name, value));
  EXPECT_FALSE(cursor.erase());
  EXPECT_EQ(all_fields(response), "A=1;C=3;");
}

TEST(HttpHeaderCursor, FindAndEraseTakesOneAfterTheOther) {
  HttpResponse response = response_with({{"X", "1"}, {"Y", "2"}, {"x", "3"}, {"X", "4"}});
  HttpHeaderCursor cursor(&response);
  HttpMessageHeader header = {"X", 1, nullptr, 0};
  EXPECT_TRUE(cursor.find_and_erase(&header));
  EXPECT_EQ(all_fields(response), "Y=2;x=3;X=4;");
  EXPECT_TRUE(cursor.find_and_erase("X"));
  EXPECT_TRUE(cursor.find_and_erase("X"));
  EXPECT_FALSE(cursor.find_and_erase("X"));
  EXPECT_EQ(all_fields(response), "Y=2;");
}

TEST(HttpHeaderCursor, OfAnUnusedMessageFindsNothing) {
  HttpResponse response;
  HttpHeaderCursor cursor(&response);
  std::string name, value;
  EXPECT_FALSE(cursor.next(name, value));
  EXPECT_FALSE(cursor.find("X", value));
  EXPECT_FALSE(cursor.erase());
}

TEST(HttpHeaderMap, LooksUpWithoutCase) {
  HttpResponse response = response_with({{"A", "1"}, {"B", ""}, {"a", "3"}});
  HttpHeaderMap map(&response);
  EXPECT_TRUE(map.key_exists("a"));
  EXPECT_FALSE(map.key_exists("c"));
  EXPECT_EQ(map.get("A"), "1");
  EXPECT_EQ(map.get("c"), "");
  std::string value = "x";
  EXPECT_FALSE(map.get("c", value));
  EXPECT_TRUE(map.get("b", value));
  EXPECT_EQ(value, "");
  EXPECT_EQ(map.get_strict("a"), (std::vector<std::string>{"1", "3"}));
  std::vector<std::string> values;
  EXPECT_FALSE(map.get_strict("c", values));
  EXPECT_TRUE(map.get_strict("A", values));
  EXPECT_EQ(values.size(), 2u);
}

TEST(HttpChunkCursor, WalksDecodedChunks) {
  HttpRequest request;
  std::string bytes =
      http_feeding::chunked("3;e=1\r\nabc\r\n00a\r\n0123456789\r\n0\r\nX: y\r\n\r\n");
  size_t size = bytes.size();
  ASSERT_EQ(request.append(bytes.data(), &size), 1);
  HttpChunkCursor cursor(&request);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> chunks;
    const void* chunk;
    while (cursor.next(&chunk, &size))
      chunks.emplace_back(static_cast<const char*>(chunk), size);
    EXPECT_EQ(chunks, (std::vector<std::string>{"abc", "0123456789"}));
    EXPECT_FALSE(cursor.next(&chunk, &size));
    cursor.rewind();
  }
}

// The header is set by hand on a body that has no such framing.
TEST(HttpChunkCursor, NeverReadsBeyondABodyThatIsNoChunks) {
  for (const char* body : {"5", "5\r\n", "5\r\nab", "ffffffffffffffff\r\nab", "g\r\nab", "2\r\nab",
                           "2\r\nab\r", "10000000000000000\r\n", "\r\n", "0\r\n"}) {
    HttpRequest request;
    std::string bytes =
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(std::strlen(body)) +
        "\r\n\r\n" + body;
    size_t size = bytes.size();
    ASSERT_EQ(request.append(bytes.data(), &size), 1);
    request.set_header_pair("Transfer-Encoding", "chunked");
    EXPECT_EQ(HttpUtil::decode_chunked_body(&request), "") << body;
  }
}

TEST(HttpStatus, SomeThatAreNotRegisteredHaveNames) {
  HttpResponse response;
  const std::pair<int, const char*> cases[] = {
      {HttpStatusEnhanceYourCaim, "420"},
      {HttpStatusNoResponse, "444"},
      {protocol::HttpStatusBlocked, "450"},
      {HttpStatusTooLargeForNginx, "494"},
  };
  for (const auto& [status, code] : cases) {
    ASSERT_TRUE(HttpUtil::set_response_status(&response, status));
    EXPECT_STREQ(response.get_status_code(), code);
    EXPECT_STREQ(response.get_reason_phrase(), "Unknown");
  }
}

}  // namespace

#include "workflow/RedisMessage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using protocol::RedisRequest;
using protocol::RedisResponse;
using protocol::RedisValue;

namespace {

using std::string_literals::operator""s;

std::string wire_of(protocol::ProtocolMessage& message) {
  struct iovec vectors[8];
  const int count = message.encode(vectors, 8);
  EXPECT_GE(count, 1);
  std::string wire;
  for (int i = 0; i < count; i++) {
    wire.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return wire;
}

int append(protocol::ProtocolMessage& message, const std::string& bytes, size_t* taken = nullptr) {
  size_t size = bytes.size();
  errno = 0;
  const int result = message.append(bytes.data(), &size);
  if (taken) {
    *taken = size;
  }
  return result;
}

// What a response makes of the bytes: the value, "more", or the name of the error.
std::string received(const std::string& bytes, size_t limit = SIZE_MAX) {
  RedisResponse response;
  response.set_size_limit(limit);
  switch (append(response, bytes)) {
    case 0:
      return "more";
    case 1: {
      RedisValue value;
      EXPECT_TRUE(response.get_result(value));
      return value.debug_string();
    }
    default:
      return errno == EBADMSG ? "EBADMSG" : errno == EMSGSIZE ? "EMSGSIZE" : std::to_string(errno);
  }
}

TEST(RedisRequest, IsSentAsAnArrayOfBulkStrings) {
  RedisRequest request;
  request.set_request("SET", {"key", "a\r\n\0b"s, ""});
  EXPECT_EQ(wire_of(request), "*4\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\na\r\n\0b\r\n$0\r\n\r\n"s);
  EXPECT_EQ(wire_of(request), wire_of(request));
  request.set_request("PING", {});
  EXPECT_EQ(wire_of(request), "*1\r\n$4\r\nPING\r\n");
}

TEST(RedisRequest, ARequestWithoutACommandIsNotSent) {
  RedisRequest request;
  struct iovec vector;
  EXPECT_EQ(request.encode(&vector, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  std::string command = "x";
  std::vector<std::string> params = {"x"};
  EXPECT_FALSE(request.get_command(command));
  EXPECT_FALSE(request.get_params(params));
  EXPECT_EQ(command, "");
  EXPECT_TRUE(params.empty());
}

TEST(RedisRequest, WhatIsReceivedIsWhatWasSentWhereverItIsCut) {
  RedisRequest sent;
  const std::vector<std::string> params = {"", "a\0\r\n"s, std::string(300, 'x')};
  sent.set_request("CMD", params);
  const std::string wire = wire_of(sent);
  for (size_t cut = 0; cut <= wire.size(); cut++) {
    RedisRequest request;
    size_t taken = 0;
    EXPECT_EQ(append(request, wire.substr(0, cut)), cut == wire.size());
    EXPECT_EQ(append(request, wire.substr(cut) + "*1\r\nnext", &taken), 1);
    EXPECT_EQ(taken, wire.size() - cut);
    std::string command;
    std::vector<std::string> got;
    EXPECT_TRUE(request.get_command(command));
    EXPECT_TRUE(request.get_params(got));
    EXPECT_EQ(command, "CMD");
    EXPECT_EQ(got, params);
  }
}

TEST(RedisRequest, OnlyAnArrayOfStringsIsARequest) {
  for (const char* bytes :
       {"*0\r\n", "*-1\r\n", "*1\r\n$0\r\n\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n+PING\r\n",
        "*2\r\n$3\r\nGET\r\n*0\r\n", "+PING\r\n", "$4\r\nPING\r\n", "PING\r\n"}) {
    RedisRequest request;
    EXPECT_EQ(append(request, bytes), -1) << bytes;
    EXPECT_EQ(errno, EBADMSG) << bytes;
  }
}

TEST(RedisResponse, EveryTypeIsReceived) {
  EXPECT_EQ(received("+OK\r\n"), "OK");
  EXPECT_EQ(received("-ERR no\r\n"), "(error) ERR no");
  EXPECT_EQ(received(":-42\r\n"), "-42");
  EXPECT_EQ(received("$5\r\na\r\n\0b\r\n"s), "\"a\\r\\n\\x00b\"");
  EXPECT_EQ(received("$0\r\n\r\n"), "\"\"");
  EXPECT_EQ(received("$-1\r\n"), "nil");
  EXPECT_EQ(received("*-1\r\n"), "nil");
  EXPECT_EQ(received("*0\r\n"), "[]");
  EXPECT_EQ(received("*3\r\n*2\r\n:1\r\n:2\r\n$-1\r\n*1\r\n*0\r\n"), "[[1, 2], nil, [[]]]");
}

TEST(RedisResponse, NothingIsThereBeforeItArrived) {
  RedisResponse response;
  RedisValue value;
  value.set_int(1);
  EXPECT_FALSE(response.get_result(value));
  EXPECT_TRUE(value.is_nil());
  EXPECT_EQ(append(response, "$3\r\nab"), 0);
  EXPECT_FALSE(response.get_result(value));
  EXPECT_EQ(append(response, "c\r\n"), 1);
  EXPECT_TRUE(response.get_result(value));
}

TEST(RedisResponse, ACompleteMessageTakesNoMore) {
  RedisResponse response;
  size_t taken = 0;
  EXPECT_EQ(append(response, "+a\r\n+b\r\n", &taken), 1);
  EXPECT_EQ(taken, 4u);
  EXPECT_EQ(append(response, "+c\r\n", &taken), 1);
  EXPECT_EQ(taken, 0u);
  RedisValue value;
  response.get_result(value);
  EXPECT_EQ(value.string_value(), "a");
}

TEST(RedisResponse, WhatIsNotRespIsRefused) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\n", "\r\n", ":\r\n", ":1x\r\n", ":01\r\n", ":9223372036854775808\r\n",
        "$-2\r\n", "$x\r\n", "*-2\r\n", "*2147483648\r\n", "$3\r\nabcXY", "$0\r\nab", "%1\r\n",
        "_\r\n", ":1111111111111111111111111111111111", "$22222222222222222222222222222222222",
        "*1\rx111111111111111111111111111111111111"}) {
    EXPECT_EQ(received(bytes), "EBADMSG") << bytes;
  }
}

TEST(RedisResponse, OnceRefusedItStaysSo) {
  RedisResponse response;
  EXPECT_EQ(append(response, "?"), -1);
  EXPECT_EQ(append(response, "+OK\r\n"), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(RedisResponse, ArraysMayBeNestedSevenDeep) {
  std::string nested;
  for (int depth = 0; depth < 7; depth++) {
    nested += "*1\r\n";
  }
  EXPECT_EQ(received(nested + ":1\r\n"), "[[[[[[[1]]]]]]]");
  for (int depth = 7; depth < 100000; depth++) {
    nested += "*1\r\n";
  }
  EXPECT_EQ(received(nested), "EBADMSG");
}

TEST(RedisResponse, TheSizeLimitHoldsForWhatComesAndForWhatIsAnnounced) {
  EXPECT_EQ(received("$5\r\nhello\r\n", 11), "\"hello\"");
  EXPECT_EQ(received("$5\r\nhello\r\n", 10), "EMSGSIZE");
  EXPECT_EQ(received("$100\r\n", 99), "EMSGSIZE");
  EXPECT_EQ(received("$100\r\n", 106), "more");
  EXPECT_EQ(received("$9999999999\r\n", 1 << 20), "EMSGSIZE");
  EXPECT_EQ(received("$9223372036854775807\r\n", 1 << 20), "EMSGSIZE");
  EXPECT_EQ(received("*2147483647\r\n", 1 << 20), "EMSGSIZE");
  EXPECT_EQ(received("*1\r\n*400000\r\n", 1 << 20), "EMSGSIZE");
  EXPECT_EQ(received("+" + std::string(100, 'x'), 50), "EMSGSIZE");
  EXPECT_EQ(received("", 0), "more");
  EXPECT_EQ(received("+OK\r\n", 0), "EMSGSIZE");
}

TEST(RedisResponse, WhatFollowsAMessageDoesNotCountForItsLimit) {
  RedisResponse response;
  response.set_size_limit(5);
  size_t taken = 0;
  EXPECT_EQ(append(response, "+OK\r\n" + std::string(1000, 'x'), &taken), 1);
  EXPECT_EQ(taken, 5u);
}

TEST(RedisResponse, ALineMayHave64KiB) {
  const std::string text(65536, 'x');
  EXPECT_EQ(received("+" + text + "\r\n"), text);
  EXPECT_EQ(received("+" + text + "x\r\n"), "EMSGSIZE");
  EXPECT_EQ(received("-" + text + "xxx"), "EMSGSIZE");
}

TEST(RedisResponse, SmallElementsMayNotTakeMuchMoreMemoryThanTheLimit) {
  const auto many = [](size_t n) {
    std::string wire = "*" + std::to_string(n) + "\r\n";
    for (size_t i = 0; i < n; i++) {
      wire += "+\r\n";
    }
    return wire;
  };
  RedisResponse response;
  response.set_size_limit(100000);
  EXPECT_EQ(append(response, many(30000)), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  RedisResponse few;
  few.set_size_limit(3010);
  EXPECT_EQ(append(few, many(1000)), 1) << "up to 64 KiB are always allowed";
}

TEST(RedisResponse, AnAnnouncedLengthTakesNoMemory) {
  // Each of them would be tens of GiB.
  std::vector<RedisResponse> responses(50);
  for (RedisResponse& response : responses) {
    EXPECT_EQ(append(response, "*1\r\n*2147483647\r\n*2147483647\r\n$9999999999\r\n"), 0);
  }
}

TEST(RedisResponse, IsSentAsItsValue) {
  RedisResponse response;
  EXPECT_EQ(wire_of(response), "$-1\r\n");
  RedisValue value;
  value.set_array(5);
  value[0].set_status("fine\r\n+OK");
  value[1].set_error("ERR no\n");
  value[2].set_int(-1);
  value[3].set_string("a\0b"s);
  EXPECT_TRUE(response.set_result(value));
  EXPECT_EQ(wire_of(response), "*5\r\n+fine  +OK\r\n-ERR no \r\n:-1\r\n$3\r\na\0b\r\n$-1\r\n"s);
}

TEST(RedisResponse, MovingTakesContentAndReceptionAlong) {
  static_assert(std::is_nothrow_move_constructible_v<RedisResponse>);
  static_assert(std::is_nothrow_move_assignable_v<RedisRequest>);
  const std::string wire = "*2\r\n$3\r\nabc\r\n:5\r\n";
  for (size_t cut = 0; cut <= wire.size(); cut++) {
    RedisResponse first;
    append(first, wire.substr(0, cut));
    RedisResponse second(std::move(first));
    RedisResponse third;
    third = std::move(second);
    EXPECT_EQ(append(third, wire.substr(cut)), 1);
    RedisValue value;
    third.get_result(value);
    EXPECT_EQ(value.debug_string(), "[\"abc\", 5]");
    for (RedisResponse* moved : {&first, &second}) {
      EXPECT_FALSE(moved->get_result(value));
      EXPECT_EQ(append(*moved, wire), 1) << "it can be used again";
    }
  }
}

TEST(RedisResponse, AMovedFromRequestIsEmpty) {
  RedisRequest first;
  first.set_request("GET", {"k"});
  RedisRequest second(std::move(first));
  std::string command;
  EXPECT_FALSE(first.get_command(command));
  EXPECT_EQ(wire_of(second), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
}

}  // namespace

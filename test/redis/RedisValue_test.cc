#include <gtest/gtest.h>

#include <limits>
#include <type_traits>
#include <utility>

#include "workflow/RedisMessage.h"

using protocol::RedisValue;

namespace {

using std::string_literals::operator""s;

TEST(RedisValue, ANewValueIsNil) {
  const RedisValue value;
  EXPECT_TRUE(value.is_nil());
  EXPECT_TRUE(value.is_ok());
  EXPECT_EQ(value.get_type(), REDIS_REPLY_TYPE_NIL);
  EXPECT_EQ(value.string_view(), nullptr);
  EXPECT_EQ(value.string_value(), "");
  EXPECT_EQ(value.int_value(), 0);
  EXPECT_EQ(value.arr_size(), 0u);
}

TEST(RedisValue, EachSetterReplacesWhatTheValueWas) {
  RedisValue value;
  value.set_int(std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(value.is_int());
  EXPECT_EQ(value.int_value(), std::numeric_limits<int64_t>::min());
  value.set_string("a\0b"s);
  EXPECT_TRUE(value.is_string());
  EXPECT_FALSE(value.is_int());
  EXPECT_EQ(value.int_value(), 0);
  EXPECT_EQ(value.string_value(), "a\0b"s);
  value.set_status("OK");
  EXPECT_EQ(value.get_type(), REDIS_REPLY_TYPE_STATUS);
  EXPECT_TRUE(value.is_string());
  EXPECT_TRUE(value.is_ok());
  value.set_error("ERR x and more", 5);
  EXPECT_TRUE(value.is_error());
  EXPECT_FALSE(value.is_ok());
  EXPECT_FALSE(value.is_string());
  EXPECT_EQ(*value.string_view(), "ERR x");
  value.set_array(2);
  EXPECT_TRUE(value.is_array());
  EXPECT_EQ(value.string_view(), nullptr);
  EXPECT_EQ(value.arr_size(), 2u);
  EXPECT_TRUE(value[1].is_nil());
  value.clear();
  EXPECT_TRUE(value.is_nil());
}

TEST(RedisValue, ANullTextIsEmpty) {
  RedisValue value;
  value.set_string(static_cast<const char*>(nullptr));
  EXPECT_TRUE(value.is_string());
  EXPECT_EQ(value.string_value(), "");
  value.set_error(nullptr, 5);
  EXPECT_TRUE(value.is_error());
  EXPECT_EQ(value.string_value(), "");
}

TEST(RedisValue, ArraysGrowAndShrink) {
  RedisValue value;
  value.set_string("text");
  value.arr_resize(2);
  value[0].set_int(1);
  value.arr_at(1).set_string("x");
  value.arr_resize(3);
  EXPECT_EQ(value.debug_string(), "[1, \"x\", nil]");
  value.arr_resize(1);
  EXPECT_EQ(value.debug_string(), "[1]");
  value.arr_clear();
  EXPECT_TRUE(value.is_array());
  EXPECT_EQ(value.arr_size(), 0u);
}

TEST(RedisValue, CopiesAreDeep) {
  RedisValue value;
  value.set_array(1);
  value[0].set_string("old");
  RedisValue copy(value);
  value[0].set_string("new");
  EXPECT_EQ(copy[0].string_value(), "old");
  copy = value;
  EXPECT_EQ(copy[0].string_value(), "new");
}

TEST(RedisValue, AMovedFromValueIsNil) {
  static_assert(std::is_nothrow_move_constructible_v<RedisValue>);
  static_assert(std::is_nothrow_move_assignable_v<RedisValue>);
  RedisValue value;
  value.set_array(2);
  value[0].set_string("inside");
  RedisValue moved(std::move(value));
  EXPECT_TRUE(value.is_nil());
  EXPECT_EQ(value.arr_size(), 0u);
  value = std::move(moved);
  EXPECT_TRUE(moved.is_nil());
  EXPECT_EQ(value[0].string_value(), "inside");
}

TEST(RedisValue, AValueMayBecomeAPartOfItself) {
  RedisValue value;
  value.set_array(1);
  value[0].set_array(1);
  value[0][0].set_int(7);
  value = std::move(value[0]);
  EXPECT_EQ(value.debug_string(), "[7]");
  value.set_array(1);
  value[0].set_string("text of an element");
  value.set_string(*value[0].string_view());
  EXPECT_EQ(value.string_value(), "text of an element");
}

TEST(RedisValue, DebugStringIsOneLineOfPrintableAscii) {
  RedisValue value;
  EXPECT_EQ(value.debug_string(), "nil");
  value.set_string("a\"\\\r\n\t\0\x7f\xff"s);
  EXPECT_EQ(value.debug_string(), "\"a\\\"\\\\\\r\\n\\t\\x00\\x7f\\xff\"");
  value.set_status("OK");
  EXPECT_EQ(value.debug_string(), "OK");
  value.set_error("ERR a\nb");
  EXPECT_EQ(value.debug_string(), "(error) ERR a\\nb");
  value.set_array(2);
  value[0].set_int(-5);
  value[1].set_array(0);
  EXPECT_EQ(value.debug_string(), "[-5, []]");
}

}  // namespace

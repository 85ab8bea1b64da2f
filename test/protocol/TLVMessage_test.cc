#include "workflow/TLVMessage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "Append.h"

using message_kit::append;
using protocol::TLVMessage;

namespace {

std::string tlv_wire_of(TLVMessage& message, int max = 8) {
  struct iovec vectors[8];
  const int count = message.encode(vectors, max);
  EXPECT_GE(count, 1);
  EXPECT_LE(count, max);
  std::string wire;
  for (int i = 0; i < count; ++i)
    wire.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  return wire;
}

std::string tlv_wire_of(int type, const std::string& value) {
  TLVMessage message;
  message.set_type(type);
  message.set_value(value);
  return tlv_wire_of(message);
}

TEST(TLVMessage, HeadIsTypeAndLengthInNetworkOrder) {
  EXPECT_EQ(tlv_wire_of(0x01020304, "abc"), std::string("\x01\x02\x03\x04\0\0\0\x03"
                                                        "abc",
                                                        11));
  EXPECT_EQ(tlv_wire_of(-1, ""), std::string("\xff\xff\xff\xff\0\0\0\0", 8));
}

TEST(TLVMessage, ANewMessageIsEmpty) {
  TLVMessage message;
  EXPECT_EQ(message.get_type(), 0);
  EXPECT_EQ(*message.get_value(), "");
  EXPECT_EQ(tlv_wire_of(message), std::string(8, '\0'));
}

TEST(TLVMessage, WhatIsReceivedIsWhatWasSentWhereverItIsCut) {
  const std::string value("a\0\xff\n", 4);
  for (const std::string& content : {value, std::string()}) {
    const std::string wire = tlv_wire_of(-7, content);
    for (size_t first = 0; first <= wire.size(); ++first) {
      for (size_t second = first; second <= wire.size(); ++second) {
        TLVMessage message;
        size_t taken = 0;
        EXPECT_EQ(append(message, wire.substr(0, first)), first == wire.size());
        EXPECT_EQ(append(message, wire.substr(first, second - first)), second == wire.size());
        EXPECT_EQ(append(message, wire.substr(second) + "next", &taken), 1);
        EXPECT_EQ(taken, wire.size() - second);
        EXPECT_EQ(message.get_type(), -7);
        EXPECT_EQ(*message.get_value(), content);
      }
    }
  }
}

TEST(TLVMessage, ACompleteMessageTakesNoMore) {
  TLVMessage message;
  EXPECT_EQ(append(message, tlv_wire_of(1, "x")), 1);
  size_t taken = 7;
  EXPECT_EQ(append(message, "more", &taken), 1);
  EXPECT_EQ(taken, 0u);
  EXPECT_EQ(*message.get_value(), "x");
}

TEST(TLVMessage, TheFormWithoutPointerWantsAMessageThatEndsWithTheBytes) {
  const std::string wire = tlv_wire_of(1, "x");
  TLVMessage message;
  EXPECT_EQ(message.append(wire.data(), wire.size()), 1);
  TLVMessage other;
  EXPECT_EQ(other.append((wire + "y").data(), wire.size() + 1), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(TLVMessage, TheSizeLimitCountsHeadAndValue) {
  const std::string wire = tlv_wire_of(1, "abc");
  TLVMessage message;
  message.set_size_limit(wire.size());
  EXPECT_EQ(append(message, wire), 1);
  for (const size_t limit : {wire.size() - 1, size_t{8}, size_t{7}, size_t{0}}) {
    TLVMessage small;
    small.set_size_limit(limit);
    EXPECT_EQ(append(small, wire.substr(0, 7)), 0);
    errno = 0;
    EXPECT_EQ(append(small, wire.substr(7, 1)), -1);
    EXPECT_EQ(errno, EMSGSIZE);
    errno = 0;
    EXPECT_EQ(append(small, wire), -1) << "once refused, it stays so";
    EXPECT_EQ(errno, EMSGSIZE);
  }
}

TEST(TLVMessage, AnAnnouncedLengthTakesNoMemory) {
  TLVMessage message;
  EXPECT_EQ(append(message, std::string("\0\0\0\x01\xff\xff\xff\xff", 8)), 0);
  EXPECT_LE(message.get_value()->capacity(), 65536u + 64u);
  EXPECT_EQ(append(message, std::string(1000, 'x')), 0);
  EXPECT_LE(message.get_value()->capacity(), 65536u + 64u);
}

TEST(TLVMessage, TheValueCanBeChangedInPlaceAndSentOn) {
  TLVMessage message;
  ASSERT_EQ(append(message, tlv_wire_of(5, "abc")), 1);
  message.get_value()->append("def");
  const TLVMessage& constant = message;
  EXPECT_EQ(*constant.get_value(), "abcdef");
  EXPECT_EQ(tlv_wire_of(message), tlv_wire_of(5, "abcdef"));
  EXPECT_EQ(tlv_wire_of(message), tlv_wire_of(5, "abcdef"));
}

TEST(TLVMessage, OneVectorIsEnough) {
  TLVMessage message;
  message.set_type(5);
  EXPECT_EQ(tlv_wire_of(message, 1), tlv_wire_of(5, ""));
  message.set_value("abc");
  EXPECT_EQ(tlv_wire_of(message, 1), tlv_wire_of(5, "abc"));
  struct iovec vector;
  EXPECT_EQ(message.encode(&vector, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(TLVMessage, MovingTakesContentAndReceptionAlong) {
  static_assert(std::is_nothrow_move_constructible_v<TLVMessage>);
  static_assert(std::is_nothrow_move_assignable_v<TLVMessage>);
  const std::string value(100, 'v');
  const std::string wire = tlv_wire_of(3, value);
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    TLVMessage first;
    append(first, wire.substr(0, cut));
    TLVMessage second(std::move(first));
    TLVMessage third;
    third.set_type(9);
    third = std::move(second);
    EXPECT_EQ(append(third, wire.substr(cut)), 1);
    EXPECT_EQ(*third.get_value(), value);
    EXPECT_EQ(third.get_type(), 3);
    for (TLVMessage* moved : {&first, &second}) {
      EXPECT_EQ(*moved->get_value(), "");
      EXPECT_EQ(moved->get_type(), 0);
      EXPECT_EQ(append(*moved, wire), 1) << "it can be used again";
      EXPECT_EQ(*moved->get_value(), value);
    }
  }
}

TEST(TLVMessage, UsersDeriveFromIt) {
  class Text : public protocol::TLVRequest {
   public:
    enum { kHello = 17 };
    Text() { set_type(kHello); }
    Text(Text&&) = default;
    Text& operator=(Text&&) = default;
  };
  Text text;
  text.set_value("hi");
  std::unique_ptr<protocol::ProtocolMessage> base(new Text(std::move(text)));
  struct iovec vectors[2];
  EXPECT_EQ(base->encode(vectors, 2), 2);
  EXPECT_TRUE((std::is_same_v<protocol::TLVResponse, TLVMessage>));
}

}  // namespace

#include "workflow/ProtocolMessage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

using protocol::ProtocolMessage;

namespace {

class Silent : public ProtocolMessage {};

class BySize : public ProtocolMessage {
 private:
  int append(const void*, size_t size) override {
    taken += size;
    return 1;
  }
  int append(const void* buf, size_t* size) override { return ProtocolMessage::append(buf, size); }

 public:
  size_t taken = 0;
};

class ByPointer : public ProtocolMessage {
 public:
  using ProtocolMessage::append;

 private:
  int append(const void*, size_t* size) override {
    *size = 2;
    return 1;
  }
};

TEST(ProtocolMessage, MessageThatOverridesNothingSaysSo) {
  Silent message;
  size_t size = 1;
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    EXPECT_EQ(message.append("x", &size), -1);
    EXPECT_EQ(errno, ENOSYS);
    errno = 0;
    EXPECT_EQ(message.append("x", size_t{1}), -1);
    EXPECT_EQ(errno, ENOSYS);
  }
  struct iovec vector;
  EXPECT_EQ(message.encode(&vector, 1), -1);
  EXPECT_EQ(errno, ENOSYS);
}

TEST(ProtocolMessage, EachFormOfAppendReachesTheOther) {
  BySize by_size;
  ProtocolMessage& base = by_size;
  size_t size = 3;
  EXPECT_EQ(base.append("abc", &size), 1);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(by_size.taken, 3u);
  ByPointer by_pointer;
  ProtocolMessage& other = by_pointer;
  EXPECT_EQ(other.append("ab", size_t{2}), 1);
  EXPECT_EQ(other.append("abc", size_t{3}), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(ProtocolMessage, FeedbackNeedsAConnection) {
  class Channel : public protocol::MessageChannel {
   public:
    int write_now(const void*, size_t size) override { return static_cast<int>(size); }
  } channel;
  Silent message;
  EXPECT_EQ(message.feedback("x", 1), -1);
  EXPECT_EQ(errno, ENOTCONN);
  message.renew();
  message.set_channel(&channel);
  EXPECT_EQ(message.feedback("xyz", 3), 3);
  message.renew();
}

TEST(ProtocolMessage, AttachmentLivesAndDiesWithTheMessage) {
  struct Counted : ProtocolMessage::Attachment {
    explicit Counted(int* count) : count_(count) { ++*count_; }
    ~Counted() override { --*count_; }
    int* count_;
  };
  int count = 0;
  {
    Silent message;
    message.set_attachment(new Counted(&count));
    message.set_attachment(new Counted(&count));
    EXPECT_EQ(count, 1);
    message.set_attachment(message.get_attachment());
    EXPECT_EQ(count, 1);
    Silent moved(std::move(message));
    EXPECT_EQ(message.get_attachment(), nullptr);
    EXPECT_NE(moved.get_attachment(), nullptr);
    Silent other;
    other.set_attachment(new Counted(&count));
    other = std::move(moved);
    EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(count, 0);
}

TEST(ProtocolMessage, SizeLimitMovesAndTheChannelStays) {
  class Channel : public protocol::MessageChannel {
   public:
    int write_now(const void*, size_t) override { return 0; }
  } channel;
  Silent message;
  EXPECT_EQ(message.get_size_limit(), SIZE_MAX);
  message.set_size_limit(7);
  message.set_channel(&channel);
  Silent moved(std::move(message));
  EXPECT_EQ(moved.get_size_limit(), 7u);
  EXPECT_EQ(moved.get_channel(), nullptr);
  EXPECT_EQ(message.get_size_limit(), SIZE_MAX);
  EXPECT_EQ(message.get_channel(), &channel);
}

}  // namespace

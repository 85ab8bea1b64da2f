#include "workflow/PackageWrapper.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "Append.h"
#include "workflow/HttpMessage.h"
#include "workflow/TLVMessage.h"

using message_kit::append;
using namespace protocol;

namespace {

// A value of TLVs, the type of each saying whether another one follows.
class Batch : public PackageWrapper {
 public:
  explicit Batch(const std::vector<std::string>& values) : PackageWrapper(&first_) {
    for (const std::string& value : values)
      add(value);
  }
  Batch() : Batch(std::vector<std::string>{}) {}

  void add(const std::string& value) {
    if (count_ > 0) last()->set_type(1);
    if (count_++ > 0) rest_.emplace_back();
    last()->set_value(value);
  }
  std::vector<std::string> values() {
    std::vector<std::string> all{*first_.get_value()};
    for (TLVMessage& other : rest_)
      all.push_back(*other.get_value());
    return all;
  }
  TLVMessage* last() { return rest_.empty() ? &first_ : &rest_.back(); }
  int asked = 0;

 private:
  ProtocolMessage* next_out(ProtocolMessage* last) override {
    if (last == &first_) next_ = rest_.begin();
    return next_ == rest_.end() ? nullptr : &*next_++;
  }
  ProtocolMessage* next_in(ProtocolMessage* received) override {
    ++asked;
    if (static_cast<TLVMessage*>(received)->get_type() == 0) return nullptr;
    rest_.emplace_back();
    return &rest_.back();
  }

  TLVMessage first_;
  std::list<TLVMessage> rest_;
  std::list<TLVMessage>::iterator next_;
  int count_ = 0;
};

std::string wire_of(ProtocolMessage& message, int max = 64, int* used = nullptr) {
  std::vector<iovec> vectors(static_cast<size_t>(max));
  const int count = message.encode(vectors.data(), max);
  EXPECT_GE(count, 0);
  EXPECT_LE(count, max);
  if (used != nullptr) *used = count;
  std::string wire;
  for (int i = 0; i < count; ++i) {
    const iovec& vector = vectors[static_cast<size_t>(i)];
    wire.append(static_cast<const char*>(vector.iov_base), vector.iov_len);
  }
  return wire;
}

class Channel : public protocol::MessageChannel {
 public:
  int write_now(const void* buf, size_t size) override {
    written.append(static_cast<const char*>(buf), size);
    return static_cast<int>(size);
  }
  void restart_receive() override { ++restarts; }
  std::string written;
  int restarts = 0;
};

TEST(ProtocolWrapper, PassesBothDirectionsOn) {
  TLVMessage inner;
  inner.set_type(4);
  inner.set_value("abc");
  ProtocolWrapper wrapper(&inner);
  EXPECT_EQ(wrapper.get_message(), &inner);
  EXPECT_EQ(wire_of(wrapper), wire_of(inner));
  TLVMessage received;
  ProtocolWrapper receiving(&received);
  size_t taken = 0;
  EXPECT_EQ(append(receiving, wire_of(inner) + "rest", &taken), 1);
  EXPECT_EQ(taken, 11u);
  EXPECT_EQ(*received.get_value(), "abc");
}

TEST(ProtocolWrapper, ReachesAMessageThatHasOnlyTheFormWithoutPointer) {
  class All : public ProtocolMessage {
    int append(const void* buf, size_t size) override {
      bytes.append(static_cast<const char*>(buf), size);
      return bytes.size() >= 4;
    }

   public:
    using ProtocolMessage::append;
    std::string bytes;
  } inner;
  ProtocolWrapper wrapper(&inner);
  EXPECT_EQ(append(wrapper, "ab"), 0);
  EXPECT_EQ(wrapper.append("cd", size_t{2}), 1);
  EXPECT_EQ(inner.bytes, "abcd");
}

TEST(ProtocolWrapper, FeedbackAndRenewGoThroughTheWrapper) {
  Channel channel;
  protocol::HttpRequest request;
  ProtocolWrapper inner(&request);
  ProtocolWrapper outer(&inner);
  outer.set_channel(&channel);
  EXPECT_EQ(
      append(outer,
             "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"),
      0);
  EXPECT_EQ(channel.written, "HTTP/1.1 100 Continue\r\n\r\n");
  protocol::HttpResponse response;
  ProtocolWrapper interim(&response);
  interim.set_channel(&channel);
  EXPECT_EQ(append(interim, "HTTP/1.1 100 Continue\r\n\r\n"), 0);
  EXPECT_EQ(channel.restarts, 1);
  EXPECT_EQ(request.get_channel(), nullptr) << "only while it receives";
}

TEST(ProtocolWrapper, ADerivedWrapperSeesTheFeedback) {
  class Counting : public ProtocolWrapper {
   public:
    using ProtocolWrapper::ProtocolWrapper;
    int feedback(const void*, size_t size) override {
      bytes += size;
      return static_cast<int>(size);
    }
    void renew() override { ++renewals; }
    size_t bytes = 0;
    int renewals = 0;
  };
  protocol::HttpResponse response;
  Counting wrapper(&response);
  EXPECT_EQ(append(wrapper, "HTTP/1.1 100 Continue\r\n\r\n"), 0);
  EXPECT_EQ(wrapper.renewals, 1);
  protocol::HttpRequest request;
  Counting other(&request);
  EXPECT_EQ(
      append(other,
             "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"),
      0);
  EXPECT_EQ(other.bytes, 25u);
}

TEST(ProtocolWrapper, TheSmallerSizeLimitApplies) {
  for (const bool inner_is_smaller : {false, true}) {
    TLVMessage inner;
    ProtocolWrapper wrapper(&inner);
    (inner_is_smaller ? static_cast<ProtocolMessage&>(inner) : wrapper).set_size_limit(10);
    TLVMessage large;
    large.set_value("abc");
    EXPECT_EQ(append(wrapper, wire_of(large)), -1);
    EXPECT_EQ(errno, EMSGSIZE);
    EXPECT_EQ(inner.get_size_limit(), inner_is_smaller ? 10u : SIZE_MAX);
  }
}

TEST(ProtocolWrapper, WhatIsMovedFromWrapsNothing) {
  TLVMessage inner;
  ProtocolWrapper first(&inner);
  first.set_size_limit(100);
  ProtocolWrapper second(std::move(first));
  EXPECT_EQ(second.get_message(), &inner);
  EXPECT_EQ(second.get_size_limit(), 100u);
  EXPECT_EQ(append(first, "x"), -1);
  EXPECT_EQ(errno, EINVAL);
  struct iovec vector;
  EXPECT_EQ(first.encode(&vector, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  first = std::move(second);
  EXPECT_EQ(append(first, std::string(8, '\0')), 1);
}

TEST(PackageWrapper, AloneItIsTheMessage) {
  TLVMessage inner;
  inner.set_value("abc");
  PackageWrapper package(&inner);
  EXPECT_EQ(wire_of(package), wire_of(inner));
  TLVMessage received;
  PackageWrapper receiving(&received);
  EXPECT_EQ(append(receiving, wire_of(inner)), 1);
}

TEST(PackageWrapper, SendsAllInOrderInAnyNumberOfVectors) {
  Batch batch({"a", "", "bcd", "e"});
  const std::string wire = wire_of(batch);
  EXPECT_EQ(wire.size(), 4 * 8u + 5u);
  for (int max = 1; max <= 10; ++max) {
    int used = 0;
    EXPECT_EQ(wire_of(batch, max, &used), wire);
    EXPECT_EQ(used, std::min(max, 7));
  }
}

TEST(PackageWrapper, SendsAThousand) {
  Batch batch(std::vector<std::string>(1000, "value"));
  EXPECT_EQ(wire_of(batch).size(), 13000u);
}

TEST(PackageWrapper, ReceivesAllWhereverTheyAreCut) {
  const std::vector<std::string> values{"a", "", "bcd", "e"};
  Batch batch(values);
  const std::string wire = wire_of(batch);
  for (size_t first = 0; first <= wire.size(); ++first) {
    for (size_t second = first; second <= wire.size(); ++second) {
      Batch received;
      size_t taken = 0;
      EXPECT_EQ(append(received, wire.substr(0, first)), first == wire.size());
      EXPECT_EQ(append(received, wire.substr(first, second - first)), second == wire.size());
      EXPECT_EQ(append(received, wire.substr(second) + "rest", &taken), 1);
      EXPECT_EQ(taken, wire.size() - second);
      EXPECT_EQ(received.values(), values);
      EXPECT_EQ(received.asked, 4);
    }
  }
}

TEST(PackageWrapper, TheSizeLimitBoundsAllOfIt) {
  Batch batch({"a", "bcd"});
  const std::string wire = wire_of(batch);
  for (const size_t step : {wire.size(), size_t{1}}) {
    for (size_t limit = 0; limit <= wire.size(); ++limit) {
      Batch received;
      received.set_size_limit(limit);
      int result = 0;
      for (size_t at = 0; at < wire.size() && result == 0; at += step)
        result = append(received, wire.substr(at, step));
      EXPECT_EQ(result, limit < wire.size() ? -1 : 1);
      EXPECT_TRUE(result == 1 || errno == EMSGSIZE);
    }
  }
}

TEST(PackageWrapper, AFailureOfOneIsTheFailureOfAll) {
  class Failing : public ProtocolMessage {
   public:
    int encode(struct iovec*, int) override {
      errno = EPERM;
      return -1;
    }
  };
  class Two : public PackageWrapper {
   public:
    Two() : PackageWrapper(&first_) {}

   private:
    ProtocolMessage* next_out(ProtocolMessage* last) override {
      return last == &first_ ? &second_ : nullptr;
    }
    ProtocolMessage* next_in(ProtocolMessage* last) override { return next_out(last); }
    TLVMessage first_;
    Failing second_;
  } package;
  struct iovec vectors[8];
  EXPECT_EQ(package.encode(vectors, 8), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(append(package, std::string(9, '\0')), -1);
  EXPECT_EQ(errno, ENOSYS);
}

TEST(PackageWrapper, EveryMessageOfItAnswersThroughIt) {
  class Requests : public PackageWrapper {
   public:
    Requests() : PackageWrapper(&requests_[0]) {}

   private:
    ProtocolMessage* next_in(ProtocolMessage* last) override {
      return last == &requests_[0] ? &requests_[1] : nullptr;
    }
    protocol::HttpRequest requests_[2];
  } requests;
  Channel channel;
  requests.set_channel(&channel);
  const std::string head =
      "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
  EXPECT_EQ(append(requests, head), 0);
  EXPECT_EQ(append(requests, "x" + head), 0);
  EXPECT_EQ(append(requests, "x"), 1);
  EXPECT_EQ(channel.written.size(), 50u);
}

TEST(PackageWrapper, EndOfInputCompletesOnlyTheLast) {
  class Responses : public PackageWrapper {
   public:
    Responses() : PackageWrapper(&responses_[0]) {}

   private:
    ProtocolMessage* next_in(ProtocolMessage* last) override {
      return last == &responses_[0] ? &responses_[1] : nullptr;
    }
    protocol::HttpResponse responses_[2];
  };
  const std::string empty = "HTTP/1.1 204 No Content\r\n\r\n";
  const std::string until_end = "HTTP/1.1 200 OK\r\n\r\nabc";
  const std::string both = empty + until_end;
  for (const std::string& bytes : {both, until_end, empty, std::string()}) {
    Responses responses;
    ProtocolWrapper outer(&responses);
    EXPECT_EQ(append(outer, bytes), 0);
    errno = 0;
    EXPECT_EQ(outer.end_of_input(), bytes == both ? 1 : -1) << bytes;
    EXPECT_EQ(errno, bytes == both ? 0 : ECONNRESET);
  }
  Responses complete;
  EXPECT_EQ(append(complete, empty + empty), 1);
  EXPECT_EQ(complete.end_of_input(), 1);
}

}  // namespace

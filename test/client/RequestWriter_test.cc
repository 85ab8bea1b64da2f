#include "client/RequestWriter.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "support/Tally.h"

namespace workflow {
namespace {

// More than the socket and the copies behind it take.
constexpr size_t kMuch = size_t{8} * 1024 * 1024;

// A connection that does nothing but send.
class Sender final : public RequestWriter {
 public:
  Sender(Poller& poller, UniqueFd fd) : RequestWriter(poller, std::move(fd)) {
    MutexLock lock(mutex_);
    write_unbounded();  // how much leaves at once depends on the socket alone
  }

  int begin(std::string request) {
    MutexLock lock(mutex_);
    bytes_ = std::move(request);
    struct iovec vector = {bytes_.data(), bytes_.size()};
    return begin_request(&vector, 1);
  }
  int resume() {
    MutexLock lock(mutex_);
    return resume_request();
  }
  bool end_exchange() {
    MutexLock lock(mutex_);
    return end_request();
  }
  int more(const std::string& bytes) {
    MutexLock lock(mutex_);
    return send_more(bytes);
  }
  bool take() {
    MutexLock lock(mutex_);
    return take_question();
  }
  bool sends() {
    MutexLock lock(mutex_);
    return is_sending();
  }
  bool flushes() {
    MutexLock lock(mutex_);
    return is_flushing();
  }
  bool waits_for_room() {
    MutexLock lock(mutex_);
    return has_unsent();
  }
  void limit(int timeout_ms) {
    MutexLock lock(mutex_);
    limit_flushing(timeout_ms);
  }
  using RequestWriter::set_parsing;

  test_support::Tally turns;  // of the poller's thread

 private:
  void on_ready(uint32_t, RunnableList&) override { turns.add(); }
  void on_deadline(bool, RunnableList&) override {}
  void on_closing() override {}
  void end() override { delete this; }

  std::string bytes_;
};

class RequestWriterTest : public testing::Test {
 protected:
  RequestWriterTest()
      : runtime_({.poller_threads = 1, .handler_threads = 1, .compute_threads = 1}) {
    EXPECT_TRUE(runtime_.start());
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    sender_ = new Sender(runtime_.poller(0), UniqueFd(ends[0]));
    peer_ = UniqueFd(ends[1]);
  }
  ~RequestWriterTest() override {
    runtime_.stop();
    sender_->release();
  }

  // What has come to the peer and was not read before.
  std::string read_some() {
    std::string all;
    char buffer[size_t{64} * 1024];
    for (ssize_t n; (n = ::recv(peer_.get(), buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }
  // What comes to the peer until nothing is unsent.
  std::string read_all() {
    std::string all = read_some();
    int error = EAGAIN;
    while (error == EAGAIN) {
      error = sender_->resume();
      all += read_some();
    }
    EXPECT_EQ(error, 0);
    return all;
  }

  Runtime runtime_;
  Sender* sender_ = nullptr;
  UniqueFd peer_;
};

TEST_F(RequestWriterTest, SendsAtOnceWhatTheSocketTakes) {
  EXPECT_EQ(sender_->begin("request"), 0);
  EXPECT_FALSE(sender_->sends());
  EXPECT_FALSE(sender_->waits_for_room());
  EXPECT_EQ(read_some(), "request");
  EXPECT_TRUE(sender_->end_exchange()) << "another request may follow";
}

TEST_F(RequestWriterTest, SendsTheRestWhenThereIsRoom) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_TRUE(sender_->sends());
  EXPECT_TRUE(sender_->waits_for_room());
  EXPECT_EQ(read_all(), std::string(kMuch, 'r'));
  EXPECT_FALSE(sender_->sends());
  EXPECT_FALSE(sender_->waits_for_room());
  EXPECT_TRUE(sender_->end_exchange());
}

TEST_F(RequestWriterTest, NothingMayFollowARequestThatEndsUnsent) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_EQ(sender_->write_now("feedback", 8), 8);
  EXPECT_TRUE(sender_->flushes());
  EXPECT_FALSE(sender_->end_exchange());
  EXPECT_FALSE(sender_->sends());
  EXPECT_FALSE(sender_->flushes()) << "what follows is dropped with it";
  EXPECT_FALSE(sender_->waits_for_room());
}

TEST_F(RequestWriterTest, NothingMayFollowARequestWhoseWriteHasFailed) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  peer_.reset();
  const int error = sender_->resume();
  EXPECT_TRUE(error == EPIPE || error == ECONNRESET) << error;
  EXPECT_FALSE(sender_->sends());
  EXPECT_FALSE(sender_->end_exchange());
}

TEST_F(RequestWriterTest, AnotherRequestCountsAfresh) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_FALSE(sender_->end_exchange());
  read_some();
  EXPECT_EQ(sender_->begin("next"), 0);
  EXPECT_TRUE(sender_->end_exchange());
}

TEST_F(RequestWriterTest, FeedbackGoesBehindTheRequest) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_EQ(sender_->write_now("feedback", 8), 8);
  EXPECT_EQ(read_all(), std::string(kMuch, 'r') + "feedback");
  EXPECT_FALSE(sender_->flushes());
}

TEST_F(RequestWriterTest, FeedbackIsSentAfterTheExchangeToo) {
  const std::string feedback(size_t{1024} * 1024, 'f');
  EXPECT_EQ(sender_->begin("request"), 0);
  EXPECT_EQ(sender_->write_now(feedback.data(), feedback.size()),
            static_cast<int>(feedback.size()));
  EXPECT_TRUE(sender_->flushes());
  EXPECT_TRUE(sender_->end_exchange());
  EXPECT_TRUE(sender_->flushes());
  EXPECT_EQ(read_all(), "request" + feedback);
  EXPECT_FALSE(sender_->flushes());
}

TEST_F(RequestWriterTest, RefusesMoreFeedbackThanItKeeps) {
  const std::string part(size_t{1024} * 1024, 'f');
  EXPECT_EQ(sender_->write_now(part.data(), part.size() + 1), -1) << "even if the socket is empty";
  EXPECT_EQ(errno, ENOBUFS);
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_EQ(sender_->write_now(part.data(), part.size()), static_cast<int>(part.size()));
  EXPECT_EQ(sender_->write_now("f", 1), -1);
  EXPECT_EQ(errno, ENOBUFS);
  EXPECT_EQ(read_all(), std::string(kMuch, 'r') + part);
  EXPECT_EQ(sender_->write_now("f", 1), 1) << "there is room again";
}

TEST_F(RequestWriterTest, NobodyWaitsForFeedbackWithoutATimeLimit) {
  const std::string feedback(size_t{1024} * 1024, 'f');
  EXPECT_EQ(sender_->write_now(feedback.data(), feedback.size()),
            static_cast<int>(feedback.size()));
  sender_->limit(60'000);
  EXPECT_TRUE(sender_->flushes());
  read_some();
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  EXPECT_EQ(sender_->write_now("feedback", 8), 8);
  runtime_.stop();  // from now on the poller refuses deadlines
  sender_->limit(50'000);
  EXPECT_FALSE(sender_->flushes());
}

TEST_F(RequestWriterTest, TheExchangeIsAskedAgainAfterBytesThatItHad) {
  EXPECT_EQ(sender_->begin("request"), 0);
  EXPECT_FALSE(sender_->take());
  sender_->ask_to_send();
  EXPECT_TRUE(sender_->take());
  EXPECT_FALSE(sender_->take());
  EXPECT_EQ(sender_->more(" and more"), 0);
  EXPECT_TRUE(sender_->take());
  EXPECT_FALSE(sender_->take()) << "it had nothing";
  EXPECT_EQ(read_some(), "request and more");
}

TEST_F(RequestWriterTest, TheExchangeIsNotAskedAgainAfterAnError) {
  EXPECT_EQ(sender_->begin("request"), 0);
  sender_->ask_to_send();
  EXPECT_TRUE(sender_->take());
  peer_.reset();
  EXPECT_NE(sender_->more(" and more"), 0);
  EXPECT_FALSE(sender_->take());
}

TEST_F(RequestWriterTest, TheExchangeIsNotAskedWhileSomethingIsUnsent) {
  EXPECT_EQ(sender_->begin(std::string(kMuch, 'r')), EAGAIN);
  sender_->ask_to_send();
  EXPECT_FALSE(sender_->take());
  read_all();
  EXPECT_TRUE(sender_->take());
  EXPECT_EQ(sender_->more(std::string(kMuch, 'm')), 0);
  EXPECT_TRUE(sender_->flushes());
  EXPECT_FALSE(sender_->take());
  EXPECT_EQ(read_all(), std::string(kMuch, 'm'));
  EXPECT_TRUE(sender_->take());
}

TEST_F(RequestWriterTest, AQuestionOfTheLastExchangeIsForgotten) {
  EXPECT_EQ(sender_->begin("request"), 0);
  sender_->ask_to_send();
  EXPECT_TRUE(sender_->end_exchange());
  EXPECT_EQ(sender_->begin("next"), 0);
  EXPECT_FALSE(sender_->take());
}

TEST_F(RequestWriterTest, AQuestionNeedsNoTurnOfThePollerWhileItParses) {
  Poller& poller = runtime_.poller(0);
  sender_->set_parsing(true);
  sender_->ask_to_send();
  poller.wait_for_round(poller.ask_for_round());  // in which posted items run
  EXPECT_EQ(sender_->turns.count(), 0u);
  sender_->set_parsing(false);
  EXPECT_TRUE(sender_->take());
  sender_->ask_to_send();
  EXPECT_TRUE(sender_->turns.wait_for(1));
}

}  // namespace
}  // namespace workflow

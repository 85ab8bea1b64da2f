#include "server/ReplyStream.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/ServerPeer.h"

// A stream at the moments between the loss of its connection and over(), which on a real server are
// as short as a few instructions.

namespace workflow {
namespace {

// A connection that calls `on_push` with every piece and takes it if that returns 0. Nothing else
// is asked of it here.
class Peer final : public ServerPeer {
 public:
  explicit Peer(std::function<int()> on_push) : on_push_(std::move(on_push)) {}
  ~Peer() = default;

  int push(const void* /*buffer*/, size_t size) override {
    const int error = on_push_();
    if (error == 0) return static_cast<int>(size);
    errno = error;
    return -1;
  }
  bool peer_closed() const override { return false; }
  size_t unsent() const override { return 0; }
  bool shutting_down() const override { return false; }
  void set_heartbeat(int /*ms*/) override {}

  void send_reply(ServerExchange* /*exchange*/, const ServerExchange::Reply& /*reply*/) override {}
  void drop() override {}
  int peer_addr(struct sockaddr* /*address*/, socklen_t* /*length*/) const override { return -1; }
  void watch_leaving(std::shared_ptr<LeaveHook> /*hook*/, OnLeaving /*what*/) override {}
  bool can_stream() const override { return true; }
  int begin_stream(std::shared_ptr<ReplyStream> /*stream*/, const std::string& /*head*/,
                   int /*send_timeout*/) override {
    return 0;
  }
  void end_stream(ServerExchange* /*exchange*/, const ServerExchange::Reply& /*reply*/,
                  std::string_view /*last*/) override {}
  WFConnection* user() const override { return nullptr; }
  ServerHost& host() const override { std::abort(); }
  void retain() override {}
  void release() override {}

 private:
  std::function<int()> on_push_;
};

constexpr ReplyStream::Form kChunked = {.chunked = true, .discards = false, .of_events = false};

int error_of_write(ReplyStream& stream) {
  return stream.write("piece") == 0 ? 0 : errno;
}

TEST(ReplyStream, AWriteThatMeetsALossFailsForTheReasonOfTheLoss) {
  ReplyStream* lost = nullptr;
  Peer peer([&lost] {
    lost->lose(ETIMEDOUT);
    return ENOTCONN;
  });
  ReplyStream stream(&peer, kChunked);
  lost = &stream;
  EXPECT_EQ(error_of_write(stream), ETIMEDOUT);
  EXPECT_EQ(stream.over(ETIMEDOUT), ETIMEDOUT);  // what the task of the reply ends with
  EXPECT_EQ(error_of_write(stream), ETIMEDOUT);
}

TEST(ReplyStream, TheFirstReasonOfALossCounts) {
  Peer peer([] { return ENOTCONN; });
  ReplyStream stream(&peer, kChunked);
  stream.lose(ECONNRESET);
  stream.lose(ECANCELED);
  EXPECT_EQ(error_of_write(stream), ECONNRESET);
}

TEST(ReplyStream, WithoutALossAWriteFailsForItsOwnReason) {
  int error = 0;
  Peer peer([&error] { return error; });
  ReplyStream stream(&peer, kChunked);
  EXPECT_EQ(error_of_write(stream), 0);
  error = ENOBUFS;
  EXPECT_EQ(error_of_write(stream), ENOBUFS);
  error = 0;
  EXPECT_EQ(error_of_write(stream), 0);  // no room is not the end
  error = EPIPE;
  EXPECT_EQ(error_of_write(stream), EPIPE);
  error = 0;
  EXPECT_EQ(error_of_write(stream), EPIPE);
}

}  // namespace
}  // namespace workflow

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "support/Loopback.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFServer.h"

// A server of a protocol that is not HTTP: lines. What the connections promise to any protocol.

namespace {

using server_test::eventually;
using server_test::RawClient;

// A text that ends with a line feed.
class Line : public protocol::ProtocolMessage {
 public:
  int append(const void* buf, size_t* size) override {
    const std::string_view bytes(static_cast<const char*>(buf), *size);
    const size_t end = bytes.find('\n');
    text += bytes.substr(0, end);
    if (text.size() > size_limit) {
      errno = EMSGSIZE;
      return -1;
    }
    if (end == std::string_view::npos) return 0;
    *size = end + 1;
    return 1;
  }
  int encode(struct iovec vectors[], int /*max*/) override {
    if (refuses_to_encode) {
      errno = encode_errno;
      return -1;
    }
    vectors[0] = {text.data(), text.size()};
    return 1;
  }

  std::string text;
  bool refuses_to_encode = false;
  int encode_errno = 0;
};

using LineTask = WFNetworkTask<Line, Line>;

class LineServer : public WFServer<Line, Line> {
 public:
  explicit LineServer(Process process, const struct WFServerParams& params = SERVER_PARAMS_DEFAULT)
      : WFServer(&params, std::move(process)) {
    EXPECT_EQ(start("127.0.0.1", 0), 0);
    port_ = test_support::port_of(*this);
  }
  ~LineServer() override { stop(); }
  uint16_t port() const { return port_; }

 private:
  uint16_t port_ = 0;
};

// All that comes until the peer closes.
std::string read_all(RawClient& client) {
  std::string bytes;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::recv(client.fd(), buffer, sizeof buffer, 0)) > 0;) {
    bytes.append(buffer, static_cast<size_t>(n));
  }
  return bytes;
}

}  // namespace

TEST(OwnProtocol, TheSizeLimitReachesTheMessage) {
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.request_size_limit = 100;
  std::atomic<int> requests{0};
  LineServer server([&](LineTask*) { requests++; }, params);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(std::string(1000, 'x') + "\n"));
  EXPECT_EQ(read_all(client), "");
  EXPECT_EQ(requests, 0);
}

TEST(OwnProtocol, AReplyThatCannotBeEncodedClosesTheConnection) {
  for (const int error : {0, EAGAIN, EINVAL}) {
    std::atomic<int> state{-1};
    std::atomic<int> seen{-1};
    LineServer server([&](LineTask* task) {
      task->get_resp()->refuses_to_encode = true;
      task->get_resp()->encode_errno = error;
      task->set_callback([&](LineTask* ended) {
        seen = ended->get_error();
        state = ended->get_state();
      });
    });
    RawClient client(server.port());
    ASSERT_TRUE(client.send("hello\n"));
    EXPECT_EQ(read_all(client), "");
    ASSERT_TRUE(eventually([&] { return state != -1; }));
    EXPECT_EQ(state, WFT_STATE_SYS_ERROR) << error;
    EXPECT_EQ(seen, error == EINVAL ? EINVAL : EBADMSG) << error;
  }
}

TEST(OwnProtocol, WhatWasPushedIsSentAlthoughThereIsNoReply) {
  static constexpr size_t kPushed = 1024 * 1024;
  std::atomic<size_t> taken{0};
  LineServer server([&](LineTask* task) {
    const std::string block(kPushed / 4, 'p');
    for (int n = 0; (n = task->push(block.data(), block.size())) > 0;) {
      taken += static_cast<size_t>(n);
    }
    EXPECT_EQ(errno, ENOBUFS);
    task->noreply();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.send("hello\n"));
  EXPECT_EQ(read_all(client).size(), taken);
  EXPECT_GE(taken, kPushed);
}

// The deleter runs where a connection ends, and may wait for a timer of the very poller.
TEST(OwnProtocol, AContextDeleterMayWait) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  WORKFLOW_library_init(&settings);
  std::atomic<int> deleted{0};
  LineServer server([&](LineTask* task) {
    task->get_connection()->set_context(nullptr, [&](void*) {
      WFFacilities::usleep(1000);
      deleted++;
    });
    task->get_resp()->text = "ok";
    task->set_keep_alive(0);
  });
  for (int i = 1; i <= 20; i++) {
    RawClient client(server.port());
    ASSERT_TRUE(client.send("hello\n"));
    ASSERT_EQ(read_all(client), "ok");
    client = RawClient();
    ASSERT_TRUE(eventually([&] { return deleted == i; }));
  }
}

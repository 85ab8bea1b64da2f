#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/Fetch.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFManualClock.h"

// The client's time limits, by a clock that the test moves.

namespace client_test {
namespace {

using workflow::kNsPerSec;

constexpr int64_t kMs = 1'000'000;

// A request whose end is recorded.
class Fetching {
 public:
  Fetching(const std::string& url, const std::function<void(WFHttpTask*)>& change) {
    WFHttpTask* task = WFTaskFactory::create_http_task(url, 0, 0, [this](WFHttpTask* done) {
      result_ = fetched(done);
      ended_.add();
    });
    if (change) {
      change(task);
    }
    task->start();
  }

  bool ended() const { return ended_.count() > 0; }
  const Fetched& result() {
    EXPECT_TRUE(ended_.wait_for(1));
    return result_;
  }

 private:
  test_support::Tally ended_;
  Fetched result_;
};

class ClientTimeouts : public testing::Test {
 protected:
  // One poller meets what comes in the order in which it came.
  void begin(const struct EndpointParams& params = ENDPOINT_PARAMS_DEFAULT, int backlog = 16) {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    settings.endpoint_params = params;
    WORKFLOW_library_init(&settings);
    ASSERT_EQ(WFManualClock::install(), 0);
    listen_ = workflow::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    ASSERT_EQ(::bind(listen_.get(), reinterpret_cast<struct sockaddr*>(&address_), length), 0);
    ASSERT_EQ(::listen(listen_.get(), backlog), 0);
    ::getsockname(listen_.get(), reinterpret_cast<struct sockaddr*>(&address_), &length);
    settle();
  }

  // The client has done what it could do at once: others' requests came later.
  void settle() {
    ASSERT_EQ(fetch(witness_.url()).status, "200");
    WFManualClock::advance(0);
  }
  void ask(const std::function<void(WFHttpTask*)>& change = nullptr,
           const std::string& scheme = "http") {
    asking_ = std::make_unique<Fetching>(url(scheme), change);
  }
  std::string url(const std::string& scheme) const {
    return scheme + "://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)) + "/";
  }
  // The peer of the next connection, on which the request has left.
  std::unique_ptr<Peer> accept() {
    const int fd = ::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    EXPECT_GE(fd, 0);
    auto peer = std::make_unique<Peer>(fd);
    settle();
    return peer;
  }
  void send(Peer& peer, std::string_view bytes) {
    ASSERT_TRUE(peer.send(bytes));
    settle();
  }
  void pass(int64_t ns) {
    WFManualClock::advance(ns);
    settle();
  }

  // Not a ms before, and then at once.
  void expect_timeout_after(int64_t ns, int reason) {
    pass(ns - kMs);
    EXPECT_FALSE(asking_->ended());
    WFManualClock::advance(kMs);
    const Fetched& got = asking_->result();
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(got.error, ETIMEDOUT);
    EXPECT_EQ(got.timeout_reason, reason);
  }
  static bool is_open(const Peer& peer) {
    char byte = 0;
    return ::recv(peer.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }
  void expect_closed_after(Peer& peer, int64_t ns) {
    pass(ns - kMs);
    EXPECT_TRUE(is_open(peer));
    WFManualClock::advance(kMs);
    EXPECT_TRUE(peer.ended());
  }

  static struct EndpointParams with(int EndpointParams::*limit, int ms) {
    struct EndpointParams params = ENDPOINT_PARAMS_DEFAULT;
    params.*limit = ms;
    return params;
  }

  struct sockaddr_in address_ = {};
  workflow::UniqueFd listen_;
  std::unique_ptr<Fetching> asking_;
  RawServer witness_{[](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply("");
    }
  }};
};

// Nobody accepts, and no more of those who wait are taken: what a client sends to connect is lost.
class ToAFullServer : public ClientTimeouts {
 protected:
  void fill() {
    for (;;) {
      workflow::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address_), sizeof address_);
      struct pollfd poll_fd = {fd.get(), POLLOUT, 0};
      // Over loopback an answer takes no time.
      const bool connected = ::poll(&poll_fd, 1, 1000) == 1;
      waiting_.push_back(std::move(fd));
      if (!connected) return;
      ASSERT_LT(waiting_.size(), 20u);
    }
  }

  std::vector<workflow::UniqueFd> waiting_;
};

}  // namespace

TEST_F(ToAFullServer, Connecting) {
  begin(ENDPOINT_PARAMS_DEFAULT, 0);
  fill();
  ask();
  settle();
  expect_timeout_after(10 * kNsPerSec, TOR_CONNECT_TIMEOUT);
}

TEST_F(ToAFullServer, ConnectingByAnotherLimit) {
  begin(with(&EndpointParams::connect_timeout, 1234), 0);
  fill();
  ask();
  settle();
  expect_timeout_after(1234 * kMs, TOR_CONNECT_TIMEOUT);
}

TEST_F(ClientTimeouts, TlsHandshake) {
  begin();
  ask(nullptr, "https");
  const auto peer = accept();
  expect_timeout_after(10 * kNsPerSec, TOR_CONNECT_TIMEOUT);
}

TEST_F(ClientTimeouts, TlsHandshakeByAnotherLimit) {
  begin(with(&EndpointParams::ssl_connect_timeout, 2345));
  ask(nullptr, "https");
  const auto peer = accept();
  expect_timeout_after(2345 * kMs, TOR_CONNECT_TIMEOUT);
}

TEST_F(ClientTimeouts, WaitingForAConnection) {
  struct EndpointParams params = with(&EndpointParams::response_timeout, -1);
  params.max_connections = 1;
  begin(params);
  ask();
  const auto peer = accept();
  const std::unique_ptr<Fetching> first = std::move(asking_);
  ask();
  expect_timeout_after(10 * kNsPerSec, TOR_WAIT_TIMEOUT);
  peer->request();
  peer->reply("x");
  EXPECT_EQ(first->result().body, "x");
}

TEST_F(ClientTimeouts, FirstByte) {
  begin();
  ask();
  const auto peer = accept();
  expect_timeout_after(10 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

TEST_F(ClientTimeouts, FirstByteByTheTasksLimit) {
  begin();
  ask([](WFHttpTask* task) { task->set_watch_timeout(15'000); });
  const auto peer = accept();
  expect_timeout_after(15 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

TEST_F(ClientTimeouts, BetweenTwoReadsOfTheHead) {
  begin();
  ask([](WFHttpTask* task) { task->set_watch_timeout(1000); });
  const auto peer = accept();
  for (const char* piece : {"HTT", "P/1.1 200 OK\r\n", "Content-Length: 9\r\n"}) {
    send(*peer, piece);
    pass(10 * kNsPerSec - kMs);
    ASSERT_FALSE(asking_->ended());
  }
  send(*peer, "X: y");
  expect_timeout_after(10 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

TEST_F(ClientTimeouts, BetweenTwoReadsOfTheBody) {
  begin(with(&EndpointParams::response_timeout, 3000));
  ask();
  const auto peer = accept();
  send(*peer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
  for (int i = 0; i < 3; i++) {
    pass(3 * kNsPerSec - kMs);
    ASSERT_FALSE(asking_->ended());
    send(*peer, "x");
  }
  expect_timeout_after(3 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

TEST_F(ClientTimeouts, BetweenTwoReadsThereMayBeNoLimit) {
  begin(with(&EndpointParams::response_timeout, -1));
  ask();
  const auto peer = accept();
  pass(3600 * kNsPerSec);
  send(*peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
  pass(3600 * kNsPerSec);
  EXPECT_FALSE(asking_->ended());
  send(*peer, "x");
  EXPECT_EQ(asking_->result().body, "x");
}

TEST_F(ClientTimeouts, AnyNegativeWatchTimeoutIsNone) {
  begin();
  ask([](WFHttpTask* task) { task->set_watch_timeout(-5); });
  const auto peer = accept();
  pass(3600 * kNsPerSec);
  EXPECT_FALSE(asking_->ended());
  send(*peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_EQ(asking_->result().body, "x");
}

TEST_F(ClientTimeouts, AnyNegativeReadTimeoutIsNone) {
  begin();
  test_support::Tally ended;
  int state = WFT_STATE_UNDEFINED;
  WFHttpChunkedTask* task =
      WFHttpChunkedClient::create_chunked_task(url("http"), 0, nullptr, [&](auto* done) {
        state = done->get_state();
        ended.add();
      });
  task->set_read_timeout(-5);
  task->start();
  const auto peer = accept();
  send(*peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx");
  pass(3600 * kNsPerSec);
  EXPECT_EQ(ended.count(), 0u);
  send(*peer, "x");
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
}

TEST_F(ClientTimeouts, WholeResponse) {
  begin();
  ask([](WFHttpTask* task) { task->set_receive_timeout(20'000); });
  const auto peer = accept();
  pass(5 * kNsPerSec);
  send(*peer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
  pass(5 * kNsPerSec);
  send(*peer, "x");
  pass(5 * kNsPerSec);
  send(*peer, "x");
  expect_timeout_after(5 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

class ToAServerThatTakesNothing : public ClientTimeouts {
 protected:
  static constexpr size_t kLargeSize = 20'000'000;

  void post(const std::function<void(WFHttpTask*)>& change) {
    static const std::string large(kLargeSize, 'z');
    ask([&](WFHttpTask* task) {
      task->get_req()->set_method("POST");
      task->get_req()->append_output_body_nocopy(large);
      change(task);
    });
  }
};

TEST_F(ToAServerThatTakesNothing, WholeRequest) {
  begin();
  post([](WFHttpTask* task) { task->set_send_timeout(25'000); });
  const auto peer = accept();
  expect_timeout_after(25 * kNsPerSec, TOR_TRANSMIT_TIMEOUT);
}

TEST_F(ToAServerThatTakesNothing, SendingHasNoLimitUnlessOneIsSet) {
  begin();
  post([](WFHttpTask*) {});
  const auto peer = accept();
  pass(3600 * kNsPerSec);
  EXPECT_FALSE(asking_->ended());
  EXPECT_GT(peer->request().size(), kLargeSize);
  peer->reply("x");
  EXPECT_EQ(asking_->result().body, "x");
}

TEST_F(ClientTimeouts, IdleConnectionIsClosed) {
  begin();
  ask();
  const auto peer = accept();
  for (int i = 0; i < 3; i++) {
    EXPECT_NE(peer->request(), "");
    peer->reply("x");
    EXPECT_EQ(asking_->result().body, "x");
    settle();
    if (i < 2) {
      pass(60 * kNsPerSec - kMs);
      EXPECT_TRUE(is_open(*peer));
      ask();  // on the same connection
    }
  }
  expect_closed_after(*peer, 60 * kNsPerSec);
}

TEST_F(ClientTimeouts, IdleTimeOfOneTask) {
  begin();
  ask([](WFHttpTask* task) { task->set_keep_alive(5000); });
  const auto peer = accept();
  peer->request();
  peer->reply("x");
  EXPECT_EQ(asking_->result().body, "x");
  settle();
  expect_closed_after(*peer, 5 * kNsPerSec);
}

TEST_F(ClientTimeouts, IdleTimeMayHaveNoLimit) {
  begin();
  ask([](WFHttpTask* task) { task->set_keep_alive(-1); });
  const auto peer = accept();
  peer->request();
  peer->reply("x");
  EXPECT_EQ(asking_->result().body, "x");
  pass(24 * 3600 * kNsPerSec);
  EXPECT_TRUE(is_open(*peer));
}

}  // namespace client_test

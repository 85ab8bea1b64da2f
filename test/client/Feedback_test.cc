#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/Certificates.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "util/Clock.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"

// Messages that write back while they are received, more than the socket takes at once.

namespace client_test {
namespace {

// A message of as many bytes as the test has set.
class Bytes : public protocol::ProtocolMessage {
 public:
  int encode(struct iovec vectors[], int) override {
    vectors[0] = {bytes.data(), bytes.size()};
    return 1;
  }
  std::string bytes;
};

// Answers "?" by as many bytes as are taken, until the socket and what may wait behind it are full;
// "." is its end.
class Talkative : public protocol::ProtocolMessage {
 public:
  // What became of one task's answer. The peer reads nothing before it was refused: else there
  // would be no end of it.
  struct Answer {
    size_t taken = 0;
    int error = 0;
    test_support::Tally refused;
  };

  int append(const void* data, size_t* size) override {
    for (size_t i = 0; i < *size; i++) {
      if (static_cast<const char*>(data)[i] == '.') {
        *size = i + 1;
        return 1;
      }
      const std::string part(kPart, 'a');
      while (feedback(part.data(), kPart) == static_cast<int>(kPart)) {
        answer->taken += kPart;
      }
      answer->error = errno;
      answer->refused.add();
    }
    return 0;
  }
  static constexpr size_t kPart = 100'000;
  Answer* answer = nullptr;
};

using TalkativeTask = WFNetworkTask<Bytes, Talkative>;

struct Outcome {
  int state = -2;
  int error = 0;
};

Outcome talk(const RawServer& server, size_t request_size, Talkative::Answer& answer,
             int keep_alive = 0, TransportType transport = TT_TCP, int send_timeout = -1) {
  Outcome outcome;
  WFFacilities::WaitGroup group(1);
  TalkativeTask* task = WFNetworkTaskFactory<Bytes, Talkative>::create_client_task(
      transport, "127.0.0.1", server.port(), 0, [&](TalkativeTask* ended) {
        outcome = {ended->get_state(), ended->get_error()};
        group.done();
      });
  task->get_req()->bytes.assign(request_size, 'r');
  task->get_resp()->answer = &answer;
  task->set_keep_alive(keep_alive);
  task->set_send_timeout(send_timeout);
  task->start();
  group.wait();
  return outcome;
}

// The request, and the whole answer once it was refused; and what else has come by then.
std::string read_all(Peer& peer, size_t request_size, const Talkative::Answer& answer) {
  EXPECT_TRUE(answer.refused.wait_for(1));
  const size_t size = request_size + answer.taken;
  std::string all;
  std::vector<char> buffer(1024 * 1024);
  for (ssize_t n = 0; all.size() < size; all.append(buffer.data(), static_cast<size_t>(n))) {
    if ((n = ::recv(peer.fd(), buffer.data(), buffer.size(), 0)) <= 0) return all;
  }
  const ssize_t more = ::recv(peer.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  all.append(buffer.data(), more > 0 ? static_cast<size_t>(more) : 0);
  return all;
}

bool is(const std::string& seen, size_t requested, size_t answered) {
  return seen.size() == requested + answered && seen.find_first_not_of('r') == requested &&
         seen.find_first_not_of('a', requested) == std::string::npos;
}

TEST(ClientFeedback, LeavesLaterIfItHasTo) {
  Talkative::Answer answer;
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    peer.send("?");
    seen = read_all(peer, 1000, answer);
    peer.send(".");
  });
  const Outcome outcome = talk(server, 1000, answer);
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS) << outcome.error;
  EXPECT_EQ(answer.error, ENOBUFS);
  EXPECT_GT(answer.taken, 900'000U);
  EXPECT_TRUE(is(seen, 1000, answer.taken)) << seen.size() << " " << answer.taken;
}

TEST(ClientFeedback, LeavesLaterOverTlsToo) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()), 1);
  Talkative::Answer answer;
  size_t seen = 0;
  RawServer server([&](Peer& peer, int) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    SSL_CTX_use_certificate_chain_file(context.get(), certificate.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), certificate.key_file.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), peer.fd());
    ASSERT_EQ(SSL_accept(ssl.get()), 1);
    char buffer[16384];
    ASSERT_GT(SSL_read(ssl.get(), buffer, sizeof buffer), 0);
    ASSERT_EQ(SSL_write(ssl.get(), "?", 1), 1);
    ASSERT_TRUE(answer.refused.wait_for(1));
    for (int n = 0; seen < answer.taken && (n = SSL_read(ssl.get(), buffer, sizeof buffer)) > 0;) {
      seen += static_cast<size_t>(n);
    }
    SSL_write(ssl.get(), ".", 1);
  });
  const Outcome outcome = talk(server, 1, answer, 0, TT_TCP_SSL);
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS) << outcome.error;
  EXPECT_GT(answer.taken, 900'000U);
  EXPECT_EQ(seen, answer.taken);
}

TEST(ClientFeedback, LeavesBeforeTheConnectionIsClosed) {
  for (const int keep_alive : {0, 60'000}) {
    WFFacilities::WaitGroup read(1);
    Talkative::Answer answer;
    std::string seen;
    RawServer server([&](Peer& peer, int) {
      peer.send("?.");
      seen = read_all(peer, 1000, answer);
      read.done();
    });
    const Outcome outcome = talk(server, 1000, answer, keep_alive);
    EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
    read.wait();
    EXPECT_TRUE(is(seen, 1000, answer.taken)) << seen.size() << " " << answer.taken;
  }
}

// The peer does not take it; another request needs the place.
TEST(ClientFeedback, HoldsAConnectionForTheTimeOfSendingOnly) {
  ASSERT_EQ(WFManualClock::install(), 0);
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 1;
  settings.endpoint_params.connect_timeout = 60'000;
  settings.endpoint_params.response_timeout = 7000;
  WORKFLOW_library_init(&settings);
  test_support::Tally over;
  std::unique_ptr<Talkative::Answer> answer;
  RawServer server([&](Peer& peer, int number) {
    // A turn of the poller writes a part only: asked again until the socket is full.
    for (size_t n = 1, before = 1; number % 2 == 0 && answer->taken != before; n++) {
      before = answer->taken;
      peer.send("?");
      answer->refused.wait_for(n);
      WFManualClock::advance(0);  // until the poller has no more turns to take
    }
    peer.send(".");
    over.wait_for(1);
  });
  for (const int send_timeout : {-1, 3000}) {
    const int connections = server.connections();
    answer = std::make_unique<Talkative::Answer>();
    const Outcome first = talk(server, 1000, *answer, 0, TT_TCP, send_timeout);
    EXPECT_EQ(first.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(answer->error, ENOBUFS);
    std::thread second([&server] {
      Talkative::Answer none;
      EXPECT_EQ(talk(server, 1, none).state, WFT_STATE_SUCCESS);
    });
    const int limit_ms = send_timeout == -1 ? 7000 : send_timeout;
    WFManualClock::advance((limit_ms - 1) * workflow::kNsPerMs);
    EXPECT_EQ(server.connections(), connections + 1);
    WFManualClock::advance(workflow::kNsPerMs);
    // Sooner than the peer itself ends.
    EXPECT_TRUE(server_test::eventually([&] { return server.connections() == connections + 2; },
                                        std::chrono::seconds(20)));
    second.join();
  }
  over.add();
}

TEST(ClientFeedback, IsNotPutIntoTheMiddleOfTheRequest) {
  constexpr size_t kRequest = 20'000'000;
  Talkative::Answer answer;
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    peer.send("?");
    seen = read_all(peer, kRequest, answer);
    peer.send(".");
  });
  const Outcome outcome = talk(server, kRequest, answer);
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
  EXPECT_TRUE(is(seen, kRequest, answer.taken)) << seen.size() << " " << answer.taken;
}

}  // namespace
}  // namespace client_test

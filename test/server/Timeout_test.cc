#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/Loopback.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"

// The server's time limits, by a clock that the test moves.

namespace server_test {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

class Timeout : public testing::TestWithParam<Transport> {
 protected:
  static void SetUpTestSuite() {
    // One poller meets the bytes of all connections in the order in which they were sent.
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    WORKFLOW_library_init(&settings);
    static const int installed = WFManualClock::install();  // by the first suite
    ASSERT_EQ(installed, 0);
  }

  void serve(http_process_t process = echo, const struct WFServerParams& params = http_params(),
             int listen_fd = -1) {
    server_.emplace(std::move(process), params, GetParam(), listen_fd);
    witness_ = server_->client();
    see_everything_sent();
  }

  // Returns when the server has seen all that was sent before.
  void see_everything_sent() {
    ASSERT_TRUE(witness_.ask(get("/witness")));
    requests_seen_++;
  }

  // Returns when the server has written what the sockets take of replies that have begun: a large
  // one takes it many rounds.
  void let_it_write() {
    constexpr int kRounds = 200;
    for (int i = 0; i < kRounds; i++) {
      see_everything_sent();
    }
  }

  RawClient connect() {
    RawClient client = server_->client();
    see_everything_sent();
    return client;
  }
  void send(RawClient& client, std::string_view bytes) {
    ASSERT_TRUE(client.send(bytes));
    see_everything_sent();
  }
  // The witness is a client like the others and would be idle too long.
  void advance(int64_t ns) {
    constexpr int64_t kStep = 5 * kSecond;
    for (; ns > kStep; ns -= kStep) {
      WFManualClock::advance(kStep);
      see_everything_sent();
    }
    WFManualClock::advance(ns);
    see_everything_sent();
  }

  bool is_open(RawClient& client) {
    return client.ending(std::chrono::milliseconds(0)) == Ending::kStillOpen;
  }
  bool closed_without_a_word(RawClient& client) {
    return client.ending(std::chrono::seconds(5)) == Ending::kClosed;
  }
  void expect_408(RawClient& client) {
    const auto got = client.reply();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 408);
    EXPECT_EQ(got->field("Connection"), "close");
    EXPECT_TRUE(closed_without_a_word(client));
  }
  int requests() const { return server_->requests() - requests_seen_; }
  // Without the witness.
  size_t connections() { return (*server_)->get_conn_count() - 1; }

  std::optional<TestServer> server_;
  RawClient witness_;
  int requests_seen_ = 0;
};

class HandshakeTimeout : public Timeout {};  // over TLS

const std::string kLarge(size_t{48} * 1024 * 1024, 'x');

}  // namespace

TEST_P(Timeout, FirstRequestThatNeverComes) {
  serve();
  RawClient client = connect();
  advance(10 * kSecond - kMs);
  EXPECT_TRUE(is_open(client));
  advance(kMs);
  expect_408(client);
}

TEST_P(Timeout, FirstRequestThatBeginsLateHasNoMoreTime) {
  serve();
  RawClient client = connect();
  advance(9 * kSecond);
  send(client, "GET /");
  advance(kSecond - kMs);
  EXPECT_TRUE(is_open(client));
  advance(kMs);
  expect_408(client);
  EXPECT_EQ(requests(), 0);
}

TEST_P(Timeout, HeaderInDribbles) {
  serve();
  RawClient client = connect();
  const std::string request = get("/long");
  for (size_t i = 0; i < 10; i++) {
    send(client, request.substr(i, 1));
    EXPECT_TRUE(is_open(client)) << i;
    advance(kSecond);
  }
  expect_408(client);
  EXPECT_EQ(requests(), 0);
}

TEST_P(Timeout, HeaderOfALaterRequest) {
  serve();
  RawClient client = connect();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  requests_seen_++;
  advance(50 * kSecond);
  send(client, "GET /");
  advance(10 * kSecond - kMs);
  EXPECT_TRUE(is_open(client));
  advance(kMs);
  expect_408(client);
  EXPECT_EQ(requests(), 0);
}

TEST_P(Timeout, IdleConnectionIsClosedSilently) {
  serve();
  RawClient client = connect();
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(client.ask(get("/", "Keep-Alive: timeout=1000\r\n"))->status, 200);
    advance(60 * kSecond - kMs);
    EXPECT_TRUE(is_open(client)) << i;
  }
  advance(kMs);
  EXPECT_TRUE(closed_without_a_word(client));
  EXPECT_EQ(connections(), 0u);
}

TEST_P(Timeout, IdleTimeOfOneReply) {
  serve([](WFHttpTask* task) {
    const std::string uri = task->get_req()->get_request_uri();
    if (uri == "/short") {
      task->set_keep_alive(5000);
    } else if (uri == "/long") {
      task->set_keep_alive(-1);
    }
  });
  RawClient brief = connect();
  EXPECT_EQ(brief.ask(get("/short"))->status, 200);
  advance(5 * kSecond - kMs);
  EXPECT_TRUE(is_open(brief));
  // The next reply, which says nothing, has the server's.
  EXPECT_EQ(brief.ask(get("/"))->status, 200);
  advance(60 * kSecond - kMs);
  EXPECT_TRUE(is_open(brief));
  EXPECT_EQ(brief.ask(get("/short"))->status, 200);
  advance(5 * kSecond);
  EXPECT_TRUE(closed_without_a_word(brief));
  RawClient patient = connect();
  EXPECT_EQ(patient.ask(get("/long"))->status, 200);
  advance(600 * kSecond);
  EXPECT_TRUE(is_open(patient));
}

TEST_P(Timeout, BodyThatPauses) {
  serve();
  RawClient client = connect();
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
  for (int i = 0; i < 3; i++) {
    advance(10 * kSecond - kMs);
    EXPECT_TRUE(is_open(client)) << i;
    send(client, "x");
  }
  advance(10 * kSecond);
  expect_408(client);
  EXPECT_EQ(requests(), 0);
}

TEST_P(Timeout, BodyThatWasInvitedButNeverComes) {
  serve();
  RawClient client = connect();
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.status(), 100);
  advance(10 * kSecond - kMs);
  EXPECT_TRUE(is_open(client));
  advance(kMs);
  expect_408(client);
}

TEST_P(Timeout, BodyInDribblesHasAMinuteInAll) {
  serve();
  RawClient client = connect();
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  for (int seconds = 0; seconds < 60; seconds += 5) {
    EXPECT_TRUE(is_open(client)) << seconds;
    send(client, "x");
    advance(5 * kSecond);
  }
  expect_408(client);
}

TEST_P(Timeout, BodyAtTheMinimumRateMayTakeLonger) {
  serve([](WFHttpTask*) {});
  RawClient client = connect();
  const std::string piece(32 * 1024, 'x');
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                   std::to_string(50 * piece.size()) + "\r\n\r\n");
  for (int i = 0; i < 50; i++) {
    send(client, piece);
    advance(3 * kSecond);
  }
  EXPECT_EQ(client.status(), 200);
}

TEST_P(Timeout, BodyBelowTheMinimumRate) {
  serve([](WFHttpTask*) {});
  RawClient client = connect();
  const std::string piece(16 * 1024, 'x');
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
  // 16 KiB every 2 s buys 1 s each time: the minute is used up after two.
  int seconds = 0;
  for (; seconds < 200 && is_open(client); seconds += 2) {
    client.send(piece);
    see_everything_sent();
    advance(2 * kSecond);
  }
  EXPECT_GE(seconds, 118);
  EXPECT_LE(seconds, 124);
  expect_408(client);
}

TEST_P(Timeout, BodyWithoutARateHasTheSameTimeWhateverItsSize) {
  struct WFServerParams params = http_params();
  params.body_bytes_per_second = 0;
  params.body_timeout = 8000;
  serve([](WFHttpTask*) {}, params);
  RawClient client = connect();
  send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
  for (int seconds = 0; seconds < 8; seconds += 2) {
    EXPECT_TRUE(is_open(client)) << seconds;
    send(client, std::string(64 * 1024, 'x'));
    advance(2 * kSecond);
  }
  expect_408(client);
}

TEST_P(Timeout, WholeRequest) {
  struct WFServerParams params = http_params();
  params.receive_timeout = 5000;
  serve([](WFHttpTask*) {}, params);
  RawClient header = connect();
  RawClient body = connect();
  send(header, "GET ");
  send(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
  advance(4 * kSecond);
  send(header, "/");
  send(body, "x");
  advance(kSecond - kMs);
  EXPECT_TRUE(is_open(header));
  EXPECT_TRUE(is_open(body));
  advance(kMs);
  expect_408(header);
  expect_408(body);
}

TEST_P(Timeout, SendWithoutProgress) {
  int state = -2;
  int error = -2;
  int reason = -2;
  test_support::Tally ended;
  serve([&](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/witness") return;
    task->get_resp()->append_output_body_nocopy(kLarge);
    task->set_callback([&](WFHttpTask* each) {
      state = each->get_state();
      error = each->get_error();
      reason = each->get_timeout_reason();
      ended.add();
    });
  });
  RawClient client = connect();
  // Else the system lets the buffer of one that reads grow until it holds all of the reply.
  const int receive_buffer = 256 * 1024;
  ::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  send(client, kGet);
  ASSERT_EQ(client.take(1), 1u);
  let_it_write();
  advance(30 * kSecond - kMs);
  EXPECT_EQ(ended.count(), 0u);
  // Far more than the buffers hold, so that the server has sent more, by now.
  for (size_t taken = 0; taken < kLarge.size() / 2;) {
    const size_t step = client.take(65536);
    ASSERT_GT(step, 0u);
    taken += step;
  }
  let_it_write();
  advance(30 * kSecond - kMs);
  EXPECT_EQ(ended.count(), 0u);
  advance(2 * kMs);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(error, ETIMEDOUT);
  EXPECT_EQ(reason, TOR_TRANSMIT_TIMEOUT);
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
}

TEST_P(Timeout, SendTimeOfOneReply) {
  test_support::Tally ended;
  serve([&](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/witness") return;
    task->get_resp()->append_output_body_nocopy(kLarge);
    task->set_send_timeout(2000);
    task->set_callback([&](WFHttpTask*) { ended.add(); });
  });
  RawClient client = connect();
  send(client, kGet);
  ASSERT_EQ(client.take(1), 1u);
  let_it_write();
  advance(2 * kSecond - kMs);
  EXPECT_EQ(ended.count(), 0u);
  advance(kMs);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_P(Timeout, AnyNegativeSendTimeOfOneReplyIsNone) {
  test_support::Tally ended;
  serve([&](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/witness") return;
    task->get_resp()->append_output_body_nocopy(kLarge);
    task->set_send_timeout(-5);
    task->set_callback([&](WFHttpTask*) { ended.add(); });
  });
  RawClient client = connect();
  send(client, kGet);
  ASSERT_EQ(client.take(1), 1u);
  let_it_write();
  advance(60 * kSecond);
  EXPECT_EQ(ended.count(), 0u);
  EXPECT_EQ(connections(), 1u);
  client.close();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_P(Timeout, LingeringEnds) {
  serve();
  RawClient client = connect();
  EXPECT_EQ(client.ask(get("/", "Connection: close\r\n"))->status, 200);
  RawClient refused = connect();
  EXPECT_EQ(refused.ask("nonsense\r\n\r\n")->status, 400);
  EXPECT_TRUE(closed_without_a_word(client));
  EXPECT_TRUE(closed_without_a_word(refused));
  // Our side is shut; the server still listens to the clients' last words.
  advance(2 * kSecond - kMs);
  EXPECT_EQ(connections(), 2u);
  advance(kMs);
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
}

// Past its limit nothing more is read; closed at once, the answer might be lost in a reset.
TEST_P(Timeout, LingeringReadsNoMoreThanItsLimit) {
  constexpr int kBuffer = 16 * 1024;
  const workflow::UniqueFd listening = test_support::listen_on_loopback(128, kBuffer);
  serve(echo, http_params(), listening.get());
  RawClient client = connect();
  client.set_send_buffer(kBuffer);
  ASSERT_TRUE(client.send("nonsense\r\n\r\n"));
  const size_t before = client.sent();
  EXPECT_TRUE(client.send(std::string(size_t{256} * 1024, 'x')));  // the limit
  client.set_patience(std::chrono::seconds(2));                    // also for a server that is late
  EXPECT_FALSE(client.send(std::string(size_t{768} * 1024, 'x'))) << "somebody took all of it";
  client.set_patience(test_support::kPatience);
  // The limit, and the last read beyond it; and what the kernel holds on either side: twice the
  // buffer that was asked for (socket(7)), and the segment of up to 64 KiB that has filled it.
  EXPECT_LE(client.sent() - before, (256U + 64) * 1024 + 2 * (2U * kBuffer + 64 * 1024));
  EXPECT_EQ(client.status(), 400);
  EXPECT_EQ(connections(), 1u);
  advance(2 * kSecond);
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
}

TEST_P(Timeout, DelayedReplyHasNone) {
  serve([](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/late") {
      series_of(task)->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
    }
  });
  RawClient client = connect();
  send(client, get("/late") + get("/behind") + "GET /incomplete");
  advance(3600 * kSecond - kMs);
  EXPECT_TRUE(is_open(client));
  advance(kMs);
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(client.status(), 200);
  EXPECT_TRUE(is_open(client));
}

TEST_P(Timeout, UnlimitedMeansIt) {
  struct WFServerParams params = http_params();
  params.header_timeout = params.keep_alive_timeout = params.peer_response_timeout = -1;
  params.body_timeout = params.send_timeout = params.linger_timeout = -1;
  serve(echo, params);
  RawClient silent = connect();
  RawClient header = connect();
  RawClient body = connect();
  RawClient idle = connect();
  RawClient lingering = connect();
  send(header, "GET");
  send(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
  EXPECT_EQ(idle.ask(kGet)->status, 200);
  EXPECT_EQ(lingering.ask("nonsense\r\n\r\n")->status, 400);
  WFManualClock::advance(100 * 24 * 3600 * kSecond);
  see_everything_sent();
  EXPECT_EQ(connections(), 5u);
  send(header, " / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(header.status(), 200);
  send(body, "0123456789");
  EXPECT_EQ(body.status(), 200);
  lingering.close();
}

TEST_P(HandshakeTimeout, NothingOrLittleIsSaid) {
  // A record of 257 bytes, with a ClientHello of 253.
  const std::string hello("\x16\x03\x01\x01\x01\x01\x00\x00\xfd\x03", 10);
  serve();
  RawClient silent(server_->port());
  RawClient dribbling(server_->port());
  see_everything_sent();
  for (size_t i = 0; i < 10; i++) {
    EXPECT_TRUE(is_open(silent)) << i;
    EXPECT_TRUE(is_open(dribbling)) << i;
    send(dribbling, hello.substr(i, 1));
    advance(kSecond - (i == 9 ? kMs : 0));
  }
  EXPECT_EQ(connections(), 2u);
  advance(kMs);
  EXPECT_TRUE(closed_without_a_word(silent));
  EXPECT_TRUE(closed_without_a_word(dribbling));
  EXPECT_EQ(connections(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, Timeout, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);
INSTANTIATE_TEST_SUITE_P(All, HandshakeTimeout, testing::Values(Transport::kTls), transport_name);

}  // namespace server_test

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/Background.h"
#include "support/Descriptors.h"
#include "support/TempDir.h"
#include "support/TestServer.h"

// A server that stops waits for no client to close its connection, and yet a client that reads its
// reply loses no byte of it.

namespace server_test {
namespace {

using test_support::Background;

constexpr const char* kClosing = "Connection: close\r\n";

// What each request gets: more than a client that does not read has room for.
const std::string& large_body() {
  static const std::string body = [] {
    std::string made;
    while (made.size() < 300'000)
      made += std::to_string(made.size()) + " ";
    return made;
  }();
  return body;
}

// Waits until the server has shut its side of the connection, however much is still to be read.
bool is_shut(const RawClient& client) {
  struct pollfd poll_fd = {client.fd(), POLLRDHUP, 0};
  return ::poll(&poll_fd, 1, static_cast<int>(test_support::kPatience.count() * 1000)) == 1;
}

// Sends these bytes. Returns whether the server's system acknowledges them; otherwise it has
// answered with a reset.
bool is_taken(RawClient& client, const std::string& bytes) {
  int error = 0;
  const auto is_decided = [&] {
    int unacknowledged = 0;
    ::ioctl(client.fd(), SIOCOUTQ, &unacknowledged);
    socklen_t length = sizeof error;
    ::getsockopt(client.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error != 0 || unacknowledged == 0;
  };
  return client.send(bytes) && eventually(is_decided) && error == 0;
}

class LastBytes : public testing::TestWithParam<Transport> {
 protected:
  void serve(const std::string& body, const struct WFServerParams& params = patient_params()) {
    serve(
        [this, &body](WFHttpTask* task) {
          task->get_resp()->append_output_body_nocopy(body);
          task->set_callback([this](WFHttpTask*) { replies_++; });
        },
        params);
  }
  void serve(http_process_t process, const struct WFServerParams& params) {
    server_.emplace(std::move(process), params, GetParam());
    ASSERT_TRUE(server_->started());
  }
  // Each reply is delayed by a timer named "delay".
  void serve_delayed(const std::string& body) {
    serve(
        [&body](WFHttpTask* task) {
          task->get_resp()->append_output_body_nocopy(body);
          series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
        },
        patient_params());
  }
  TestServer& server() { return *server_; }
  void destroy_server() {
    stop_.reset();
    server_.reset();
  }

  // A client with little room for what it does not read.
  RawClient slow_client() {
    RawClient client(server().port(), 4096);
    if (GetParam() == Transport::kTls) {
      EXPECT_TRUE(client.begin_tls(credentials().authority.file()));
    }
    return client;
  }
  bool replied(int count) {
    return eventually([&] { return replies_ == count; });
  }

  // Whether stop() returns while the clients keep their connections open, that is, without
  // lingering. If it lingers, it returns after the failed test has closed its clients.
  bool stops() {
    stop_.emplace([this] { server()->stop(); });
    return stop_->done();
  }
  // Stops the server while a reply is delayed.
  bool stops_with_a_delayed_reply() {
    server()->shutdown();
    stop_.emplace([this] { server()->wait_finish(); });
    return WFTaskFactory::cancel_by_name("delay") == 1 && stop_->done();
  }

  std::atomic<int> replies_{0};
  std::optional<TestServer> server_;
  std::optional<Background> stop_;  // destroyed first
};

INSTANTIATE_TEST_SUITE_P(All, LastBytes, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);

const std::string& small_body() {
  static const std::string body = "small";
  return body;
}

TEST_P(LastBytes, AClientThatKeepsItsConnectionHoldsNothingUp) {
  serve(small_body());
  RawClient idle = server().client();
  RawClient closing = server().client();
  EXPECT_EQ(idle.ask(kGet)->body, "small");
  EXPECT_EQ(closing.ask(get("/", kClosing))->body, "small");
  EXPECT_TRUE(stops());
  EXPECT_EQ(idle.ending(), Ending::kClosed);
  EXPECT_EQ(closing.ending(), Ending::kClosed);
}

TEST_P(LastBytes, AReplyThatIsReadLate) {
  serve(large_body());
  RawClient idle = slow_client();
  RawClient closing = slow_client();
  idle.send(kGet);
  closing.send(get("/", kClosing));
  ASSERT_TRUE(replied(2));
  EXPECT_TRUE(stops());
  EXPECT_TRUE(idle.body() == large_body());
  EXPECT_EQ(idle.ending(), Ending::kClosed);
  EXPECT_TRUE(closing.body() == large_body());
  EXPECT_EQ(closing.ending(), Ending::kClosed);
}

TEST_P(LastBytes, AReplyThatIsReadLateByAClientThatGoesOnSending) {
  serve(large_body());
  RawClient idle = slow_client();
  RawClient closing = slow_client();
  idle.send(kGet);
  closing.send(get("/", kClosing));
  ASSERT_TRUE(replied(2));
  EXPECT_TRUE(stops());
  for (RawClient* client : {&idle, &closing}) {
    for (int i = 0; i < 3; i++) {
      EXPECT_TRUE(is_taken(*client, post("/next", std::string(1000, 'x'))));
    }
    EXPECT_TRUE(client->body() == large_body());
    EXPECT_EQ(client->ending(), Ending::kClosed);
  }
}

TEST_P(LastBytes, AReplyThatWasReadByAClientThatGoesOnSending) {
  serve(large_body());
  RawClient client = server().client();
  EXPECT_TRUE(client.ask(get("/", kClosing))->body == large_body());
  EXPECT_TRUE(stops());
  client.send(kGet);
  EXPECT_TRUE(client.ended());
}

TEST_P(LastBytes, ASmallReplyBehindWhichHalfARequestCame) {
  serve(small_body());
  RawClient client = server().client();
  // Sent at once, so that the server reads the half with the request.
  client.send(kGet + std::string("POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"));
  ASSERT_TRUE(replied(1));
  EXPECT_TRUE(stops());
  EXPECT_TRUE(is_taken(client, "ngth: 10\r\n\r\nhalf"));
  EXPECT_TRUE(is_taken(client, " of it"));
  EXPECT_EQ(client.body(), "small");
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// The beginning of a request that will not be read any more is no reason to cut the reply before.
TEST_P(LastBytes, AReplyBehindWhichHalfARequestCame) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(kGet + std::string("POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"));
  ASSERT_TRUE(replied(1));
  client.send("ngth: 10\r\n\r\nhalf");
  EXPECT_TRUE(stops());
  client.send(" of it");
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST_P(LastBytes, AClientThatPipelinesHoldsNothingUp) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(get("/", kClosing) + get("/never-processed"));
  ASSERT_TRUE(replied(1));
  EXPECT_TRUE(stops());
  EXPECT_TRUE(is_taken(client, get("/neither")));
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_TRUE(is_taken(client, get("/neither")));
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// The server has read and dropped this when it stops.
TEST_P(LastBytes, AClientThatHasSentSomethingAfterItsLastReplyHoldsNothingUp) {
  serve(small_body());
  RawClient client = server().client();
  EXPECT_EQ(client.ask(get("/", kClosing))->body, "small");
  EXPECT_TRUE(is_taken(client, get("/never-processed")));
  EXPECT_TRUE(stops());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST_P(LastBytes, RefusedClientsThatKeepTheirConnectionsHoldNothingUp) {
  struct WFServerParams params = patient_params();
  params.request_size_limit = 1000;
  serve(small_body(), params);
  const std::pair<const char*, int> refusals[] = {
      {"nonsense\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505},
  };
  std::vector<RawClient> clients;
  for (const auto& [request, status] : refusals) {
    clients.push_back(server().client());
    clients.back().send(request);
    EXPECT_EQ(clients.back().status(), status);
  }
  EXPECT_TRUE(stops());
  for (RawClient& client : clients) {
    EXPECT_EQ(client.ending(), Ending::kClosed);
  }
}

TEST_P(LastBytes, AClientThatWasTooSlowHoldsNothingUp) {
  struct WFServerParams params = patient_params();
  params.header_timeout = 10;
  serve(small_body(), params);
  RawClient client = server().client();
  EXPECT_EQ(client.status(), 408);
  EXPECT_TRUE(stops());
  EXPECT_TRUE(is_taken(client, "GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(is_taken(client, "Host: x\r\n\r\n"));
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// A reset would stop the client from sending before it looks for the reply.
TEST_P(LastBytes, ARefusedRequestThatIsStillBeingSent) {
  struct WFServerParams params = patient_params();
  params.request_size_limit = 1000;
  params.linger_size_limit = 100'000'000;
  serve(small_body(), params);
  RawClient early = server().client();
  RawClient late = server().client();
  for (RawClient* client : {&early, &late}) {
    client->send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2002000\r\n\r\n");
    client->send(std::string(2000, 'x'));
    ASSERT_TRUE(is_shut(*client));
  }
  EXPECT_EQ(early.status(), 413);
  ASSERT_TRUE(stops());
  destroy_server();
  for (RawClient* client : {&early, &late}) {
    for (int i = 0; i < 2000; i++) {
      ASSERT_TRUE(client->send(std::string(1000, 'x'))) << i;
    }
    EXPECT_TRUE(is_taken(*client, kGet));
  }
  EXPECT_EQ(late.status(), 413);
  EXPECT_EQ(early.ending(), Ending::kClosed);
  EXPECT_EQ(late.ending(), Ending::kClosed);
}

// What is not read any more stays where it is. To close the socket would be to reset it.
TEST_P(LastBytes, ARefusedRequestOfWhichMoreHasComeThanIsRead) {
  struct WFServerParams params = patient_params();
  params.request_size_limit = 1000;
  params.linger_size_limit = 1000;
  serve(small_body(), params);
  RawClient client = server().client();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  ASSERT_TRUE(is_shut(client));
  for (int i = 0; i < 10; i++) {
    EXPECT_TRUE(is_taken(client, std::string(1000, 'x')));
  }
  EXPECT_TRUE(stops());
  for (int i = 0; i < 10; i++) {
    EXPECT_TRUE(is_taken(client, std::string(1000, 'x')));
  }
  EXPECT_EQ(client.status(), 413);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST_P(LastBytes, AClientThatHasHalfClosed) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(kGet);
  client.half_close();
  ASSERT_TRUE(replied(1));
  EXPECT_TRUE(stops());
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// Over TLS it answers the server's goodbye, and leaves the connection beneath open.
TEST_P(LastBytes, AClientThatSaysGoodbyeHoldsNothingUp) {
  serve(small_body());
  RawClient client = server().client();
  EXPECT_EQ(client.ask(get("/", kClosing))->body, "small");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  client.say_goodbye();
  EXPECT_TRUE(stops());
}

TEST_P(LastBytes, ADelayedReply) {
  serve_delayed(large_body());
  RawClient client = slow_client();
  client.send(kGet);
  ASSERT_TRUE(eventually([&] { return server().processed() == 1; }));
  EXPECT_TRUE(stops_with_a_delayed_reply());
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST_P(LastBytes, ADelayedReplyBehindWhichHalfARequestCame) {
  serve_delayed(large_body());
  RawClient client = slow_client();
  // Sent at once, so that the server reads the half with the request.
  client.send(kGet + std::string("POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"));
  ASSERT_TRUE(eventually([&] { return server().processed() == 1; }));
  EXPECT_TRUE(stops_with_a_delayed_reply());
  EXPECT_TRUE(is_taken(client, "ngth: 10\r\n\r\nhalf"));
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_TRUE(is_taken(client, " of it"));
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// As above, but the server has not read the half when it stops.
TEST_P(LastBytes, ADelayedReplyBehindWhichHalfARequestCameLater) {
  serve_delayed(small_body());
  RawClient client = server().client();
  client.send(kGet);
  ASSERT_TRUE(eventually([&] { return server().processed() == 1; }));
  EXPECT_TRUE(is_taken(client, "POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"));
  EXPECT_TRUE(stops_with_a_delayed_reply());
  EXPECT_TRUE(is_taken(client, "ngth: 10\r\n\r\nhalf"));
  EXPECT_TRUE(is_taken(client, " of it"));
  EXPECT_EQ(client.body(), "small");
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// The sockets that wait for a client are not kept for longer than asked for.
TEST_P(LastBytes, SocketsLeftBehindAreClosed) {
  struct WFServerParams params = patient_params();
  params.linger_timeout = 100;
  params.linger_size_limit = 1000;
  TestServer(echo, params)->stop();  // so that the library has all the descriptors that it keeps
  const size_t descriptors = test_support::descriptor_count();
  serve(large_body(), params);
  RawClient client = slow_client();
  RawClient flooding = slow_client();
  RawClient refused = slow_client();
  client.send(kGet);
  flooding.send(kGet);
  EXPECT_EQ(refused.ask("nonsense\r\n\r\n")->status, 400);
  ASSERT_TRUE(replied(2));
  server()->stop();
  flooding.send(std::string(10'000, 'x'));
  EXPECT_TRUE(eventually([&] { return test_support::descriptor_count() <= descriptors + 3; }));
  EXPECT_TRUE(client.body() == large_body());  // the kernel goes on
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// What is lost with a reset would be the alert that says why the handshake failed.
TEST(LastBytesOfHandshakes, AClientWhoseHandshakeFailedHoldsNothingUp) {
  TestServer server(echo, patient_params(), Transport::kTls);
  std::optional<Background> stop;  // ends after the clients
  RawClient client(server.port());
  client.send("\x16\x03\x01" + std::string("\0\x04what", 6));  // a record of TLS, but no hello
  ASSERT_TRUE(is_shut(client));
  stop.emplace([&] { server->stop(); });
  EXPECT_TRUE(stop->done());
  EXPECT_TRUE(is_taken(client, kGet));
  EXPECT_TRUE(is_taken(client, kGet));
  EXPECT_GT(client.take(1000), 0u);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST(LastBytesOfUnixSockets, ClientsThatKeepTheirConnectionsHoldNothingUp) {
  const test_support::TempDir dir;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = dir.path("socket");
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* generic = reinterpret_cast<const struct sockaddr*>(&address);
  const struct WFServerParams params = patient_params();
  std::atomic<int> processed{0};
  WFHttpServer server(&params, [&](WFHttpTask* task) {
    task->get_resp()->append_output_body_nocopy(large_body());
    processed++;
  });
  ASSERT_EQ(server.start(generic, sizeof address), 0);
  std::optional<Background> stop;  // ends after the clients
  RawClient read(generic, sizeof address);
  RawClient unread(generic, sizeof address);
  RawClient refused(generic, sizeof address);
  EXPECT_TRUE(read.ask(get("/", kClosing))->body == large_body());
  EXPECT_EQ(refused.ask("nonsense\r\n\r\n")->status, 400);
  unread.send(get("/", kClosing));
  ASSERT_TRUE(eventually([&] { return processed == 2; }));
  stop.emplace([&] { server.stop(); });
  EXPECT_TRUE(unread.body() == large_body());
  EXPECT_TRUE(stop->done());
  EXPECT_TRUE(refused.send(kGet));
  for (RawClient* client : {&read, &unread, &refused}) {
    EXPECT_EQ(client->ending(), Ending::kClosed);
  }
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);  // the path stays
}

}  // namespace
}  // namespace server_test

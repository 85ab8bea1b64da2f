#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "server/TestServer.h"
#include "support/Descriptors.h"
#include "support/TempDir.h"

// A server that stops waits for no client that has sent all it wanted, and yet a client that reads
// its reply loses no byte of it.

namespace server_test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kClosing = "Connection: close\r\n";

struct WFServerParams patient_params() {
  struct WFServerParams params = http_params();
  params.linger_timeout = 60'000;  // longer than anything here may take
  return params;
}

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

class LastBytes : public testing::TestWithParam<Transport> {
 protected:
  void serve(const std::string& body, const struct WFServerParams& params = patient_params()) {
    server_.emplace(
        [this, &body](WFHttpTask* task) {
          task->get_resp()->append_output_body_nocopy(body);
          task->set_callback([this](WFHttpTask*) { replies_++; });
        },
        params, GetParam());
    ASSERT_TRUE(server_->started());
  }
  TestServer& server() { return *server_; }

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

  std::atomic<int> replies_{0};
  std::optional<TestServer> server_;
};

INSTANTIATE_TEST_SUITE_P(All, LastBytes, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);

const std::string& small_body() {
  static const std::string body = "small";
  return body;
}

// Whether `function` returns long before the linger timeout: within a time that a busy machine
// needs, too.
template <class Function>
bool is_brief(Function function) {
  const auto start = Clock::now();
  function();
  return Clock::now() - start < milliseconds(20'000);
}

TEST_P(LastBytes, AClientThatKeepsItsConnectionHoldsNothingUp) {
  serve(small_body());
  RawClient idle = server().client();
  RawClient closing = server().client();
  EXPECT_EQ(idle.ask(kGet)->body, "small");
  EXPECT_EQ(closing.ask(get("/", kClosing))->body, "small");
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
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
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
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
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
  for (RawClient* client : {&idle, &closing}) {
    for (int i = 0; i < 3; i++) {
      EXPECT_TRUE(client->send(post("/next", std::string(1000, 'x'))));
      std::this_thread::sleep_for(milliseconds(5));  // the answer would be on its way
    }
    EXPECT_TRUE(client->body() == large_body());
    EXPECT_EQ(client->ending(), Ending::kClosed);
  }
}

TEST_P(LastBytes, AReplyThatWasReadByAClientThatGoesOnSending) {
  serve(large_body());
  RawClient client = server().client();
  EXPECT_TRUE(client.ask(get("/", kClosing))->body == large_body());
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
  client.send(kGet);
  EXPECT_TRUE(client.ended());
}

// The beginning of a request that will not be read any more is no reason to cut the reply before.
TEST_P(LastBytes, AReplyBehindWhichHalfARequestCame) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(kGet + std::string("POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"));
  ASSERT_TRUE(replied(1));
  client.send("ngth: 10\r\n\r\nhalf");
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
  client.send(" of it");
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// It may still be sending: nothing is closed before it does.
TEST_P(LastBytes, AClientThatPipelinesIsWaitedFor) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(get("/", kClosing) + get("/never-processed"));
  ASSERT_TRUE(replied(1));
  std::thread stop([&] { server()->stop(); });
  EXPECT_TRUE(eventually([&] { return !RawClient(server().port()).connected(); }));
  EXPECT_TRUE(client.send(get("/neither")));
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(server()->get_conn_count(), 1u);
  client.close();
  stop.join();
}

TEST_P(LastBytes, ARefusedRequestThatIsStillBeingSent) {
  struct WFServerParams params = patient_params();
  params.request_size_limit = 1000;
  params.linger_size_limit = 100'000'000;
  serve(small_body(), params);
  RawClient client = server().client();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n");
  EXPECT_EQ(client.status(), 413);
  std::thread stop([&] { server()->stop(); });
  EXPECT_TRUE(eventually([&] { return !RawClient(server().port()).connected(); }));
  for (int i = 0; i < 2000; i++) {
    EXPECT_TRUE(client.send(std::string(1000, 'x'))) << i;
  }
  EXPECT_EQ(client.ending(), Ending::kClosed);
  client.close();
  stop.join();
}

TEST_P(LastBytes, AClientThatHasHalfClosed) {
  serve(large_body());
  RawClient client = slow_client();
  client.send(kGet);
  client.half_close();
  ASSERT_TRUE(replied(1));
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
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
  EXPECT_TRUE(is_brief([&] { server()->stop(); }));
}

TEST_P(LastBytes, ADelayedReply) {
  TestServer server(
      [](WFHttpTask* task) {
        task->get_resp()->append_output_body_nocopy(large_body());
        series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
      },
      patient_params(), GetParam());
  RawClient client = server.client();
  client.send(kGet);
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  server->shutdown();
  std::thread end([] {
    while (WFTaskFactory::cancel_by_name("delay") == 0)
      std::this_thread::yield();
  });
  EXPECT_TRUE(is_brief([&] { server->wait_finish(); }));
  end.join();
  EXPECT_TRUE(client.body() == large_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// The sockets that wait for a client's acknowledgement are not kept for longer than asked for.
TEST_P(LastBytes, SocketsLeftBehindAreClosed) {
  struct WFServerParams params = patient_params();
  params.linger_timeout = 100;
  params.linger_size_limit = 1000;
  TestServer(echo, params)->stop();  // so that the library has all the descriptors that it keeps
  const size_t descriptors = test_support::descriptor_count();
  serve(large_body(), params);
  RawClient client = slow_client();
  RawClient flooding = slow_client();
  client.send(kGet);
  flooding.send(kGet);
  ASSERT_TRUE(replied(2));
  server()->stop();
  flooding.send(std::string(10'000, 'x'));
  EXPECT_TRUE(eventually([&] { return test_support::descriptor_count() <= descriptors + 2; }));
  EXPECT_TRUE(client.body() == large_body());  // the kernel goes on
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST(LastBytesOfUnixSockets, AClientThatKeepsItsConnectionHoldsNothingUp) {
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
  RawClient read(generic, sizeof address);
  RawClient unread(generic, sizeof address);
  EXPECT_TRUE(read.ask(get("/", kClosing))->body == large_body());
  unread.send(get("/", kClosing));
  ASSERT_TRUE(eventually([&] { return processed == 2; }));
  EXPECT_TRUE(is_brief([&] {
    std::thread stop([&] { server.stop(); });
    EXPECT_TRUE(unread.body() == large_body());
    stop.join();
  }));
  EXPECT_EQ(read.ending(), Ending::kClosed);
  EXPECT_EQ(unread.ending(), Ending::kClosed);
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);  // the path stays
}

}  // namespace
}  // namespace server_test

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "fault/SystemFaults.h"
#include "support/FakeDnsServer.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "workflow/WFGlobal.h"

// System calls that are interrupted or do less than they were asked for.

namespace {

using namespace server_test;
using test_support::pattern;

void delayed_echo(WFHttpTask* task) {
  server_test::echo(task);
  series_of(task)->push_back(WFTaskFactory::create_timer_task(500, nullptr));
}

// Many connections with all kinds of traffic; every reply must be right.
void talk(TestServer& server, size_t body_size) {
  const std::string body = pattern(body_size);
  for (int round = 0; round < 20; round++) {
    std::vector<RawClient> clients;
    for (int i = 0; i < 10; i++) {
      clients.push_back(server.client());
      ASSERT_TRUE(clients.back().connected());
    }
    for (RawClient& client : clients) {
      ASSERT_TRUE(client.send(get("/1") + post("/2", body) + get("/3")));
    }
    for (RawClient& client : clients) {
      ASSERT_EQ(client.body(), "GET /1 ");
      ASSERT_TRUE(client.body() == "POST /2 " + body);
      ASSERT_EQ(client.body(), "GET /3 ");
    }
  }
}

}  // namespace

TEST(Interrupted, EveryOtherSystemCall) {
  fault::interrupt_one_in = 2;
  TestServer server(delayed_echo);
  talk(server, 10000);
  EXPECT_GT(fault::interrupts, 1000);
  EXPECT_TRUE(server.has_connections(0));
  server->stop();
}

// Calls `exchange` with the first system call of the library's threads interrupted, the second, and
// so on, until none is left to be.
template <class Exchange>
void interrupt_each_call(Exchange exchange) {
  int number = 1;
  for (int without = 0; without < 5; number++) {
    const int before = fault::interrupts;
    fault::interrupt_after = number;
    ASSERT_TRUE(exchange()) << number;
    fault::interrupt_after = 0;
    without = fault::interrupts == before ? without + 1 : 0;
    ASSERT_LT(number, 2000);
  }
  std::printf("%d calls\n", number);
  EXPECT_GT(number, 10);
}

TEST(Interrupted, EachSystemCallOfAServer) {
  TestServer server(delayed_echo);
  interrupt_each_call([&] {
    RawClient client = server.client();
    return client.send(get("/1") + post("/2", pattern(200'000))) && client.body() == "GET /1 " &&
           client.body() == "POST /2 " + pattern(200'000);
  });
}

TEST(Interrupted, EachSystemCallOfATlsServerAndItsClient) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  TestServer server(delayed_echo, server_test::http_params(), &certificate);
  const std::string url = "https://127.0.0.1:" + std::to_string(server.port()) + "/1";
  fault::counts_here = true;  // the request starts on this thread
  interrupt_each_call([&] {
    const client_test::Fetched got =
        client_test::fetch(url, {.change = [](WFHttpTask* task) { task->set_keep_alive(0); }});
    return got.state == WFT_STATE_SUCCESS && got.body == "GET /1 ";
  });
}

TEST(Interrupted, EachSystemCallOfAPlainClient) {
  TestServer server(delayed_echo);
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port()) + "/1";
  fault::counts_here = true;
  interrupt_each_call([&] {
    const client_test::Fetched got =
        client_test::fetch(url, {.change = [](WFHttpTask* task) { task->set_keep_alive(0); }});
    return got.state == WFT_STATE_SUCCESS && got.body == "GET /1 ";
  });
}

TEST(Interrupted, EachSystemCallOfALookUp) {
  test_support::FakeDnsServer names;
  names.set_others({.v4 = {"127.0.0.1"}});
  test_support::TempDir folder;
  std::ofstream(folder.path("resolv.conf")) << "nameserver " << names.address() << "\n";
  const std::string path = folder.path("resolv.conf");
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.resolv_conf_path = path.c_str();
  WORKFLOW_library_init(&settings);
  TestServer server(delayed_echo);
  int round = 0;
  fault::counts_here = true;
  interrupt_each_call([&] {
    const auto start = std::chrono::steady_clock::now();
    const client_test::Fetched got = client_test::fetch(
        "http://n" + std::to_string(round++) + ".test:" + std::to_string(server.port()) + "/1");
    // Else a question was lost, and asked again after its time limit of 5 s.
    EXPECT_LE(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
    return got.state == WFT_STATE_SUCCESS && got.body == "GET /1 ";
  });
}

TEST(PartialWrites, OneByteAtATime) {
  TestServer server(delayed_echo);
  fault::send_at_most = 1;
  talk(server, 300);
  RawClient refused = server.client();
  EXPECT_TRUE(refused.send("nonsense\r\n\r\n"));
  // The answer to nonsense is tried once; then the connection ends.
  while (refused.take(100) > 0) {
  }
  EXPECT_TRUE(refused.ended());
}

TEST(PartialWrites, OddPieces) {
  TestServer server(delayed_echo);
  fault::send_at_most = 4093;
  fault::interrupt_one_in = 5;
  talk(server, 100'000);
}

TEST(TinyBuffers, LargeRepliesOfManyBlocks) {
  static const std::string block = pattern(3001);
  TestServer server([](WFHttpTask* task) {
    for (int i = 0; i < 300; i++) {
      task->get_resp()->append_output_body_nocopy(block);
      task->get_resp()->append_output_body(std::to_string(i));
    }
  });
  std::string expected;
  for (int i = 0; i < 300; i++) {
    expected += block + std::to_string(i);
  }
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; i++) {
    clients.emplace_back(server.port(), 2048);
    ASSERT_TRUE(clients.back().send(get("/1") + get("/2")));
  }
  for (RawClient& client : clients) {
    EXPECT_TRUE(client.body() == expected);
    EXPECT_TRUE(client.body() == expected);
  }
}

// Accepted sockets inherit the buffers of the one that listens.
TEST(TinyBuffers, OfTheServer) {
  constexpr int kTiny = 2048;
  const workflow::UniqueFd listener = test_support::listen_on_loopback(16, kTiny, kTiny);
  WFHttpServer server(server_test::echo);
  ASSERT_EQ(server.serve(listener.get()), 0);
  const std::string body = pattern(500'000);
  RawClient client(test_support::port_of(listener.get()), 4096);
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(client.send(post("/", body)));
    EXPECT_TRUE(client.body() == "POST / " + body);
  }
  client.close();
  server.stop();
}

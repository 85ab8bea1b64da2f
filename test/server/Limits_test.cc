#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "support/Loopback.h"
#include "support/TestServer.h"

// How much a server reads ahead, and how many connections it has. The sizes of requests are limited
// in test/protocol/HttpLimits_test.cc and test/http/cases/limits.txt.

namespace server_test {
namespace {

class Limit : public testing::TestWithParam<Transport> {};

// Held until they are cancelled, under the name "held".
void hold_if_asked(WFHttpTask* task) {
  if (std::string(task->get_req()->get_request_uri()) == "/hold") {
    series_of(task)->push_back(WFTaskFactory::create_timer_task("held", 3600, 0, nullptr));
  }
}

}  // namespace

TEST_P(Limit, ReadAhead) {
  constexpr int kBuffer = 16 * 1024;
  const workflow::UniqueFd listening = test_support::listen_on_loopback(128, kBuffer);
  TestServer server(hold_if_asked, http_params(), GetParam(), listening.get());
  RawClient client = server.client();
  client.set_send_buffer(kBuffer);
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  // What the server does not read piles up here, until the kernel's buffers are full: twice what
  // was asked for, on either side (socket(7)).
  std::string more;
  while (more.size() < size_t{1024} * 1024) {
    more += post("/", std::string(1024, 'x'));
  }
  const size_t before = client.sent();
  client.set_patience(std::chrono::milliseconds(500));
  EXPECT_FALSE(client.send(more)) << "somebody took all of it";
  EXPECT_LE(client.sent() - before, 64U * 1024 + 4U * kBuffer);
  EXPECT_EQ(server.requests(), 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  client.set_patience(test_support::kPatience);
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(client.status(), 200);
}

TEST_P(Limit, Connections) {
  struct WFServerParams params = http_params();
  params.max_connections = 3;
  TestServer server(hold_if_asked, params, GetParam());
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; i++) {
    clients.push_back(server.client());
    ASSERT_TRUE(clients.back().send(get("/hold")));
  }
  ASSERT_TRUE(eventually([&] { return server.processed() == 3; }));
  for (int i = 0; i < 3; i++) {
    RawClient further = server.client();
    further.send(kGet);
    EXPECT_TRUE(further.ended());
  }
  EXPECT_EQ(server->get_conn_count(), 3u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 3);
  for (RawClient& client : clients) {
    EXPECT_EQ(client.status(), 200);
  }
  clients.pop_back();
  ASSERT_TRUE(server.has_connections(2));
  EXPECT_TRUE(server.serves());
  EXPECT_EQ(server.requests(), 4);
}

TEST_P(Limit, TheConnectionIdleForLongestMakesRoom) {
  struct WFServerParams params = http_params();
  params.max_connections = 4;
  TestServer server(hold_if_asked, params, GetParam());
  RawClient busy = server.asking_client(get("/hold"));
  RawClient oldest = server.client();
  RawClient middle = server.client();
  RawClient youngest = server.client();
  EXPECT_EQ(youngest.ask(kGet)->status, 200);
  EXPECT_EQ(oldest.ask(kGet)->status, 200);
  EXPECT_EQ(middle.ask(kGet)->status, 200);
  EXPECT_EQ(youngest.ask(kGet)->status, 200);  // active again
  RawClient first = server.client();
  EXPECT_EQ(first.ask(kGet)->status, 200);
  EXPECT_TRUE(oldest.ended());
  RawClient second = server.client();
  EXPECT_EQ(second.ask(kGet)->status, 200);
  EXPECT_TRUE(middle.ended());
  EXPECT_TRUE(server.has_connections(4));
  EXPECT_EQ(youngest.ask(kGet)->status, 200);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  EXPECT_EQ(busy.status(), 200);
}

// A storm of clients that each ask once and stay: all are answered.
TEST_P(Limit, RoomIsMadeAgainAndAgain) {
  struct WFServerParams params = http_params();
  params.max_connections = 10;
  TestServer server(echo, params, GetParam());
  std::vector<RawClient> clients;
  for (int i = 0; i < 300; i++) {
    clients.push_back(server.client());
    const auto reply = clients.back().ask(kGet);
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(reply->status, 200) << i;
  }
  EXPECT_TRUE(server.has_connections(10));
}

TEST_P(Limit, ConnectionsLeaveTheProcessSomeDescriptors) {
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit lowered = {100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  TestServer server(hold_if_asked, http_params(), GetParam());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<RawClient> clients;
  for (int i = 0; i < 36; i++) {
    clients.push_back(server.client());
    ASSERT_TRUE(clients.back().send(get("/hold")));
  }
  ASSERT_TRUE(eventually([&] { return server.processed() == 36; }));
  RawClient further = server.client();
  further.send(kGet);
  EXPECT_TRUE(further.ended());
  EXPECT_EQ(server->get_conn_count(), 36u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 36);
}

INSTANTIATE_TEST_SUITE_P(All, Limit, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);

}  // namespace server_test

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "support/Loopback.h"
#include "support/TestServer.h"

// The sizes and numbers a client may not exceed, each at its default and as a parameter. What
// passes at exactly the limit is processed; one more is refused.

namespace server_test {
namespace {

constexpr const char* kStart = "GET / HTTP/1.1\r\nHost: x\r\n";

std::string request_line(size_t size) {
  return "GET /" + std::string(size - 16, 'a') + " HTTP/1.1\r\n" + "Host: x\r\n\r\n";
}
std::string field_line(size_t size) {
  return kStart + ("X: " + std::string(size - 5, 'a') + "\r\n\r\n");
}
std::string field_name(size_t size) {
  return kStart + std::string(size, 'N') + ": v\r\n\r\n";
}
// `count` fields, Host among them.
std::string fields(size_t count) {
  std::string request = kStart;
  for (size_t i = 1; i < count; i++) {
    request += "X: y\r\n";
  }
  return request + "\r\n";
}
// A header section of `size` bytes, the empty line counted or not.
std::string header(size_t size) {
  std::string request = "GET / HTTP/1.1\r\n";
  const size_t start = request.size();
  request += "Host: x\r\n";
  while (request.size() - start < size) {
    const size_t left = size - (request.size() - start);
    const size_t line = left > 2000 ? 1000 : left;
    request += "X: " + std::string(line - 5, 'a') + "\r\n";
  }
  return request + "\r\n";
}
std::string post_in_chunks(const std::string& text) {
  return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + text;
}
std::string extension(size_t size) {
  return post_in_chunks("1;" + std::string(size - 1, 'e') + "\r\nx\r\n0\r\n\r\n");
}
std::string many_chunks(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i++) {
    text += "1\r\nx\r\n";
  }
  return post_in_chunks(text + "0\r\n\r\n");
}

void expect_limit(TestServer& server, const std::string& most, const std::string& too_much,
                  int status) {
  RawClient client = server.client();
  ASSERT_TRUE(client.send(most));
  EXPECT_EQ(client.status(), 200);
  const int before = server.requests();
  client.send(too_much);
  EXPECT_EQ(client.status(), status);
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(server.requests(), before);
  EXPECT_TRUE(server.serves());
}

// A request that begins with a line or section that never ends is refused without waiting for the
// end.
void expect_refusal_in_time(TestServer& server, const std::string& beginning, int status) {
  RawClient client = server.client();
  client.send(beginning);
  EXPECT_EQ(client.status(), status);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

struct WFServerParams small_params() {
  struct WFServerParams params = http_params();
  params.http_limits.request_line_bytes = 100;
  params.http_limits.field_line_bytes = 100;
  params.http_limits.field_name_bytes = 20;
  params.http_limits.header_bytes = 300;
  params.http_limits.header_fields = 5;
  params.http_limits.chunk_extension_bytes = 20;
  params.http_limits.chunk_overhead_bytes = 100;
  params.http_limits.leading_empty_lines = 1;
  return params;
}

void reply_nothing(WFHttpTask*) {}

class Limit : public testing::TestWithParam<Transport> {};

}  // namespace

TEST_P(Limit, RequestLine) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, request_line(8192), request_line(8193), 414);
  expect_refusal_in_time(server, "GET /" + std::string(8192, 'a'), 414);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, request_line(100), request_line(101), 414);
}

TEST_P(Limit, FieldLine) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, field_line(16384), field_line(16385), 431);
  expect_refusal_in_time(server, kStart + ("X: " + std::string(16384, 'a')), 431);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, field_line(100), field_line(101), 431);
}

TEST_P(Limit, FieldName) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, field_name(256), field_name(257), 431);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, field_name(20), field_name(21), 431);
}

TEST_P(Limit, HeaderSection) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, header(65536 - 2), header(65536 + 1), 431);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, kStart + ("X: " + std::string(90, 'a') + "\r\n\r\n"),
               kStart + ("A: " + std::string(90, 'a') + "\r\nB: " + std::string(90, 'a') +
                         "\r\nC: " + std::string(90, 'a') + "\r\nD: e\r\n\r\n"),
               431);
}

TEST_P(Limit, NumberOfFields) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, fields(256), fields(257), 431);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, fields(5), fields(6), 431);
}

TEST_P(Limit, TrailersShareTheBudget) {
  TestServer server(reply_nothing, http_params(), GetParam());
  std::string most = "0\r\n";
  for (int i = 0; i < 254; i++) {
    most += "X: y\r\n";
  }
  expect_limit(server, post_in_chunks(most + "\r\n"), post_in_chunks(most + "X: y\r\n\r\n"), 431);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, post_in_chunks("0\r\nX: y\r\n\r\n"),
               post_in_chunks("0\r\nX: " + std::string(100, 'a') + "\r\n\r\n"), 431);
}

TEST_P(Limit, ChunkSizeDigits) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, post_in_chunks("0000000000000001\r\nx\r\n0\r\n\r\n"),
               post_in_chunks("00000000000000001\r\nx\r\n0\r\n\r\n"), 400);
  expect_refusal_in_time(server, post_in_chunks(std::string(1000, '0')), 400);
}

TEST_P(Limit, ChunkExtension) {
  TestServer server(reply_nothing, http_params(), GetParam());
  expect_limit(server, extension(256), extension(257), 400);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, extension(20), extension(21), 400);
}

TEST_P(Limit, ChunkOverhead) {
  TestServer server(reply_nothing, http_params(), GetParam());
  // A chunk of one byte costs five: the default and one byte for each body byte is reached soon.
  expect_limit(server, many_chunks(4000), many_chunks(4200), 400);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, many_chunks(20), many_chunks(30), 400);
}

TEST_P(Limit, EmptyLines) {
  TestServer server(reply_nothing, http_params(), GetParam());
  const std::string four = "\r\n\r\n\r\n\r\n";
  expect_limit(server, four + kGet, four + "\r\n" + kGet, 400);
  TestServer strict(reply_nothing, small_params(), GetParam());
  expect_limit(strict, std::string("\r\n") + kGet, std::string("\r\n\r\n") + kGet, 400);
}

TEST_P(Limit, Body) {
  constexpr size_t kMost = size_t{16} * 1024 * 1024;
  TestServer server(reply_nothing, http_params(), GetParam());
  const std::string start = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ";
  expect_limit(server, post("/", std::string(kMost, 'x')),
               start + std::to_string(kMost + 1) + "\r\n\r\n", 413);
  struct WFServerParams params = http_params();
  params.request_size_limit = 100;
  TestServer strict(reply_nothing, params, GetParam());
  expect_limit(strict, post("/", std::string(100, 'x')), post("/", std::string(101, 'x')), 413);
  expect_limit(strict, post_in_chunks("64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n"),
               post_in_chunks("65\r\n" + std::string(101, 'x')), 413);
  // Nobody is invited to send what will not be taken.
  RawClient client = strict.client();
  client.send(start + "101\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.status(), 413);
}

// Held until they are cancelled, under the name "held".
void hold_if_asked(WFHttpTask* task) {
  if (std::string(task->get_req()->get_request_uri()) == "/hold") {
    series_of(task)->push_back(WFTaskFactory::create_timer_task("held", 3600, 0, nullptr));
  }
}

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
  RawClient busy = server.client();
  ASSERT_TRUE(busy.send(get("/hold")));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
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

#include <gtest/gtest.h>

#include <string>

#include "support/TestServer.h"

// How long a connection lasts, and the order of what is on it.

namespace server_test {
namespace {

// The reply, and whether the connection was closed after it.
void expect_closing(RawClient& client, const char* connection_field) {
  const auto got = client.reply();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->field("Connection"), connection_field);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

void delayed_echo(WFHttpTask* task) {
  echo(task);
  if (const unsigned ms = delay_ms(task)) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(ms * 1000, nullptr));
  }
}

}  // namespace

TEST(KeepAlive, Http11KeepsWithoutSayingSo) {
  TestServer server;
  RawClient client = server.client();
  for (int i = 0; i < 10; i++) {
    const auto got = client.ask(get("/" + std::to_string(i)));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->version, "HTTP/1.1");
    EXPECT_EQ(got->field("Connection"), "");
    EXPECT_EQ(got->body, "GET /" + std::to_string(i) + " ");
  }
  EXPECT_EQ(server->get_conn_count(), 1u);
  client.close();
  EXPECT_TRUE(server.has_connections(0));
}

TEST(KeepAlive, CloseFromTheClient) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/", "Connection: close\r\n") + get("/ignored"));
  expect_closing(client, "close");
  EXPECT_EQ(server.requests(), 1);
}

TEST(KeepAlive, CloseAmongOtherOptions) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/", "Connection: foo, CLOSE\r\n"));
  expect_closing(client, "close");
}

TEST(KeepAlive, CloseFromTheProcess) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_header_pair("Connection", "close");
    echo(task);
  });
  RawClient client = server.client();
  client.send(get("/") + get("/ignored"));
  expect_closing(client, "close");
  EXPECT_EQ(server.requests(), 1);
}

TEST(KeepAlive, ZeroKeepAliveCloses) {
  TestServer server([](WFHttpTask* task) {
    task->set_keep_alive(0);
    echo(task);
  });
  RawClient client = server.client();
  client.send(get("/") + get("/ignored"));
  expect_closing(client, "close");
}

TEST(KeepAlive, ZeroKeepAliveOfTheServerCloses) {
  struct WFServerParams params = http_params();
  params.keep_alive_timeout = 0;
  TestServer server(echo, params);
  RawClient client = server.client();
  client.send(get("/"));
  expect_closing(client, "close");
}

TEST(KeepAlive, ProcessCannotKeepWhatTheClientCloses) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_header_pair("Connection", "keep-alive");
    echo(task);
  });
  RawClient client = server.client();
  client.send(get("/", "Connection: close\r\n"));
  expect_closing(client, "close");
}

TEST(KeepAlive, Http10ClosesByDefault) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /old HTTP/1.0\r\n\r\n");
  const auto got = client.reply();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->body, "GET /old ");
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST(KeepAlive, Http10KeepsWhenAsked) {
  TestServer server;
  RawClient client = server.client();
  for (int i = 0; i < 3; i++) {
    const auto got = client.ask("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->field("Connection"), "keep-alive");
    EXPECT_EQ(got->body, "GET / ");
  }
  client.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST(KeepAlive, Http10KeepAliveRefusedByTheProcess) {
  TestServer server([](WFHttpTask* task) {
    task->set_keep_alive(0);
    echo(task);
  });
  RawClient client = server.client();
  client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
  expect_closing(client, "close");
}

TEST(KeepAlive, EmptyLinesBetweenRequestsAreTolerated) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/1") + "\r\n" + get("/2"));
  EXPECT_EQ(client.body(), "GET /1 ");
  EXPECT_EQ(client.body(), "GET /2 ");
  client.send("\r\n");
  EXPECT_EQ(client.ask(get("/3"))->body, "GET /3 ");
}

TEST(KeepAlive, SequenceNumbersCountPerConnection) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->append_output_body(std::to_string(task->get_task_seq()));
  });
  for (int connection = 0; connection < 2; connection++) {
    RawClient client = server.client();
    for (int i = 0; i < 4; i++) {
      EXPECT_EQ(client.ask(kGet)->body, std::to_string(i));
    }
  }
}

TEST(Pipelining, RepliesInOrder) {
  constexpr int kRequests = 2000;
  TestServer server;
  RawClient client = server.client();
  std::string requests;
  for (int i = 0; i < kRequests; i++) {
    requests += i % 2 == 0 ? get("/" + std::to_string(i)) : post("/" + std::to_string(i), "body");
  }
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < kRequests; i++) {
    const std::string number = std::to_string(i);
    ASSERT_EQ(client.body(), i % 2 == 0 ? "GET /" + number + " " : "POST /" + number + " body");
  }
  EXPECT_EQ(server.requests(), kRequests);
}

TEST(Pipelining, ADelayedReplyHoldsUpThoseBehindIt) {
  TestServer server(delayed_echo);
  RawClient client = server.client();
  client.send(get("/1?ms=80") + get("/2") + get("/3?ms=40") + get("/4?ms=1") + get("/5"));
  EXPECT_EQ(client.body(), "GET /1?ms=80 ");
  EXPECT_EQ(client.body(), "GET /2 ");
  EXPECT_EQ(client.body(), "GET /3?ms=40 ");
  EXPECT_EQ(client.body(), "GET /4?ms=1 ");
  EXPECT_EQ(client.body(), "GET /5 ");
}

TEST(Pipelining, OneRequestAtATimeIsProcessed) {
  TestServer server([](WFHttpTask* task) {
    echo(task);
    if (std::string(task->get_req()->get_request_uri()) == "/1") {
      series_of(task)->push_back(WFTaskFactory::create_timer_task("held", 3600, 0, nullptr));
    }
  });
  RawClient client = server.client();
  client.send(get("/1") + get("/2") + get("/3"));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  // Time for a second to slip through, if it could.
  EXPECT_TRUE(client.silent_for(std::chrono::milliseconds(30)));
  EXPECT_EQ(server.requests(), 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  EXPECT_EQ(client.body(), "GET /1 ");
  EXPECT_EQ(client.body(), "GET /2 ");
  EXPECT_EQ(client.body(), "GET /3 ");
}

TEST(Pipelining, HalfClosedClientGetsEveryReply) {
  TestServer server(delayed_echo);
  RawClient client = server.client();
  client.send(get("/1?ms=30") + get("/2") + get("/3?ms=30"));
  client.half_close();
  EXPECT_EQ(client.body(), "GET /1?ms=30 ");
  EXPECT_EQ(client.body(), "GET /2 ");
  EXPECT_EQ(client.body(), "GET /3?ms=30 ");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_TRUE(server.has_connections(0));
}

TEST(Pipelining, RequestCutShortIsNotProcessed) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/1") + "GET /2 HTTP/1.1\r\nHost: x\r\n");
  client.half_close();
  EXPECT_EQ(client.body(), "GET /1 ");
  EXPECT_TRUE(client.ended());
  RawClient another = server.client();
  another.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345");
  another.half_close();
  EXPECT_TRUE(another.ended());
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_EQ(server.requests(), 1);
}

}  // namespace server_test

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

TEST(KeepAlive, ProcessCannotKeepWhatTheClientCloses) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->set_header_pair("Connection", "keep-alive");
    echo(task);
  });
  RawClient client = server.client();
  client.send(get("/", "Connection: close\r\n"));
  expect_closing(client, "close");
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
  RawClient client = server.asking_client(get("/1") + get("/2") + get("/3"));
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

}  // namespace server_test

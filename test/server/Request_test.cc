#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/TestServer.h"
#include "support/Text.h"

// Requests with bodies, and the conversation before a body.

namespace server_test {
namespace {

using test_support::chunk;

std::string chunked_post(const std::string& chunks, const std::string& fields = "") {
  return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + fields + "\r\n" + chunks;
}

void echo_decoded(WFHttpTask* task) {
  task->get_resp()->append_output_body(protocol::HttpUtil::decode_chunked_body(task->get_req()));
}

}  // namespace

TEST(Expect, ContinueComesBeforeTheBody) {
  TestServer server;
  RawClient client = server.client();
  for (int i = 0; i < 3; i++) {
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(client.status(), 100);
    EXPECT_EQ(server.requests(), i);
    client.send("body");
    EXPECT_EQ(client.body(), "POST / body");
  }
}

TEST(Expect, ContinueForChunks) {
  TestServer server(echo_decoded);
  RawClient client = server.client();
  client.send(chunked_post("", "Expect: 100-Continue\r\n"));
  EXPECT_EQ(client.status(), 100);
  client.send(chunk("body") + "0\r\n\r\n");
  EXPECT_EQ(client.body(), "body");
}

TEST(Expect, NoContinueWhenTheBodyIsThereAlready) {
  TestServer server;
  RawClient client = server.client();
  client.send(post("/", "body", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.body(), "POST / body");
}

TEST(Expect, NoContinueWithoutABodyOrForHttp10) {
  TestServer server;
  RawClient client = server.client();
  client.send(get("/", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.body(), "GET / ");
  client.send("POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  client.send("body");
  EXPECT_EQ(client.body(), "POST / body");
}

TEST(Expect, ContinueWaitsForTheRepliesBefore) {
  TestServer server([](WFHttpTask* task) {
    echo(task);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(delay_ms(task) * 1000, nullptr));
  });
  RawClient client = server.client();
  client.send(get("/?ms=50") +
              "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(client.status(), 100);
  client.send("body");
  EXPECT_EQ(client.body(), "POST / body");
}

TEST(Expect, TooLargeIsRefusedInstead) {
  TestServer server;
  RawClient client = server.client();
  client.send(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16777217\r\nExpect: 100-continue\r\n\r\n");
  const auto got = client.reply();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 413);
  EXPECT_EQ(got->field("Connection"), "close");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(server.requests(), 0);
}

TEST(Expect, UnknownExpectationIsRefused) {
  TestServer server;
  RawClient client = server.client();
  client.send(post("/", "body", "Expect: a-miracle\r\n"));
  EXPECT_EQ(client.status(), 417);
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(server.requests(), 0);
}

TEST(Chunked, IsDecoded) {
  TestServer server(echo_decoded);
  RawClient client = server.client();
  for (int i = 0; i < 3; i++) {
    client.send(chunked_post(chunk("one ") + chunk("two ") + chunk("three") + "0\r\n\r\n"));
    EXPECT_EQ(client.body(), "one two three");
  }
}

TEST(Chunked, ExtensionsAndTrailersAreRead) {
  TestServer server(echo_decoded);
  RawClient client = server.client();
  client.send(chunked_post("3;name=value\r\nabc\r\n0;last\r\nX-Trailer: 1\r\n\r\n") + get("/"));
  EXPECT_EQ(client.body(), "abc");
  EXPECT_EQ(client.status(), 200);
}

TEST(Chunked, EmptyBody) {
  TestServer server(echo_decoded);
  RawClient client = server.client();
  client.send(chunked_post("0\r\n\r\n") + chunked_post(chunk("next") + "0\r\n\r\n"));
  EXPECT_EQ(client.body(), "");
  EXPECT_EQ(client.body(), "next");
}

TEST(Chunked, LargeInManyChunks) {
  TestServer server([](WFHttpTask* task) {
    const std::string body = protocol::HttpUtil::decode_chunked_body(task->get_req());
    task->get_resp()->append_output_body(std::to_string(body.size()) + " " +
                                         std::to_string(std::hash<std::string>()(body)));
  });
  std::string body;
  std::string chunks;
  for (size_t i = 0; body.size() < size_t{4} * 1024 * 1024; i++) {
    const std::string piece(1 + i * 7919 % 9000, static_cast<char>('a' + i % 26));
    body += piece;
    chunks += chunk(piece);
  }
  RawClient client = server.client();
  ASSERT_TRUE(client.send(chunked_post(chunks + "0\r\n\r\n")));
  EXPECT_EQ(client.body(),
            std::to_string(body.size()) + " " + std::to_string(std::hash<std::string>()(body)));
}

TEST(LargeBody, BothWays) {
  TestServer server([](WFHttpTask* task) {
    const void* body = nullptr;
    size_t size = 0;
    task->get_req()->get_parsed_body(&body, &size);
    task->get_resp()->append_output_body_nocopy(body, size);
  });
  std::string large(size_t{9} * 1024 * 1024, '\0');
  for (size_t i = 0; i < large.size(); i++) {
    large[i] = static_cast<char>(i * 31 + i / 251);
  }
  RawClient client = server.client();
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(client.send(post("/", large)));
    EXPECT_TRUE(client.body() == large);
  }
}

TEST(LargeBody, UpToTheLimit) {
  struct WFServerParams params = http_params();
  params.request_size_limit = 1000;
  TestServer server(echo, params);
  const std::string most(1000, 'x');
  RawClient client = server.client();
  EXPECT_EQ(client.ask(post("/", most))->body, "POST / " + most);
  EXPECT_EQ(client.ask(post("/", most + "x"))->status, 413);
  EXPECT_EQ(client.ending(), Ending::kClosed);
  RawClient in_chunks = server.client();
  EXPECT_EQ(in_chunks.ask(chunked_post(chunk(most) + "0\r\n\r\n"))->status, 200);
  EXPECT_EQ(in_chunks.ask(chunked_post(chunk(most) + chunk("x")))->status, 413);
  EXPECT_EQ(in_chunks.ending(), Ending::kClosed);
  EXPECT_EQ(server.requests(), 2);
}

// The answer arrives although the client goes on sending (RFC 9112, 9.6).
TEST(LargeBody, RefusalReachesAClientThatKeepsSending) {
  struct WFServerParams params = http_params();
  params.request_size_limit = 1000;
  TestServer server(echo, params);
  RawClient client = server.client();
  ASSERT_TRUE(client.send(post("/", std::string(200 * 1024, 'x'))));
  EXPECT_EQ(client.status(), 413);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// Splitting never changes what is understood.
TEST(Splits, ByteByByte) {
  TestServer server(
      [](WFHttpTask* task) { task->get_req()->is_chunked() ? echo_decoded(task) : echo(task); });
  const std::vector<std::pair<std::string, std::string>> cases = {
      {get("/path?query=1", "Accept: */*\r\nX-Empty:\r\n"), "GET /path?query=1 "},
      {post("/p", "a body with\r\n\r\nline ends"), "POST /p a body with\r\n\r\nline ends"},
      {chunked_post("3;x=\"y\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n"), "abc0123456789"},
      {"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / "},
  };
  RawClient client = server.client();
  for (const auto& [request, expected] : cases) {
    for (const char& byte : request) {
      ASSERT_TRUE(client.send({&byte, 1}));
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // so that it goes alone
    }
    EXPECT_EQ(client.body(), expected);
  }
}

TEST(Splits, InTwoAnywhere) {
  TestServer server(
      [](WFHttpTask* task) { task->get_req()->is_chunked() ? echo_decoded(task) : echo(task); });
  const std::string request =
      post("/1", "body") + chunked_post("3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n") + get("/3");
  RawClient client = server.client();
  for (size_t at = 1; at < request.size(); at++) {
    ASSERT_TRUE(client.send(request.substr(0, at)));
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // so that they go apart
    ASSERT_TRUE(client.send(request.substr(at)));
    ASSERT_EQ(client.body(), "POST /1 body") << at;
    ASSERT_EQ(client.body(), "abc") << at;
    ASSERT_EQ(client.body(), "GET /3 ") << at;
  }
}

TEST(Splits, UrgentDataDoesNoHarm) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET / HT");
  ::send(client.fd(), "!", 1, MSG_OOB | MSG_NOSIGNAL);
  client.send("TP/1.1\r\nHost: x\r\n\r\n");
  client.close();
  const auto got = server.client().ask(kGet);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_TRUE(server.has_connections(0));
}

}  // namespace server_test

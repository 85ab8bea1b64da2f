#include <gtest/gtest.h>

#include <string>

#include "support/TestServer.h"
#include "support/Text.h"

// Large bodies, and what else a client may send that test/http cannot say: its cases show how
// requests are read and refused, whole and in pieces.

namespace server_test {
namespace {

using test_support::chunk;

std::string chunked_post(const std::string& chunks) {
  return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks;
}

}  // namespace

TEST(Expect, NoContinueWhenTheBodyIsThereAlready) {
  TestServer server;
  RawClient client = server.client();
  client.send(post("/", "body", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.body(), "POST / body");
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

TEST(Splits, RandomBytesHarmNobody) {
  TestServer server;
  uint32_t random = 12345;
  for (int i = 0; i < 300; i++) {
    RawClient client = server.client();
    std::string noise = i % 2 == 0 ? "" : "POST / HTTP/1.1\r\nHost: x\r\n";
    for (int k = 0; k < 100; k++) {
      random = random * 1664525 + 1013904223;
      noise += static_cast<char>(random >> 24);
    }
    client.send(noise);
    client.half_close();
    EXPECT_TRUE(client.reply() || client.ended());
  }
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_TRUE(server.serves());
}

}  // namespace server_test

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/RawClient.h"
#include "tutorial/Program.h"

using server_test::HttpReply;
using server_test::RawClient;
using tutorial_test::Program;

namespace {

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: tutorial\r\n\r\n";

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    count++;
  }
  return count;
}

// A port that was free a moment ago, for a program that does not say which one it got.
uint16_t some_free_port() {
  const workflow::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address), length);
  ::getsockname(fd.get(), reinterpret_cast<struct sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

}  // namespace

TEST(Tutorial00, SaysHello) {
  Program program("tutorial-00-hello", {"0"});
  RawClient client(program.port());
  const HttpReply reply = client.ask(kGet).value_or(HttpReply());
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "Hello, world!\n");
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Tutorial01, RepliesASecondLater) {
  const uint16_t port = some_free_port();
  Program program("tutorial-01-delayed_reply", {std::to_string(port)});
  ASSERT_TRUE(program.started());
  const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
  RawClient client(port);
  while (!client.connected() && std::chrono::steady_clock::now() < deadline) {
    // It prints nothing when it is ready.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    client = RawClient(port);
  }
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_TRUE(client.send(kGet));
  EXPECT_EQ(client.body(), "a second later\n");
  EXPECT_GE(std::chrono::steady_clock::now() - asked, std::chrono::seconds(1));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Tutorial02, CancelsTheOldestTwo) {
  Program program("tutorial-02-named_timer", {});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(count_of(program.output(), "cancelled\n"), 2U) << program.output();
  EXPECT_EQ(count_of(program.output(), "expired\n"), 1U) << program.output();
  EXPECT_EQ(count_of(program.output(), "cancelled 2 timers\n"), 1U) << program.output();
}

TEST(Tutorial03, KeepsTheOrderOfItsSeries) {
  Program program("tutorial-03-series_parallel", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(count_of(output, "water boils\n"), 1U) << output;
  EXPECT_LT(output.find("beans ground\n"), output.find("filter set\n")) << output;
  const std::string end = "coffee brewed\ncoffee drunk\ncup washed\nleaving\n";
  ASSERT_GE(output.size(), end.size());
  EXPECT_EQ(output.substr(output.size() - end.size()), end);
}

TEST(Tutorial04, EchoesTheRequest) {
  Program program("tutorial-04-http_echo_server", {"0"});
  RawClient client(program.port());
  const std::string request =
      "POST /any/path?x=1 HTTP/1.1\r\nHost: tutorial\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4\r\nsome\r\n5\r\n text\r\n0\r\n\r\n";
  for (int i = 0; i < 5; i++) {
    const HttpReply reply = client.ask(request).value_or(HttpReply());
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body,
              "POST /any/path?x=1 HTTP/1.1\nHost: tutorial\nTransfer-Encoding: chunked\n\n"
              "some text");
    EXPECT_EQ(reply.field("Connection"), i == 4 ? "close" : "");
  }
  EXPECT_TRUE(client.ended());
  client.close();  // or the server lingers
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Tutorial05, SimulatesBothOutcomes) {
  Program program("tutorial-05-simulation", {});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output().find("1000 runs: cancelled in "), 0U) << program.output();
  EXPECT_EQ(program.output().find("cancelled in 0,"), std::string::npos);
  EXPECT_EQ(program.output().find("expired in 0\n"), std::string::npos);
}

TEST(Tutorial05, ReplaysOneSeed) {
  Program first("tutorial-05-simulation", {"42"});
  Program second("tutorial-05-simulation", {"42"});
  EXPECT_EQ(first.exit_code(), 0);
  EXPECT_EQ(second.exit_code(), 0);
  EXPECT_EQ(first.output(), second.output());
}

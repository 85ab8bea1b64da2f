#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/RawServer.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "support/TutorialProgram.h"

// The tutorials that speak to other servers, and those that are servers for more than one client.

using server_test::TestServer;
using tutorial_test::Program;

namespace {

std::string url_of(uint16_t port, const std::string& path) {
  return "http://127.0.0.1:" + std::to_string(port) + path;
}

// What a program printed, once it has ended well.
std::string output_of(const std::string& name, const std::vector<std::string>& arguments,
                      int exit_code = 0) {
  Program program(name, arguments);
  EXPECT_EQ(program.exit_code(), exit_code);
  return program.output();
}

std::string get_with_key(const std::string& key) {
  return "GET / HTTP/1.1\r\nHost: tutorial\r\nX-Api-Key: " + key + "\r\n\r\n";
}

}  // namespace

TEST(Tutorial12, PrintsWhatAUrlHas) {
  TestServer server;
  EXPECT_EQ(output_of("tutorial-12-wget", {url_of(server.port(), "/a?b")}), "GET /a?b ");
  EXPECT_EQ(output_of("tutorial-12-wget", {"http://nowhere.invalid/"}, 1), "");
  EXPECT_EQ(output_of("tutorial-12-wget", {}, 2), "");
}

TEST(Tutorial13, PrintsAllResultsInOrder) {
  TestServer server;
  const std::string a = url_of(server.port(), "/a");
  const std::string bcd = url_of(server.port(), "/bcd");
  EXPECT_EQ(
      output_of("tutorial-13-parallel_wget", {a, "nonsense://x", bcd}),
      a + ": 200, 7 bytes\nnonsense://x: Unknown URI scheme, 0 bytes\n" + bcd + ": 200, 9 bytes\n");
}

TEST(Tutorial14, PassesRequestsOnAndAnswersBack) {
  TestServer server([](WFHttpTask* task) {
    server_test::echo(task);
    task->get_resp()->add_header_pair("X-Origin", "yes");
  });
  Program program("tutorial-14-proxy", {url_of(server.port(), ""), "0"});
  server_test::RawClient client(program.port());
  for (int i = 0; i < 3; i++) {
    const auto reply = client.ask(server_test::post("/x?y", "body"));
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, "POST /x?y body");
    EXPECT_EQ(reply->field("X-Origin"), "yes");
  }
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Tutorial14, SaysWhenTheOtherServerIsNotThere) {
  Program program("tutorial-14-proxy", {"http://127.0.0.1:1", "0"});
  server_test::RawClient client(program.port());
  const auto reply = client.ask(server_test::kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 502);
}

TEST(Tutorial14, DoesNotPassInterimStatusesOn) {
  client_test::RawServer origin([](client_test::Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
  });
  Program program("tutorial-14-proxy", {origin.url(""), "0"});
  server_test::RawClient client(program.port());
  for (int i = 0; i < 2; i++) {
    const auto reply = client.ask(server_test::kGet);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 502);
  }
}

TEST(Tutorial14, GoesWhereTheWholeUrlSays) {
  TestServer server;
  Program program("tutorial-14-proxy", {"http://127.0.0.1:1", "0"});
  server_test::RawClient client(program.port());
  const auto reply = client.ask(server_test::get(url_of(server.port(), "/x?y")));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "GET /x?y ");
}

TEST(Tutorial14, RefusesTargetsThatAreNoUrl) {
  Program program("tutorial-14-proxy", {"http://127.0.0.1:1", "0"});
  const auto status_of = [&](const std::string& request) {
    server_test::RawClient client(program.port());
    const auto reply = client.ask(request);
    return reply ? reply->status : 0;
  };
  EXPECT_EQ(status_of("CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"), 501);
  EXPECT_EQ(status_of("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 501);
  EXPECT_EQ(status_of(server_test::get("http://127.0.0.1:x/")), 400);
}

TEST(Tutorial15, SpeaksItsProtocolOverTcp) {
  Program server("tutorial-15-own_protocol", {"server", "0"});
  const std::string port = std::to_string(server.port());
  EXPECT_EQ(output_of("tutorial-15-own_protocol", {"client", port, "hello", "you", ""}),
            "HELLO\nYOU\n\n");
  EXPECT_EQ(output_of("tutorial-15-own_protocol", {"client", port, std::string(70'000, 'x')}, 1),
            "Message too long\n");
  server.close_stdin();
  EXPECT_EQ(server.exit_code(), 0);
}

TEST(Tutorial15, SpeaksItsProtocolOverUnixSockets) {
  const test_support::TempDir folder;
  const std::string path = folder.path("lines");
  Program server("tutorial-15-own_protocol", {"server", path});
  ASSERT_TRUE(server.prints("listening on " + path));
  EXPECT_EQ(output_of("tutorial-15-own_protocol", {"client", path, "over a socket"}),
            "OVER A SOCKET\n");
  server.close_stdin();
  EXPECT_EQ(server.exit_code(), 0);
  EXPECT_EQ(output_of("tutorial-15-own_protocol", {"client", path, "x"}, 1),
            "No such file or directory\n");
}

TEST(Tutorial16, SendsEventsUntilTheClientLeaves) {
  Program program("tutorial-16-server_events", {"0"});
  server_test::RawClient client(program.port());
  ASSERT_TRUE(client.send(server_test::kGet));
  std::string seen;
  const std::string third = "event: tick\ndata: 2\n\n";
  while (seen.find(third) == std::string::npos) {
    const std::string more = client.take_text(1000);
    ASSERT_FALSE(more.empty()) << seen;
    seen += more;
  }
  EXPECT_NE(seen.find("Content-Type: text/event-stream"), std::string::npos);
  client.close();
  EXPECT_TRUE(program.prints("the reply has ended"));
  server_test::RawClient stays(program.port());
  ASSERT_TRUE(stays.send(server_test::kGet));
  EXPECT_FALSE(stays.take_text(1).empty());
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_NE(program.output().find("replies were cut short"), std::string::npos);
}

TEST(Tutorial19, LetsEachClientMakeSoManyRequests) {
  Program program("tutorial-19-rate_limiter", {"0"});
  server_test::RawClient client(program.port());
  const auto began = std::chrono::steady_clock::now();
  const auto ask = [&](const std::string& key) {
    return client.ask(get_with_key(key)).value_or(server_test::HttpReply());
  };
  int let_through = 0;
  server_test::HttpReply reply;
  while (let_through < 1000 && (reply = ask("alice")).status == 200) {
    EXPECT_EQ(reply.body, "at your service\n");
    let_through++;
  }
  // Tokens come back meanwhile: at a tick that was late, and each second that this took.
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(let_through, 3);
  EXPECT_LE(let_through, 5 + took / std::chrono::seconds(1));
  EXPECT_EQ(reply.status, 429);
  EXPECT_TRUE(reply.field("Retry-After") == "1" || reply.field("Retry-After") == "0")
      << reply.field("Retry-After");
  EXPECT_EQ(ask("bob").status, 200);

  const auto refused = std::chrono::steady_clock::now();
  while (ask("alice").status == 429 &&
         std::chrono::steady_clock::now() - refused < test_support::kPatience) {
    // The next token comes within a second.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - refused, test_support::kPatience);
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

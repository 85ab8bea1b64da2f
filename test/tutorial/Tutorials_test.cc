#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/Loopback.h"
#include "support/RawClient.h"
#include "support/Text.h"
#include "support/TutorialProgram.h"
#include "util/UniqueFd.h"

using server_test::HttpReply;
using server_test::RawClient;
using test_support::count_of;
using tutorial_test::Program;

namespace {

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: tutorial\r\n\r\n";

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
  // The program does not say which port it has got.
  const workflow::UniqueFd kept = test_support::keep_port();
  const uint16_t port = test_support::port_of(kept.get());
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

TEST(Tutorial06, GathersWhatItsBranchesFound) {
  Program program("tutorial-06-parallel", {});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
  const std::string expected =
      "0 to 24: 9 primes\n25 to 49: 6 primes\n50 to 74: 6 primes\n75 to 99: 4 primes\n"
      "together: 25\nafter ";
  EXPECT_EQ(program.output().substr(0, expected.size()), expected);
}

TEST(Tutorial07, ComputesAndGivesUpInTime) {
  Program program("tutorial-07-computing", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string expected = "hello, world\nthe mean is 2.5\ntoo slow\n";
  EXPECT_EQ(program.output().substr(0, expected.size()), expected);
  EXPECT_EQ(count_of(program.output(), "one of many\n"), 4U) << program.output();
  EXPECT_EQ(count_of(program.output(), "one of few\n"), 1U) << program.output();
}

TEST(Tutorial08, RunsEachStepAfterThoseItDependsOn) {
  Program program("tutorial-08-graph", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(output.substr(0, 10), "configure\n");
  EXPECT_LT(output.find("compile\n"), output.find("link\n")) << output;
  EXPECT_LT(output.find("link\n"), output.find("install\n")) << output;
  EXPECT_LT(output.find("document\n"), output.find("install\n")) << output;
  EXPECT_EQ(count_of(output, "\n"), 7U) << output;
  EXPECT_EQ(count_of(output, "the graph: Success\nthe graph: Resource deadlock avoided\n"), 1U)
      << output;
}

TEST(Tutorial10, TakesTheFirstAnswerOrTheTimeout) {
  Program program("tutorial-10-selector_timeout", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  const size_t again = output.find("\nthe timeout\n");
  ASSERT_NE(again, std::string::npos) << output;
  const std::string first = output.substr(0, again + 1);
  const std::string second = output.substr(again + 1);
  EXPECT_EQ(first.find("the second service\n"), 0U) << output;
  EXPECT_EQ(count_of(first, "not needed: the first service\n"), 1U) << output;
  EXPECT_EQ(count_of(first, "not needed: the timeout\n"), 1U) << output;
  EXPECT_EQ(count_of(second, "not needed: the first service\n"), 1U) << output;
  EXPECT_EQ(count_of(second, "not needed: the second service\n"), 1U) << output;
  EXPECT_EQ(count_of(output, "\n"), 6U) << output;
}

TEST(Tutorial11, RunsThreeAtOnceAndNoMore) {
  Program program("tutorial-11-resource_pool", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(count_of(output, "\n"), 10U) << output;
  EXPECT_EQ(count_of(output, ", 1 at once\n") + count_of(output, ", 2 at once\n") +
                count_of(output, ", 3 at once\n"),
            10U)
      << output;
  for (const char* download : {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
    EXPECT_EQ(count_of("\n" + output, "\n" + std::string(download) + " uses "), 1U) << output;
  }
}

TEST(Tutorial17, IndexesEachFileOnceItIsQuiet) {
  Program program("tutorial-17-debounce", {"3000"});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_LT(output.find("40 changes\n"), output.find("indexed ")) << output;
  EXPECT_EQ(count_of(output, "indexed notes.txt\n"), 1U) << output;
  EXPECT_EQ(count_of(output, "indexed todo.txt\n"), 1U) << output;
}

TEST(Tutorial18, RenewsAndEndsEachSession) {
  Program program("tutorial-18-sessions", {"2000"});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output(),
            "20000 renewals\n1000 logged out, of 1000 told so; 1000 expired\nrenewed then: no\n");
}

TEST(Tutorial20, ShowsTimesAndAnErrorAndTicks) {
  Program program("tutorial-20-cron", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(output.find("30 2 * * MON-FRI (UTC)\n  "), 0U) << output;
  EXPECT_EQ(count_of(output, " 02:30:00 UTC\n"), 5U) << output;
  EXPECT_EQ(count_of(output, "  S"), 0U) << output;  // neither Saturday nor Sunday
  const std::string rest =
      "hour: \"25\" is wrong: write 0 to 23\n"
      "  0 1,25 * * *\n"
      "      ^^\n"
      "tick 0\ntick 1\ntick 2\nthe timer: Success\n";
  ASSERT_GE(output.size(), rest.size()) << output;
  EXPECT_EQ(output.substr(output.size() - rest.size()), rest) << output;
}

TEST(Tutorial20, ShowsWhatItIsAskedFor) {
  Program leap("tutorial-20-cron", {"0 12 29 2 *", "UTC"});
  EXPECT_EQ(leap.exit_code(), 0);
  EXPECT_EQ(leap.output().find("0 12 29 2 * (UTC)\n"), 0U) << leap.output();
  EXPECT_EQ(count_of(leap.output(), "-02-29 12:00:00 UTC\n"), 5U) << leap.output();
  EXPECT_EQ(count_of(leap.output(), "\n"), 6U) << leap.output();
  Program never("tutorial-20-cron", {"0 0 30 2 *"});
  EXPECT_EQ(never.exit_code(), 0);
  EXPECT_EQ(never.output(), "0 0 30 2 * (UTC)\n  never\n");
}

TEST(Tutorial21, TellsEachRequestThatTheDeadlineHasPassed) {
  Program program("tutorial-21-deadline_request", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string expected =
      "within 30 s\n"
      "  /user: 200\n"
      "  /orders: 200\n"
      "  /prices: 200\n"
      "  all: Success\n"
      "within 2 s\n"
      "  /user: 200\n"
      "  /orders: Connection timed out\n"
      "  /prices: Connection timed out\n"
      "  all: Connection timed out\n"
      "the server was asked 5 times\n";
  EXPECT_EQ(program.output(), expected);
}

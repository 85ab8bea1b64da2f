#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "server/RawClient.h"
#include "server/TestServer.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/Text.h"
#include "tutorial/Program.h"

// The tutorials that are written as coroutines.

using server_test::RawClient;
using server_test::TestServer;
using test_support::count_of;
using test_support::Tally;
using tutorial_test::Program;

TEST(Tutorial25, WakesEachSleeper) {
  Program program("tutorial-25-sleep", {});
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(2 * count_of(output, "woken: 2\n") + count_of(output, "woken: 1\n"), 3U) << output;
  EXPECT_EQ(count_of(output, "1: Operation canceled\n"), 1U) << output;
  EXPECT_EQ(count_of(output, "2: Operation canceled\n"), 1U) << output;
  EXPECT_EQ(count_of(output, "3: Operation canceled\n"), 1U) << output;
  const std::string end = "all are awake\n";
  ASSERT_GE(output.size(), end.size());
  EXPECT_EQ(output.substr(output.size() - end.size()), end);
}

TEST(Tutorial26, AnswersWithWhatComesFirst) {
  // One answers, the other one never does: its request ends when the first has come.
  TestServer quick([](WFHttpTask* task) { task->get_resp()->append_output_body("quick"); });
  Tally left;
  TestServer slow([&left](WFHttpTask* task) {
    task->cancel_on_closed();
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task(-1, 0, [&left](WFTimerTask*) { left.add(); }));
  });
  const std::string quick_url = "http://127.0.0.1:" + std::to_string(quick.port()) + "/";
  const std::string slow_url = "http://127.0.0.1:" + std::to_string(slow.port()) + "/";
  Program program("tutorial-26-first_answer", {slow_url, quick_url, "0"});
  RawClient client(program.port());
  const auto reply = client.ask(server_test::kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "quick");
  EXPECT_EQ(reply->field("X-Answered-By"), "1");
  EXPECT_TRUE(left.wait_for(1));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Tutorial26, SaysThatNobodyAnswers) {
  Program program("tutorial-26-first_answer", {"nonsense://x", "nonsense://y", "0"});
  RawClient client(program.port());
  const auto reply = client.ask(server_test::kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 502);
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

namespace {

// The pauses that a part of the output tells of, in milliseconds.
std::vector<int> pauses_of(const std::string& output) {
  std::vector<int> pauses;
  const std::string begin = "again in ";
  for (size_t at = output.find(begin); at != std::string::npos; at = output.find(begin, at + 1))
    pauses.push_back(std::stoi(output.substr(at + begin.size())));
  return pauses;
}

}  // namespace

TEST(Tutorial27, AnswersIsLateAndIsStopped) {
  const auto begin = std::chrono::steady_clock::now();
  Program program("tutorial-27-retry", {});
  EXPECT_EQ(program.exit_code(), 0);
  const auto took = std::chrono::steady_clock::now() - begin;
  const std::string& output = program.output();
  const size_t answered = output.find("answered, tries: 4\n");
  const size_t late = output.find("given up: Connection timed out\n");
  const size_t stopped = output.find("given up: Operation canceled\n");
  ASSERT_TRUE(answered < late && late < stopped && stopped != std::string::npos) << output;

  // Each pause is longer than the one before, and they have been made.
  const std::vector<int> pauses = pauses_of(output.substr(0, answered));
  ASSERT_EQ(pauses.size(), 3u) << output;
  int sum = 0;
  for (size_t i = 0, longest = 10; i < pauses.size(); i++, longest *= 2) {
    EXPECT_GE(pauses[i], static_cast<int>(longest / 2)) << output;
    EXPECT_LE(pauses[i], static_cast<int>(longest)) << output;
    sum += pauses[i];
  }
  EXPECT_GE(took, std::chrono::milliseconds(sum)) << output;
  // By chance some of them are the longest possible, but not all of them, in several runs.
  std::vector<int> all = pauses;
  for (int run = 0; run < 20 && all == std::vector<int>{10, 20, 40}; run++) {
    Program again("tutorial-27-retry", {});
    EXPECT_EQ(again.exit_code(), 0);
    all = pauses_of(again.output().substr(0, again.output().find("answered")));
  }
  EXPECT_NE(all, (std::vector<int>{10, 20, 40}));
}

TEST(Tutorial28, CountsWordsOfAFewFilesAtATime) {
  const test_support::TempDir folder;
  std::vector<std::string> paths;
  std::string expected;
  std::string text;
  for (int i = 0; i < 8; i++) {
    paths.push_back(folder.path(std::to_string(i)));
    std::ofstream(paths.back()) << text;
    text += "word\n and";
    expected += paths.back() + ": " + std::to_string(i == 0 ? 0 : i + 1) + " words\n";
  }
  paths.push_back(folder.path("none"));
  expected += paths.back() + ": No such file or directory\n";
  // On a busy machine a file may be done before the next one begins, but not each time.
  size_t most = 0;
  for (int run = 0; run < 50 && most < 3; run++) {
    Program program("tutorial-28-pipeline", paths);
    EXPECT_EQ(program.exit_code(), 0);
    ASSERT_EQ(program.output().substr(0, expected.size()), expected);
    const std::string rest = program.output().substr(expected.size());
    ASSERT_EQ(std::sscanf(rest.c_str(), "at most %zu at a time\n", &most), 1) << rest;
  }
  EXPECT_EQ(most, 3u);
}

TEST(Tutorial29, EndsWithTheProcess) {
  Program program("tutorial-29-background_job", {});
  ASSERT_TRUE(program.prints("job: report 2"));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(count_of(output, "job: the process ends after "), 1U) << output;
}

TEST(Tutorial30, SendsEventsUntilTheClientLeaves) {
  Program program("tutorial-30-events_loop", {"0"});
  RawClient client(program.port());
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
  EXPECT_TRUE(program.prints("the client has left"));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
}

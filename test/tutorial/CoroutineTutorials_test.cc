#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/RawClient.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "support/TutorialProgram.h"

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

TEST(Tutorial27, AnswersIsLateAndIsStopped) {
  Program program("tutorial-27-retry", {});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output(),
            "answered, tries: 4\ngiven up: Connection timed out\ngiven up: Operation canceled\n");
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
  Program program("tutorial-28-pipeline", paths);
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output(), expected);
}

TEST(Tutorial29, EndsWithTheProcess) {
  Program program("tutorial-29-background_job", {});
  ASSERT_TRUE(program.prints("job: report 2"));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& output = program.output();
  EXPECT_EQ(count_of(output, "job: the process ends after "), 1U) << output;
}

// What docs/coroutines.md says of script/gdb/coroutines.py.
TEST(CoroutineScript, PrintsWhatWaitsInAProcess) {
  if (test_support::kSanitized || !std::filesystem::exists("/usr/bin/gdb")) {
    GTEST_SKIP() << "needs gdb, and memory without the shadow of a sanitizer";
  }
  Program job("tutorial-29-background_job", {});
  ASSERT_TRUE(job.prints("job: report 1"));
  const std::string script = std::string(SOURCE_TREE) + "/script/gdb/coroutines.py";
  test_support::Program gdb("gdb", {"-p", std::to_string(job.pid()), "-batch", "-x", script},
                            {.stderr_is_output = true});
  gdb.exit_code();
  if (gdb.output().find("Operation not permitted") != std::string::npos) {
    GTEST_SKIP() << "this process may not look into others";
  }
  EXPECT_EQ(count_of(gdb.output(), "(anonymous namespace)::report(char const*)\n"), 1U)
      << gdb.output();
  EXPECT_EQ(count_of(gdb.output(), "\n1 coroutines wait\n"), 1U) << gdb.output();
  job.close_stdin();
  EXPECT_EQ(job.exit_code(), 0);
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

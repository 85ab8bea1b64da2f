#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/Sanitizers.h"
#include "tutorial/DemoClient.h"

using server_test::Ending;
using tutorial_test::Demo;
using tutorial_test::Program;
using tutorial_test::RawClient;

namespace {

class DemoStop : public testing::TestWithParam<int> {};

}  // namespace

TEST_P(DemoStop, AnswersWhatIsDelayedFirst) {
  Demo demo({"--grace", "60"});
  RawClient idle(demo.port);
  // Long enough for both to be seen, and for the signal to come, before the first ends.
  RawClient fast = demo.begin_delay("ms=8000&name=fast");
  RawClient slow = demo.begin_delay("ms=8500&name=slow");
  ASSERT_TRUE(demo.comes_to("fast", 1) && demo.comes_to("slow", 1));
  demo.program.signal(GetParam());
  EXPECT_TRUE(demo.program.prints("stopping"));
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(Demo::reply_of(fast)["state"], "expired");
  const auto reply = slow.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(Demo::parsed(*reply)["state"], "expired");
  EXPECT_GE(Demo::parsed(*reply)["waited_ms"], 8500);
  EXPECT_EQ(reply->field("Connection"), "close");
  EXPECT_EQ(slow.ending(), Ending::kClosed);
  slow.close();
  fast.close();
  EXPECT_EQ(demo.program.exit_code(), 0);
  EXPECT_NE(demo.program.output().find("stopped"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Signals, DemoStop, testing::Values(SIGINT, SIGTERM),
                         [](const auto& each) { return each.param == SIGINT ? "Int" : "Term"; });

TEST(DemoStop, AcceptsNothingMore) {
  Demo demo;
  RawClient delayed = demo.begin_delay("ms=60000");
  ASSERT_TRUE(demo.comes_to("", 1));
  demo.program.signal(SIGTERM);
  EXPECT_TRUE(demo.program.prints("stopping"));
  // The listener closes soon after, on a thread of its own.
  const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
  while (RawClient(demo.port).connected()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_TRUE(delayed.silent_for(std::chrono::milliseconds(50)));
}

TEST(DemoStop, NothingDelayedEndsAtOnce) {
  Demo demo({"--grace", "3600"});
  demo.program.signal(SIGTERM);
  EXPECT_EQ(demo.program.exit_code(), 0);
}

TEST(DemoStop, BeyondTheBoundTheRestIsAborted) {
  Demo demo({"--grace", "1"});
  RawClient slow = demo.begin_delay("ms=3600000&name=slow");
  RawClient unnamed = demo.begin_delay("ms=3600000");
  ASSERT_TRUE(demo.comes_to("slow", 1) && demo.comes_to("", 1));
  const auto began = std::chrono::steady_clock::now();
  demo.program.signal(SIGTERM);
  EXPECT_EQ(Demo::reply_of(slow)["state"], "aborted");
  EXPECT_EQ(Demo::reply_of(unnamed)["state"], "aborted");
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(990));
  EXPECT_LT(took, test_support::kPatience);
  EXPECT_EQ(demo.program.exit_code(), 0);
}

TEST(DemoStop, ABoundOfZeroAbortsManyAtOnce) {
  Demo demo({"--grace=0"});
  const size_t count = test_support::kSanitized ? 100 : 500;
  std::vector<RawClient> clients;
  for (size_t i = 0; i < count; i++) {
    clients.push_back(demo.begin_delay("ms=3600000&name=" + std::to_string(i % 7)));
    ASSERT_TRUE(clients.back().connected());
  }
  for (size_t i = 0; i < 7; i++) {
    ASSERT_TRUE(demo.comes_to(std::to_string(i), count / 7 + (i < count % 7 ? 1 : 0)));
  }
  demo.program.signal(SIGINT);
  for (RawClient& client : clients) {
    ASSERT_EQ(Demo::reply_of(client)["state"], "aborted");
  }
  EXPECT_EQ(demo.program.exit_code(), 0);
}

TEST(DemoStop, ASecondSignalEndsItWithoutAnswers) {
  Demo demo({"--grace", "3600"});
  RawClient delayed = demo.begin_delay("ms=3600000&name=x");
  ASSERT_TRUE(demo.comes_to("x", 1));
  demo.program.signal(SIGTERM);
  ASSERT_TRUE(demo.program.prints("stopping"));
  demo.program.signal(SIGINT);
  EXPECT_EQ(demo.program.exit_code(), -SIGINT);
  EXPECT_TRUE(delayed.ended());
}

TEST(DemoArguments, ATakenPortIsAnError) {
  Demo demo;
  Program second("tutorial-demo", {std::to_string(demo.port)});
  EXPECT_EQ(second.exit_code(), 1);
}

TEST(DemoArguments, WrongOnesAreRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {"65536"},        {"-1"},          {"http"},        {""},
      {"0", "0"},       {"--grace"},     {"--grace", ""}, {"--grace=-1"},
      {"--grace", "x"}, {"--grace=1.5"}, {"--graze=1"},   {"--grace=86401"}};
  for (const std::vector<std::string>& arguments : wrong) {
    Program program("tutorial-demo", arguments);
    EXPECT_EQ(program.exit_code(), 2) << arguments.back();
  }
}

TEST(DemoArguments, HelpIsPrinted) {
  Program program("tutorial-demo", {"--help"});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output().find("usage: tutorial-demo [port] [--grace seconds]"), 0U);
}

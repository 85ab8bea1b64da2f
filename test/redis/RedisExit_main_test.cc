#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "store/RedisPipeline.h"
#include "store/RedisWire.h"
#include "support/Eventually.h"
#include "support/ExitKit.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "workflow/WFRedisSubscriber.h"

// Commands, subscriptions and pipelines that are under way when the process ends.

namespace redis_test {
namespace {

using test_support::eventually;
using workflow::RedisPipeline;
using workflow::RedisUrl;

std::string url() {
  return exit_kit::variable("REDIS_EXIT_URL");
}

void block_and_leave() {
  for (int i = 0; i < 3; i++) {
    WFRedisTask* task = WFTaskFactory::create_redis_task(url(), 5, exit_kit::outcomes().callback());
    task->get_req()->set_request("BLPOP", {"queue", "0"});
    task->start();
  }
  eventually([] {
    return run(url(), {"CLIENT", "LIST", "TYPE", "normal"}).text.find("cmd=blpop") !=
           std::string::npos;
  });
  exit_kit::begin_exit([] { exit_kit::say(exit_kit::outcomes().text()); });
}

void pause_and_leave() {
  WFRedisTask* task =
      WFTaskFactory::create_redis_task(url(), 1'000'000, exit_kit::outcomes().callback());
  task->get_req()->set_request("SET", {"k", "v"});
  task->start();
  exit_kit::begin_exit([] { exit_kit::say(exit_kit::outcomes().text()); });
}

void subscribe_and_leave() {
  static std::atomic<bool> subscribed{false};
  WFRedisSubscriber subscriber;
  subscriber.init(url());
  WFRedisSubscribeTask* task = subscriber.create_subscribe_task(
      {"news"}, [](WFRedisSubscribeTask*) { subscribed = true; },
      [](WFRedisSubscribeTask* ended) {
        exit_kit::outcomes().add(ended);
        ended->release();
      });
  task->start();
  eventually([] { return subscribed.load(); });
  exit_kit::begin_exit([] { exit_kit::say(exit_kit::outcomes().text()); });
}

std::atomic<int> outcomes{0};
std::atomic<int> cancelled{0};

// The pipeline is closed by nobody, or by its destructor after the library has stopped.
void pipe_and_leave() {
  RedisUrl parsed;
  RedisUrl::parse(url(), &parsed);
  static RedisPipeline& leaked = *new RedisPipeline(parsed);
  static RedisPipeline owned(parsed);
  for (RedisPipeline* pipeline : {&leaked, &owned}) {
    for (int i = 0; i < 5; i++) {
      std::string command;
      workflow::append_command(&command, {"BLPOP", "queue", "0"});
      pipeline->post(command, [](RedisPipeline::Outcome&& outcome) {
        outcomes++;
        cancelled += outcome.state == WFT_STATE_SYS_ERROR && outcome.error == ECANCELED ? 1 : 0;
      });
    }
  }
  if (exit_kit::variable("REDIS_EXIT_WAITS") == "yes") {
    eventually([] { return leaked.is_connected() && owned.is_connected(); });
  }
  exit_kit::begin_exit([] {
    exit_kit::say(std::to_string(outcomes) + " outcomes");
    exit_kit::say(std::to_string(cancelled) + " cancelled");
  });
}

constexpr exit_kit::Scenario kScenarios[] = {{"blocking", block_and_leave},
                                             {"pausing", pause_and_leave},
                                             {"subscribing", subscribe_and_leave},
                                             {"pipelining", pipe_and_leave}};

}  // namespace

TEST(RedisExit, CommandsThatWaitEndAborted) {
  RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("blocking", {"REDIS_EXIT_URL=" + server.url()}),
            "3 called: 3 aborted\n");
}

TEST(RedisExit, ACommandThatPausesEndsAborted) {
  RawServer server(answering([](const auto&, int) { return "-TRYAGAIN\r\n"; }));
  for (int i = 0; i < exit_kit::times(5); i++) {
    EXPECT_EQ(exit_kit::play_promptly("pausing", {"REDIS_EXIT_URL=" + url_of(server)}),
              "1 called: 1 aborted\n");
  }
}

TEST(RedisExit, ASubscriptionEndsAborted) {
  RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("subscribing", {"REDIS_EXIT_URL=" + server.url()}),
            "1 called: 1 aborted\n");
}

TEST(RedisExit, APipelineThatFindsNoServerEnds) {
  // Some of the commands may have ended with the error of the connection before.
  const std::string said = exit_kit::play_promptly(
      "pipelining", {"REDIS_EXIT_URL=redis+unix:///nonexistent/redis.sock", "REDIS_EXIT_WAITS=no"});
  EXPECT_NE(said.find(" outcomes\n"), std::string::npos) << said;
  EXPECT_EQ(said.substr(0, 3), "10 ");
}

TEST(RedisExit, WhatIsInAPipelineEnds) {
  RedisServer server;
  for (const char* waits : {"yes", "no"}) {
    EXPECT_EQ(exit_kit::play_promptly("pipelining", {"REDIS_EXIT_URL=" + server.url(),
                                                     std::string("REDIS_EXIT_WAITS=") + waits}),
              "10 outcomes\n10 cancelled\n");
  }
}

}  // namespace redis_test

int main(int argc, char** argv) {
  return exit_kit::run(redis_test::kScenarios, argc, argv);
}

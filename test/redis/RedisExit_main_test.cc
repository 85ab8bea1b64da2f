#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "kernel/Runtime.h"
#include "store/RedisPipeline.h"
#include "store/RedisWire.h"
#include "support/Eventually.h"
#include "support/ExitKit.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Tally.h"
#include "workflow/WFRedisSubscriber.h"

// Commands, subscriptions and pipelines that are under way when the process ends.

namespace redis_test {
namespace {

using test_support::eventually;
using test_support::Tally;
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

// Uses pipelines until the library has ended all that waits, as a store does.
class Pipes final : public workflow::Service {
 public:
  explicit Pipes(const RedisUrl& server) : blocked_(server), free_(server) {
    for (int i = 0; i < 5; i++) {
      post(blocked_, {"BLPOP", "queue", "0"},
           [this](const RedisPipeline::Outcome& outcome) { note(outcome); });
    }
    workflow::Runtime::current().add_service(this);
  }
  // Returns whether the server has answered.
  bool ping() {
    Tally ended;
    std::atomic<bool> answered{false};
    const int refused = post(free_, {"PING"}, [&](const RedisPipeline::Outcome& outcome) {
      answered = outcome.state == WFT_STATE_SUCCESS;
      ended.add();
    });
    return refused == 0 && ended.wait_for(1) && answered;
  }
  int cancelled() const { return cancelled_; }

  // workflow::Service
  void refuse_new_work() override {}
  bool finish_work() override {
    exit_kit::say(ping() ? "answered" : "not answered");
    blocked_.close();
    free_.close();
    return false;
  }
  void runtime_stopped() override {}

 private:
  static int post(RedisPipeline& pipeline, std::initializer_list<std::string_view> words,
                  RedisPipeline::Callback callback) {
    std::string command;
    workflow::append_command(&command, words);
    return pipeline.post(command, std::move(callback));
  }
  void note(const RedisPipeline::Outcome& outcome) {
    cancelled_ += outcome.state == WFT_STATE_SYS_ERROR && outcome.error == ECANCELED ? 1 : 0;
  }

  std::atomic<int> cancelled_{0};
  RedisPipeline blocked_;
  RedisPipeline free_;
};

Pipes& pipes() {
  static RedisUrl server;
  static Pipes& pipes = (RedisUrl::parse(url(), &server), *new Pipes(server));
  return pipes;
}

void pipe_and_leave() {
  exit_kit::say(pipes().ping() ? "answered" : "not answered");
  exit_kit::begin_exit([] { exit_kit::say(std::to_string(pipes().cancelled()) + " cancelled"); });
}

// The connections are being made, or cannot be made, when the library stops.
void begin_a_pipe_and_leave() {
  pipes();
  exit_kit::begin_exit([] { exit_kit::say("stopped"); });
}

constexpr exit_kit::Scenario kScenarios[] = {{"blocking", block_and_leave},
                                             {"pausing", pause_and_leave},
                                             {"subscribing", subscribe_and_leave},
                                             {"pipelining", pipe_and_leave},
                                             {"beginning", begin_a_pipe_and_leave}};

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

TEST(RedisExit, APipelineGoesOnUntilItIsClosed) {
  RedisServer server;
  EXPECT_EQ(exit_kit::play_promptly("pipelining", {"REDIS_EXIT_URL=" + server.url()}),
            "answered\nanswered\n5 cancelled\n");
}

// Whether there is a connection in time or not, nobody waits for it.
TEST(RedisExit, APipelineThatBeginsEnds) {
  RedisServer server;
  for (const std::string& url : {server.url(), std::string("redis+unix:///nonexistent/socket")}) {
    for (int i = 0; i < exit_kit::times(5); i++) {
      const std::string said = exit_kit::play_promptly("beginning", {"REDIS_EXIT_URL=" + url});
      EXPECT_TRUE(said == "answered\nstopped\n" || said == "not answered\nstopped\n") << said;
    }
  }
}

}  // namespace redis_test

int main(int argc, char** argv) {
  return exit_kit::run(redis_test::kScenarios, argc, argv);
}

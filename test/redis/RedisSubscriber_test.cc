#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Tally.h"
#include "workflow/WFRedisSubscriber.h"

namespace redis_test {
namespace {

using std::chrono::milliseconds;
using test_support::Tally;

// A subscription that keeps what extract sees. The task is released when this is destroyed.
class Subscription {
 public:
  explicit Subscription(const std::string& url, const std::vector<std::string>& channels = {"news"},
                        bool patterns = false) {
    WFRedisSubscriber subscriber;
    EXPECT_EQ(subscriber.init(url), 0);
    const auto extract = [this](WFRedisSubscribeTask* now) {
      EXPECT_EQ(ended_.count(), 0u);
      protocol::RedisValue value;
      EXPECT_TRUE(now->get_resp()->get_result(value));
      {
        std::lock_guard<std::mutex> lock(mutex_);
        seen_.push_back(value.debug_string());
      }
      if (on_extract) {
        on_extract(now);
      }
      came_.add();
    };
    const auto callback = [this](WFRedisSubscribeTask* now) {
      state = now->get_state();
      error = now->get_error();
      ended_.add();
    };
    task = patterns ? subscriber.create_psubscribe_task(channels, extract, callback)
                    : subscriber.create_subscribe_task(channels, extract, callback);
  }
  ~Subscription() { task->release(); }

  // The n-th reply, from 1.
  std::string seen(size_t n) {
    EXPECT_TRUE(came_.wait_for(n));
    std::lock_guard<std::mutex> lock(mutex_);
    return n <= seen_.size() ? seen_[n - 1] : "none";
  }
  size_t count() const { return came_.count(); }
  bool wait_for_end() { return ended_.wait_for(1); }
  size_t ends() const { return ended_.count(); }

  WFRedisSubscribeTask* task;
  std::function<void(WFRedisSubscribeTask*)> on_extract;
  int state = -2;
  int error = 0;

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;
  Tally came_;
  Tally ended_;
};

std::string publish(const RedisServer& server, const std::string& channel,
                    const std::string& text) {
  return run(server.url(), {"PUBLISH", channel, text}).text;
}

TEST(RedisSubscriber, EachMessageArrivesInOrder) {
  RedisServer server;
  Subscription news(server.url(), {"news", "sport"});
  news.task->start();
  EXPECT_EQ(news.seen(1), "[\"subscribe\", \"news\", 1]");
  EXPECT_EQ(news.seen(2), "[\"subscribe\", \"sport\", 2]");
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(publish(server, i % 2 == 0 ? "news" : "sport", std::to_string(i)), "1");
  }
  for (size_t i = 0; i < 100; i++) {
    EXPECT_EQ(news.seen(3 + i), "[\"message\", \"" + std::string(i % 2 == 0 ? "news" : "sport") +
                                    "\", \"" + std::to_string(i) + "\"]");
  }
  EXPECT_EQ(news.task->quit(), 0);
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SUCCESS);
}

TEST(RedisSubscriber, PatternsMatch) {
  RedisServer server;
  Subscription all(server.url(), {"n?ws*"}, true);
  all.task->start();
  EXPECT_EQ(all.seen(1), "[\"psubscribe\", \"n?ws*\", 1]");
  EXPECT_EQ(publish(server, "news/1", "x"), "1");
  EXPECT_EQ(all.seen(2), "[\"pmessage\", \"n?ws*\", \"news/1\", \"x\"]");
  all.task->quit();
  ASSERT_TRUE(all.wait_for_end());
}

TEST(RedisSubscriber, SubscriptionsChangeWhileItRuns) {
  RedisServer server;
  Subscription news(server.url());
  news.task->start();
  news.seen(1);
  EXPECT_EQ(news.task->ping("hello"), 0);
  EXPECT_EQ(news.seen(2), "[\"pong\", \"hello\"]");
  EXPECT_EQ(news.task->subscribe({"b", "c"}), 0);
  EXPECT_EQ(news.seen(4), "[\"subscribe\", \"c\", 3]");
  EXPECT_EQ(news.task->psubscribe({"p*"}), 0);
  EXPECT_EQ(news.seen(5), "[\"psubscribe\", \"p*\", 4]");
  EXPECT_EQ(news.task->unsubscribe({"b"}), 0);
  EXPECT_EQ(news.seen(6), "[\"unsubscribe\", \"b\", 3]");
  EXPECT_EQ(news.task->punsubscribe(), 0);
  EXPECT_EQ(news.seen(7), "[\"punsubscribe\", \"p*\", 2]");
  EXPECT_EQ(news.task->unsubscribe(), 0);
  news.seen(9);
  EXPECT_EQ(news.ends(), 0u) << "it goes on without any channel";
  EXPECT_EQ(news.task->subscribe({"again"}), 0);
  EXPECT_EQ(news.seen(10), "[\"subscribe\", \"again\", 1]");
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SUCCESS);
}

TEST(RedisSubscriber, WhatIsSentBeforeTheStartFollowsTheFirstCommand) {
  RedisServer server;
  Subscription news(server.url());
  EXPECT_EQ(news.task->subscribe({"early"}), 0);
  EXPECT_EQ(news.task->ping(), 0);
  news.task->start();
  EXPECT_EQ(news.seen(1), "[\"subscribe\", \"news\", 1]");
  EXPECT_EQ(news.seen(2), "[\"subscribe\", \"early\", 2]");
  EXPECT_EQ(news.seen(3), "[\"pong\", \"\"]");
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
}

TEST(RedisSubscriber, AfterTheEndNothingIsSent) {
  RedisServer server;
  Subscription news(server.url());
  news.task->start();
  news.seen(1);
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.task->ping(), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST(RedisSubscriber, ExtractMayUseTheTask) {
  RedisServer server;
  Subscription news(server.url());
  news.on_extract = [](WFRedisSubscribeTask* task) { EXPECT_EQ(task->quit(), 0); };
  news.task->start();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SUCCESS);
}

TEST(RedisSubscriber, ASlowExtractLosesNothing) {
  RedisServer server;
  Subscription news(server.url());
  Tally go;
  news.on_extract = [&](WFRedisSubscribeTask*) { EXPECT_TRUE(go.wait_for(1)); };
  news.task->start();
  ASSERT_TRUE(test_support::eventually([&] {
    return run(server.url(), {"PUBSUB", "NUMSUB", "news"}).text == "[\"news\", 1]";
  }));
  const std::string text(10000, 'x');
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(publish(server, "news", std::to_string(i) + text), "1");
  }
  go.add();
  for (size_t i = 0; i < 100; i++) {
    EXPECT_EQ(news.seen(2 + i), "[\"message\", \"news\", \"" + std::to_string(i) + text + "\"]");
  }
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
}

TEST(RedisSubscriber, EndsWhenTheServerGoesAway) {
  RedisServer server;
  Subscription news(server.url());
  news.task->start();
  news.seen(1);
  server.stop();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(news.error, ECONNRESET);
  EXPECT_EQ(news.ends(), 1u);
}

TEST(RedisSubscriber, EndsWhenItsScopeEnds) {
  RedisServer server;
  Subscription news(server.url());
  WFScopeTask* scope = WFTaskFactory::create_scope_task(news.task, nullptr);
  WFScope handle = scope->scope();
  scope->start();
  news.seen(1);
  handle.cancel();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(news.error, ECANCELED);
}

TEST(RedisSubscriber, TheWatchTimeoutLimitsTheWaitForEachReply) {
  RedisServer server;
  size_t replies = 0;
  // A busy server may need longer than the first limits to confirm the subscription.
  for (int limit_ms = 50; replies == 0 && limit_ms < 30'000; limit_ms *= 2) {
    Subscription news(server.url());
    news.task->set_watch_timeout(limit_ms);
    news.task->start();
    ASSERT_TRUE(news.wait_for_end());
    EXPECT_EQ(news.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(news.error, ETIMEDOUT);
    replies = news.count();
  }
  EXPECT_EQ(replies, 1u);
}

TEST(RedisSubscriber, WithoutAWatchTimeoutSilenceIsNoFailure) {
  RedisServer server;
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  std::unique_ptr<Subscription> subscription;
  // A busy server may need longer than the limit to confirm the subscription, for which it counts.
  int limit_ms = 250;
  do {
    limit_ms *= 2;
    settings.endpoint_params.response_timeout = limit_ms;
    WORKFLOW_library_init(&settings);
    subscription = std::make_unique<Subscription>(server.url());
    subscription->task->start();
    EXPECT_TRUE(
        test_support::eventually([&] { return subscription->count() + subscription->ends() > 0; }));
  } while (subscription->count() == 0 && limit_ms < 30'000);
  settings.endpoint_params.response_timeout = 10000;
  WORKFLOW_library_init(&settings);
  Subscription& news = *subscription;
  news.seen(1);
  // Longer than the time limit that another task would have.
  Tally later;
  WFTaskFactory::create_timer_task(milliseconds(2 * limit_ms), [&](WFTimerTask*) {
    later.add();
  })->start();
  ASSERT_TRUE(later.wait_for(1));
  EXPECT_EQ(news.ends(), 0u);
  EXPECT_EQ(publish(server, "news", "late"), "1");
  EXPECT_EQ(news.seen(2), "[\"message\", \"news\", \"late\"]");
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
}

TEST(RedisSubscriber, AServerThatIsNotThereEndsIt) {
  Subscription news("redis+unix:///nonexistent/redis.sock");
  news.task->start();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.error, ENOENT);
  EXPECT_EQ(news.count(), 0u);
}

TEST(RedisSubscriber, ALoginThatIsRefusedEndsIt) {
  RedisServer server({.arguments = {"--requirepass", "pw"}});
  Subscription wrong(server.url(":no@"));
  wrong.task->start();
  ASSERT_TRUE(wrong.wait_for_end());
  EXPECT_EQ(wrong.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(wrong.error, WFT_ERR_REDIS_ACCESS_DENIED);
  Subscription right(server.url(":pw@"));
  right.task->start();
  EXPECT_EQ(right.seen(1), "[\"subscribe\", \"news\", 1]");
  right.task->quit();
  ASSERT_TRUE(right.wait_for_end());
}

TEST(RedisSubscriber, AMessageThatIsTooLargeEndsIt) {
  RedisServer server;
  Subscription news(server.url());
  news.task->get_resp()->set_size_limit(1000);
  news.task->start();
  news.seen(1);
  publish(server, "news", std::string(500, 'x'));
  news.seen(2);
  publish(server, "news", std::string(500, 'y'));
  news.seen(3);
  publish(server, "news", std::string(2000, 'z'));
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.error, EMSGSIZE);
}

TEST(RedisSubscriber, AHostileServerEndsIt) {
  RawServer server([](Peer& peer, int) {
    CommandReader(peer).next();
    peer.send("*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n*2147483647\r\n");
    peer.ended();
  });
  Subscription news(url_of(server));
  news.task->start();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.error, EMSGSIZE);
  EXPECT_EQ(news.count(), 1u) << "what came before is passed on";
}

TEST(RedisSubscriber, ATaskMayBeReleasedAtAnyTime) {
  RedisServer server;
  WFRedisSubscriber subscriber;
  ASSERT_EQ(subscriber.init(server.url()), 0);
  Tally ended;
  const auto callback = [&](WFRedisSubscribeTask*) { ended.add(); };
  // Before the start, in extract, and in the callback.
  WFRedisSubscribeTask* before = subscriber.create_subscribe_task(
      {"a"}, [](WFRedisSubscribeTask* task) { task->quit(); }, callback);
  before->release();
  before->start();
  subscriber
      .create_subscribe_task(
          {"a"},
          [](WFRedisSubscribeTask* task) {
            task->quit();
            task->release();
          },
          callback)
      ->start();
  subscriber
      .create_subscribe_task(
          {"a"}, [](WFRedisSubscribeTask* task) { task->quit(); },
          [&](WFRedisSubscribeTask* task) {
            task->release();
            ended.add();
          })
      ->start();
  EXPECT_TRUE(ended.wait_for(3));
}

TEST(RedisSubscriber, ATaskThatIsDroppedBeforeItsStartWaitsForItsRelease) {
  WFRedisSubscriber subscriber;
  ASSERT_EQ(subscriber.init("redis://127.0.0.1/"), 0);
  subscriber.create_subscribe_task({"a"}, nullptr, nullptr)->dismiss();
  WFRedisSubscribeTask* dropped = subscriber.create_subscribe_task({"a"}, nullptr, nullptr);
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(
      WFTaskFactory::create_timer_task(0, 0,
                                       [](WFTimerTask* timer) { series_of(timer)->cancel(); }),
      [&](const SeriesWork*) { ended.add(); });
  series->push_back(dropped);
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(dropped->ping(), -1);
  dropped->release();
}

TEST(RedisSubscriber, AUrlThatMakesNoSenseIsRefused) {
  WFRedisSubscriber subscriber;
  for (const char* url : {"", "http://host/", "redis://host/x", "redis+sentinel://host/name"}) {
    errno = 0;
    EXPECT_EQ(subscriber.init(url), -1) << url;
    EXPECT_EQ(errno, EINVAL) << url;
  }
  Tally ended;
  WFRedisSubscribeTask* task =
      subscriber.create_subscribe_task({"a"}, nullptr, [&](WFRedisSubscribeTask* done) {
        EXPECT_EQ(done->get_state(), WFT_STATE_SYS_ERROR);
        EXPECT_EQ(done->get_error(), EINVAL);
        done->release();
        ended.add();
      });
  task->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(RedisSubscriber, ManyThreadsMaySendAtOnce) {
  RedisServer server;
  Subscription news(server.url());
  news.task->start();
  constexpr int kThreads = 4;
  constexpr int kPings = 500;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < kPings; n++) {
        EXPECT_EQ(news.task->ping("x"), 0);
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(news.seen(1 + kThreads * kPings), "[\"pong\", \"x\"]");
  news.task->quit();
  ASSERT_TRUE(news.wait_for_end());
  EXPECT_EQ(news.state, WFT_STATE_SUCCESS);
}

}  // namespace
}  // namespace redis_test

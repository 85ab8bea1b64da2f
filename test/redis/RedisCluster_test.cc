#include "support/RedisCluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>

#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/Tally.h"
#include "workflow/WFDeadline.h"

// Redirections of a cluster, and the errors after which a command may come again.

namespace redis_test {
namespace {

using test_support::eventually;
using test_support::Tally;

TEST(RedisRedirections, AnyNodeLeadsToTheRightOne) {
  RedisCluster cluster;
  for (size_t i = 0; i < 60; i++) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_EQ(run(cluster.node(i % cluster.masters()).url(), {"SET", key, std::to_string(i)}).text,
              "OK");
  }
  int64_t total = 0;
  for (size_t i = 0; i < cluster.masters(); i++) {
    const int64_t size = run(cluster.node(i).url(), {"DBSIZE"}).value.int_value();
    EXPECT_GT(size, 0);
    total += size;
  }
  EXPECT_EQ(total, 60);
  for (size_t i = 0; i < 60; i++) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_EQ(
        run(cluster.node((i + 1) % cluster.masters()).url(), {"GET", key}).value.string_value(),
        std::to_string(i));
  }
}

TEST(RedisRedirections, ASlotThatIsMovingIsAskedFor) {
  RedisCluster cluster;
  const size_t slot = cluster.slot_of("moving");
  const size_t from = cluster.owner_of(slot);
  const size_t to = (from + 1) % cluster.masters();
  const std::string number = std::to_string(slot);
  ASSERT_EQ(
      run(cluster.node(to).url(), {"CLUSTER", "SETSLOT", number, "IMPORTING", cluster.id(from)})
          .text,
      "OK");
  ASSERT_EQ(
      run(cluster.node(from).url(), {"CLUSTER", "SETSLOT", number, "MIGRATING", cluster.id(to)})
          .text,
      "OK");
  // The key is not on the old node, so the new one is asked.
  EXPECT_EQ(run(cluster.node(from).url(), {"SET", "moving", std::string(100000, 'x')}).text, "OK");
  EXPECT_EQ(run(cluster.node(from).url(), {"STRLEN", "moving"}).text, "100000");
  EXPECT_EQ(run(cluster.node(to).url(), {"DBSIZE"}).text, "1");
  for (size_t i = 0; i < cluster.masters(); i++) {
    run(cluster.node(i).url(), {"CLUSTER", "SETSLOT", number, "NODE", cluster.id(to)});
  }
  EXPECT_EQ(run(cluster.node(from).url(), {"STRLEN", "moving"}).text, "100000");
}

// Answers with each of the lines in turn, and then with the last one.
struct Scripted {
  explicit Scripted(std::vector<std::string> lines)
      : server(answering([this, lines = std::move(lines)](const auto&, int) {
          const size_t n = asked++;
          return lines[std::min(n, lines.size() - 1)] + "\r\n";
        })) {}

  std::atomic<size_t> asked{0};
  RawServer server;
};

TEST(RedisTryAgain, ACommandComesAgainAsOftenAsAllowed) {
  for (const char* error : {"-TRYAGAIN Multiple keys", "-CLUSTERDOWN The cluster is down"}) {
    Scripted scripted({error, error, "+done"});
    EXPECT_EQ(run(url_of(scripted.server), {"SET", "k", "v"}, {.retry_max = 2}).text, "done");
    Scripted down({error});
    const Reply reply = run(url_of(down.server), {"SET", "k", "v"}, {.retry_max = 2});
    EXPECT_EQ(reply.state, WFT_STATE_SUCCESS);
    EXPECT_EQ("-" + reply.value.string_value(), error);
    EXPECT_EQ(down.asked, 3u);
  }
}

TEST(RedisTryAgain, OtherErrorsAreRepliesAtOnce) {
  Scripted scripted({"-ERR no", "+done"});
  EXPECT_EQ(run(url_of(scripted.server), {"GET", "k"}, {.retry_max = 5}).text, "(error) ERR no");
}

TEST(RedisTryAgain, ADeadlineEndsThePauses) {
  Scripted scripted({"-TRYAGAIN"});
  Tally ended;
  Reply reply;
  WFRedisTask* task =
      WFTaskFactory::create_redis_task(url_of(scripted.server), 1'000'000, [&](WFRedisTask* done) {
        reply = reply_of(done);
        ended.add();
      });
  task->get_req()->set_request("SET", {"k", "v"});
  with_deadline(task, std::chrono::milliseconds(200), nullptr)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ETIMEDOUT);
}

TEST(RedisTryAgain, ACancelledSeriesEndsThePauses) {
  Scripted scripted({"-TRYAGAIN"});
  Tally callbacks;
  Tally ended;
  Reply reply;
  WFRedisTask* task =
      WFTaskFactory::create_redis_task(url_of(scripted.server), 1'000'000, [&](WFRedisTask* done) {
        reply = reply_of(done);
        callbacks.add();
      });
  task->get_req()->set_request("SET", {"k", "v"});
  SeriesWork* series = Workflow::create_series_work(task, [&](const SeriesWork*) { ended.add(); });
  series->start();
  ASSERT_TRUE(eventually([&] { return scripted.asked > 2; }));
  series->cancel();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(callbacks.count(), 1u);
  EXPECT_EQ(reply.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reply.error, ECANCELED);
}

TEST(RedisTryAgain, WhatFollowsInTheSeriesComesAfterwards) {
  Scripted scripted({"-TRYAGAIN", "+done"});
  std::string order;
  Tally ended;
  WFRedisTask* task = WFTaskFactory::create_redis_task(
      url_of(scripted.server), 3, [&](WFRedisTask* done) { order += reply_of(done).text; });
  task->get_req()->set_request("SET", {"k", "v"});
  SeriesWork* series = Workflow::create_series_work(task, [&](const SeriesWork*) { ended.add(); });
  series->push_back(
      WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) { order += " next"; }));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(order, "done next");
}

}  // namespace
}  // namespace redis_test

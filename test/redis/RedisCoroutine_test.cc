// Commands to a Redis in coroutines.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/RedisServer.h"
#include "workflow/WFCoroutine.h"

namespace redis_test {
namespace {

WFRedisTask* command(const std::string& url, const std::string& name,
                     const std::vector<std::string>& parameters) {
  WFRedisTask* const task = WFTaskFactory::create_redis_task(url, 0, nullptr);
  task->get_req()->set_request(name, parameters);
  return task;
}

WFCo<std::string> set_and_get(std::string url) {
  WFRedisTask* const set = command(url, "SET", {"tea", "green"});
  (co_await set).check();
  WFRedisTask* const get = command(url, "GET", {"tea"});
  auto got = co_await get;
  protocol::RedisValue value;
  EXPECT_TRUE(got && got.value->get_result(value));
  co_return value.string_value();
}

TEST(RedisCoroutine, ACommandGivesItsReply) {
  const RedisServer server;
  EXPECT_EQ(wf::wait(set_and_get, server.url()), "green");
}

WFCo<> wait_for_nothing(std::string url) {
  WFRedisTask* const pop = command(url, "BLPOP", {"nothing", "0"});
  const auto popped = co_await wf::within(std::chrono::milliseconds(20), pop);
  EXPECT_FALSE(popped);
  EXPECT_EQ(popped.error, ETIMEDOUT);
}

TEST(RedisCoroutine, ACommandEndsWithItsScope) {
  const RedisServer server;
  wf::wait(wait_for_nothing, server.url());
}

}  // namespace
}  // namespace redis_test

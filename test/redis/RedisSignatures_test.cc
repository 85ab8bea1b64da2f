#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "workflow/WFFacilities.h"
#include "workflow/WFRedisSubscriber.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"

// What programs of the interface expect of names, parameters and results.

using protocol::RedisRequest;
using protocol::RedisResponse;
using protocol::RedisValue;

namespace {

using Strings = std::vector<std::string>;

static_assert(std::is_same_v<WFRedisTask, WFNetworkTask<RedisRequest, RedisResponse>>);
static_assert(std::is_same_v<redis_callback_t, std::function<void(WFRedisTask*)>>);
static_assert(std::is_base_of_v<protocol::ProtocolMessage, RedisRequest>);
static_assert(std::is_base_of_v<protocol::ProtocolMessage, RedisResponse>);
static_assert(std::is_copy_constructible_v<RedisValue> && std::is_move_assignable_v<RedisValue>);
static_assert(WFT_ERR_REDIS_ACCESS_DENIED == 3001 && WFT_ERR_REDIS_COMMAND_DISALLOWED == 3002);

// A member function by its type.
template <class FUNCTION>
constexpr void expect(FUNCTION) {}

TEST(RedisSignatures, AreThoseOfTheInterface) {
  expect<void (RedisValue::*)()>(&RedisValue::set_nil);
  expect<void (RedisValue::*)(int64_t)>(&RedisValue::set_int);
  expect<void (RedisValue::*)(const std::string&)>(&RedisValue::set_string);
  expect<void (RedisValue::*)(const char*)>(&RedisValue::set_status);
  expect<void (RedisValue::*)(const char*, size_t)>(&RedisValue::set_error);
  expect<void (RedisValue::*)(size_t)>(&RedisValue::set_array);
  expect<bool (RedisValue::*)() const>(&RedisValue::is_ok);
  expect<int (RedisValue::*)() const>(&RedisValue::get_type);
  expect<std::string (RedisValue::*)() const>(&RedisValue::string_value);
  expect<const std::string* (RedisValue::*)() const>(&RedisValue::string_view);
  expect<int64_t (RedisValue::*)() const>(&RedisValue::int_value);
  expect<size_t (RedisValue::*)() const>(&RedisValue::arr_size);
  expect<void (RedisValue::*)(size_t)>(&RedisValue::arr_resize);
  expect<RedisValue& (RedisValue::*)(size_t)>(&RedisValue::arr_at);
  expect<std::string (RedisValue::*)() const>(&RedisValue::debug_string);
  expect<void (RedisRequest::*)(const std::string&, const Strings&)>(&RedisRequest::set_request);
  expect<bool (RedisRequest::*)(std::string&) const>(&RedisRequest::get_command);
  expect<bool (RedisRequest::*)(Strings&) const>(&RedisRequest::get_params);
  expect<bool (RedisResponse::*)(RedisValue&) const>(&RedisResponse::get_result);
  expect<bool (RedisResponse::*)(const RedisValue&)>(&RedisResponse::set_result);
  expect<WFRedisTask* (*)(const std::string&, int, redis_callback_t)>(
      &WFTaskFactory::create_redis_task);
  expect<WFRedisTask* (*)(const ParsedURI&, int, redis_callback_t)>(
      &WFTaskFactory::create_redis_task);
  using Task = WFRedisSubscribeTask;
  expect<int (Task::*)(const Strings&)>(&Task::subscribe);
  expect<int (Task::*)(const Strings&)>(&Task::unsubscribe);
  expect<int (Task::*)()>(&Task::unsubscribe);
  expect<int (Task::*)(const Strings&)>(&Task::psubscribe);
  expect<int (Task::*)()>(&Task::punsubscribe);
  expect<int (Task::*)(const std::string&)>(&Task::ping);
  expect<int (Task::*)()>(&Task::quit);
  expect<void (Task::*)(std::function<void(Task*)>)>(&Task::set_extract);
  expect<void (Task::*)(std::function<void(Task*)>)>(&Task::set_callback);
  expect<void (Task::*)()>(&Task::release);
  expect<int (WFRedisSubscriber::*)(const std::string&)>(&WFRedisSubscriber::init);
}

// A server of the protocol by the pair of messages, for tests of users.
TEST(RedisSignatures, TheMessagesServeAServerToo) {
  WFServer<RedisRequest, RedisResponse> server(
      [](WFNetworkTask<RedisRequest, RedisResponse>* task) {
        std::string command;
        Strings params;
        EXPECT_TRUE(task->get_req()->get_command(command));
        EXPECT_TRUE(task->get_req()->get_params(params));
        RedisValue value;
        value.set_array(2);
        value[0].set_string(command);
        value[1].set_int(static_cast<int64_t>(params.size()));
        task->get_resp()->set_result(value);
      });
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  ASSERT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
  const std::string url = "redis://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  WFFacilities::WaitGroup done(1);
  std::string text;
  WFRedisTask* task = WFTaskFactory::create_redis_task(url, 0, [&](WFRedisTask* ended) {
    RedisValue value;
    ended->get_resp()->get_result(value);
    text = value.debug_string();
    done.done();
  });
  task->get_req()->set_request("ANY", {"a", "b"});
  task->start();
  done.wait();
  EXPECT_EQ(text, "[\"ANY\", 2]");
  server.stop();
}

}  // namespace

// Requests in a protocol of the user's, and deadlines, in coroutines.

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/Loopback.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFServer.h"

namespace {

using protocol::TLVRequest;
using protocol::TLVResponse;
using EchoTask = WFNetworkTask<TLVRequest, TLVResponse>;
using EchoServer = WFServer<TLVRequest, TLVResponse>;
using EchoFactory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;

WFCo<std::string> echo(unsigned short port, std::string text) {
  EchoTask* const task = EchoFactory::create_client_task(TT_TCP, "127.0.0.1", port, 0, nullptr);
  task->get_req()->set_value(text);
  auto answer = co_await task;
  EXPECT_TRUE(answer) << answer.error;
  co_return answer ? *answer.value->get_value() : "";
}

TEST(CoroutineRequests, AnAnswerInAProtocolOfTheUsersIsGiven) {
  EchoServer server(
      [](EchoTask* task) { task->get_resp()->set_value(*task->get_req()->get_value()); });
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  EXPECT_EQ(wf::wait(echo, test_support::port_of(server), "hello"), "hello");
  server.stop();
}

WFCo<> wait_for_a_deadline() {
  const WFEnd end = co_await WFTaskFactory::create_deadline_task(
      WFTaskFactory::create_timer_task(3600, 0, nullptr), std::chrono::milliseconds(1), nullptr);
  EXPECT_EQ(end.error, ETIMEDOUT);
}

TEST(CoroutineRequests, ADeadlineTaskSaysThatTimeIsUp) {
  wf::wait(wait_for_a_deadline);
}

}  // namespace

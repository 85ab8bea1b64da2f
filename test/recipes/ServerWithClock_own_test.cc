#include <gtest/gtest.h>
#include <netinet/in.h>

#include <chrono>
#include <string>
#include <thread>

#include "workflow/WFFuture.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Replies after an hour.
static void process(WFHttpTask* task) {
  task->get_resp()->append_output_body("an hour later");
  series_of(task)->push_back(
      WFTaskFactory::create_timer_task("reply", std::chrono::hours(1), nullptr));
}

// Recipe
TEST(Server, RepliesAfterAnHour) {
  ASSERT_EQ(WFManualClock::install(), 0);
  WFHttpServer server(process);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);

  WFPromise<std::string> promise;
  WFFuture<std::string> reply = promise.get_future();
  const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  WFHttpTask* request = WFTaskFactory::create_http_task(url, 0, 0, [&promise](WFHttpTask* task) {
    promise.set_value(protocol::HttpUtil::decode_chunked_body(task->get_resp()));
  });
  request->set_watch_timeout(-1);
  request->start();
  while (WFTimer::count("reply") == 0)
    std::this_thread::yield();

  WFManualClock::advance(std::chrono::minutes(59));
  EXPECT_EQ(reply.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  WFManualClock::advance(std::chrono::minutes(1));
  EXPECT_EQ(reply.get(), "an hour later");
}
// End of recipe

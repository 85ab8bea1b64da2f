// HTTP handlers that are coroutines.

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

WFCo<> answer_late(WFHttpTask* request) {
  const std::string uri = request->get_req()->get_request_uri();
  (co_await wf::sleep(1ms)).check();
  if (uri == "/throw") throw std::runtime_error("broken");
  request->get_resp()->append_output_body("answer to " + uri);
}

struct Answer {
  WFEnd end;
  std::string status;
  std::string body;
};

WFCo<Answer> ask(std::string url) {
  auto response = co_await WFTaskFactory::create_http_task(url, 0, 0, nullptr);
  Answer answer;
  answer.end = response;
  if (response) {
    answer.status = response.value->get_status_code();
    const void* body = nullptr;
    size_t size = 0;
    response.value->get_parsed_body(&body, &size);
    answer.body.assign(static_cast<const char*>(body), size);
  }
  co_return answer;
}

WFCo<> ask_both(std::string base, Tally& tally) {
  const Answer good = co_await ask(base + "/good");
  EXPECT_EQ(good.status, "200");
  EXPECT_EQ(good.body, "answer to /good");
  const Answer bad = co_await ask(base + "/throw");
  EXPECT_EQ(bad.status, "500");
  EXPECT_EQ(bad.body, "");
  tally.add();
}

TEST(CoroutineServe, TheReplyLeavesAfterTheHandlerAndAnExceptionIs500) {
  WFHttpServer server(wf::serve(answer_late));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  Tally tally;
  const std::string base = "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
  wf::task(ask_both, base, std::ref(tally))->start();
  EXPECT_TRUE(tally.wait_for(1));
  server.stop();
}

}  // namespace

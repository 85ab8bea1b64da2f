#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "support/Eventually.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"

// What the tests of the recipes share. The recipes themselves use the public headers alone: each
// stands between "// Recipe" and "// End of recipe", and docs/recipes.md shows the same text.

namespace recipes_test {

using test_support::eventually;
using test_support::Tally;

// Time stands still until a test moves it. Called before the first task of the program.
inline bool clock_stands() {
  static const bool installed = WFManualClock::install() == 0;
  return installed;
}

inline std::string url_of(const WFServerBase& server) {
  return "http://127.0.0.1:" + std::to_string(test_support::port_of(server));
}

// A server on 127.0.0.1, started. It stops when it is destroyed.
class LocalServer {
 public:
  explicit LocalServer(http_process_t process) : server_(std::move(process)) {
    EXPECT_TRUE(clock_stands());
    if (server_.start("127.0.0.1", 0) == 0) url_ = url_of(server_);
  }
  ~LocalServer() { server_.stop(); }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  const std::string& url() const { return url_; }

 private:
  WFHttpServer server_;
  std::string url_;
};

struct Answer {
  int status = 0;  // 0: there was none
  std::string body;
  std::string allow;
};

// Sends one request and waits for its answer. `prepare` may change the request.
inline Answer ask(const std::string& url,
                  const std::function<void(protocol::HttpRequest*)>& prepare = nullptr) {
  Answer answer;
  Tally ended;
  WFHttpTask* task = WFTaskFactory::create_http_task(url, 0, 0, [&](WFHttpTask* done) {
    if (done->get_state() == WFT_STATE_SUCCESS) {
      answer.status = std::stoi(done->get_resp()->get_status_code());
      answer.body = protocol::HttpUtil::decode_chunked_body(done->get_resp());
      answer.allow = protocol::HttpHeaderMap(done->get_resp()).get("Allow");
    }
    ended.add();
  });
  if (prepare) prepare(task->get_req());
  task->start();
  return ended.wait_for(1) ? answer : Answer();
}

inline Answer post(const std::string& url, const std::string& type, const std::string& body,
                   const char* method = "POST") {
  return ask(url, [&](protocol::HttpRequest* request) {
    request->set_method(method);
    request->set_header_pair("Content-Type", type);
    request->append_output_body(body);
  });
}

}  // namespace recipes_test

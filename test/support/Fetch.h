#pragma once

#include <functional>
#include <string>
#include <utility>

#include "workflow/HttpUtil.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

namespace client_test {

// How a request over HTTP ended.
struct Fetched {
  int state = -2;
  int error = 0;
  int timeout_reason = 0;
  long long sequence = 0;
  std::string status;
  std::string body;
};

inline Fetched fetched(WFHttpTask* task) {
  Fetched result;
  result.state = task->get_state();
  result.error = task->get_error();
  result.timeout_reason = task->get_timeout_reason();
  result.sequence = task->get_task_seq();
  if (result.state == WFT_STATE_SUCCESS) {
    task->get_resp()->get_status_code(result.status);
    result.body = protocol::HttpUtil::decode_chunked_body(task->get_resp());
  }
  return result;
}

struct FetchOptions {
  int redirect_max = 0;
  int retry_max = 0;
  std::function<void(WFHttpTask*)> change = nullptr;  // before the start
};

// Requests what `create` makes a task for, and waits for the end. `create` takes the callback.
template <class Create>
Fetched fetch_task(const FetchOptions& options, const Create& create) {
  Fetched result;
  WFFacilities::WaitGroup group(1);
  WFHttpTask* task = create([&](WFHttpTask* done) {
    result = fetched(done);
    group.done();
  });
  if (options.change) {
    options.change(task);
  }
  task->start();
  group.wait();
  return result;
}

// Requests `url` and waits for the end.
inline Fetched fetch(const std::string& url, const FetchOptions& options = {}) {
  return fetch_task(options, [&](http_callback_t callback) {
    return WFTaskFactory::create_http_task(url, options.redirect_max, options.retry_max,
                                           std::move(callback));
  });
}

// Fetches through the proxy whose URL is `proxy`.
inline Fetched fetch_through(const std::string& url, const std::string& proxy,
                             const FetchOptions& options) {
  return fetch_task(options, [&](http_callback_t callback) {
    return WFTaskFactory::create_http_task(url, proxy, options.redirect_max, options.retry_max,
                                           std::move(callback));
  });
}

}  // namespace client_test

#pragma once

#include <functional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/URIParser.h"
#include "workflow/WFClientTask.h"

// What HTTP adds to its client tasks. WFTaskFactory::create_http_task() says what users see of it.
template <>
struct WFClientProtocol<protocol::HttpRequest, protocol::HttpResponse> {
  static constexpr int kKeepAlive = 60 * 1000;

  static bool prepare(const workflow::ClientTarget &target, protocol::HttpRequest *request,
                      protocol::HttpResponse *response, bool keep_alive);
  static bool leaves_connection_usable(const protocol::HttpRequest *request,
                                       const protocol::HttpResponse *response);
  // Returns true for idempotent methods (RFC 9110, 9.2.2).
  static bool is_repeatable(const protocol::HttpRequest *request);
};

namespace workflow {

// The task that WFTaskFactory::create_http_task() creates. It follows redirects.
class HttpClientTask : public WFClientTask<protocol::HttpRequest, protocol::HttpResponse> {
 public:
  using Callback = std::function<void(Task *)>;

  // `proxy`: null means none.
  HttpClientTask(const ParsedURI &uri, const ParsedURI *proxy, int redirect_max, int retry_max,
                 Callback callback);

 protected:
  ~HttpClientTask() override = default;

  bool goes_on() override;

  // For a response whose header section has arrived: whether it is a redirect that goes_on() will
  // follow.
  bool is_followed() const;

 private:
  // Makes `uri_` the target of the request. Returns 0, or a WFT_ERR_URI_* code.
  int aim();
  // Does the same through the proxy. `target` is on entry the target without the proxy.
  int aim_at_proxy(const std::string &path, ClientTarget *target);
  bool follow();
  bool fail_redirect();

  ParsedURI uri_;
  ParsedURI proxy_;
  const bool uses_proxy_;
  int redirects_left_;
};

}  // namespace workflow

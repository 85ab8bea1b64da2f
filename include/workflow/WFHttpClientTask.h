#pragma once

#include <functional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/URIParser.h"
#include "workflow/WFClientTask.h"

// HTTP/1.1 (RFC 9110, 9112). What the task adds to a request where the user did not: method GET,
// target "/", version, Host, the true Content-Length, and "Connection: close" where the connection
// is not to be kept. Of several Host fields that differ none is sent, nor any version
// but 1.1 and 1.0: EINVAL. A body that the user frames ("Transfer-Encoding: chunked") has to be
// chunks, whole and nothing else, and no other coding can be announced: EINVAL.
template <>
struct WFClientProtocol<protocol::HttpRequest, protocol::HttpResponse> {
  static constexpr int kKeepAlive = 60 * 1000;

  static bool prepare(const workflow::ClientTarget &target, protocol::HttpRequest *request,
                      protocol::HttpResponse *response, bool keep_alive);
  static bool leaves_connection_usable(const protocol::HttpRequest *request,
                                       const protocol::HttpResponse *response);
  // Idempotent methods (RFC 9110, 9.2.2).
  static bool is_repeatable(const protocol::HttpRequest *request);
};

namespace workflow {

// What WFTaskFactory::create_http_task() creates: follows redirects.
class HttpClientTask : public WFClientTask<protocol::HttpRequest, protocol::HttpResponse> {
 public:
  using Callback = std::function<void(Task *)>;

  // `proxy`: null means none.
  HttpClientTask(const ParsedURI &uri, const ParsedURI *proxy, int redirect_max, int retry_max,
                 Callback callback);

 protected:
  ~HttpClientTask() override = default;

  bool goes_on() override;

  // Of a response whose header section has come: a redirect that goes_on() will follow.
  bool is_followed() const;

 private:
  // Makes the request one for `uri_`. 0, or a WFT_ERR_URI_*.
  int aim();
  // The same by way of the proxy, given the target without it.
  int aim_at_proxy(const std::string &path, ClientTarget *target);
  bool follow();
  bool fail_redirect();

  ParsedURI uri_;
  ParsedURI proxy_;
  const bool uses_proxy_;
  int redirects_left_;
};

}  // namespace workflow

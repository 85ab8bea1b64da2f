#pragma once

#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"

using http_process_t =
    std::function<void(WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse> *)>;

static constexpr struct WFServerParams HTTP_SERVER_PARAMS_DEFAULT = [] {
  struct WFServerParams params = SERVER_PARAMS_DEFAULT;
  params.request_size_limit = 16 * 1024 * 1024;
  params.alpn_protocol = "http/1.1,http/1.0";
  return params;
}();

// HTTP/1.1 and 1.0 (RFC 9110, 9112). Where the user did not set them, the task adds to a reply the
// version, the status 200 OK, Date, and Connection (if it differs from the version's default). It
// sets Content-Length to the true value; only a reply to HEAD and one with status 304, which have
// no body, may keep the user's. Replies to HEAD, and replies with status 204 or 304, are sent
// without a body. A chunked reply, whose chunks the user writes, is sent without Content-Length.
// HTTP/1.0 has no chunks, so the server removes the chunk framing for such a client. A 2xx reply to
// CONNECT is sent without a body, too. A reply to CONNECT is the last of its connection, whatever
// its status: no tunnel can follow, and what the client has sent behind it may be meant for one
// (RFC 9931, 8). A reply that cannot be sent as it is becomes a 500 without a body: one whose
// status is 1xx, whose version is neither 1.1 nor 1.0, whose transfer coding is not "chunked", or
// whose chunks are malformed or incomplete.
template <>
struct WFServerProtocol<protocol::HttpRequest, protocol::HttpResponse> {
  struct RequestFacts {
    bool is_head;
    bool is_connect;
    bool is_http10;
    bool keep_alive;
  };
  static RequestFacts facts_of(const protocol::HttpRequest *request);

  static void prepare_request(protocol::HttpRequest *request, const WFServerParams &params);
  static bool is_header_complete(const protocol::HttpRequest *request);
  static std::string refusal(const protocol::HttpRequest *request, bool timed_out);
  static std::string unavailable();
  static bool prepare_reply(const RequestFacts &request, protocol::HttpResponse *response,
                            bool may_keep);
  // Whether a reply can have this head.
  static bool can_stream(const protocol::HttpResponse *response);
  static workflow::ServerExchange::StreamForm prepare_stream(const RequestFacts &request,
                                                             protocol::HttpResponse *response,
                                                             bool may_keep, bool of_events);
};

template <>
inline WFServer<protocol::HttpRequest, protocol::HttpResponse>::WFServer(Process process)
    : WFServer(&HTTP_SERVER_PARAMS_DEFAULT, std::move(process)) {}

using WFHttpServer = WFServer<protocol::HttpRequest, protocol::HttpResponse>;

// Shows: a server that is a client, too. Every request is sent on to another server, within the
// request's own series, and the answer comes back: no thread waits meanwhile.
//
// Try:   tutorial-14-proxy [origin [port]]   default http://127.0.0.1:8000, 8080; Enter stops it
//        curl http://127.0.0.1:8080/
//        curl -x http://127.0.0.1:8080 http://any.example/
#include <netinet/in.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

namespace {

// What concerns one connection only, and is not passed on (RFC 9110, 7.6.1).
void erase_connection_fields(protocol::HttpMessage* message) {
  for (const char* name : {"Connection", "Keep-Alive", "Transfer-Encoding", "TE", "Upgrade",
                           "Proxy-Connection", "Host", "Content-Length"}) {
    protocol::HttpHeaderCursor cursor(message);
    while (cursor.find_and_erase(name)) {
      cursor.rewind();
    }
  }
}

void answer(WFHttpTask* reply, WFHttpTask* upstream) {
  protocol::HttpResponse* response = reply->get_resp();
  // 101 is the only status 1xx that is an answer; there is no tunnel here for what comes behind it.
  if (upstream->get_state() != WFT_STATE_SUCCESS ||
      *upstream->get_resp()->get_status_code() == '1') {
    protocol::HttpUtil::set_response_status(response, HttpStatusBadGateway);
    return;
  }
  // The whole message: fields and body are not copied.
  const std::string body = protocol::HttpUtil::decode_chunked_body(upstream->get_resp());
  *response = std::move(*upstream->get_resp());
  erase_connection_fields(response);
  response->append_output_body(body);
}

// Where a request goes; "" when nowhere: CONNECT, which wants a tunnel, and OPTIONS of "*".
std::string url_of(const protocol::HttpRequest* request, const std::string& origin) {
  const std::string target = request->get_request_uri();
  // Clients that use the proxy name the whole URL (RFC 9112, 3.2.2).
  if (target.compare(0, 7, "http://") == 0) {
    return target;
  }
  return target.compare(0, 1, "/") == 0 ? origin + target : "";
}

void send_on(WFHttpTask* task, const std::string& origin) {
  protocol::HttpRequest* request = task->get_req();
  const std::string url = url_of(request, origin);
  if (url.empty()) {
    protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusNotImplemented);
    return;
  }
  WFHttpTask* upstream = WFTaskFactory::create_http_task(
      url, /*redirect_max=*/0, /*retry_max=*/1, [task](WFHttpTask* ended) { answer(task, ended); });
  std::string target;
  if (!upstream->get_req()->get_request_uri(target)) {  // no URL, for all that it began as one
    upstream->dismiss();
    protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusBadRequest);
    return;
  }
  const std::string body = protocol::HttpUtil::decode_chunked_body(request);
  erase_connection_fields(request);
  *upstream->get_req() = std::move(*request);
  upstream->get_req()->set_request_uri(target);
  upstream->get_req()->append_output_body(body);
  // The reply is sent when the series has no task left: after the upstream's answer.
  series_of(task)->push_back(upstream);
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string origin = argc > 1 ? argv[1] : "http://127.0.0.1:8000";
  const int port = argc > 2 ? std::atoi(argv[2]) : 8080;
  WFHttpServer server([&](WFHttpTask* task) { send_on(task, origin); });
  if (server.start("127.0.0.1", static_cast<unsigned short>(port)) != 0) {
    std::perror("cannot start the proxy");
    return 1;
  }
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  std::printf("listening on http://127.0.0.1:%d, Enter stops\n", ntohs(address.sin_port));
  std::fflush(stdout);
  std::getchar();
  server.stop();
}

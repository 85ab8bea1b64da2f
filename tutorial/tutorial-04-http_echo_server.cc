// Shows: reading a request (line, header fields, body) and building a reply.
//
// Try:   tutorial-04-http_echo_server [port]   default 8080; Enter stops it
//        curl -d 'some text' http://127.0.0.1:8080/any/path
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"

namespace {

// Sends back what was received, as text.
void process(WFHttpTask* task) {
  const protocol::HttpRequest* request = task->get_req();
  protocol::HttpResponse* response = task->get_resp();

  response->set_header_pair("Content-Type", "text/plain");
  response->append_output_body(std::string(request->get_method()) + " " +
                               request->get_request_uri() + " " + request->get_http_version() +
                               "\n");

  protocol::HttpHeaderCursor cursor(request);
  std::string name;
  std::string value;
  while (cursor.next(name, value))
    response->append_output_body(name + ": " + value + "\n");

  response->append_output_body("\n");
  response->append_output_body(protocol::HttpUtil::decode_chunked_body(request));

  // The fifth reply of a connection is its last.
  if (task->get_task_seq() == 4) response->set_header_pair("Connection", "close");
}

}  // namespace

int main(int argc, char* argv[]) {
  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;

  // Every limit of docs/http-server.md is a parameter.
  struct WFServerParams params = HTTP_SERVER_PARAMS_DEFAULT;
  params.request_size_limit = 1024 * 1024;

  WFHttpServer server(&params, process);
  if (server.start("127.0.0.1", static_cast<unsigned short>(port)) != 0) {
    std::perror("cannot start the server");
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

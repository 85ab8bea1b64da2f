// Shows: a coroutine that serves requests. It asks two servers and answers with what comes first.
// The other request ends at once. Both end if two seconds have passed, or if the client leaves.
//
// Try:   tutorial-26-first_answer URL URL [port]   default 8080; Enter stops it
//        curl http://127.0.0.1:8080/
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <variant>

#include "workflow/WFCoroutine.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

using namespace std::chrono_literals;

namespace {

struct Backends {
  std::string first, second;
};

WFHttpTask* request(const std::string& url) {
  return WFTaskFactory::create_http_task(url, 2, 0, nullptr);
}

// The reply is sent when this has returned.
WFCo<> answer(WFHttpTask* task, const Backends& backends) {
  task->set_deadline(2s);
  auto first = co_await wf::any(request(backends.first), request(backends.second));

  // The result of the first to end. Both results are of the same type here.
  auto& ended = first.index == 0 ? std::get<0>(first.value) : std::get<1>(first.value);
  if (!ended) {
    task->get_resp()->set_status_code(ended.error == ETIMEDOUT ? "504" : "502");
    co_return;
  }
  const void* body = nullptr;
  size_t size = 0;
  ended.value->get_parsed_body(&body, &size);
  task->get_resp()->add_header_pair("X-Answered-By", std::to_string(first.index));
  task->get_resp()->append_output_body(body, size);
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s URL URL [port]\n", argv[0]);
    return 2;
  }
  const Backends backends = {argv[1], argv[2]};
  // The lambda lives as long as the server, and so does what it has captured.
  WFHttpServer server(wf::serve([&backends](WFHttpTask* task) { return answer(task, backends); }));

  const int port = argc > 3 ? std::atoi(argv[3]) : 8080;
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

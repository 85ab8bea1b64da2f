// Shows: the smallest HTTP server.
//
// Try:   tutorial-00-hello [port]           default 8080, 0 chooses a free one; Enter stops it
//        curl http://127.0.0.1:8080/
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>

#include "workflow/WFHttpServer.h"

int main(int argc, char* argv[]) {
  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;

  // Called for each request, on a thread of the library; the reply leaves when it has returned.
  WFHttpServer server(
      [](WFHttpTask* task) { task->get_resp()->append_output_body("Hello, world!\n"); });

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
  server.stop();  // replies in flight are sent first
}

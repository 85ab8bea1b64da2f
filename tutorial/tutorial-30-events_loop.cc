// Shows: a reply that is sent piece by piece, written as a loop: events for browsers' EventSource.
// A client that is slow is waited for, and one that leaves ends the loop.
//
// Try:   tutorial-30-events_loop [port]      default 8080; Enter stops it
//        curl -N http://127.0.0.1:8080/      an event each 100 ms; Ctrl-C: the server says so
#include <arpa/inet.h>
#include <netinet/in.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "workflow/WFCoroutine.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFHttpStream.h"

using namespace std::chrono_literals;

namespace {

WFCo<> events(WFHttpTask* task) {
  const WFCoStream stream = wf::event_stream(task);
  stream.handle().set_heartbeat(15 * 1000);
  for (int tick = 0; !stream.handle().stopping(); tick++) {
    // Goes on when the client has taken most of what was sent; at once if it keeps up.
    const WFEnd sent = co_await stream.send_event(std::to_string(tick), "tick");
    if (!sent) break;
    const WFEnd slept = co_await wf::sleep(100ms);  // ends at once when the client leaves
    if (!slept) break;
  }
  std::printf("the client has left, or the server stops\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char* argv[]) {
  WFHttpServer server(wf::serve(events));
  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;
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
  server.stop(1000, WF_STOP_FINISH);
}

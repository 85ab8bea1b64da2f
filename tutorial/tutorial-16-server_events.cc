// Shows: a reply that is sent piece by piece: events, as browsers' EventSource reads them. It ends
// when the client leaves; nobody's thread waits meanwhile.
//
// Try:   tutorial-16-server_events [port]   default 8080; Enter stops it
//        curl -N http://127.0.0.1:8080/     an event each 100 ms; Ctrl-C: the server says so
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "workflow/WFHttpServer.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFTaskFactory.h"

int main(int argc, char* argv[]) {
  WFHttpServer server([](WFHttpTask* task) {
    WFHttpStream events = WFHttpStream::begin_events(task);
    events.set_heartbeat(15 * 1000);

    // The task that is made while the stream is open: a delay. Null ends the repeater, the series
    // with it, and so the reply. When the client leaves, the delay ends at once.
    int tick = 0;
    auto create = [events, tick](WFRepeaterTask*) mutable -> SubTask* {
      if (events.closed() || events.stopping()) return nullptr;
      WFServerEvent event;
      event.event = "tick";
      event.data = std::to_string(tick++);
      if (events.send_event(event) != 0) return nullptr;  // or leave some out for a slow client
      return WFTaskFactory::create_timer_task(100 * 1000, nullptr);
    };
    series_of(task)->push_back(WFTaskFactory::create_repeater_task(create, nullptr));
    task->set_callback([](WFHttpTask*) {
      std::printf("the reply has ended\n");
      std::fflush(stdout);
    });
  });

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
  // What would take longer than a second is cut short.
  const WFStopResult stopped = server.stop(1000, WF_STOP_FINISH);
  std::printf("%zu replies were cut short\n", stopped.cut_short);
}

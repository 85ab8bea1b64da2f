// Shows: an HTTP server that replies later. No thread waits meanwhile.
//
// Try:   tutorial-01-delayed_reply [port]   default 8080; Enter stops it
//        curl http://127.0.0.1:8080/        answers after a second
#include <cstdio>
#include <cstdlib>

#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

int main(int argc, char* argv[]) {
  WFHttpServer server([](WFHttpTask* task) {
    WFTimerTask* timer = WFTaskFactory::create_timer_task(
        1, 0, [task](WFTimerTask*) { task->get_resp()->append_output_body("a second later\n"); });
    // The reply is sent when the request's series has no task left: after the timer.
    series_of(task)->push_back(timer);
  });

  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;
  if (server.start("127.0.0.1", static_cast<unsigned short>(port)) != 0) {
    std::perror("cannot start the server");
    return 1;
  }
  std::getchar();
  server.stop();
}

// Shows: one time limit for three requests in a row, and what each of them sees when it passes.
//
// Try:   tutorial-21-deadline_request
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::seconds;

namespace {

// Where the requests go: answers what is asked for, and "/orders" after four seconds.
void process(WFHttpTask* task) {
  const std::string path = task->get_req()->get_request_uri();
  task->get_resp()->append_output_body(path);
  if (path == "/orders") {
    // Nothing waits any longer once the client has left.
    task->cancel_timers_on_closed();
    series_of(task)->push_back(WFTimer::create(seconds(4), nullptr));
  }
}

WFHttpTask* request(const std::string& url) {
  return WFTaskFactory::create_http_task(url, 0, 0, [url](WFHttpTask* task) {
    const std::string path = url.substr(url.rfind('/'));
    if (task->get_state() == WFT_STATE_SUCCESS) {
      std::printf("  %s: %s\n", path.c_str(), task->get_resp()->get_status_code());
    } else {
      std::printf("  %s: %s\n", path.c_str(),
                  WFGlobal::get_error_string(task->get_state(), task->get_error()));
    }
  });
}

// Starts the task and returns when it has ended.
void run(WFDeadlineTask* task) {
  WFFacilities::WaitGroup ended(1);
  task->set_callback([&](WFDeadlineTask* whole) {
    std::printf("  all: %s\n", WFGlobal::get_error_string(whole->get_state(), whole->get_error()));
    ended.done();
  });
  task->start();
  ended.wait();
}

void ask(const std::string& origin) {
  std::printf("within 30 s\n");
  WFDeadlineTask* whole = with_deadline(request(origin + "/user"), seconds(30));
  *whole->sub_series() << request(origin + "/orders") << request(origin + "/prices");
  run(whole);

  // It passes while the second one waits for its answer: that ends at once. The third one is not
  // sent any more, but its callback runs.
  std::printf("within 2 s\n");
  whole = with_deadline(request(origin + "/user"), seconds(2));
  *whole->sub_series() << request(origin + "/orders") << request(origin + "/prices");
  run(whole);
}

}  // namespace

int main() {
  std::atomic<int> asked{0};
  WFHttpServer server([&](WFHttpTask* task) {
    asked++;
    process(task);
  });
  if (server.start("127.0.0.1", 0) != 0) {
    std::perror("cannot start the server");
    return 1;
  }
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  ask("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  server.stop();
  std::printf("the server was asked %d times\n", asked.load());
}

// The demo: an HTTP server whose replies wait for timers, which anybody may cancel by name.
// README.md in this folder says what it answers. Try:
//
//   script/demo                        # or: tutorial-demo [port] [--grace seconds] [--store URL]
//   curl 'http://127.0.0.1:8080/delay?ms=60000&name=tea' &
//   curl -X POST 'http://127.0.0.1:8080/cancel?name=tea'
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "Options.h"
#include "Reminders.h"
#include "Service.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpServer.h"

namespace {

// SIGINT and SIGTERM, kept until wait() takes one: no code runs in a signal handler.
class StopSignals {
 public:
  // Before the first thread.
  StopSignals() {
    ::sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM}) {
      ::sigaddset(&signals_, number);
      // A shell starts background jobs with SIGINT ignored, and what is ignored is not kept.
      ::signal(number, SIG_DFL);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  void wait() const {
    int number = 0;
    ::sigwait(&signals_, &number);
  }

  // From now on they end the process.
  void let_through() const { ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }

 private:
  sigset_t signals_;
};

unsigned port_of(const WFHttpServer& server) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// Answers what is delayed, as long as `grace` allows.
void stop(WFHttpServer& server, const Service& service, const StopSignals& signals,
          std::chrono::seconds grace) {
  std::printf("stopping: %zu delayed replies have up to %lld s to end by themselves\n",
              service.outstanding(), static_cast<long long>(grace.count()));
  std::fflush(stdout);
  server.shutdown();
  // Detached: beyond the bound nobody waits for it.
  WFFacilities::WaitGroup finished(1);
  std::thread([&server, &finished] {
    server.wait_finish();
    finished.done();
  }).detach();
  signals.let_through();
  if (finished.wait(static_cast<int>(grace.count() * 1000)) == std::future_status::timeout) {
    std::printf("aborting %zu delayed replies\n", service.outstanding());
    std::fflush(stdout);
    // On exit the library ends every timer as aborted and runs its callback, so that each reply
    // is still sent. Not by return: the server's destructor would wait for the full delays.
    std::exit(EXIT_SUCCESS);
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  int exit_code = EXIT_SUCCESS;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) {
    return exit_code;
  }
  const StopSignals signals;
  std::unique_ptr<Reminders> reminders;
  if (!options->store.empty()) {
    std::string message;
    std::unique_ptr<WFTimerStore> store(WFTimerStore::open(options->store, &message));
    if (!store) {
      std::fprintf(stderr, "tutorial-demo: cannot open the store: %s\n", message.c_str());
      return EXIT_FAILURE;
    }
    reminders = std::make_unique<Reminders>(std::move(store));
  }
  Service service(reminders.get());
  WFHttpServer server([&service](WFHttpTask* task) { service.process(task); });
  if (server.start("127.0.0.1", options->port) != 0) {
    std::fprintf(stderr, "tutorial-demo: cannot listen on 127.0.0.1:%u: %s\n",
                 unsigned{options->port}, std::strerror(errno));
    return EXIT_FAILURE;
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(port_of(server));
  std::printf("listening on %s; Ctrl-C stops. Try\n%s", url.c_str(),
              curl_lines(url, reminders != nullptr).c_str());
  std::fflush(stdout);

  signals.wait();
  stop(server, service, signals, options->grace);
  if (reminders) {
    reminders->close(options->grace);
  }
  std::printf("stopped\n");
  return EXIT_SUCCESS;
}

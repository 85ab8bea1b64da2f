// Shows: a protocol of one's own: its message (LineMessage.h), its server and its client, over TCP
// or a unix socket. The server answers each line with the line in capitals.
//
// Try:   tutorial-15-own_protocol server 8080           in one terminal; Enter stops it
//        tutorial-15-own_protocol client 8080 hello you  in another: prints HELLO, YOU
//        With a path, such as /tmp/lines, instead of the port, both use a unix socket.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "LineMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

using LineTask = WFNetworkTask<LineRequest, LineResponse>;
using LineServer = WFServer<LineRequest, LineResponse>;
using LineClients = WFNetworkTaskFactory<LineRequest, LineResponse>;

namespace {

// A port of 127.0.0.1, or the path of a unix socket.
struct Address {
  explicit Address(const char* text) {
    if (text[0] == '/') {
      un.sun_family = AF_UNIX;
      std::strncpy(un.sun_path, text, sizeof un.sun_path - 1);
      length = sizeof un;
    } else {
      in.sin_family = AF_INET;
      in.sin_port = htons(static_cast<unsigned short>(std::atoi(text)));
      in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      length = sizeof in;
    }
  }
  const struct sockaddr* get() const { return &any; }

  union {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_un un = {};
  };
  socklen_t length;
};

int serve(const Address& address) {
  LineServer server([](LineTask* task) {
    std::string text = task->get_req()->text();
    for (char& c : text) {
      c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    task->get_resp()->set_text(text);
  });
  if (server.start(address.get(), address.length) != 0) {
    std::perror("cannot start the server");
    return 1;
  }
  Address actual("0");
  actual.length = sizeof actual.un;
  server.get_listen_addr(&actual.any, &actual.length);
  if (actual.any.sa_family == AF_INET) {
    std::printf("listening on 127.0.0.1:%d, Enter stops\n", ntohs(actual.in.sin_port));
  } else {
    std::printf("listening on %s, Enter stops\n", actual.un.sun_path);
  }
  std::fflush(stdout);
  std::getchar();
  server.stop();
  if (address.any.sa_family == AF_UNIX) ::unlink(address.un.sun_path);
  return 0;
}

// The lines go one after the other over one connection.
int ask(const Address& address, char* lines[]) {
  int exit_code = 0;
  WFFacilities::WaitGroup done(1);
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(),
                                                    [&](const SeriesWork*) { done.done(); });
  for (; *lines; lines++) {
    LineTask* task = LineClients::create_client_task(
        TT_TCP, address.get(), address.length, /*retry_max=*/0, [&](LineTask* ended) {
          if (ended->get_state() == WFT_STATE_SUCCESS) {
            std::printf("%s\n", ended->get_resp()->text().c_str());
          } else {
            std::printf("%s\n", WFGlobal::get_error_string(ended->get_state(), ended->get_error()));
            exit_code = 1;
          }
        });
    task->get_req()->set_text(*lines);
    task->set_keep_alive(1000);  // the next task finds the connection
    series->push_back(task);
  }
  series->start();
  done.wait();
  return exit_code;
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "server") return serve(Address(argv[2]));
  if (what == "client") return ask(Address(argv[2]), argv + 3);
  std::fprintf(stderr, "usage: %s server|client <port or /path> [line...]\n", argv[0]);
  return 2;
}

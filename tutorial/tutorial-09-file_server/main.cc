// Shows: an HTTP server for files, with ranges and conditional requests, that never waits for a
// disk on a thread that others need. Folder: which file, and nothing outside of the folder.
// Conditions: which part of it, and whether the client has it already. FileReply: the tasks of a
// request.
//
// For a directory its index.html is sent. There are no listings, names that begin with a dot are
// hidden, and no more than 64 MiB are sent at once.
//
// Try:   tutorial-09-file_server [port [folder]]   default 8080 and "."; Enter stops it
//        curl -i http://127.0.0.1:8080/README.md
//        curl -i -r 0-99 http://127.0.0.1:8080/README.md
//        curl -i --path-as-is http://127.0.0.1:8080/../etc/passwd
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>

#include "FileReply.h"
#include "workflow/WFHttpServer.h"

int main(int argc, char* argv[]) {
  const int port = argc > 1 ? std::atoi(argv[1]) : 8080;
  const Folder folder(argc > 2 ? argv[2] : ".");
  if (!folder.is_open()) {
    std::perror("cannot open the folder");
    return 1;
  }

  struct WFServerParams params = HTTP_SERVER_PARAMS_DEFAULT;
  params.request_size_limit = 64 * 1024;  // GET and HEAD need no body
  WFHttpServer server(&params, [&folder](WFHttpTask* task) { reply_with_file(task, folder); });
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

// Our side of the HTTP rows: a small reply, or one of --size bytes; what asks for /delay gets it
// --delay-ms later. With --cert and --key over TLS. Links: workflow.
//
// Prints "port=N" when it listens on 127.0.0.1 (--port, default 0: any free one) and runs until
// SIGTERM or SIGINT. Limits and timeouts stay at their defaults, but for the number of connections.

#include <workflow/HttpMessage.h>
#include <workflow/WFHttpServer.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/Workflow.h>

#include "common/HttpSupport.h"
#include "common/Measure.h"

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const int64_t delay_ms = options.number("delay-ms", 0);
  const std::string cert = options.text("cert", "");
  const std::string key = options.text("key", "");
  const std::string body = bench::reply_body(options.count("size", 0));
  bench::raise_descriptor_limit();
  bench::hold_end_signals();

  WFServerParams params = HTTP_SERVER_PARAMS_DEFAULT;
  params.max_connections = 20'000;
  WFHttpServer server(&params, [delay_ms, &body](WFHttpTask* task) {
    protocol::HttpResponse* response = task->get_resp();
    response->add_header_pair("Content-Type", "text/plain");
    response->append_output_body_nocopy(body.data(), body.size());
    if (std::string_view(task->get_req()->get_request_uri()) == "/delay") {
      *series_of(task) << WFTaskFactory::create_timer_task(
          delay_ms / 1000, static_cast<long>(delay_ms % 1000 * bench::kNsPerMs), nullptr);
    }
  });
  const sockaddr_in wanted =
      bench::loopback(static_cast<unsigned short>(options.number("port", 0)));
  if (server.start(reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted,
                   cert.empty() ? nullptr : cert.c_str(),
                   key.empty() ? nullptr : key.c_str()) != 0) {
    bench::fail_errno("start");
  }

  sockaddr_in address{};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<sockaddr*>(&address), &length);
  bench::print_port(address);
  bench::await_end_signal();
  // Connections with replies far in the future may be held: a benchmark does not wait for them.
  _exit(0);
}

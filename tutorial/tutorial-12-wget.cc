// Shows: an HTTP client. Requests a URL, follows redirects, and prints what came.
//
// Try:   tutorial-12-wget https://example.org/
#include <cstdio>
#include <string>

#include "workflow/HttpUtil.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

int main(int argc, char* argv[]) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <URL>\n", argv[0]);
    return 2;
  }

  int exit_code = 1;
  WFFacilities::WaitGroup done(1);
  WFHttpTask* task = WFTaskFactory::create_http_task(
      argv[1], /*redirect_max=*/5, /*retry_max=*/2, [&](WFHttpTask* ended) {
        if (ended->get_state() == WFT_STATE_SUCCESS) {
          const protocol::HttpResponse* response = ended->get_resp();
          std::fprintf(stderr, "%s %s %s\n", response->get_http_version(),
                       response->get_status_code(), response->get_reason_phrase());
          const std::string body = protocol::HttpUtil::decode_chunked_body(response);
          std::fwrite(body.data(), 1, body.size(), stdout);
          exit_code = 0;
        } else {
          // No whole response came: a network, name, TLS or URL error.
          std::fprintf(stderr, "%s: %s\n", argv[1],
                       WFGlobal::get_error_string(ended->get_state(), ended->get_error()));
        }
        done.done();
      });
  task->get_req()->add_header_pair("User-Agent", "workflow-tutorial");
  task->get_req()->add_header_pair("Accept", "*/*");
  task->get_resp()->set_size_limit(20 * 1024 * 1024);
  task->set_receive_timeout(30 * 1000);
  task->start();
  done.wait();
  return exit_code;
}

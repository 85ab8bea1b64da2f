// WFServer.h alone brings what a request's series consists of.
#include "workflow/WFServer.h"

template <class REQ, class RESP>
void reply_later(WFNetworkTask<REQ, RESP>* task) {
  series_of(task)->push_back(WFTaskFactory::create_timer_task(1, 0, nullptr));
}

using HttpServer = WFServer<protocol::HttpRequest, protocol::HttpResponse>;

int run(HttpServer* server) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  WORKFLOW_library_init(&settings);
  HttpServer::Process process = [](WFHttpTask* task) { reply_later(task); };
  return process && server->start(0);
}

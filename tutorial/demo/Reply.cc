#include "Reply.h"

void reply(WFHttpTask* task, int status, const char* type, const std::string& body) {
  protocol::HttpResponse* response = task->get_resp();
  protocol::HttpUtil::set_response_status(response, status);
  response->set_header_pair("Content-Type", type);
  response->set_header_pair("Cache-Control", "no-store");
  response->append_output_body(body);
}

void reply_json(WFHttpTask* task, int status, const json& body) {
  // What is quoted from a bad request need not be UTF-8, nor is what is kept in a store.
  constexpr auto kReplace = json::error_handler_t::replace;
  reply(task, status, "application/json", body.dump(-1, ' ', false, kReplace) + "\n");
}

void reply_error(WFHttpTask* task, int status, const std::string& message) {
  reply_json(task, status, {{"error", message}});
}

#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

// The service behind the cases: it replies with what it was given.
//
//   conformance echo
//   POST /target HTTP/1.1
//   body 5 a430d84680aabd0b          the decoded body's length and its FNV-1a 64, hexadecimal
//   X-Name: value                    each field as received, in order
//
// "status=204" in the target chooses the status, "delay=20" makes the reply that many ms late,
// "chunked" sends it in chunks, "last" makes it the last of its connection. CONNECT is 405, as
// nothing is tunnelled here (RFC 9110, 9.3.6), but to a host "tunnel".
namespace http_conformance {

inline constexpr std::string_view kEchoTitle = "conformance echo\n";

inline std::string start_of_echo(const std::string& method, const std::string& target,
                                 const std::string& version, std::string_view body) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char c : body) {
    digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  char line[64];
  std::snprintf(line, sizeof line, "body %zu %016llx\n", body.size(),
                static_cast<unsigned long long>(digest));
  return std::string(kEchoTitle) + method + " " + target + " " + version + "\n" + line;
}

// The number behind `name` in the target; 0 without one.
inline int number_in(const std::string& target, std::string_view name) {
  const size_t at = target.find(name);
  return at == std::string::npos ? 0 : std::atoi(target.c_str() + at + name.size());
}

inline void echo(WFHttpTask* task) {
  const protocol::HttpRequest* request = task->get_req();
  protocol::HttpResponse* response = task->get_resp();
  const std::string method = request->get_method();
  const std::string target = request->get_request_uri();
  std::string text = start_of_echo(method, target, request->get_http_version(),
                                   protocol::HttpUtil::decode_chunked_body(request));
  protocol::HttpHeaderCursor cursor(request);
  std::string name;
  std::string value;
  while (cursor.next(name, value)) {
    text += name + ": " + value + "\n";
  }
  const bool declined = method == "CONNECT" && target.find("tunnel") == std::string::npos;
  const int status = declined ? 405 : number_in(target, "status=");
  if (status != 0) {
    protocol::HttpUtil::set_response_status(response, status);
  }
  if (target.find("chunked") != std::string::npos) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    text = size + text + "\r\n0\r\n\r\n";
    response->set_header_pair("Transfer-Encoding", "chunked");
  }
  if (target.find("last") != std::string::npos) {
    task->set_keep_alive(0);
  }
  response->append_output_body(text);
  if (const int delay_ms = number_in(target, "delay=")) {
    const auto microseconds = static_cast<unsigned>(delay_ms) * 1000;
    series_of(task)->push_back(WFTaskFactory::create_timer_task(microseconds, nullptr));
  }
}

}  // namespace http_conformance

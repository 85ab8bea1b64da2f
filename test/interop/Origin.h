#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "support/Sanitizers.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFFacilities.h"

namespace interop_test {

using test_support::count_of;
using test_support::text_of;

// "Large" in these tests; under a sanitizer everything takes several times as long.
inline constexpr size_t kLarge =
    test_support::kSanitized ? size_t{10} * 1024 * 1024 : size_t{100} * 1024 * 1024;

// Bytes that nobody compresses or mistakes for others; a shorter one is the beginning of a longer.
inline std::string pattern(size_t size) {
  std::mt19937_64 random(1);
  std::string bytes((size / sizeof(uint64_t) + 1) * sizeof(uint64_t), '\0');
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, sizeof word);
  }
  bytes.resize(size);
  return bytes;
}
inline const std::string& large_pattern() {
  static const std::string bytes = pattern(kLarge);
  return bytes;
}

inline void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// What the programs ask for, by the target of their request:
//   /bytes/<n>      pattern(n); large_pattern() for n = kLarge
//   /status/<code>  a reply with that status
//   /chunked        "hello world" in two chunks with an extension, and a trailer
//   /same           whether the body is pattern(its size): "<size> same"
//   /delay?ms=<n>   "late" after so long; the timer's name is "delay"
// and anything else is echoed: "METHOD URI BODY".
class Origin {
 public:
  explicit Origin(const struct WFServerParams& params = server_test::http_params(),
                  const test_support::Certificate* certificate = nullptr)
      : server_([this](WFHttpTask* task) { process(task); }, params, certificate) {}

  server_test::TestServer& server() { return server_; }
  uint16_t port() const { return server_.port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  std::string url(const std::string& path = "/") const { return "http://" + address() + path; }
  // By the name that the certificates of the tests have.
  std::string https(const std::string& path = "/") const {
    return "https://localhost:" + std::to_string(port()) + path;
  }
  int requests() const { return server_.requests(); }
  // Connections on which a request came.
  int used_connections() const { return used_connections_; }

  void process(WFHttpTask* task) {
    used_connections_ += task->get_task_seq() == 0;
    const std::string uri = task->get_req()->get_request_uri();
    protocol::HttpResponse* response = task->get_resp();
    if (uri.compare(0, 7, "/bytes/") == 0) {
      const size_t size = std::strtoul(uri.c_str() + 7, nullptr, 10);
      if (size == kLarge) {
        response->append_output_body_nocopy(large_pattern());
      } else {
        response->append_output_body(pattern(size));
      }
    } else if (uri.compare(0, 8, "/status/") == 0) {
      protocol::HttpUtil::set_response_status(response, std::atoi(uri.c_str() + 8));
    } else if (uri == "/chunked") {
      response->add_header_pair("Transfer-Encoding", "chunked");
      response->add_header_pair("Trailer", "X-Sum");
      response->append_output_body("6;x=y\r\nhello \r\n5\r\nworld\r\n0\r\nX-Sum: 11\r\n\r\n");
    } else if (uri == "/same") {
      const std::string body = protocol::HttpUtil::decode_chunked_body(task->get_req());
      response->append_output_body(std::to_string(body.size()) +
                                   (body == pattern(body.size()) ? " same" : " changed"));
    } else if (uri.compare(0, 6, "/delay") == 0) {
      const unsigned ms = server_test::delay_ms(task);
      *series_of(task) << WFTaskFactory::create_timer_task("delay", ms / 1000,
                                                           ms % 1000 * 1'000'000L, nullptr);
      response->append_output_body("late");
    } else {
      server_test::echo(task);
    }
  }

 private:
  std::atomic<int> used_connections_{0};
  server_test::TestServer server_;
};

}  // namespace interop_test

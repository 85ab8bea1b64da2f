#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>

#include "support/Certificates.h"
#include "support/Eventually.h"
#include "support/Loopback.h"
#include "support/RawClient.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

namespace server_test {

// A task of a user's own kind, which takes part in no scope. It ends only when the test ends it.
class OwnTask final : public WFGenericTask {
 public:
  // Called on any thread, once.
  void end() {
    if (both_.fetch_add(1) == 1) {
      subtask_done();
    }
  }
  void dispatch() override { end(); }

 private:
  std::atomic<int> both_{0};  // the dispatch and the end
};

// Replies with "METHOD URI BODY", so that a client sees what was understood.
inline void echo(WFHttpTask* task) {
  const protocol::HttpRequest* request = task->get_req();
  const void* body = nullptr;
  size_t size = 0;
  request->get_parsed_body(&body, &size);
  std::string text = std::string(request->get_method()) + " " + request->get_request_uri() + " ";
  text.append(static_cast<const char*>(body), size);
  task->get_resp()->append_output_body(text);
}

// Returns the number after the first "ms=" of the request's target, or 0 if there is none.
inline unsigned delay_ms(WFHttpTask* task) {
  const std::string uri = task->get_req()->get_request_uri();
  const size_t at = uri.find("ms=");
  return at == std::string::npos
             ? 0
             : static_cast<unsigned>(std::strtoul(uri.c_str() + at + 3, nullptr, 10));
}

using test_support::eventually;

inline struct WFServerParams http_params() {
  return HTTP_SERVER_PARAMS_DEFAULT;
}
// A stop that lingers does not return while clients keep their connections open.
inline struct WFServerParams patient_params() {
  struct WFServerParams params = http_params();
  params.linger_timeout = 3600 * 1000;
  return params;
}

enum class Transport { kPlain, kTls };

// The name of a parameter.
inline std::string transport_name(const testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kTls ? "OverTls" : "InTheClear";
}

// The certificate of servers over TLS, and the authority that their clients trust. There is one for
// the process.
struct Credentials {
  test_support::Authority authority;
  test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
};
inline const Credentials& credentials() {
  static const Credentials all;
  return all;
}

inline constexpr const char* kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

// A server on 127.0.0.1, started, that counts the requests it is given. Stops when destroyed.
class TestServer {
 public:
  // If `listen_fd` is given, serves on that instead of a socket of its own.
  TestServer(http_process_t process, const struct WFServerParams& params, Transport transport,
             int listen_fd = -1)
      : TestServer(std::move(process), params,
                   transport == Transport::kTls ? &credentials().certificate : nullptr, listen_fd) {
    clients_speak_tls_ = transport == Transport::kTls;
  }
  TestServer(Transport transport, http_process_t process)
      : TestServer(std::move(process), http_params(), transport) {}
  // On a port that the test keeps, or on a free one.
  explicit TestServer(http_process_t process = echo,
                      const struct WFServerParams& params = http_params(),
                      const test_support::Certificate* certificate = nullptr, int listen_fd = -1,
                      uint16_t port = 0)
      : server_(&params, [this, process = std::move(process)](WFHttpTask* task) {
          requests_++;
          process(task);
          processed_++;
        }) {
    const char* const cert = certificate ? certificate->cert_file.c_str() : nullptr;
    const char* const key = certificate ? certificate->key_file.c_str() : nullptr;
    started_ = (listen_fd < 0 ? server_.start("127.0.0.1", port, cert, key)
                              : server_.serve(listen_fd, cert, key)) == 0;
    port_ = test_support::port_of(server_);
  }

  WFHttpServer* operator->() { return &server_; }
  bool started() const { return started_; }
  uint16_t port() const { return port_; }
  // Requests that were given to `process`, and those that it has returned from.
  int requests() const { return requests_; }
  int processed() const { return processed_; }
  RawClient client() const {
    RawClient client(port_);
    if (clients_speak_tls_) {
      client.begin_tls(credentials().authority.file());
    }
    return client;
  }

  // A client whose request has been given to `process`, which has returned.
  RawClient asking_client(const std::string& request = kGet) {
    const int before = processed_;
    RawClient asking = client();
    EXPECT_TRUE(asking.send(request));
    EXPECT_TRUE(eventually([&] { return processed_ > before; }));
    return asking;
  }

  bool has_connections(size_t count) {
    return eventually([this, count] { return server_.get_conn_count() == count; });
  }
  // Returns whether the server still serves, that is, whether a new connection gets an answer.
  bool serves() {
    const int before = requests_;
    RawClient other = client();
    const auto got = other.ask("GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // Requests of clients that have left may begin meanwhile.
    return got && got->status == 200 && requests_ > before;
  }

 private:
  std::atomic<int> requests_{0};
  std::atomic<int> processed_{0};
  WFHttpServer server_;
  bool started_ = false;
  uint16_t port_ = 0;
  bool clients_speak_tls_ = false;
};

inline std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
}
inline std::string post(const std::string& target, const std::string& body,
                        const std::string& fields = "") {
  return "POST " + target +
         " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         fields + "\r\n" + body;
}

}  // namespace server_test

#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "support/Certificates.h"
#include "support/Loopback.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"

namespace server_test {

struct FreeSession {
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using Session = std::unique_ptr<SSL_SESSION, FreeSession>;

inline std::string get_from(const std::string& host, const std::string& fields = "") {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n";
}

// Asks for something, ends the connection and returns a session that can be resumed. The tickets of
// 1.3 come after the handshake, and OpenSSL resumes only what ended in order.
inline Session session_of(TlsClient client) {
  EXPECT_TRUE(client.connected());
  EXPECT_TRUE(client.send(get_from(client.host(), "Connection: close\r\n")));
  EXPECT_EQ(client.body(), "GET / ");
  EXPECT_TRUE(client.ends_in_order());
  SSL_shutdown(client.ssl());
  return Session(SSL_get1_session(client.ssl()));
}

// Two hosts with a context each, chosen by the name that the client asks for. The server is started
// with that of a.test. It knows no other names.
class NamedHosts final : public WFHttpServer {
 public:
  using Settings = std::function<void(SSL_CTX*)>;

  explicit NamedHosts(Settings of_a = nullptr, Settings of_b = nullptr)
      : WFHttpServer([this](WFHttpTask* task) {
          requests_++;
          echo(task);
        }),
        of_a_(std::move(of_a)),
        of_b_(std::move(of_b)) {}
  ~NamedHosts() override {
    stop();
    SSL_CTX_free(b_);
  }
  bool start_with(const test_support::Certificate& a, const test_support::Certificate& b) {
    b_ = WFHttpServer::new_ssl_ctx(b.cert_file.c_str(), b.key_file.c_str());
    if (b_ && of_b_) of_b_(b_);
    return b_ && start("127.0.0.1", 0, a.cert_file.c_str(), a.key_file.c_str()) == 0;
  }

  // Requests that were given to `process`.
  int requests() const { return requests_; }
  // How often a name's context was asked for.
  int lookups() const { return lookups_; }

 protected:
  SSL_CTX* new_ssl_ctx(const char* cert_file, const char* key_file) override {
    SSL_CTX* const a = WFHttpServer::new_ssl_ctx(cert_file, key_file);
    if (a && of_a_) of_a_(a);
    return a;
  }
  SSL_CTX* get_server_ssl_ctx(const char* name) override {
    lookups_++;
    if (std::string(name) == "b.test") return b_;
    return std::string(name) == "a.test" ? WFHttpServer::get_server_ssl_ctx(name) : nullptr;
  }

 private:
  const Settings of_a_;
  const Settings of_b_;
  SSL_CTX* b_ = nullptr;
  std::atomic<int> requests_{0};
  std::atomic<int> lookups_{0};
};

class NamedHostsTest : public testing::Test {
 protected:
  using Settings = NamedHosts::Settings;

  void serve_hosts(const Settings& of_a, const Settings& of_b) {
    hosts_.emplace(of_a, of_b);
    ASSERT_TRUE(hosts_->start_with(certificate_a_, certificate_b_));
  }
  TlsClient connect(TlsClient::Options options) {
    options.ca_file = authority_.file();
    return TlsClient(test_support::port_of(*hosts_), options);
  }
  static bool is_served(TlsClient client) {
    return client.send(get_from(client.host())) && client.body() == "GET / ";
  }
  // Over 1.3 the client learns of it only after its part of the handshake. Sends nothing, which
  // could meet a connection that is closed.
  static bool is_refused(TlsClient client) {
    return !client.connected() || (client.read(1).empty() && client.error() != 0);
  }

  test_support::Authority authority_;
  const test_support::Certificate certificate_a_ = authority_.issue({"DNS:a.test", "IP:127.0.0.1"});
  const test_support::Certificate certificate_b_ = authority_.issue({"DNS:b.test"});
  const test_support::Certificate of_client_ = authority_.issue({"DNS:client.test"});
  // Only clients with a certificate of the authority are let in.
  const Settings authorised_ = [this](SSL_CTX* context) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    ASSERT_EQ(SSL_CTX_load_verify_file(context, authority_.file().c_str()), 1);
    SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(authority_.file().c_str()));
  };
  std::optional<NamedHosts> hosts_;
};

}  // namespace server_test

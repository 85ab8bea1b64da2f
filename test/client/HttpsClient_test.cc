#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "support/Certificates.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"

// HTTP requests over TLS: whom a client trusts, and what it says when it does not.

namespace client_test {
namespace {

using server_test::TestServer;
using test_support::Authority;
using test_support::Certificate;

class HttpsClient : public testing::Test {
 protected:
  // The library's own context trusts the authority of the test.
  void SetUp() override {
    ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str()),
              1);
  }

  static std::string url(const TestServer& server, const std::string& host = "127.0.0.1") {
    return "https://" + host + ":" + std::to_string(server.port()) + "/x";
  }

  Authority authority_;
  const Certificate certificate_ = authority_.issue({"IP:127.0.0.1", "DNS:localhost"});
};

TEST_F(HttpsClient, GetsFromOurServer) {
  TestServer server(server_test::echo, server_test::http_params(), &certificate_);
  EXPECT_EQ(fetch(url(server)).body, "GET /x ");
  EXPECT_EQ(fetch(url(server, "localhost")).body, "GET /x ");
}

TEST_F(HttpsClient, KeepsItsConnection) {
  TestServer server(server_test::echo, server_test::http_params(), &certificate_);
  for (int i = 0; i < 5; i++) {
    const Fetched got = fetch(url(server));
    EXPECT_EQ(got.status, "200");
    EXPECT_EQ(got.sequence, i);
  }
}

TEST_F(HttpsClient, LargeBodiesGoBothWays) {
  TestServer server(server_test::echo, server_test::http_params(), &certificate_);
  const std::string large(5'000'000, 'q');
  const Fetched got = fetch(url(server), {.change = [&](WFHttpTask* t) {
                              t->get_req()->set_method("POST");
                              t->get_req()->append_output_body_nocopy(large);
                            }});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << got.error;
  EXPECT_TRUE(got.body == "POST /x " + large) << got.body.size();
}

TEST_F(HttpsClient, SessionsAreResumed) {
  std::atomic<int> resumed{0};
  TestServer server(server_test::echo, server_test::http_params(), &certificate_);
  static std::atomic<int>* counter = nullptr;
  counter = &resumed;
  SSL_CTX_set_info_callback(WFGlobal::get_ssl_client_ctx(), [](const SSL* ssl, int where, int) {
    if (where & SSL_CB_HANDSHAKE_DONE) {
      *counter += SSL_session_reused(ssl);
    }
  });
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(fetch(url(server), {.change = [](WFHttpTask* t) { t->set_keep_alive(0); }}).status,
              "200");
  }
  SSL_CTX_set_info_callback(WFGlobal::get_ssl_client_ctx(), nullptr);
  EXPECT_EQ(resumed, 2);
}

TEST_F(HttpsClient, CertificatesOfOtherHostsAreRefused) {
  const Certificate other = authority_.issue({"DNS:other.test"});
  TestServer server(server_test::echo, server_test::http_params(), &other);
  const Fetched got = fetch(url(server), {.retry_max = 3});
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(got.error, -X509_V_ERR_IP_ADDRESS_MISMATCH);
  EXPECT_EQ(fetch(url(server, "localhost")).error, -X509_V_ERR_HOSTNAME_MISMATCH);
  EXPECT_EQ(server.requests(), 0);
}

TEST_F(HttpsClient, ExpiredCertificatesAreRefused) {
  const Certificate old = authority_.issue({"IP:127.0.0.1"}, -60);
  TestServer server(server_test::echo, server_test::http_params(), &old);
  const Fetched got = fetch(url(server));
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(got.error, -X509_V_ERR_CERT_HAS_EXPIRED);
}

TEST_F(HttpsClient, UnknownAuthoritiesAreRefused) {
  Authority stranger;
  const Certificate certificate = stranger.issue({"IP:127.0.0.1"});
  TestServer server(server_test::echo, server_test::http_params(), &certificate);
  const Fetched got = fetch(url(server));
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(got.error, -X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
  EXPECT_NE(std::string(WFGlobal::get_error_string(got.state, got.error)), "");
}

TEST_F(HttpsClient, VerifyingCanBeTurnedOff) {
  Authority stranger;
  const Certificate certificate = stranger.issue({"DNS:other.test"});
  TestServer server(server_test::echo, server_test::http_params(), &certificate);
  SSL_CTX_set_verify(WFGlobal::get_ssl_client_ctx(), SSL_VERIFY_NONE, nullptr);
  EXPECT_EQ(fetch(url(server)).status, "200");
}

TEST_F(HttpsClient, AContextOfOnesOwn) {
  Authority stranger;
  const Certificate certificate = stranger.issue({"IP:127.0.0.1"});
  TestServer server(server_test::echo, server_test::http_params(), &certificate);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_load_verify_file(context.get(), stranger.file().c_str());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  struct sockaddr_in address = test_support::loopback(server.port());
  WFFacilities::WaitGroup group(1);
  Fetched got;
  WFNetworkTaskFactory<protocol::HttpRequest, protocol::HttpResponse>::create_client_task(
      TT_TCP_SSL, reinterpret_cast<const struct sockaddr*>(&address), sizeof address, context.get(),
      0,
      [&](WFHttpTask* task) {
        got = fetched(task);
        group.done();
      })
      ->start();
  group.wait();
  EXPECT_EQ(got.status, "200");
  EXPECT_EQ(fetch(url(server)).state, WFT_STATE_SSL_ERROR);
}

TEST_F(HttpsClient, APlainServerIsNoTlsServer) {
  TestServer server;
  const Fetched got = fetch(url(server), {.retry_max = 2});
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_GT(got.error, 0);
  EXPECT_NE(std::string(WFGlobal::get_error_string(got.state, got.error)), "");
}

TEST_F(HttpsClient, ASilentServerTimesOut) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.ssl_connect_timeout = 50;
  WORKFLOW_library_init(&settings);
  RawServer server([](Peer& peer, int) {
    peer.request();  // waits for the end: no request comes
  });
  const Fetched got = fetch("https://127.0.0.1:" + std::to_string(server.port()) + "/");
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, ETIMEDOUT);
  EXPECT_EQ(got.timeout_reason, TOR_CONNECT_TIMEOUT);
}

// Close-delimited: an attacker who ends the connection could have cut it.
TEST_F(HttpsClient, AResponseThatEndsWithoutGoodbyeIsAnError) {
  for (const bool says_goodbye : {true, false}) {
    RawServer server([&](Peer& peer, int) {
      const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
          SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
      SSL_CTX_use_certificate_chain_file(context.get(), certificate_.cert_file.c_str());
      SSL_CTX_use_PrivateKey_file(context.get(), certificate_.key_file.c_str(), SSL_FILETYPE_PEM);
      const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
      SSL_set_fd(ssl.get(), peer.fd());
      char request[4096];
      SSL_accept(ssl.get());
      SSL_read(ssl.get(), request, sizeof request);
      const std::string bytes = "HTTP/1.1 200 OK\r\n\r\nall of it?";
      SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
      if (says_goodbye) {
        SSL_shutdown(ssl.get());
      }
    });
    const Fetched got = fetch("https://127.0.0.1:" + std::to_string(server.port()) + "/");
    EXPECT_EQ(got.state, says_goodbye ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR);
    EXPECT_EQ(got.error, says_goodbye ? 0 : ECONNRESET);
    EXPECT_EQ(got.body, says_goodbye ? "all of it?" : "");
  }
}

// Passes bytes on in both directions until one side ends.
void relay(int a, int b) {
  const auto pass = [](int from, int to) {
    char buffer[65536];
    for (;;) {
      const ssize_t n = ::recv(from, buffer, sizeof buffer, 0);
      if (n <= 0 || ::send(to, buffer, static_cast<size_t>(n), MSG_NOSIGNAL) != n) break;
    }
    ::shutdown(to, SHUT_WR);
  };
  std::thread back(pass, b, a);
  pass(a, b);
  back.join();
}

Fetched retried_through(const std::string& url, const std::string& proxy) {
  return fetch_through(url, proxy, {.retry_max = 2});
}

TEST_F(HttpsClient, GoesThroughTheTunnelOfAProxy) {
  TestServer server(server_test::echo, server_test::http_params(), &certificate_);
  std::string seen;
  RawServer proxy([&](Peer& peer, int) {
    seen = peer.request();
    const server_test::RawClient onward(server.port());
    // Neither field means anything in such an answer.
    peer.send(
        "HTTP/1.1 200 Connection established\r\n"
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n");
    relay(peer.fd(), onward.fd());
  });
  const std::string proxy_url = "http://u:p@127.0.0.1:" + std::to_string(proxy.port());
  for (int i = 0; i < 3; i++) {
    // The certificate is that of the host, not of the proxy; and the tunnel is kept.
    const Fetched got = retried_through(url(server, "localhost"), proxy_url);
    EXPECT_EQ(got.body, "GET /x ");
    EXPECT_EQ(got.sequence, i);
  }
  EXPECT_EQ(proxy.connections(), 1);
  const std::string authority = "localhost:" + std::to_string(server.port());
  EXPECT_EQ(seen, "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority +
                      "\r\nProxy-Authorization: Basic dTpw\r\n\r\n");
  // Another host is another tunnel, and has to show its own certificate.
  const Fetched other = retried_through(url(server, "elsewhere.test"), proxy_url);
  EXPECT_EQ(other.error, -X509_V_ERR_HOSTNAME_MISMATCH);
}

// The common name of these certificates is that of the host.
TEST_F(HttpsClient, ACommonNameCountsOnlyInACertificateWithoutNames) {
  const auto error_with = [&](const char* subject) {
    const Certificate certificate = authority_.issue({subject});
    TestServer server(server_test::echo, server_test::http_params(), &certificate);
    RawServer proxy([&](Peer& peer, int) {
      peer.request();
      const server_test::RawClient onward(server.port());
      peer.send("HTTP/1.1 200 Connection established\r\n\r\n");
      relay(peer.fd(), onward.fd());
    });
    return retried_through(url(server, "common-name.test"), proxy.url()).error;
  };
  EXPECT_EQ(error_with("IP:127.0.0.1"), 0);
  EXPECT_EQ(error_with("DNS:other.test"), -X509_V_ERR_HOSTNAME_MISMATCH);
}

TEST_F(HttpsClient, ProxiesMayRefuse) {
  for (const char* answer :
       {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\n\r\n", "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nand bytes that are none of TLS"}) {
    RawServer proxy([&](Peer& peer, int) {
      peer.request();
      peer.send(answer);
    });
    const Fetched got = retried_through("https://localhost:1/", proxy.url());
    EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR) << answer;
    EXPECT_EQ(got.error, WFT_ERR_HTTP_PROXY_CONNECT_FAILED);
    EXPECT_EQ(proxy.connections(), 1);
  }
}

TEST_F(HttpsClient, ASilentProxyTimesOut) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.connect_timeout = 50;
  WORKFLOW_library_init(&settings);
  RawServer proxy([](Peer& peer, int) {
    peer.request();
    peer.request();  // waits for the end
  });
  const Fetched got = retried_through("https://localhost:1/", proxy.url());
  EXPECT_EQ(got.error, ETIMEDOUT);
  EXPECT_EQ(got.timeout_reason, TOR_CONNECT_TIMEOUT);
}

}  // namespace
}  // namespace client_test

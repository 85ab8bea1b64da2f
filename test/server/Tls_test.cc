#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "support/Certificates.h"
#include "support/Loopback.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"
#include "workflow/WFGlobal.h"

// The server over TLS, with OpenSSL on the other side.

namespace server_test {
namespace {

using test_support::Authority;
using test_support::Certificate;

class Tls : public testing::Test {
 protected:
  void serve(http_process_t process = echo, const struct WFServerParams& params = http_params()) {
    server_.emplace(std::move(process), params, &certificate_);
    ASSERT_TRUE(server_->started());
  }

  TlsClient connect(TlsClient::Options options = {}) {
    options.ca_file = authority_.file();
    return TlsClient(server_->port(), options);
  }
  bool serves() {
    TlsClient client = connect();
    return client.send(get("/alive")) && client.body() == "GET /alive ";
  }

  Authority authority_;
  Certificate certificate_ = authority_.issue({"DNS:a.test", "IP:127.0.0.1"});
  std::optional<TestServer> server_;
};

TEST_F(Tls, AnswersRequests) {
  serve();
  TlsClient client = connect({.host = "a.test"});
  ASSERT_TRUE(client.connected());
  for (int i = 0; i < 3; i++) {
    ASSERT_TRUE(client.send(post("/x", "body")));
    EXPECT_EQ(client.body(), "POST /x body");
  }
}

TEST_F(Tls, Speaks12And13AndNothingOlder) {
  serve();
  EXPECT_EQ(connect({.min_version = TLS1_3_VERSION}).version(), "TLSv1.3");
  EXPECT_EQ(connect({.max_version = TLS1_2_VERSION}).version(), "TLSv1.2");
  EXPECT_FALSE(connect({.max_version = TLS1_1_VERSION}).connected());
  EXPECT_TRUE(serves());
}

// What is read ahead holds several records, or a part of one: nothing of it may be left lying.
TEST_F(Tls, RecordsMayComeTogetherAndCutAnywhere) {
  serve();
  TlsClient client = connect();
  BIO* const records = BIO_new(BIO_s_mem());
  SSL_set0_wbio(client.ssl(), records);
  size_t size = 0;
  for (size_t cut = 0; cut <= size; cut++) {
    for (const char* path : {"/1", "/2", "/3"}) {
      ASSERT_TRUE(client.send(get(path)));
    }
    char* bytes = nullptr;
    size = static_cast<size_t>(BIO_get_mem_data(records, &bytes));
    ASSERT_TRUE(client.raw().send({bytes, cut}));
    ASSERT_TRUE(client.raw().send({bytes + cut, size - cut}));
    static_cast<void>(BIO_reset(records));
    for (const char* reply : {"GET /1 ", "GET /2 ", "GET /3 "}) {
      ASSERT_EQ(client.body(), reply) << "cut after " << cut << " of " << size;
    }
  }
}

TEST_F(Tls, LargeBodiesGoBothWays) {
  serve();
  std::string large(3'000'000, ' ');
  for (size_t i = 0; i < large.size(); i++) {
    large[i] = static_cast<char>('a' + i * 7 % 26);
  }
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client = connect({.max_version = version});
    ASSERT_TRUE(client.send(post("/large", large)));
    // The server has to wait for room now and then: nobody reads yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(client.body() == "POST /large " + large);
    ASSERT_TRUE(client.send(get("/again")));
    EXPECT_EQ(client.body(), "GET /again ");
  }
}

TEST_F(Tls, RepliesMayBeDelayed) {
  serve([](WFHttpTask* task) {
    echo(task);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(20'000, nullptr));
  });
  TlsClient client = connect();
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.send(get("/later")));
  EXPECT_EQ(client.body(), "GET /later ");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

// Nothing is read while a request is processed, so neither is a close_notify; nor does it mean more
// than that no further request will come.
TEST_F(Tls, GoodbyeWithoutAnEndIsNoLeaving) {
  serve([](WFHttpTask* task) {
    task->on_closed([] { ADD_FAILURE() << "it is still there"; });
    task->cancel_timers_on_closed();
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task(0, 50'000'000, [task](WFTimerTask* timer) {
          EXPECT_EQ(timer->get_state(), WFT_STATE_SUCCESS);
          EXPECT_FALSE(task->closed());
          echo(task);
        }));
  });
  TlsClient client = connect();
  ASSERT_TRUE(client.send(get("/patient")));
  EXPECT_EQ(SSL_shutdown(client.ssl()), 0);
  EXPECT_EQ(client.body(), "GET /patient ");
  EXPECT_TRUE(client.ends_in_order());
}

TEST_F(Tls, PushedBytesComeBeforeTheReply) {
  serve([](WFHttpTask* task) {
    const std::string early = "HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n";
    EXPECT_EQ(task->push(early.data(), early.size()), static_cast<int>(early.size()));
    echo(task);
  });
  TlsClient client = connect();
  ASSERT_TRUE(client.send(get("/pushed")));
  EXPECT_EQ(client.read_until("\r\n").substr(0, 12), "HTTP/1.1 103");
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.body(), "GET /pushed ");
}

TEST_F(Tls, EndsInOrder) {
  serve();
  TlsClient client = connect();
  ASSERT_TRUE(client.send(get("/last", "Connection: close\r\n")));
  EXPECT_EQ(client.body(), "GET /last ");
  EXPECT_TRUE(client.ends_in_order());
}

TEST_F(Tls, IdleConnectionsEndInOrder) {
  struct WFServerParams params = http_params();
  params.keep_alive_timeout = 50;
  serve(echo, params);
  TlsClient idle = connect();
  ASSERT_TRUE(idle.send(get("/")));
  EXPECT_EQ(idle.body(), "GET / ");
  EXPECT_TRUE(idle.ends_in_order());
  params.keep_alive_timeout = -1;
  serve(echo, params);
  TlsClient leaving = connect();
  ASSERT_TRUE(leaving.send(get("/")));
  EXPECT_EQ(leaving.body(), "GET / ");
  SSL_shutdown(leaving.ssl());
  EXPECT_TRUE(leaving.ends_in_order());
  TlsClient stopped = connect();
  ASSERT_TRUE(stopped.send(get("/")));
  EXPECT_EQ(stopped.body(), "GET / ");
  (*server_)->shutdown();
  EXPECT_TRUE(stopped.ends_in_order());
}

// Else what was cut would look whole to who takes the end of the connection for that of a body.
TEST_F(Tls, WhatIsCutDoesNotEndInOrder) {
  static const std::string piece(100'000, 'x');
  serve([](WFHttpTask* task) {
    // As much as there is room for, if asked.
    const bool much = std::string(task->get_req()->get_request_uri()) == "/much";
    while (task->push(piece.data(), piece.size()) > 0 && much) {
    }
    task->noreply();
  });
  int processed = 0;
  for (const char* target : {"/little", "/much"}) {
    TlsClient client = connect();
    ASSERT_TRUE(client.send(get(target)));
    processed++;
    ASSERT_TRUE(eventually([&] { return server_->processed() == processed; }));
    EXPECT_EQ(client.read_until("never").size() % piece.size(), 0u) << target;
    EXPECT_FALSE(client.ends_in_order()) << target;
  }
}

TEST_F(Tls, ResumesSessions) {
  serve();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SSL_SESSION* session = nullptr;
    {
      TlsClient client = connect({.max_version = version});
      EXPECT_FALSE(client.resumed());
      ASSERT_TRUE(client.send(get("/first", "Connection: close\r\n")));
      EXPECT_EQ(client.body(), "GET /first ");
      // The tickets of 1.3 come after the handshake, and OpenSSL resumes only what ended in order.
      EXPECT_TRUE(client.ends_in_order());
      SSL_shutdown(client.ssl());
      session = SSL_get1_session(client.ssl());
    }
    TlsClient client = connect({.max_version = version, .session = session});
    EXPECT_TRUE(client.resumed()) << client.version();
    ASSERT_TRUE(client.send(get("/second")));
    EXPECT_EQ(client.body(), "GET /second ");
    SSL_SESSION_free(session);
  }
}

TEST_F(Tls, AlpnSelectsHttpOrRefuses) {
  serve();
  EXPECT_EQ(connect({.alpn = std::string("\x02h2\x08http/1.1")}).alpn(), "http/1.1");
  EXPECT_EQ(connect({.alpn = std::string("\x08http/1.0\x08http/1.1")}).alpn(), "http/1.1");
  EXPECT_EQ(connect({.alpn = std::string("\x02h2\x08http/1.0")}).alpn(), "http/1.0");
  EXPECT_EQ(connect().alpn(), "");
  const TlsClient other = connect({.alpn = std::string("\x02h2")});
  EXPECT_FALSE(other.connected());
  EXPECT_EQ(other.error(), SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
  EXPECT_TRUE(serves());
}

TEST_F(Tls, RenegotiationIsRefused) {
  serve();
  TlsClient client = connect({.max_version = TLS1_2_VERSION});
  ASSERT_TRUE(client.connected());
  ERR_clear_error();
  SSL_renegotiate(client.ssl());
  EXPECT_NE(SSL_do_handshake(client.ssl()), 1);
  ERR_clear_error();
  EXPECT_TRUE(serves());
}

// OpenSSL has alerts only for what begins as TLS does.
TEST_F(Tls, PlainBytesAreRefused) {
  struct WFServerParams params = http_params();
  params.ssl_accept_timeout = 60'000;  // it does not take so long: the bytes say enough
  serve(echo, params);
  for (const std::string& plain : {std::string(kGet), std::string(30, '\xff')}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(plain));
    EXPECT_EQ(client.ending(), Ending::kClosed) << plain;
  }
  RawClient nearly(server_->port());
  ASSERT_TRUE(nearly.send(std::string("\x16\x03\x01\x00\x07garbage", 12)));
  const std::string alert = nearly.take_text(100);
  ASSERT_EQ(alert.size(), 7U);
  EXPECT_EQ(alert[0], 21) << "the type of alerts (RFC 8446, 5.1)";
  EXPECT_EQ(alert[5], 2) << "fatal";
  EXPECT_EQ(nearly.ending(), Ending::kClosed);
  nearly.close();
  EXPECT_TRUE(server_->has_connections(0));
  EXPECT_EQ(server_->requests(), 0);
  EXPECT_TRUE(serves());
}

TEST_F(Tls, TlsOnAPlainPortIsRefused) {
  TestServer plain;
  const TlsClient client(plain.port(), {});
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(client.error(), SSL_R_WRONG_VERSION_NUMBER);
  TlsLayer layer(authority_.file());
  EXPECT_EQ(layer.handshake(), TlsLayer::Result::kNeedsRecords);
  RawClient raw(plain.port());
  const auto reply = raw.ask(layer.take_records());
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 400);
  EXPECT_EQ(raw.ending(), Ending::kClosed);
  EXPECT_EQ(plain.requests(), 0);
  EXPECT_TRUE(plain.serves());
}

TEST_F(Tls, OneBadHandshakeDoesNotTouchOtherConnections) {
  // One poller: all connections share its thread, and that thread's error queue.
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  WORKFLOW_library_init(&settings);
  serve();
  TlsClient good = connect();
  ASSERT_TRUE(good.connected());
  for (int i = 0; i < 50; i++) {
    RawClient bad(server_->port());
    ASSERT_TRUE(bad.send(std::string("\x16\x03\x01\x00\x05garbage", 12)));
    ASSERT_TRUE(good.send(get("/good")));
    ASSERT_EQ(good.body(), "GET /good ");
    EXPECT_FALSE(connect({.max_version = TLS1_1_VERSION}).connected());
    ASSERT_TRUE(good.send(get("/good")));
    ASSERT_EQ(good.body(), "GET /good ");
  }
}

TEST_F(Tls, AfterTheHandshakeTheHeaderHasItsOwnLimit) {
  struct WFServerParams params = http_params();
  params.header_timeout = 50;
  serve(echo, params);
  TlsClient client = connect();
  EXPECT_EQ(client.read_until("\r\n").substr(0, 12), "HTTP/1.1 408");
}

TEST_F(Tls, StopsWithHandshakesUnderWay) {
  serve();
  RawClient silent(server_->port());
  TlsClient idle = connect();
  EXPECT_TRUE(server_->has_connections(2));
  (*server_)->stop();
  EXPECT_TRUE(silent.ended());
}

TEST_F(Tls, PeersThatVanishAreNoticed) {
  serve();
  for (int i = 0; i < 20; i++) {
    TlsClient client = connect();
    ASSERT_TRUE(client.send(get("/" + std::string(static_cast<size_t>(i), 'x'))));
    client.raw().reset();
  }
  EXPECT_TRUE(server_->has_connections(0));
  EXPECT_TRUE(serves());
}

TEST_F(Tls, CertificatesThatCannotBeUsedAreErrors) {
  WFHttpServer server(echo);
  const Certificate other = authority_.issue({"DNS:b.test"});
  const char* cert = certificate_.cert_file.c_str();
  const char* key = certificate_.key_file.c_str();
  EXPECT_EQ(server.start("127.0.0.1", 0, "/nowhere", key), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(server.start("127.0.0.1", 0, cert, "/nowhere"), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(server.start("127.0.0.1", 0, cert, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(server.start("127.0.0.1", 0, key, key), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(server.start("127.0.0.1", 0, cert, other.key_file.c_str()), -1);
  EXPECT_EQ(errno, EKEYREJECTED);
  EXPECT_EQ(server.start("127.0.0.1", 0, cert, key), 0);
  server.stop();
}

// Nobody waits at a terminal, and what the standard input holds is not for the key.
TEST_F(Tls, NobodyIsAskedForThePasswordOfAKey) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "secret\n", 7), 7);
  ASSERT_EQ(::dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
  const Certificate encrypted = authority_.issue({"DNS:a.test"}, 3600, "secret");
  WFHttpServer server(echo);
  EXPECT_EQ(server.start("127.0.0.1", 0, encrypted.cert_file.c_str(), encrypted.key_file.c_str()),
            -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(WFGlobal::get_ssl_client_ctx(), encrypted.key_file.c_str(),
                                        SSL_FILETYPE_PEM),
            0);
  ERR_clear_error();
  char unread[8];
  EXPECT_EQ(::read(STDIN_FILENO, unread, sizeof unread), 7);
}

// Chooses the certificate by the name that the client asks for.
class NamedHosts final : public WFHttpServer {
 public:
  NamedHosts() : WFHttpServer(echo) {}
  ~NamedHosts() override {
    stop();
    SSL_CTX_free(b_);
  }
  bool start_with(const Certificate& a, const Certificate& b) {
    b_ = new_ssl_ctx(b.cert_file.c_str(), b.key_file.c_str());
    return b_ && start("127.0.0.1", 0, a.cert_file.c_str(), a.key_file.c_str()) == 0;
  }

 protected:
  SSL_CTX* get_server_ssl_ctx(const char* name) override {
    if (std::string(name) == "b.test") return b_;
    return std::string(name) == "a.test" ? WFHttpServer::get_server_ssl_ctx(name) : nullptr;
  }

 private:
  SSL_CTX* b_ = nullptr;
};

TEST_F(Tls, TheNameAskedForChoosesTheCertificate) {
  NamedHosts server;
  ASSERT_TRUE(server.start_with(certificate_, authority_.issue({"DNS:b.test"})));
  const uint16_t port = test_support::port_of(server);
  const std::string ca = authority_.file();
  EXPECT_TRUE(TlsClient(port, {.ca_file = ca, .host = "a.test"}).connected());
  EXPECT_TRUE(TlsClient(port, {.ca_file = ca, .host = "b.test"}).connected());
  EXPECT_TRUE(TlsClient(port, {.ca_file = ca}).connected());
  const TlsClient unknown(port, {.ca_file = ca, .host = "c.test"});
  EXPECT_FALSE(unknown.connected());
  EXPECT_EQ(unknown.error(), SSL_R_TLSV1_UNRECOGNIZED_NAME);
  // Each context speaks the server's protocol.
  TlsClient b(port, {.ca_file = ca, .host = "b.test", .alpn = std::string("\x08http/1.1")});
  EXPECT_EQ(b.alpn(), "http/1.1");
}

}  // namespace
}  // namespace server_test

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "NamedHosts.h"
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
    const Session session = session_of(connect({.max_version = version}));
    TlsClient client = connect({.max_version = version, .session = session.get()});
    EXPECT_TRUE(client.resumed()) << client.version();
    ASSERT_TRUE(client.send(get("/second")));
    EXPECT_EQ(client.body(), "GET /second ");
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

class TlsHosts : public NamedHostsTest {
 protected:
  // Nobody is let in, because there is no list of revoked certificates.
  const Settings unrevoked_ = [this](SSL_CTX* context) {
    authorised_(context);
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_CRL_CHECK);
  };
};

TEST_F(TlsHosts, ASessionMadeWithOneHostDoesNotOpenAnother) {
  for (const std::string closed : {"a.test", "b.test"}) {
    const bool a_is_closed = closed == "a.test";
    const std::string open = a_is_closed ? "b.test" : "a.test";
    serve_hosts(a_is_closed ? authorised_ : nullptr, a_is_closed ? nullptr : authorised_);
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      SCOPED_TRACE(closed + " is closed, to " + (version == TLS1_2_VERSION ? "1.2" : "1.3"));
      TlsClient::Options to_open = {.host = open, .max_version = version};
      TlsClient::Options to_closed = {.host = closed, .max_version = version};
      EXPECT_TRUE(is_refused(connect(to_closed)));
      const Session session = session_of(connect(to_open));
      to_open.session = to_closed.session = session.get();
      EXPECT_TRUE(connect(to_open).resumed());
      EXPECT_FALSE(connect(to_closed).resumed());
      EXPECT_TRUE(is_refused(connect(to_closed)));
      if (a_is_closed) {
        to_closed.host.clear();  // asks for no host: for the first context
        EXPECT_TRUE(is_refused(connect(to_closed)));
      }
    }
  }
}

TEST_F(TlsHosts, EachHostResumesItsOwnSessions) {
  serve_hosts(nullptr, authorised_);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient::Options options = {
        .host = "b.test", .max_version = version, .certificate = &of_client_};
    const Session session = session_of(connect(options));
    options.session = session.get();
    EXPECT_TRUE(connect(options).resumed()) << version;
    EXPECT_TRUE(is_served(connect(options)));
    options.host = "a.test";
    EXPECT_FALSE(connect(options).resumed()) << version;
    EXPECT_TRUE(is_served(connect(options)));
  }
}

TEST_F(TlsHosts, TheHostsContextDecidesHowClientsAreVerified) {
  for (const std::string strict : {"a.test", "b.test"}) {
    const bool a_is_strict = strict == "a.test";
    serve_hosts(a_is_strict ? unrevoked_ : authorised_, a_is_strict ? authorised_ : unrevoked_);
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      const auto to = [&](const std::string& host) {
        return connect({.host = host, .max_version = version, .certificate = &of_client_});
      };
      EXPECT_TRUE(is_refused(to(strict))) << strict << version;
      EXPECT_TRUE(is_served(to(a_is_strict ? "b.test" : "a.test"))) << strict << version;
    }
  }
  Authority foreign;
  const Certificate unknown = foreign.issue({"DNS:client.test"});
  const Settings lenient = [](SSL_CTX* context) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, [](int, X509_STORE_CTX*) { return 1; });
  };
  serve_hosts(lenient, authorised_);
  EXPECT_TRUE(is_served(connect({.host = "a.test", .certificate = &unknown})));
  EXPECT_TRUE(is_refused(connect({.host = "b.test", .certificate = &unknown})));
  serve_hosts(authorised_, lenient);
  EXPECT_TRUE(is_refused(connect({.host = "a.test", .certificate = &unknown})));
  EXPECT_TRUE(is_served(connect({.host = "b.test", .certificate = &unknown})));
  // What the store of a context says counts if the context has no callback of its own.
  const Settings denied_by_store = [this](SSL_CTX* context) {
    authorised_(context);
    X509_STORE_set_verify_cb(SSL_CTX_get_cert_store(context), [](int, X509_STORE_CTX* chain) {
      X509_STORE_CTX_set_error(chain, X509_V_ERR_CERT_REJECTED);
      return 0;
    });
  };
  serve_hosts(nullptr, denied_by_store);
  EXPECT_TRUE(is_refused(connect({.host = "b.test", .certificate = &of_client_})));
  serve_hosts(nullptr, authorised_);
  TlsClient asked = connect({.host = "b.test", .certificate = &of_client_});
  EXPECT_EQ(sk_X509_NAME_num(SSL_get_client_CA_list(asked.ssl())), 1);
}

// Whoever has a key that the first context knows already is asked for no certificate (RFC
// 8446, 2.2).
TEST_F(TlsHosts, AKeyOfTheFirstContextDoesNotReplaceACertificate) {
  const Settings knows_key = [](SSL_CTX* context) {
    // Only with its hash can such a key be used (SSL_CTX_set_psk_server_callback(3)).
    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_psk_server_callback(
        context, [](SSL*, const char*, unsigned char* key, unsigned length) -> unsigned {
          std::memset(key, 1, std::min(length, 32U));
          return std::min(length, 32U);
        });
  };
  const SSL_psk_client_cb_func key = [](SSL*, const char*, char* identity, unsigned length,
                                        unsigned char* secret, unsigned secret_length) -> unsigned {
    std::snprintf(identity, length, "client");
    std::memset(secret, 1, std::min(secret_length, 32U));
    return std::min(secret_length, 32U);
  };
  serve_hosts(knows_key, authorised_);
  TlsClient known = connect({.host = "a.test", .min_version = TLS1_3_VERSION, .key = key});
  EXPECT_TRUE(known.resumed());
  EXPECT_TRUE(is_served(std::move(known)));
  EXPECT_TRUE(is_refused(connect({.host = "b.test", .min_version = TLS1_3_VERSION, .key = key})));
  EXPECT_TRUE(is_served(connect(
      {.host = "b.test", .min_version = TLS1_3_VERSION, .certificate = &of_client_, .key = key})));
}

TEST_F(TlsHosts, TheHostsContextDecidesAboutVersions) {
  const Settings only_12 = [](SSL_CTX* context) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  };
  const Settings only_13 = [](SSL_CTX* context) {
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  };
  serve_hosts(only_12, only_13);
  EXPECT_EQ(connect({.host = "a.test"}).version(), "TLSv1.2");
  EXPECT_EQ(connect({.host = "b.test"}).version(), "TLSv1.3");
  EXPECT_FALSE(connect({.host = "b.test", .max_version = TLS1_2_VERSION}).connected());
  serve_hosts(only_13, only_12);
  EXPECT_EQ(connect({.host = "a.test"}).version(), "TLSv1.3");
  EXPECT_EQ(connect({.host = "b.test"}).version(), "TLSv1.2");
  EXPECT_FALSE(connect({.host = "a.test", .max_version = TLS1_2_VERSION}).connected());
}

// The server chooses groups that the client did not expect, and asks for another ClientHello (RFC
// 8446, 4.1.4).
TEST_F(TlsHosts, TheChoiceHoldsForASecondClientHello) {
  serve_hosts([](SSL_CTX* context) { SSL_CTX_set1_groups_list(context, "P-384"); }, authorised_);
  const Session session = session_of(connect({.host = "a.test", .min_version = TLS1_3_VERSION}));
  EXPECT_TRUE(is_refused(connect({.host = "b.test", .session = session.get()})));
  EXPECT_TRUE(is_served(connect({.host = "b.test", .certificate = &of_client_})));
}

// RFC 8446, 4.1.2.
TEST_F(TlsHosts, ASecondClientHelloMustNameTheSameHost) {
  const Settings other_groups = [](SSL_CTX* context) {
    SSL_CTX_set1_groups_list(context, "P-384");
  };
  serve_hosts(other_groups, nullptr);
  const std::vector<std::string> names = {"a.test", "b.test", ""};
  for (const std::string& first : names) {
    for (const std::string& second : names) {
      const TlsClient client = connect({.host = first, .second_host = second});
      EXPECT_EQ(client.connected(), first == second) << first << ", then " << second;
      EXPECT_EQ(client.error(), first == second ? 0 : SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER);
    }
  }
  EXPECT_TRUE(is_served(connect({.host = "B.test", .second_host = "b.test"})));
}

TEST_F(TlsHosts, AMalformedNameIsRefused) {
  serve_hosts(nullptr, nullptr);
  TlsLayer layer(authority_.file(), "b.test");
  EXPECT_EQ(layer.handshake(), TlsLayer::Result::kNeedsRecords);
  const std::string hello = layer.take_records();
  const size_t name = hello.find("b.test");
  ASSERT_NE(name, std::string::npos);
  // The name's first octet, its length, its type, and the length of the list.
  for (const size_t before : {size_t{0}, size_t{1}, size_t{3}, size_t{4}}) {
    std::string changed = hello;
    changed[name - before] = static_cast<char>(before == 0 ? 0 : changed[name - before] + 1);
    RawClient client(test_support::port_of(*hosts_));
    ASSERT_TRUE(client.send(changed));
    const std::string alert = client.take_text(7);
    ASSERT_EQ(alert.size(), 7U);
    EXPECT_EQ(alert[0], 21) << "the type of alerts (RFC 8446, 5.1)";
    EXPECT_EQ(alert[6], before == 0 ? SSL_AD_UNRECOGNIZED_NAME : SSL_AD_DECODE_ERROR) << before;
  }
  EXPECT_TRUE(is_served(connect({.host = "b.test"})));
}

}  // namespace
}  // namespace server_test

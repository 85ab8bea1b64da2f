#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/Certificates.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"

// What clients do where things meet that seldom do.

namespace client_test {
namespace {

using server_test::TestServer;
using test_support::Authority;
using test_support::Certificate;
using HttpClients = WFNetworkTaskFactory<protocol::HttpRequest, protocol::HttpResponse>;

void close_after_it(WFHttpTask* task) {
  task->set_keep_alive(0);
}

// One request to an address; `change` before the start.
Fetched fetch_from(const struct sockaddr* address, socklen_t length) {
  Fetched result;
  WFFacilities::WaitGroup group(1);
  WFHttpTask* task =
      HttpClients::create_client_task(TT_TCP, address, length, 0, [&](WFHttpTask* ended) {
        result = fetched(ended);
        group.done();
      });
  close_after_it(task);
  task->start();
  group.wait();
  return result;
}

TEST(ClientCorners, ManyThreadsMakeTheFirstRequest) {
  TestServer server;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port()) + "/";
  constexpr int kThreads = 8;
  std::barrier together(kThreads);
  std::atomic<int> good{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      together.arrive_and_wait();
      good += fetch(url).status == "200";
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(good, kThreads);
}

// Each queues up behind another whose connect fails at once.
TEST(ClientCorners, AFailedConnectIsTheNextOnesTurn) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 1;
  settings.endpoint_params.connect_timeout = -1;
  WORKFLOW_library_init(&settings);
  const test_support::TempDir folder;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  folder.path("nobody").copy(address.sun_path, sizeof address.sun_path - 1);
  std::vector<std::jthread> threads;
  std::atomic<int> refused{0};
  constexpr int kRequests = 500;
  constexpr int kThreads = 4;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < kRequests; n++) {
        const Fetched got =
            fetch_from(reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
        refused += got.error == ENOENT;
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(refused, kThreads * kRequests);
}

TEST(ClientCorners, WhatWasNotVerifiedIsNotResumedByWhoVerifies) {
  Authority stranger;
  const Certificate certificate = stranger.issue({"DNS:other.test"});
  TestServer server(server_test::echo, server_test::http_params(), &certificate);
  const std::string url = "https://127.0.0.1:" + std::to_string(server.port()) + "/x";
  SSL_CTX* const context = WFGlobal::get_ssl_client_ctx();
  EXPECT_EQ(fetch(url, {.change = close_after_it}).state, WFT_STATE_SSL_ERROR);
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  EXPECT_EQ(fetch(url, {.change = close_after_it}).status, "200");
  EXPECT_EQ(fetch(url, {.change = close_after_it}).status, "200");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  EXPECT_EQ(fetch(url, {.change = close_after_it}).state, WFT_STATE_SSL_ERROR);
}

TEST(ClientCorners, AHostMayEndWithADot) {
  Authority authority;
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  const Certificate certificate = authority.issue({"DNS:localhost"});
  TestServer server(server_test::echo, server_test::http_params(), &certificate);
  EXPECT_EQ(fetch("https://localhost.:" + std::to_string(server.port()) + "/").status, "200");
}

TEST(ClientCorners, HttpIsOfferedByItsName) {
  Authority authority;
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  const Certificate certificate = authority.issue({"IP:127.0.0.1"});
  struct WFServerParams params = server_test::http_params();
  params.alpn_protocol = "other/1";
  TestServer server(server_test::echo, params, &certificate);
  const Fetched got = fetch("https://127.0.0.1:" + std::to_string(server.port()) + "/");
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(ERR_GET_REASON(static_cast<unsigned long>(got.error)),
            SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
}

// The server's last words of the handshake and its answer come in one packet.
TEST(ClientCorners, BytesThatComeWithTheHandshakeAreSeen) {
  Authority authority;
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  const Certificate certificate = authority.issue({"IP:127.0.0.1"});
  RawServer server([&](Peer& peer, int) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
    SSL_CTX_use_certificate_chain_file(context.get(), certificate.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), certificate.key_file.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), peer.fd());
    SSL_set_msg_callback(ssl.get(), [](int sent, int, int type, const void* bytes, size_t size,
                                       SSL* handshaking, void*) {
      const auto* message = static_cast<const unsigned char*>(bytes);
      if (!sent && type == SSL3_RT_HANDSHAKE && size > 0 &&
          message[0] == SSL3_MT_CLIENT_KEY_EXCHANGE) {
        const int on = 1;
        ::setsockopt(SSL_get_fd(handshaking), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
      }
    });
    SSL_accept(ssl.get());
    const std::string bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
    const int off = 0;
    ::setsockopt(peer.fd(), IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    char request[4096];
    while (SSL_read(ssl.get(), request, sizeof request) > 0) {
    }
  });
  const Fetched got =
      fetch("https://127.0.0.1:" + std::to_string(server.port()) + "/", {.change = close_after_it});
  EXPECT_EQ(got.error, 0);
  EXPECT_EQ(got.body, "hi");
}

// A connection whose idle time ends just as it is used again.
TEST(ClientCorners, TheEndOfTheIdleTimeIsNoTimeoutOfTheNextRequest) {
  TestServer server;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port()) + "/";
  std::atomic<int> good{0};
  constexpr int kRequests = 400;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < kRequests; n++) {
        good += fetch(url, {.change = [](auto* t) { t->set_keep_alive(1); }}).status == "200";
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(900 + n * 13 % 250);
        while (std::chrono::steady_clock::now() < until) {
        }
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(good, 2 * kRequests);
}

// Connections at the limit -----------------------------------------------------------------------

void limit_connections(size_t most) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = most;
  settings.endpoint_params.connect_timeout = 20'000;
  WORKFLOW_library_init(&settings);
}

// So many requests at once, each of which holds a connection until all have one.
void open_connections(const RawServer& server, int count) {
  WFFacilities::WaitGroup group(count);
  for (int i = 0; i < count; i++) {
    WFTaskFactory::create_http_task(server.url("/together"), 0, 0, [&](WFHttpTask*) {
      group.done();
    })->start();
  }
  group.wait();
}

TEST(ClientCorners, ARequestIsRepeatedOnANewConnection) {
  limit_connections(4);
  std::barrier together(4);
  std::atomic<int> broken{0};
  RawServer server([&](Peer& peer, int number) {
    for (std::string request; !(request = peer.request()).empty();) {
      if (request.compare(0, 13, "GET /together") == 0) {
        together.arrive_and_wait();
      } else if (number < 4) {
        broken++;
        return;
      }
      peer.reply("x");
    }
  });
  open_connections(server, 4);
  // Each of four kept connections will break.
  EXPECT_EQ(fetch(server.url()).body, "x");
  EXPECT_EQ(broken, 1);
  EXPECT_EQ(server.connections(), 5);
}

// All connections are in use but one, which breaks at each use; others want connections, too.
TEST(ClientCorners, WhoNeedsANewConnectionGetsOneAtTheLimit) {
  limit_connections(3);
  std::atomic<int> broken{0};
  std::atomic<int> good{0};
  RawServer server([&](Peer& peer, int) {
    for (int uses = 0; !peer.request().empty(); uses++) {
      if (uses == 1) {
        broken++;
        return;
      }
      peer.reply("x");
    }
  });
  constexpr int kThreads = 6;
  constexpr int kRequests = 300;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < kRequests; n++) {
        good += fetch(server.url()).body == "x";
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(good, kThreads * kRequests);
  // No request met a broken connection twice.
  EXPECT_LE(broken, kThreads * kRequests);
  EXPECT_GT(broken, 0);
}

// Some of those who wait end their connections.
TEST(ClientCorners, TheLineMovesOnWhenConnectionsEnd) {
  limit_connections(1);
  std::atomic<int> seen{0};
  RawServer server([&](Peer& peer, int) {
    while (!peer.request().empty()) {
      seen++;
      peer.reply("x");
    }
  });
  EXPECT_EQ(fetch(server.url()).body, "x");
  for (int i = 0; i < 50; i++) {
    WFFacilities::WaitGroup group(20);
    std::atomic<int> good{0};
    for (int n = 0; n < 20; n++) {
      WFHttpTask* task = WFTaskFactory::create_http_task(server.url(), 0, 0, [&](WFHttpTask* t) {
        good += t->get_state() == WFT_STATE_SUCCESS;
        group.done();
      });
      task->set_keep_alive(n % 3 == 0 ? 0 : 1000);
      task->start();
    }
    group.wait();
    EXPECT_EQ(good, 20);
  }
  EXPECT_EQ(seen, 1001);
}

// Framing ----------------------------------------------------------------------------------------

// What a server sees of a request.
std::string wire(const std::function<void(WFHttpTask*)>& change, const std::string& userinfo = "") {
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    seen = peer.request();
    peer.reply("x");
  });
  fetch("http://" + userinfo + "127.0.0.1:" + std::to_string(server.port()) + "/",
        {.change = [&](WFHttpTask* task) {
          close_after_it(task);
          if (change) {
            change(task);
          }
        }});
  return seen;
}

TEST(ClientCorners, TheLengthOfTheBodyIsTrue) {
  const std::string none =
      wire([](WFHttpTask* task) { task->get_req()->add_header_pair("Content-Length", "3"); });
  EXPECT_EQ(none.find("Content-Length"), std::string::npos) << none;
  const std::string late = wire([](WFHttpTask* task) {
    task->get_req()->set_method("POST");
    task->set_prepare([](WFHttpTask* ready) { ready->get_req()->append_output_body("late"); });
  });
  EXPECT_NE(late.find("Content-Length: 4\r\n"), std::string::npos) << late;
  const std::string chunked = wire([](WFHttpTask* task) {
    task->get_req()->set_method("POST");
    task->get_req()->add_header_pair("Content-Length", "5");
    task->get_req()->add_header_pair("Transfer-Encoding", "chunked");
    task->get_req()->append_output_body("0\r\n\r\n");
  });
  EXPECT_EQ(chunked.find("Content-Length"), std::string::npos) << chunked;
}

TEST(ClientCorners, WhatCouldBeReadInTwoWaysIsNotSent) {
  std::atomic<int> seen{0};
  RawServer server([&](Peer& peer, int) {
    while (!peer.request().empty()) {
      seen++;
      peer.reply("x");
    }
  });
  struct Case {
    std::vector<const char*> codings;
    const char* body;
    const char* version = "HTTP/1.1";
  };
  for (const Case& c :
       {Case{{"chunked"}, "abc"}, Case{{"chunked"}, ""}, Case{{"chunked"}, "3\r\nabc\r\n"},
        Case{{"chunked"}, "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"},
        Case{{"chunked"}, "4\r\nabc\r\n0\r\n\r\n"},
        Case{{"chunked"}, "0\r\nContent-Length: 3\r\n\r\n"}, Case{{"gzip"}, "0\r\n\r\n"},
        Case{{"gzip, chunked"}, "0\r\n\r\n"}, Case{{"chunked", "chunked"}, "0\r\n\r\n"},
        Case{{"chunked"}, "0\r\n\r\n", "HTTP/1.0"}}) {
    const Fetched got =
        fetch(server.url(), {.retry_max = 3, .change = [&](WFHttpTask* task) {
                               task->get_req()->set_method("POST");
                               task->get_req()->set_http_version(c.version);
                               for (const char* coding : c.codings) {
                                 task->get_req()->add_header_pair("transfer-encoding", coding);
                               }
                               task->get_req()->append_output_body(c.body);
                             }});
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR) << c.codings[0] << c.body;
    EXPECT_EQ(got.error, EINVAL) << c.codings[0] << c.body;
  }
  EXPECT_EQ(seen, 0);
}

TEST(ClientCorners, VersionsThatAreNotSpokenAreNotSent) {
  for (const char* version : {"HTTP/2.0", "HTTP/0.9", "HTTP/1.2"}) {
    RawServer server([](Peer& peer, int) {
      peer.request();
      peer.reply("x");
    });
    const Fetched got =
        fetch(server.url(),
              {.change = [&](WFHttpTask* task) { task->get_req()->set_http_version(version); }});
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR) << version;
    EXPECT_EQ(got.error, EINVAL) << version;
  }
}

TEST(ClientCorners, TheUsersHostIsTheOnlyOne) {
  const auto add_host = [](WFHttpTask* task) {
    task->get_req()->add_header_pair("host", "a.test");
  };
  const auto lines_of = [](const std::string& request) {
    std::vector<std::string> lines;
    for (size_t at = 0; (at = request.find("ost: ", at)) != std::string::npos; at++) {
      lines.push_back(request.substr(at, request.find('\r', at) - at));
    }
    return lines;
  };
  const std::vector<std::string> own = {"ost: a.test"};
  EXPECT_EQ(lines_of(wire(add_host)), own);
  EXPECT_EQ(lines_of(wire([&](WFHttpTask* task) { task->set_prepare(add_host); })), own);
  EXPECT_EQ(lines_of(wire([](WFHttpTask* task) {
              protocol::HttpHeaderCursor(task->get_req()).find_and_erase("Host");
            })).size(),
            1U);
}

TEST(ClientCorners, HostIsAddedInEachTryAndStaysOne) {
  std::array<std::string, 2> seen;  // by the tries, whose threads may overlap
  RawServer server([&](Peer& peer, int number) {
    seen.at(static_cast<size_t>(number)) = peer.request();
    if (number > 0) {
      peer.reply("x");
    }
    peer.close();
  });
  const Fetched got = fetch(server.url(), {.retry_max = 1, .change = [](WFHttpTask* task) {
                                             task->set_prepare([](WFHttpTask* ready) {
                                               ready->get_req()->add_header_pair("Host", "a.test");
                                             });
                                           }});
  EXPECT_EQ(got.body, "x") << got.error;
  EXPECT_EQ(seen[1], "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
}

TEST(ClientCorners, TwoHostsAreNotSent) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply("x");
  });
  const auto add_two = [](WFHttpTask* task) {
    task->get_req()->add_header_pair("HOST", "a.test");
    task->get_req()->add_header_pair("host", "b.test");
  };
  for (const bool late : {false, true}) {
    const Fetched got = fetch(server.url(), {.retry_max = 3, .change = [&](WFHttpTask* task) {
                                               late ? task->set_prepare(add_two) : add_two(task);
                                             }});
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(got.error, EINVAL);
  }
}

// Chunks may be appended in any pieces.
TEST(ClientCorners, ChunksOfTheUserArriveAsABody) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->append_output_body(protocol::HttpUtil::decode_chunked_body(task->get_req()));
  });
  const std::string chunks = "3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";
  for (const size_t step : {chunks.size(), size_t{1}, size_t{5}}) {
    const Fetched got = fetch("http://127.0.0.1:" + std::to_string(server.port()) + "/",
                              {.change = [&](WFHttpTask* task) {
                                task->get_req()->set_method("POST");
                                task->get_req()->add_header_pair("Transfer-Encoding", "Chunked");
                                for (size_t at = 0; at < chunks.size(); at += step) {
                                  task->get_req()->append_output_body_nocopy(
                                      chunks.data() + at, std::min(step, chunks.size() - at));
                                }
                              }});
    EXPECT_EQ(got.body, "abc0123456789") << got.error;
  }
}

TEST(ClientCorners, APlusInCredentialsIsAPlus) {
  // "u:a+b" and, percent-encoded, "u:a:b".
  EXPECT_NE(wire(nullptr, "u:a+b@").find("Basic dTphK2I=\r\n"), std::string::npos);
  EXPECT_NE(wire(nullptr, "u:a%3Ab@").find("Basic dTphOmI=\r\n"), std::string::npos);
}

TEST(ClientCorners, AnAddressIsAHost) {
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    seen = peer.request();
    peer.reply("x");
  });
  struct sockaddr_in address = test_support::loopback(server.port());
  EXPECT_EQ(fetch_from(reinterpret_cast<const struct sockaddr*>(&address), sizeof address).body,
            "x");
  EXPECT_NE(seen.find("Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"),
            std::string::npos)
      << seen;
}

TEST(ClientCorners, UrisMadeByHandCannotInjectFields) {
  for (const char* host : {"a\r\nX: y", "a b", "a/b", "a@b", ""}) {
    ParsedURI uri;
    ASSERT_EQ(URIParser::parse("http://h/", uri), 0);
    std::free(uri.host);
    uri.host = ::strdup(host);
    WFFacilities::WaitGroup group(1);
    Fetched got;
    WFTaskFactory::create_http_task(uri, 0, 0, [&](WFHttpTask* task) {
      got = fetched(task);
      group.done();
    })->start();
    group.wait();
    EXPECT_EQ(got.error, WFT_ERR_URI_PARSE_FAILED) << host;
  }
}

}  // namespace

TEST(ClientCorners, AfterAnInterimResponseTheWaitBeginsAnew) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.response_timeout = 200;
  WORKFLOW_library_init(&settings);
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 103 Early Hints\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // longer than between two reads
    peer.reply("late");
  });
  const Fetched got =
      fetch(server.url(), {.change = [](WFHttpTask* task) { task->set_watch_timeout(30'000); }});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.body, "late");
}

}  // namespace client_test

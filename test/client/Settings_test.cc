#include <gtest/gtest.h>
#include <netdb.h>

#include <cerrno>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "support/Certificates.h"
#include "support/FakeDnsServer.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/TempDir.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"

// What a program sets for all its clients, by the public settings alone.

namespace client_test {
namespace {

using server_test::TestServer;
using test_support::Authority;
using test_support::FakeDnsServer;

// Hosts are found by files and a server of the test's.
class ClientSettings : public testing::Test {
 protected:
  ClientSettings() {
    write("hosts", "");
    write("resolv.conf", "nameserver " + names_.address() + "\n");
    settings_.hosts_path = hosts_.c_str();
    settings_.resolv_conf_path = resolv_conf_.c_str();
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path(name)) << text;
  }
  Fetched get_from(const std::string& host, uint16_t port) {
    WORKFLOW_library_init(&settings_);
    return fetch("http://" + host + ":" + std::to_string(port) + "/");
  }

  const test_support::TempDir folder_;
  const std::string hosts_ = folder_.path("hosts");
  const std::string resolv_conf_ = folder_.path("resolv.conf");
  FakeDnsServer names_;
  struct WFGlobalSettings settings_ = GLOBAL_SETTINGS_DEFAULT;
};

}  // namespace

TEST_F(ClientSettings, TheHostsFileIsTheOneThatIsSet) {
  TestServer server;
  write("hosts", "127.0.0.1 only-here.test\n");
  EXPECT_EQ(get_from("only-here.test", server.port()).status, "200");
  EXPECT_EQ(names_.asked_in_all(), 0u);
  EXPECT_EQ(get_from("nowhere.test", server.port()).error, EAI_NONAME);
}

TEST_F(ClientSettings, TheNameServerIsThatOfTheFileThatIsSet) {
  TestServer server;
  names_.set("served.test", {.v4 = {"127.0.0.1"}});
  EXPECT_EQ(get_from("served.test", server.port()).status, "200");
  EXPECT_EQ(names_.asked("served.test"), 2u);
}

TEST_F(ClientSettings, OnlyTheFamilyThatIsSetIsAskedFor) {
  TestServer server;
  names_.set("both.test", {.v4 = {"127.0.0.1"}, .v6 = {"::1"}});
  settings_.endpoint_params.address_family = AF_INET;
  EXPECT_EQ(get_from("both.test", server.port()).status, "200");
  EXPECT_EQ(names_.asked("both.test", 28), 0u);
  names_.set("both-again.test", {.v4 = {"127.0.0.1"}, .v6 = {"::1"}});
  settings_.endpoint_params.address_family = AF_INET6;
  // Nobody listens there, or there is no IPv6 here.
  EXPECT_EQ(get_from("both-again.test", server.port()).state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(names_.asked("both-again.test", 1), 0u);
  EXPECT_EQ(names_.asked("both-again.test", 28), 1u);
}

TEST_F(ClientSettings, AddressesOfAnotherFamilyAreNone) {
  TestServer server;
  settings_.endpoint_params.address_family = AF_INET6;
  names_.set("four.test", {.v4 = {"127.0.0.1"}});
  EXPECT_EQ(get_from("four.test", server.port()).error, EAI_NODATA);
  const Fetched numeric = get_from("127.0.0.1", server.port());
  EXPECT_EQ(numeric.state, WFT_STATE_DNS_ERROR);
  EXPECT_EQ(numeric.error, EAI_ADDRFAMILY);
}

// Keeps the names that clients have asked for in handshakes.
class NotingServer final : public WFHttpServer {
 public:
  NotingServer() : WFHttpServer(server_test::echo) {}
  ~NotingServer() override { stop(); }

  std::vector<std::string> names() {
    std::lock_guard<std::mutex> lock(mutex_);
    return names_;
  }

 protected:
  SSL_CTX* new_ssl_ctx(const char* cert_file, const char* key_file) override {
    SSL_CTX* const context = WFHttpServer::new_ssl_ctx(cert_file, key_file);
    if (context) SSL_CTX_set_cert_cb(context, note_name, this);
    return context;
  }

 private:
  static int note_name(SSL* ssl, void* server) {
    const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    auto* const noting = static_cast<NotingServer*>(server);
    std::lock_guard<std::mutex> lock(noting->mutex_);
    if (name) noting->names_.emplace_back(name);
    return 1;
  }

  std::mutex mutex_;
  std::vector<std::string> names_;
};

TEST_F(ClientSettings, TheServerIsToldTheNameUnlessThatIsTurnedOff) {
  Authority authority;
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  const test_support::Certificate certificate = authority.issue({"DNS:named.test"});
  write("hosts", "127.0.0.1 named.test other.test\n");
  NotingServer server;
  ASSERT_EQ(
      server.start("127.0.0.1", 0, certificate.cert_file.c_str(), certificate.key_file.c_str()), 0);
  const std::string port = ":" + std::to_string(test_support::port_of(server)) + "/";
  for (const bool told : {false, true}) {
    settings_.endpoint_params.use_tls_sni = told;
    WORKFLOW_library_init(&settings_);
    EXPECT_EQ(fetch("https://named.test" + port).status, "200");
    const std::vector<std::string> names = server.names();
    EXPECT_EQ(names, told ? std::vector<std::string>{"named.test"} : std::vector<std::string>());
    // Told or not, the certificate has to be the host's.
    EXPECT_EQ(fetch("https://other.test" + port).error, -X509_V_ERR_HOSTNAME_MISMATCH);
  }
}

TEST_F(ClientSettings, AResponseBeyondTheSizeLimitIsAnError) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply(std::string(5000, 'x'));
    peer.ended();
  });
  settings_.endpoint_params.response_size_limit = 4096;
  const Fetched got = get_from("127.0.0.1", server.port());
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, EMSGSIZE);
  // What is said of one response goes first.
  const auto more = [](WFHttpTask* task) { task->get_resp()->set_size_limit(10'000); };
  EXPECT_EQ(fetch(server.url(), {.change = more}).status, "200");
}

TEST_F(ClientSettings, AnEndlessResponseIsAnError) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\n\r\n");
    while (peer.send("more and more ")) {
    }
  });
  settings_.endpoint_params.response_size_limit = 1'000'000;
  EXPECT_EQ(get_from("127.0.0.1", server.port()).error, EMSGSIZE);
}

TEST_F(ClientSettings, ByDefaultAResponseMayHaveOneGibibyte) {
  RawServer server([](Peer& peer, int n) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: " +
              std::to_string(n == 0 ? 1'073'741'825 : 1'073'000'000) + "\r\n\r\n");
    peer.ended();
  });
  WORKFLOW_library_init(&settings_);
  EXPECT_EQ(fetch(server.url()).error, EMSGSIZE);
  // The other one is waited for.
  const auto brief = [](WFHttpTask* task) { task->set_receive_timeout(100); };
  EXPECT_EQ(fetch(server.url(), {.change = brief}).error, ETIMEDOUT);
}

TEST_F(ClientSettings, WhatIsNotKeptIsNotLimited) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply(std::string(100'000, 'x'));
  });
  settings_.endpoint_params.response_size_limit = 4096;
  WORKFLOW_library_init(&settings_);
  size_t total = 0;
  int state = -1;
  WFFacilities::WaitGroup group(1);
  WFHttpChunkedClient::create_chunked_task(
      server.url(), 0,
      [&](WFHttpChunkedTask* task) {
        const void* data = nullptr;
        size_t size = 0;
        task->get_chunk()->get_chunk_data(&data, &size);
        total += size;
      },
      [&](WFHttpChunkedTask* task) {
        state = task->get_state();
        group.done();
      })
      ->start();
  group.wait();
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
  EXPECT_EQ(total, 100'000u);
}

}  // namespace client_test

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "interop/Curl.h"
#include "interop/Origin.h"
#include "interop/Servers.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/TutorialProgram.h"
#include "util/UniqueFd.h"
#include "workflow/WFGlobal.h"

// Proxies that a client is configured to use: tinyproxy for our client, the proxy of the tutorials
// for curl.

namespace interop_test {
namespace {

using client_test::Fetched;
using test_support::Authority;
using test_support::Certificate;

Fetched fetch_through(const std::string& proxy, const std::string& url) {
  Fetched got;
  WFFacilities::WaitGroup group(1);
  WFTaskFactory::create_http_task(url, proxy, 0, 1, [&](WFHttpTask* task) {
    got = client_test::fetched(task);
    group.done();
  })->start();
  group.wait();
  return got;
}

class Tinyproxy {
 public:
  explicit Tinyproxy(const std::string& more = "") {
    std::ofstream(folder_.path("conf"))
        << "Port " << port_ << "\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\n"
        << "LogLevel Error\nLogFile \"" << folder_.path("log") << "\"\n"
        << more;
    program_ = std::make_unique<Program>(
        "tinyproxy", std::vector<std::string>{"-d", "-c", folder_.path("conf")});
    // It says nothing when it listens.
    EXPECT_TRUE(
        server_test::eventually([this] { return server_test::RawClient(port_).connected(); }));
  }

  std::string url(const std::string& user = "") const {
    return "http://" + user + "127.0.0.1:" + std::to_string(port_);
  }

 private:
  const workflow::UniqueFd kept_ = test_support::keep_port();
  const uint16_t port_ = test_support::port_of(kept_.get());
  const test_support::TempDir folder_;
  std::unique_ptr<Program> program_;
};

TEST(Tinyproxy, SaysItsVersion) {
  const auto result = test_support::run_program("tinyproxy", {"-v"});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s", result.output.c_str());
}

TEST(Tinyproxy, PassesPlainRequestsOn) {
  Origin origin;
  const Tinyproxy proxy;
  for (int i = 0; i < 3; i++) {
    const Fetched got = fetch_through(proxy.url(), origin.url("/x?y"));
    EXPECT_EQ(got.body, "GET /x?y ") << got.state << " " << got.error;
  }
  EXPECT_EQ(fetch_through(proxy.url(), origin.url("/status/404")).status, "404");
  EXPECT_EQ(fetch_through(proxy.url(), origin.url("/chunked")).body, "hello world");
  EXPECT_EQ(fetch_through(proxy.url(), "http://127.0.0.1:1/").status, "500");
}

TEST(Tinyproxy, TunnelsTls) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  Origin origin(server_test::http_params(), &certificate);
  const Tinyproxy proxy;
  for (int i = 0; i < 5; i++) {
    const Fetched got = fetch_through(proxy.url(), origin.https("/x"));
    EXPECT_EQ(got.body, "GET /x ") << got.state << " " << got.error;
    EXPECT_EQ(got.sequence, i);
  }
  EXPECT_EQ(origin.used_connections(), 1);
  const Fetched large = fetch_through(proxy.url(), origin.https("/bytes/10000000"));
  EXPECT_TRUE(large.body == pattern(10'000'000)) << large.body.size();
  // The certificate is that of the host, not of the proxy.
  const Fetched other =
      fetch_through(proxy.url(), "https://127.0.0.1:" + std::to_string(origin.port()));
  EXPECT_EQ(other.error, -X509_V_ERR_IP_ADDRESS_MISMATCH);
}

TEST(Tinyproxy, WantsToKnowWhoAsks) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  Origin tls(server_test::http_params(), &certificate);
  Origin plain;
  const Tinyproxy proxy("BasicAuth user secret\n");
  EXPECT_EQ(fetch_through(proxy.url("user:secret@"), tls.https("/x")).body, "GET /x ");
  EXPECT_EQ(fetch_through(proxy.url("user:secret@"), plain.url("/x")).body, "GET /x ");
  for (const char* user : {"", "user:wrong@"}) {
    const Fetched refused = fetch_through(proxy.url(user), tls.https("/x"));
    EXPECT_EQ(refused.state, WFT_STATE_TASK_ERROR);
    EXPECT_EQ(refused.error, WFT_ERR_HTTP_PROXY_CONNECT_FAILED);
    EXPECT_EQ(fetch_through(proxy.url(user), plain.url("/x")).status, *user ? "401" : "407");
  }
}

TEST(Tinyproxy, RefusesPortsItDoesNotServe) {
  Origin origin;
  const Tinyproxy proxy("ConnectPort 443\n");
  const Fetched refused = fetch_through(proxy.url(), origin.https());
  EXPECT_EQ(refused.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(refused.error, WFT_ERR_HTTP_PROXY_CONNECT_FAILED);
  EXPECT_EQ(origin.requests(), 0);
}

// curl -x: the target of its requests is the whole URL.
TEST(TutorialProxy, ServesCurl) {
  Origin origin;
  tutorial_test::Program program("tutorial-14-proxy", {"http://127.0.0.1:1", "0"});
  const std::string proxy = "http://127.0.0.1:" + std::to_string(program.port());
  const auto result = curl({"-x", proxy, origin.url("/a"), origin.url("/b"), "-d", "body"});
  EXPECT_EQ(result.output, "POST /a bodyPOST /b body");
  EXPECT_EQ(curl({"-x", proxy, origin.url("/chunked")}).output, "hello world");
  EXPECT_EQ(
      curl({"-x", proxy, "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:1/"}).output,
      "502");
}

TEST(TutorialProxy, DoesNotTunnel) {
  tutorial_test::Program program("tutorial-14-proxy", {"http://127.0.0.1:1", "0"});
  const auto result = curl({"-x", "http://127.0.0.1:" + std::to_string(program.port()), "-p", "-w",
                            "%{http_connect}", "http://127.0.0.1:1/"});
  EXPECT_EQ(result.exit_code, 56);
  EXPECT_NE(result.output.find("501"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace interop_test

#include <gtest/gtest.h>
#include <sys/un.h>

#include <chrono>

#include "interop/Curl.h"
#include "interop/Origin.h"
#include "interop/Servers.h"
#include "support/Eventually.h"
#include "support/TempDir.h"

// Our server, nginx as a reverse proxy in front of it, curl as the proxy's client.

namespace interop_test {
namespace {

using namespace test_support;

constexpr char kKeepAlive[] = "proxy_http_version 1.1; proxy_set_header Connection \"\"; ";

// Passes everything on to "origin", as `how` says.
std::string proxy_to(const std::string& origin, const std::string& how) {
  return "upstream origin { server " + origin +
         "; keepalive 16; } client_max_body_size 0; server { listen @listen; location / { " + how +
         "proxy_pass http://origin; } }";
}

std::string many_through_nginx(const Nginx& nginx, int count, const char* at_a_time) {
  return curl({"--parallel", "--parallel-immediate", "--parallel-max", at_a_time, "-o", "/dev/null",
               "-w", "%{http_code}\n", nginx.url("/n[1-" + std::to_string(count) + "]")})
      .output;
}

TEST(NginxProxy, PassesOnInHttp10) {
  Origin origin;
  const Nginx nginx(proxy_to(origin.address(), ""));
  const auto result = curl({nginx.url("/a"), "-d", "body", "--next", nginx.url("/chunked")});
  EXPECT_EQ(result.output, "POST /a bodyhello world");
  EXPECT_EQ(origin.used_connections(), 2);
}

TEST(NginxProxy, KeepsItsConnectionToUs) {
  Origin origin;
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  const auto result = curl({"-H", "Connection: close", nginx.url("/n[1-100]")});
  EXPECT_EQ(count_of(result.output, "GET /n"), 100U);
  EXPECT_EQ(origin.requests(), 100);
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(NginxProxy, RepliesOfAllKindsOverOneConnection) {
  Origin origin;
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  const auto result =
      curl({"-w", " %{http_code}\n", nginx.url("/status/204"), nginx.url("/status/304"),
            nginx.url("/status/404"), nginx.url("/chunked"), nginx.url("/end")});
  EXPECT_EQ(result.output, " 204\n 304\n 404\nhello world 200\nGET /end  200\n");
  const std::string head = curl({"-I", nginx.url("/bytes/1000")}).output;
  EXPECT_NE(head.find("Content-Length: 1000\r\n"), std::string::npos) << head;
  EXPECT_EQ(origin.used_connections(), 1);
}

// Each connection of the proxy is closed a millisecond after its last reply: time and again just
// when the next request is on its way.
TEST(NginxProxy, WhereWeCloseIdleConnectionsNoRequestFails) {
  struct WFServerParams params = server_test::http_params();
  params.keep_alive_timeout = 1;
  Origin origin(params);
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  const std::string output = many_through_nginx(nginx, 500, "4");
  EXPECT_EQ(count_of(output, "200\n"), 500U) << output;
  EXPECT_GT(origin.used_connections(), 4);
}

TEST(NginxProxy, WhereConnectionsCarryOneRequestNoneFails) {
  struct WFServerParams params = server_test::http_params();
  params.keep_alive_timeout = 0;
  Origin origin(params);
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  const std::string output = many_through_nginx(nginx, 300, "10");
  EXPECT_EQ(count_of(output, "200\n"), 300U) << output;
  EXPECT_EQ(origin.used_connections(), 300);
}

TEST(NginxProxy, DelayedRepliesComeInTimeOrNotAtAll) {
  Origin origin;
  const Nginx nginx(
      proxy_to(origin.address(), std::string(kKeepAlive) + "proxy_read_timeout 2s; "));
  EXPECT_EQ(curl({nginx.url("/delay?ms=300")}).output, "late");
  const auto late = curl({"-o", "/dev/null", "-w", "%{http_code}", nginx.url("/delay?ms=600000")});
  EXPECT_EQ(late.output, "504");
  EXPECT_TRUE(eventually([] { return WFTaskFactory::cancel_by_name("delay") == 1; }));
  EXPECT_EQ(curl({nginx.url("/after")}).output, "GET /after ");
}

TEST(NginxProxy, LargeBodiesGoBothWays) {
  const TempDir folder;
  const std::string large = pattern(10'000'000);
  put(folder.path("file"), large);
  Origin origin;
  const Nginx nginx(proxy_to(origin.address(), std::string(kKeepAlive) +
                                                   "proxy_request_buffering off; "
                                                   "proxy_max_temp_file_size 0; "));
  const auto down = curl({nginx.url("/bytes/10000000")});
  EXPECT_TRUE(down.output == large) << down.output.size();
  for (const char* framing : {"X-None: 0", "Transfer-Encoding: chunked"}) {
    const auto up = curl({"-T", folder.path("file"), "-H", framing, nginx.url("/same")});
    EXPECT_EQ(up.output, "10000000 same");
  }
}

TEST(NginxProxy, OurRefusalOfALargeBodyArrives) {
  const TempDir folder;
  put(folder.path("file"), pattern(4 * 1024 * 1024));
  struct WFServerParams params = server_test::patient_params();
  params.request_size_limit = 1000;
  params.linger_size_limit = 16 * 1024 * 1024;
  Origin origin(params);
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  for (int i = 0; i < 10; i++) {
    const auto up = curl({"-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:", "-T",
                          folder.path("file"), nginx.url("/same")});
    EXPECT_EQ(up.output, "413");
  }
}

TEST(NginxProxy, OurStopDoesNotWaitForItsIdleConnections) {
  Origin origin;
  const Nginx nginx(proxy_to(origin.address(), kKeepAlive));
  EXPECT_EQ(count_of(many_through_nginx(nginx, 50, "10"), "200\n"), 50U);
  const auto begin = std::chrono::steady_clock::now();
  origin.server()->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(origin.server()->get_conn_count(), 0U);
  EXPECT_EQ(curl({"-o", "/dev/null", "-w", "%{http_code}", nginx.url()}).output, "502");
}

TEST(NginxProxy, SpeaksTlsToUs) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:origin.test"});
  Origin origin(server_test::http_params(), &certificate);
  const Nginx nginx("upstream origin { server " + origin.address() +
                    "; keepalive 4; } server { listen @listen; location / { " + kKeepAlive +
                    "proxy_ssl_verify on; proxy_ssl_trusted_certificate " + authority.file() +
                    "; proxy_ssl_name origin.test; proxy_ssl_server_name on; proxy_pass "
                    "https://origin; } }");
  const auto result = curl({nginx.url("/n[1-50]"), nginx.url("/chunked")});
  EXPECT_EQ(count_of(result.output, "GET /n"), 50U) << result.output;
  EXPECT_EQ(count_of(result.output, "hello world"), 1U);
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(NginxProxy, SpeaksTlsToUsAnewForEachRequest) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:origin.test"});
  Origin origin(server_test::http_params(), &certificate);
  const Nginx nginx(
      "server { listen @listen; location / { proxy_ssl_verify on; "
      "proxy_ssl_trusted_certificate " +
      authority.file() + "; proxy_ssl_name origin.test; proxy_pass https://" + origin.address() +
      "; } }");
  const std::string output = many_through_nginx(nginx, 50, "10");
  EXPECT_EQ(count_of(output, "200\n"), 50U) << output;
  EXPECT_EQ(origin.used_connections(), 50);
}

TEST(NginxProxy, ReachesUsByAUnixSocket) {
  const TempDir folder;
  const std::string path = folder.path("socket");
  WFHttpServer server(server_test::echo);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(server.start(reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  const Nginx nginx(proxy_to("unix:" + path, kKeepAlive));
  EXPECT_EQ(curl({nginx.url("/a"), nginx.url("/b")}).output, "GET /a GET /b ");
}

}  // namespace
}  // namespace interop_test

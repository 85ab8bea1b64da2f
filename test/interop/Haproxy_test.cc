#include <gtest/gtest.h>

#include <atomic>

#include "interop/Curl.h"
#include "interop/Origin.h"
#include "interop/Servers.h"
#include "support/Fetch.h"
#include "workflow/WFGlobal.h"

// haproxy in front of our server, or in the way of our client.

namespace interop_test {
namespace {

using client_test::fetch;
using client_test::Fetched;
using server_test::eventually;
using test_support::Authority;
using test_support::Certificate;

// Passes everything on to that server.
std::string front(const std::string& server, const std::string& more = "",
                  const std::string& bind = "") {
  return "frontend front\n  bind fd@3 " + bind +
         "\n  default_backend back\nbackend back\n  http-reuse always\n" + more + "  server one " +
         server + "\n";
}

std::string many_through_haproxy(const std::vector<std::string>& arguments, const std::string& url,
                                 int count) {
  std::vector<std::string> all = {
      "--parallel", "--parallel-immediate", "--parallel-max", "8", "-o", "/dev/null",
      "-w",         "%{http_code}\n"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.push_back(url + "n[1-" + std::to_string(count) + "]");
  return curl(all).output;
}

TEST(Haproxy, SaysItsVersion) {
  const auto result = test_support::run_program("haproxy", {"-v"});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s\n", result.output.substr(0, result.output.find('\n')).c_str());
}

TEST(Haproxy, KeepsItsConnectionsToUs) {
  Origin origin;
  const Haproxy haproxy(front(origin.address()));
  EXPECT_EQ(count_of(many_through_haproxy({}, haproxy.url(), 200), "200\n"), 200U);
  EXPECT_EQ(origin.requests(), 200);
  EXPECT_LE(origin.used_connections(), 8);
}

TEST(Haproxy, RepliesOfAllKindsOverOneConnection) {
  Origin origin;
  const Haproxy haproxy(front(origin.address()));
  const auto result =
      curl({"-w", " %{http_code} %{num_connects}\n", haproxy.url("/status/204"),
            haproxy.url("/status/304"), haproxy.url("/chunked"), haproxy.url("/end")});
  EXPECT_EQ(result.output, " 204 1\n 304 0\nhello world 200 0\nGET /end  200 0\n");
  const std::string head = curl({"-I", haproxy.url("/bytes/1000")}).output;
  EXPECT_NE(head.find("content-length: 1000\r\n"), std::string::npos) << head;
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(Haproxy, WhereWeCloseIdleConnectionsNoRequestFails) {
  struct WFServerParams params = server_test::http_params();
  params.keep_alive_timeout = 1;
  Origin origin(params);
  const Haproxy haproxy(front(origin.address(), "  retry-on conn-failure empty-response\n"));
  const std::string output = many_through_haproxy({}, haproxy.url(), 500);
  EXPECT_EQ(count_of(output, "200\n"), 500U) << output;
}

// Requests that come in over one connection in HTTP/2 go out in HTTP/1.1, an upload without a
// length in chunks.
TEST(Haproxy, TranslatesHttp2) {
  const test_support::TempDir folder;
  put(folder.path("file"), pattern(1'000'000));
  Origin origin;
  const Haproxy haproxy(front(origin.address(), "", "proto h2"));
  const auto result = curl({"--http2-prior-knowledge", "-w", "%{http_version}", "-o", "/dev/null",
                            haproxy.url("/n[1-50]")});
  EXPECT_EQ(count_of(result.output, "2"), 50U) << result.output;
  const auto up = curl({"--http2-prior-knowledge", "-T", folder.path("file"), "-H",
                        "Content-Length:", haproxy.url("/same")});
  EXPECT_EQ(up.output, "1000000 same");
}

TEST(Haproxy, LargeBodiesGoBothWays) {
  Origin origin;
  const Haproxy haproxy(front(origin.address()));
  const Fetched down = fetch(haproxy.url("/bytes/10000000"));
  EXPECT_TRUE(down.body == pattern(10'000'000)) << down.body.size();
  const std::string body = pattern(10'000'000);
  const Fetched up = fetch(haproxy.url("/same"), {.change = [&](WFHttpTask* task) {
                             task->get_req()->set_method("POST");
                             task->get_req()->append_output_body_nocopy(body);
                           }});
  EXPECT_EQ(up.body, std::to_string(body.size()) + " same");
}

TEST(Haproxy, AsksForOurHealth) {
  std::atomic<int> asked{0};
  std::atomic<bool> healthy{true};
  server_test::TestServer server([&](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/health") {
      asked++;
      protocol::HttpUtil::set_response_status(task->get_resp(), healthy ? 200 : 503);
    }
  });
  const Haproxy haproxy(
      front("127.0.0.1:" + std::to_string(server.port()) + " check inter 20ms fall 1 rise 1",
            "  option httpchk\n  http-check send meth GET uri /health ver HTTP/1.1 hdr Host x\n"));
  const auto becomes = [&](const char* status) {
    return eventually([&] { return fetch(haproxy.url()).status == status; });
  };
  EXPECT_TRUE(eventually([&] { return asked >= 3; }));
  EXPECT_TRUE(becomes("200"));
  healthy = false;
  EXPECT_TRUE(becomes("503"));
  healthy = true;
  EXPECT_TRUE(becomes("200"));
}

TEST(Haproxy, ItsProxyProtocolIsRefused) {
  Origin origin;
  for (const char* version : {" send-proxy", " send-proxy-v2"}) {
    const Haproxy haproxy(front(origin.address() + version));
    const std::string status = fetch(haproxy.url()).status;
    EXPECT_TRUE(status == "400" || status == "502") << status;
    EXPECT_EQ(origin.requests(), 0);
  }
  EXPECT_TRUE(origin.server().serves());
}

TEST(Haproxy, SpeaksTlsOnBothSides) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  const test_support::TempDir folder;
  put(folder.path("both.pem"), text_of(certificate.cert_file) + text_of(certificate.key_file));
  Origin origin(server_test::http_params(), &certificate);
  const Haproxy haproxy(front(origin.address() + " ssl verify required ca-file " +
                                  authority.file() + " sni str(localhost) verifyhost localhost",
                              "", "ssl crt " + folder.path("both.pem") + " alpn h2,http/1.1"));
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  for (int i = 0; i < 50; i++) {
    const Fetched got = fetch(haproxy.https("/x"));
    EXPECT_EQ(got.body, "GET /x ") << got.state << " " << got.error;
    EXPECT_EQ(got.sequence, i);
  }
  const Fetched down = fetch(haproxy.https("/bytes/10000000"));
  EXPECT_TRUE(down.body == pattern(10'000'000)) << down.body.size();
  const std::string output =
      many_through_haproxy({"--cacert", authority.file()}, haproxy.https(), 100);
  EXPECT_EQ(count_of(output, "200\n"), 100U) << output;
  EXPECT_LE(origin.used_connections(), 9);
}

// As a forward proxy: what our client sends has the whole URL as its target.
TEST(Haproxy, PassesOurClientOn) {
  Origin origin;
  const Haproxy haproxy(
      "frontend front\n  bind fd@3\n  http-request set-dst url_ip\n  http-request set-dst-port "
      "url_port\n  http-request replace-uri http://[^/]*(/.*) \\1\n  default_backend any\n"
      "backend any\n  server any 0.0.0.0:0\n");
  for (int i = 0; i < 3; i++) {
    Fetched got;
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_http_task(origin.url("/by-proxy"), haproxy.url(), 0, 0,
                                    [&](WFHttpTask* task) {
                                      got = client_test::fetched(task);
                                      group.done();
                                    })
        ->start();
    group.wait();
    EXPECT_EQ(got.body, "GET /by-proxy ") << got.state << " " << got.error << " " << got.status;
    EXPECT_EQ(got.sequence, i);
  }
}

}  // namespace
}  // namespace interop_test

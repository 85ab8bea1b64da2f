#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "interop/Origin.h"
#include "interop/Servers.h"
#include "support/Fetch.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"

// nginx, our client.

namespace interop_test {
namespace {

using client_test::fetch;
using client_test::Fetched;
using test_support::Authority;
using test_support::Certificate;

constexpr char kFiles[] =
    "server { listen @listen; root @folder; client_max_body_size 1k; "
    "location /none { return 204; } location /code { return 304; } "
    "location /put { dav_methods PUT DELETE; client_max_body_size 0; } "
    "location /zip { gzip on; gzip_types text/plain; gzip_min_length 1; gzip_http_version 1.0; } "
    "location /relative { absolute_redirect off; } }";

Fetched fetch_as(const std::string& method, const std::string& url, const std::string& body = "") {
  return fetch(url, {.change = [&](WFHttpTask* task) {
                 task->get_req()->set_method(method);
                 task->get_req()->append_output_body_nocopy(body);
               }});
}

// What is the same in the clear and over TLS: the connection is kept over all of it.
void expect_everything(const Nginx& nginx, const std::string& base) {
  put(nginx.www("small"), "small file");
  put(nginx.www("large"), large_pattern());
  long long sequence = 0;
  const auto get = [&](const std::string& method, const std::string& path) {
    const Fetched got = fetch_as(method, base + path);
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << method << " " << path << " " << got.error;
    EXPECT_EQ(got.sequence, sequence++) << path;
    return got;
  };
  EXPECT_EQ(get("GET", "/small").body, "small file");
  EXPECT_EQ(get("HEAD", "/small").body, "");
  EXPECT_EQ(get("GET", "/none").status, "204");
  EXPECT_EQ(get("GET", "/code").status, "304");
  EXPECT_EQ(get("GET", "/missing").status, "404");
  EXPECT_TRUE(get("GET", "/large").body == large_pattern());
  EXPECT_EQ(get("HEAD", "/large").status, "200");
  EXPECT_EQ(get("GET", "/small").body, "small file");
}

TEST(NginxServer, SaysItsVersion) {
  const auto result = test_support::run_program("nginx", {"-v"}, {.stderr_is_output = true});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s", result.output.c_str());
}

TEST(NginxServer, RepliesOfAllKindsOverOneConnection) {
  const Nginx nginx(kFiles);
  expect_everything(nginx, nginx.url(""));
}

TEST(NginxServer, UploadsArriveWhole) {
  const Nginx nginx(kFiles);
  std::filesystem::create_directory(nginx.www("put"));
  const std::string body = pattern(10 * 1024 * 1024);
  EXPECT_EQ(fetch_as("PUT", nginx.url("/put/file"), body).status, "201");
  EXPECT_TRUE(text_of(nginx.www("put/file")) == body);
  EXPECT_EQ(fetch_as("PUT", nginx.url("/put/file"), "other").status, "204");
  EXPECT_EQ(text_of(nginx.www("put/file")), "other");
  EXPECT_EQ(fetch_as("DELETE", nginx.url("/put/file")).status, "204");
  EXPECT_FALSE(std::filesystem::exists(nginx.www("put/file")));
}

TEST(NginxServer, ChunkedUploadsArriveWhole) {
  const Nginx nginx(kFiles);
  std::filesystem::create_directory(nginx.www("put"));
  const Fetched got = fetch(nginx.url("/put/file"), {.change = [](WFHttpTask* task) {
                              protocol::HttpRequest* request = task->get_req();
                              request->set_method("PUT");
                              request->add_header_pair("Transfer-Encoding", "chunked");
                              request->append_output_body("5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n");
                            }});
  EXPECT_EQ(got.status, "201");
  EXPECT_EQ(text_of(nginx.www("put/file")), "firstsecond");
}

// It answers and closes while we still send.
TEST(NginxServer, TheAnswerToATooLargeBodyArrives) {
  const Nginx nginx(kFiles);
  const std::string body = pattern(20 * 1024 * 1024);
  for (int i = 0; i < 20; i++) {
    const Fetched got = fetch_as("POST", nginx.url("/small"), body);
    EXPECT_EQ(got.status, "413") << got.state << " " << got.error;
  }
}

TEST(NginxServer, CompressedBodiesAreNotTouched) {
  const Nginx nginx(kFiles);
  std::filesystem::create_directory(nginx.www("zip"));
  const std::string text = "compressible " + std::string(100'000, 'x');
  put(nginx.www("zip/file.txt"), text);
  std::string encoding;
  std::string packed;
  WFFacilities::WaitGroup group(1);
  WFHttpTask* task =
      WFTaskFactory::create_http_task(nginx.url("/zip/file.txt"), 0, 0, [&](WFHttpTask* ended) {
        encoding = protocol::HttpHeaderMap(ended->get_resp()).get("Content-Encoding");
        EXPECT_TRUE(ended->get_resp()->is_chunked());
        packed = protocol::HttpUtil::decode_chunked_body(ended->get_resp());
        group.done();
      });
  task->get_req()->add_header_pair("Accept-Encoding", "gzip");
  task->start();
  group.wait();
  EXPECT_EQ(encoding, "gzip");
  EXPECT_LT(packed.size(), 5000U);
  const auto unpacked = test_support::run_program("gzip", {"-dc"}, {}, packed);
  EXPECT_EQ(unpacked.exit_code, 0);
  EXPECT_TRUE(unpacked.output == text);
}

TEST(NginxServer, RedirectsAreFollowed) {
  const Nginx nginx(kFiles);
  for (const char* folder : {"absolute", "relative"}) {
    std::filesystem::create_directory(nginx.www(folder));
    put(nginx.www(folder + std::string("/index.html")), folder);
    EXPECT_EQ(fetch(nginx.url(std::string("/") + folder)).status, "301");
    const Fetched got = fetch(nginx.url(std::string("/") + folder), {.redirect_max = 1});
    EXPECT_EQ(got.body, folder);
  }
}

// Connections that nginx closes after so many requests, or when they were idle, are no errors.
TEST(NginxServer, WhereItEndsConnectionsNoRequestFails) {
  const Nginx nginx(
      "server { listen @listen; keepalive_requests 10; keepalive_timeout 1; "
      "location / { return 200 ok; } }");
  constexpr int kThreads = 30;
  std::atomic<int> failed{0};
  std::atomic<int> repeated{0};
  test_support::Tally ended;
  const auto request = [&](WFHttpTask* task) {
    const Fetched got = client_test::fetched(task);
    if (got.state != WFT_STATE_SUCCESS || got.body != "ok") {
      failed++;
      std::printf("%d %d\n", got.state, got.error);
    }
    repeated += got.sequence > 0;
    ended.add();
  };
  for (int thread = 0; thread < kThreads; thread++) {
    SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
    for (int i = 0; i < 50; i++) {
      series->push_back(WFTaskFactory::create_http_task(nginx.url(), 0, 0, request));
    }
    // Idle until about when nginx closes, to the millisecond.
    for (int i = 0; i < 2; i++) {
      series->push_back(WFTaskFactory::create_timer_task(
          static_cast<unsigned>(985'000 + thread * 1000), nullptr));
      series->push_back(WFTaskFactory::create_http_task(nginx.url(), 0, 0, request));
    }
    series->start();
  }
  EXPECT_TRUE(ended.wait_for(kThreads * 52));
  EXPECT_EQ(failed, 0);
  EXPECT_GT(repeated, kThreads * 30);
}

class NginxTlsServer : public testing::Test {
 protected:
  NginxTlsServer() {
    EXPECT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str()),
              1);
  }
  static std::string certificate_lines(const Certificate& certificate) {
    return "ssl_certificate " + certificate.cert_file + "; ssl_certificate_key " +
           certificate.key_file + "; ";
  }

  Authority authority_;
  const Certificate certificate_ = authority_.issue({"DNS:localhost"});
};

TEST_F(NginxTlsServer, RepliesOfAllKindsOverOneConnection) {
  std::string config = kFiles;
  config.insert(config.find(';'), " ssl");
  const Nginx nginx(certificate_lines(certificate_) + config);
  expect_everything(nginx, nginx.https(""));
}

TEST_F(NginxTlsServer, ChoosesTheCertificateByTheNameAndResumes) {
  const Certificate other = authority_.issue({"DNS:other.test"});
  const std::string reply =
      "location / { return 200 \"$ssl_server_name $ssl_protocol $ssl_session_reused\"; } ";
  for (const std::string version : {"TLSv1.2", "TLSv1.3"}) {
    const Nginx nginx("ssl_protocols " + version +
                      "; ssl_session_cache shared:a:1m; keepalive_timeout 0; server { listen "
                      "@listen ssl; server_name other.test; " +
                      certificate_lines(other) + reply +
                      "} server { listen @listen ssl; server_name localhost; " +
                      certificate_lines(certificate_) + reply + "}");
    EXPECT_EQ(fetch(nginx.https()).body, "localhost " + version + " .");
    EXPECT_EQ(fetch(nginx.https()).body, "localhost " + version + " r");
  }
}

TEST_F(NginxTlsServer, WhoSpeaksNoTlsIsToldSo) {
  const Nginx nginx("server { listen @listen ssl; " + certificate_lines(certificate_) + "}");
  const Fetched got = fetch(nginx.url());
  EXPECT_EQ(got.status, "400");
  EXPECT_NE(got.body.find("plain HTTP request was sent to HTTPS port"), std::string::npos);
}

}  // namespace
}  // namespace interop_test

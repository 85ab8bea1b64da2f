#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "interop/Origin.h"
#include "support/Fetch.h"
#include "support/Program.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "workflow/WFGlobal.h"

// Python's http.server, our client. By default it speaks HTTP/1.0: a connection for each reply,
// whose end it is.

namespace interop_test {
namespace {

using client_test::fetch;
using client_test::Fetched;
using client_test::FetchOptions;
using namespace test_support;

class PythonFiles : public testing::TestWithParam<const char*> {
 protected:
  PythonFiles() {
    std::filesystem::create_directory(folder_.path("sub"));
    put(folder_.path("sub/index.html"), "index");
    put(folder_.path("file"), content_);
    url_ = "http://127.0.0.1:" + std::to_string(program_.port());
  }
  Fetched get(const std::string& path, const FetchOptions& options = {}) const {
    return fetch(url_ + path, options);
  }

  const TempDir folder_;
  const std::string content_ = pattern(5'000'000);
  Program program_{"python3",
                   {"-I", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--protocol",
                    GetParam(), "--directory", folder_.path(""), "0"},
                   // It writes a line for each request.
                   {.stderr_is_output = true}};
  std::string url_;
};

TEST_P(PythonFiles, AreFetched) {
  const Fetched got = get("/file");
  EXPECT_EQ(got.status, "200");
  EXPECT_TRUE(got.body == content_) << got.body.size();
  const Fetched head =
      get("/file", {.change = [](WFHttpTask* task) { task->get_req()->set_method("HEAD"); }});
  EXPECT_EQ(head.status, "200") << head.state << " " << head.error;
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(get("/missing").status, "404");
}

TEST_P(PythonFiles, RedirectsOfFoldersAreFollowed) {
  EXPECT_EQ(get("/sub").status, "301");
  EXPECT_EQ(get("/sub", {.redirect_max = 1}).body, "index");
}

// It answers 501 to methods it does not have, and reads no body.
TEST_P(PythonFiles, AnAnswerBeforeTheBodyWasReadArrives) {
  for (int i = 0; i < 20; i++) {
    const Fetched got = get("/file", {.change = [](WFHttpTask* task) {
                              task->get_req()->set_method("POST");
                              task->get_req()->append_output_body(std::string(1000, 'x'));
                            }});
    EXPECT_EQ(got.status, "501") << got.state << " " << got.error;
  }
}

// Its queue of connections is short: no more than a few are made at a time, other requests wait.
TEST_P(PythonFiles, ManyRequestsShareFewConnections) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 4;
  WORKFLOW_library_init(&settings);
  test_support::Tally ended;
  std::atomic<int> good{0};
  for (int i = 0; i < 100; i++) {
    WFTaskFactory::create_http_task(url_ + "/sub/", 0, 1, [&](WFHttpTask* task) {
      good += client_test::fetched(task).body == "index";
      ended.add();
    })->start();
  }
  EXPECT_TRUE(ended.wait_for(100));
  EXPECT_EQ(good, 100);
}

INSTANTIATE_TEST_SUITE_P(PythonServer, PythonFiles, testing::Values("HTTP/1.0", "HTTP/1.1"),
                         [](const auto& test) {
                           return std::string(test.param) == "HTTP/1.0" ? "Http10" : "Http11";
                         });

// A server by the script `handler`, which is the body of do_GET.
std::string server_script(const std::string& handler) {
  return R"(
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments): pass
    def do_GET(self):
)" + handler +
         R"(
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
)";
}

constexpr char kChunks[] = R"(
        self.send_response_only(103)
        self.send_header("Link", "</a>; rel=preload")
        self.end_headers()
        self.send_response(200)
        self.send_header("transfer-encoding", "Chunked")
        self.end_headers()
        for part in (b"1;a=b\r\nh", b"\r\n", b"0004\r\nello\r\n", b"A\r\n, a ", b"chunk!\r\n"):
            self.wfile.write(part)
            self.wfile.flush()
        self.wfile.write(b"0\r\nX-Sum: 1\r\n\r\n")
)";

TEST(PythonServer, ItsInterimRepliesAndChunksAreUnderstood) {
  Program program("python3", {"-I", "-c", server_script(kChunks)});
  const std::string url = "http://127.0.0.1:" + std::to_string(program.port()) + "/";
  for (int i = 0; i < 3; i++) {
    const Fetched got = fetch(url);
    EXPECT_EQ(got.status, "200") << got.state << " " << got.error;
    EXPECT_EQ(got.body, "hello, a chunk!");
    EXPECT_EQ(got.sequence, i);
  }
}

TEST(PythonServer, ItsTlsIsSpoken) {
  Authority authority;
  const Certificate certificate = authority.issue({"DNS:localhost"});
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  Program program(
      "python3", {"-I", "-c", server_script(kChunks), certificate.cert_file, certificate.key_file});
  const std::string at = std::to_string(program.port());
  for (int i = 0; i < 3; i++) {
    const Fetched got = fetch("https://localhost:" + at + "/");
    EXPECT_EQ(got.body, "hello, a chunk!") << got.state << " " << got.error;
    EXPECT_EQ(got.sequence, i);
  }
  EXPECT_EQ(fetch("https://127.0.0.1:" + at + "/").error, -X509_V_ERR_IP_ADDRESS_MISMATCH);
}

}  // namespace
}  // namespace interop_test

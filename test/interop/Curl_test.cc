#include "interop/Curl.h"

#include <gtest/gtest.h>
#include <sys/un.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "interop/Origin.h"
#include "support/TempDir.h"
#include "support/TutorialProgram.h"
#include "workflow/WFTimer.h"

// Our server, curl as its client.

namespace interop_test {
namespace {

using test_support::TempDir;

// How many connections curl made for each URL.
constexpr char kConnects[] = "%{http_code} %{num_connects}\n";

TEST(Curl, SaysItsVersion) {
  const auto result = curl({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s\n", result.output.substr(0, result.output.find('\n')).c_str());
}

TEST(Curl, SeveralUrlsShareOneConnection) {
  Origin origin;
  const auto result = curl({"-w", kConnects, origin.url("/a"), origin.url("/b"), origin.url("/c")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "GET /a 200 1\nGET /b 200 0\nGET /c 200 0\n");
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(Curl, AListOfUrlsFromAFileSharesOneConnection) {
  Origin origin;
  const TempDir folder;
  put(folder.path("config"), "url = \"" + origin.url("/get") + "\"\nnext\nurl = \"" +
                                 origin.url("/post") + "\"\ndata = \"a=1\"\nnext\nurl = \"" +
                                 origin.url("/head") + "\"\nhead\nnext\nurl = \"" +
                                 origin.url("/end") + "\"\n");
  const auto result = curl({"-K", folder.path("config")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("GET /get POST /post a=1HTTP/1.1 200 OK\r\n"), 0U) << result.output;
  EXPECT_NE(result.output.find("\r\n\r\nGET /end "), std::string::npos) << result.output;
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(Curl, Http10EndsEachConnection) {
  Origin origin;
  const auto result = curl({"-0", "-w", kConnects, origin.url("/a"), origin.url("/b")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "GET /a 200 1\nGET /b 200 1\n");
}

TEST(Curl, Http10MayKeepItsConnection) {
  Origin origin;
  const auto result = curl(
      {"-0", "-H", "Connection: keep-alive", "-w", kConnects, origin.url("/a"), origin.url("/b")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "GET /a 200 1\nGET /b 200 0\n");
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(Curl, Http10GetsNoChunks) {
  Origin origin;
  const auto result = curl({"-0", "-i", "--raw", origin.url("/chunked")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.find("Transfer-Encoding"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\r\n\r\nhello world"), std::string::npos) << result.output;
}

TEST(Curl, RepliesWithoutABodyLeaveTheConnectionInOrder) {
  Origin origin;
  const std::string head = curl({"-I", origin.url("/bytes/1000"), origin.url("/again")}).output;
  EXPECT_EQ(count_of(head, "HTTP/1.1 200 OK\r\n"), 2U) << head;
  EXPECT_EQ(count_of(head, "Content-Length: 1000\r\n"), 1U) << head;
  EXPECT_EQ(origin.used_connections(), 1);
  const auto result = curl({"-w", kConnects, origin.url("/status/204"), origin.url("/status/304"),
                            origin.url("/chunked"), origin.url("/end")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "204 1\n304 0\nhello world200 0\nGET /end 200 0\n");
}

TEST(Curl, ChunksAndTrailersArriveAsWritten) {
  Origin origin;
  const auto raw = curl({"--raw", origin.url("/chunked"), origin.url("/end")});
  EXPECT_EQ(raw.exit_code, 0);
  EXPECT_EQ(raw.output, "6;x=y\r\nhello \r\n5\r\nworld\r\n0\r\nX-Sum: 11\r\n\r\nGET /end ");
  EXPECT_NE(curl({"-i", origin.url("/chunked")}).output.find("X-Sum: 11"), std::string::npos);
}

TEST(Curl, LargeBodiesArriveWhole) {
  Origin origin;
  const auto down = curl({origin.url("/bytes/" + std::to_string(kLarge))});
  EXPECT_EQ(down.exit_code, 0);
  EXPECT_TRUE(down.output == large_pattern()) << down.output.size();
}

TEST(Curl, LargeUploadsArriveWhole) {
  const TempDir folder;
  put(folder.path("file"), large_pattern());
  struct WFServerParams params = server_test::http_params();
  params.request_size_limit = kLarge;
  Origin origin(params);
  const auto up = curl({"-T", folder.path("file"), origin.url("/same")});
  EXPECT_EQ(up.exit_code, 0);
  EXPECT_EQ(up.output, std::to_string(kLarge) + " same");
}

TEST(Curl, ChunkedUploadsArriveWhole) {
  const TempDir folder;
  const size_t size = size_t{10} * 1024 * 1024;
  put(folder.path("file"), pattern(size));
  Origin origin;
  const auto up = curl({"-T", folder.path("file"), "-H", "Transfer-Encoding: chunked",
                        origin.url("/same"), "-T", folder.path("file"), origin.url("/same")});
  EXPECT_EQ(up.exit_code, 0);
  EXPECT_EQ(up.output, std::to_string(size) + " same" + std::to_string(size) + " same");
  EXPECT_EQ(origin.used_connections(), 1);
}

TEST(Curl, FormsArrive) {
  Origin origin;
  const auto result = curl({"-F", "name=value", "-F", "file=@-;filename=x", origin.url("/form")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.find("POST /form --"), 0U);
  EXPECT_NE(result.output.find("name=\"name\"\r\n\r\nvalue\r\n"), std::string::npos);
}

TEST(Curl, WaitsForTheGoAhead) {
  const TempDir folder;
  put(folder.path("file"), pattern(2 * 1024 * 1024));
  Origin origin;
  const auto result = curl({"-v", "--expect100-timeout", "40", "-H", "Expect: 100-continue", "-T",
                            folder.path("file"), origin.url("/same")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count_of(result.output, "< HTTP/1.1 100 Continue"), 1U) << result.output;
  EXPECT_NE(result.output.find("2097152 same"), std::string::npos);
}

TEST(Curl, IsToldBeforeItSendsTooMuch) {
  const TempDir folder;
  put(folder.path("file"), pattern(2 * 1024 * 1024));
  struct WFServerParams params = server_test::http_params();
  params.request_size_limit = 1024 * 1024;
  Origin origin(params);
  const auto result =
      curl({"-o", folder.path("reply"), "-w", "%{http_code} %{size_upload}", "--expect100-timeout",
            "40", "-H", "Expect: 100-continue", "-T", folder.path("file"), origin.url("/same")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "413 0");
}

// A client that sends without waiting is still sending when the answer comes.
TEST(Curl, HearsThatItSendsTooMuch) {
  const TempDir folder;
  put(folder.path("file"), pattern(8 * 1024 * 1024));
  struct WFServerParams params = server_test::patient_params();
  params.request_size_limit = 1024 * 1024;
  Origin origin(params);
  for (int i = 0; i < 10; i++) {
    for (const char* framing : {"X-None: 0", "Transfer-Encoding: chunked"}) {
      const auto result =
          curl({"-o", folder.path("reply"), "-w", "%{http_code}", "-H", "Expect:", "-H", framing,
                "-T", folder.path("file"), origin.url("/same")});
      EXPECT_EQ(result.output.substr(0, 3), "413") << framing << ": " << result.output;
    }
  }
  EXPECT_EQ(origin.requests(), 0);
}

TEST(Curl, ManyAtATime) {
  Origin origin;
  const int count = test_support::kSanitized ? 100 : 300;
  const auto result = curl({"--parallel", "--parallel-immediate", "--parallel-max", "30", "-w",
                            "%{http_code}\n", origin.url("/n[1-" + std::to_string(count) + "]")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count_of(result.output, "200\n"), static_cast<size_t>(count));
  EXPECT_EQ(origin.requests(), count);
}

TEST(Curl, GetsADelayedReply) {
  Origin origin;
  const auto result =
      curl({"-w", " %{time_starttransfer}", origin.url("/delay?ms=300"), origin.url("/x")});
  EXPECT_EQ(result.output.substr(0, 5), "late ");
  const double took = std::strtod(result.output.c_str() + 5, nullptr);
  EXPECT_GE(took, 0.3);
  EXPECT_LT(took, 20);
}

TEST(Curl, MayLeaveBeforeTheReply) {
  Origin origin;
  test_support::Program client("curl", {"-q", "-sS", origin.url("/delay?ms=600000")});
  EXPECT_TRUE(server_test::eventually([] { return WFTimer::count("delay") == 1; }));
  client.signal(SIGTERM);
  EXPECT_EQ(client.exit_code(), -SIGTERM);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("delay"), 1);
  EXPECT_TRUE(origin.server().has_connections(0));
}

TEST(Curl, SeesRefusals) {
  Origin origin;
  const auto status = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"-o", "/dev/null", "-w", "%{http_code}"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return curl(all).output;
  };
  EXPECT_EQ(status({"-H", "X-Long: " + std::string(20'000, 'x'), origin.url()}), "431");
  EXPECT_EQ(status({origin.url("/" + std::string(10'000, 'x'))}), "414");
  EXPECT_EQ(status({"-X", "STRANGE", origin.url()}), "501");
  EXPECT_EQ(status({"-H", "Host:", origin.url()}), "400");
  EXPECT_EQ(status({"-H", "Content-Length: 5", "-H", "Transfer-Encoding: chunked", "-d", "x",
                    origin.url()}),
            "400");
  EXPECT_EQ(status({"-H", "Expect: a-miracle", origin.url()}), "417");
  EXPECT_EQ(origin.requests(), 0);
  EXPECT_EQ(status({origin.url()}), "200");
}

TEST(Curl, AsksForTheServerAsAWhole) {
  Origin origin;
  EXPECT_EQ(curl({"-X", "OPTIONS", "--request-target", "*", origin.url()}).output, "OPTIONS * ");
}

TEST(Curl, IsAnsweredInHttp11WhenItOffersHttp2) {
  Origin origin;
  const auto result = curl({"--http2", "-i", origin.url("/a"), origin.url("/b")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count_of(result.output, "HTTP/1.1 200 OK\r\n"), 2U) << result.output;
}

TEST(Curl, OtherProtocolsAreRefusedAndOthersServed) {
  Origin origin;
  EXPECT_NE(curl({"--http2-prior-knowledge", origin.url()}).exit_code, 0);
  EXPECT_EQ(curl({"--haproxy-protocol", "-w", "%{http_code}", origin.url()}).output, "400");
  EXPECT_NE(curl({"-k", "https://" + origin.address()}).exit_code, 0);
  EXPECT_NE(curl({"telnet://" + origin.address(), "--max-time", "0.3"}).exit_code, 0);
  EXPECT_EQ(origin.requests(), 0);
  EXPECT_TRUE(origin.server().serves());
}

TEST(Curl, SpeaksOverAUnixSocket) {
  const TempDir folder;
  const std::string path = folder.path("socket");
  WFHttpServer server(server_test::echo);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(server.start(reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  const auto result = curl({"--unix-socket", path, "-w", kConnects, "http://x/a", "http://x/b"});
  EXPECT_EQ(result.output, "GET /a 200 1\nGET /b 200 0\n");
}

// Files ------------------------------------------------------------------------------------------

class CurlFiles : public testing::Test {
 protected:
  CurlFiles() {
    std::filesystem::create_directory(folder_.path("www"));
    put(folder_.path("www/file"), content_);
    // A file that has just changed has no validators.
    std::filesystem::last_write_time(
        folder_.path("www/file"),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    program_.emplace("tutorial-09-file_server", std::vector<std::string>{"0", folder_.path("www")});
    url_ = "http://127.0.0.1:" + std::to_string(program_->port()) + "/file";
  }

  const std::string content_ = pattern(1'000'000);
  const TempDir folder_;
  std::optional<tutorial_test::Program> program_;
  std::string url_;
};

TEST_F(CurlFiles, RangesAreParts) {
  EXPECT_EQ(curl({"-r", "100-199", url_}).output, content_.substr(100, 100));
  EXPECT_EQ(curl({"-r", "-10", url_}).output, content_.substr(content_.size() - 10));
  EXPECT_EQ(curl({"-r", "5-5", "-w", "%{http_code}", url_}).output, content_.substr(5, 1) + "206");
  EXPECT_EQ(curl({"-r", "1000000-", "-o", "/dev/null", "-w", "%{http_code}", url_}).output, "416");
}

TEST_F(CurlFiles, DownloadsAreResumed) {
  const std::string path = folder_.path("part");
  put(path, content_.substr(0, 400'000));
  const auto result = curl({"-C", "-", "-o", path, "-w", "%{http_code} %{size_download}", url_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "206 600000");
  EXPECT_TRUE(text_of(path) == content_);
}

TEST_F(CurlFiles, WhatIsKnownIsNotSentAgain) {
  const std::string tag = folder_.path("tag");
  const std::string path = folder_.path("copy");
  EXPECT_EQ(curl({"--etag-save", tag, "-R", "-o", path, "-w", "%{http_code}", url_}).output, "200");
  EXPECT_EQ(curl({"--etag-compare", tag, "-w", "%{http_code}", url_}).output, "304");
  EXPECT_EQ(curl({"-z", path, "-w", "%{http_code}", url_}).output, "304");
  EXPECT_TRUE(text_of(path) == content_);
}

TEST_F(CurlFiles, PartsAtATimeMakeTheWhole) {
  std::vector<std::string> arguments = {"--parallel", "--parallel-immediate"};
  for (int part = 0; part < 10; part++) {
    const std::string range =
        std::to_string(part * 100'000) + "-" + std::to_string(part * 100'000 + 99'999);
    arguments.insert(arguments.end(),
                     {"-r", range, "-o", folder_.path(std::to_string(part)), url_, "--next"});
  }
  arguments.pop_back();
  EXPECT_EQ(curl(arguments).exit_code, 0);
  std::string whole;
  for (int part = 0; part < 10; part++) {
    whole += text_of(folder_.path(std::to_string(part)));
  }
  EXPECT_TRUE(whole == content_) << whole.size();
}

}  // namespace
}  // namespace interop_test

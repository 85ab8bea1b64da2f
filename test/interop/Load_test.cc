#include <gtest/gtest.h>

#include "interop/Origin.h"
#include "support/Program.h"
#include "support/TempDir.h"

// Our server under the load of wrk and ab (Apache).

namespace interop_test {
namespace {

using namespace test_support;

// Under a sanitizer as much takes several times as long.
std::string scaled(int count) {
  return std::to_string(kSanitized ? count / 10 : count);
}

class Load : public testing::Test {
 protected:
  void expect_has(const ProgramResult& result, const std::string& text) {
    EXPECT_NE(result.output.find(text), std::string::npos) << text << " in: " << result.output;
  }
  ProgramResult ab(int requests, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-q", "-c", "50", "-n", scaled(requests), "-s", "50"});
    ProgramResult result = run_program("ab", arguments, {.stderr_is_output = true});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_has(result, "Complete requests:      " + scaled(requests) + "\n");
    expect_has(result, "Failed requests:        0\n");
    EXPECT_EQ(result.output.find("Non-2xx"), std::string::npos) << result.output;
    return result;
  }
  // wrk runs for a time. It is run for longer times until the origin has had more than `least`
  // requests: 50 handshakes alone may take a second where the machine is busy. Returns how often.
  int wrk(const Origin& origin, int least, const std::vector<std::string>& more) {
    int runs = 0;
    for (int seconds = 1; origin.requests() <= least && seconds <= 32; seconds *= 2) {
      runs++;
      std::vector<std::string> arguments{
          "-t", "1", "-c", "50", "-d", std::to_string(seconds) + "s", "--timeout", "50s"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const ProgramResult result = run_program("wrk", arguments, {.stderr_is_output = true});
      EXPECT_EQ(result.exit_code, 0) << result.output;
      EXPECT_EQ(result.output.find("Socket errors"), std::string::npos) << result.output;
      EXPECT_EQ(result.output.find("Non-2xx"), std::string::npos) << result.output;
      expect_has(result, "requests in ");
      std::printf("%s", result.output.c_str());
    }
    EXPECT_GT(origin.requests(), least);
    return runs;
  }

  const TempDir folder_;
  Authority authority_;
  const Certificate certificate_ = authority_.issue({"DNS:localhost"});
};

TEST_F(Load, AbSaysItsVersion) {
  const ProgramResult result = run_program("ab", {"-V"});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s", result.output.substr(0, result.output.find('\n') + 1).c_str());
}

TEST_F(Load, AbConnectsForEachRequest) {
  Origin origin;
  ab(5000, {origin.url("/bytes/100")});
  EXPECT_GE(origin.used_connections(), kSanitized ? 500 : 5000);
}

// In HTTP/1.0.
TEST_F(Load, AbKeepsItsConnections) {
  Origin origin;
  const ProgramResult result = ab(5000, {"-k", origin.url("/bytes/100")});
  expect_has(result, "Keep-Alive requests:    " + scaled(5000) + "\n");
  EXPECT_LE(origin.used_connections(), 100);
}

TEST_F(Load, AbPosts) {
  Origin origin;
  put(folder_.path("body"), std::string(1000, 'b'));
  ab(2000, {"-k", "-p", folder_.path("body"), "-T", "text/plain", origin.url("/same")});
}

TEST_F(Load, AbOverTls) {
  Origin origin(server_test::http_params(), &certificate_);
  ab(500, {"https://" + origin.address() + "/bytes/100"});
  ab(1000, {"-k", "https://" + origin.address() + "/bytes/100"});
}

TEST_F(Load, AbGetsDelayedReplies) {
  Origin origin;
  ab(500, {"-k", origin.url("/delay?ms=20")});
}

TEST_F(Load, Wrk) {
  Origin origin;
  const int runs = wrk(origin, 50, {origin.url("/x")});
  EXPECT_LE(origin.used_connections(), 51 * runs);
}

TEST_F(Load, WrkOverTls) {
  Origin origin(server_test::http_params(), &certificate_);
  wrk(origin, 50, {"https://" + origin.address() + "/bytes/5000"});
}

TEST_F(Load, WrkPipelines) {
  put(folder_.path("pipeline.lua"), R"(
init = function(args)
  local requests = {}
  for i = 1, 20 do requests[i] = wrk.format("GET", "/n" .. i) end
  all = table.concat(requests)
end
request = function() return all end
)");
  Origin origin;
  wrk(origin, 1000, {"-s", folder_.path("pipeline.lua"), origin.url()});
}

TEST_F(Load, WrkGetsDelayedReplies) {
  Origin origin;
  wrk(origin, 50, {origin.url("/delay?ms=10")});
}

}  // namespace
}  // namespace interop_test

#include <gtest/gtest.h>

#include "interop/Curl.h"
#include "interop/Origin.h"

// Our server over TLS, curl as its client.

namespace interop_test {
namespace {

using namespace test_support;

class CurlTls : public testing::Test {
 protected:
  // Trusts the authority of the server.
  ProgramResult curl_trusting(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"--cacert", authority_.file()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return curl(all);
  }

  Authority authority_;
  const Certificate certificate_ = authority_.issue({"DNS:localhost"});
  Origin origin_{server_test::http_params(), &certificate_};
};

TEST_F(CurlTls, SeveralUrlsShareOneConnection) {
  const auto result = curl_trusting(
      {"-w", "%{num_connects} %{ssl_verify_result}\n", origin_.https("/a"), origin_.https("/b")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "GET /a 1 0\nGET /b 0 0\n");
  EXPECT_EQ(origin_.used_connections(), 1);
}

TEST_F(CurlTls, TwoVersionsAreSpoken) {
  const auto tls12 = curl_trusting({"-v", "--tlsv1.2", "--tls-max", "1.2", origin_.https("/a")});
  EXPECT_EQ(tls12.exit_code, 0) << tls12.output;
  EXPECT_NE(tls12.output.find("SSL connection using TLSv1.2"), std::string::npos);
  const auto tls13 = curl_trusting({"-v", "--tlsv1.3", origin_.https("/a")});
  EXPECT_EQ(tls13.exit_code, 0) << tls13.output;
  EXPECT_NE(tls13.output.find("SSL connection using TLSv1.3"), std::string::npos);
}

TEST_F(CurlTls, OlderVersionsAreRefused) {
  const auto result = curl_trusting(
      {"-v", "--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", origin_.https()});
  EXPECT_EQ(result.exit_code, 35) << result.output;
  EXPECT_NE(result.output.find("protocol version"), std::string::npos) << result.output;
  EXPECT_EQ(origin_.requests(), 0);
}

TEST_F(CurlTls, SpeaksHttp11ToWhoPrefersHttp2) {
  const auto result = curl_trusting({"-v", "--http2", origin_.https()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("server accepted http/1.1"), std::string::npos) << result.output;
}

TEST_F(CurlTls, ACertificateOfAnotherHostIsSeen) {
  const auto result = curl_trusting({"https://127.0.0.1:" + std::to_string(origin_.port())});
  EXPECT_EQ(result.exit_code, 60) << result.output;
  EXPECT_EQ(curl({origin_.https()}).exit_code, 60);
  EXPECT_EQ(origin_.requests(), 0);
  EXPECT_EQ(curl_trusting({origin_.https("/ok")}).output, "GET /ok ");
}

TEST_F(CurlTls, PlainRequestsAreRefused) {
  const auto result = curl({"-v", origin_.url()});
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_EQ(origin_.requests(), 0);
  EXPECT_EQ(curl_trusting({origin_.https("/ok")}).output, "GET /ok ");
}

TEST_F(CurlTls, SessionsAreResumed) {
  for (const char* version : {"1.2", "1.3"}) {
    const auto result =
        curl_trusting({"-v", "--tls-max", version, "-H", "Connection: close", origin_.https("/a"),
                       origin_.https("/b"), origin_.https("/c")});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(count_of(result.output, "SSL re-using session ID"), 2U) << result.output;
    EXPECT_EQ(count_of(result.output, "< HTTP/1.1 200 OK"), 3U) << result.output;
  }
}

// It offers "http/1.0", and nothing else, as the protocol it wants (ALPN).
TEST_F(CurlTls, Http10IsSpoken) {
  const auto result =
      curl_trusting({"-v", "-0", origin_.https("/chunked"), origin_.https("/chunked")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(count_of(result.output, "hello world"), 2U);
  EXPECT_EQ(count_of(result.output, "server accepted http/1.0"), 2U) << result.output;
}

}  // namespace
}  // namespace interop_test

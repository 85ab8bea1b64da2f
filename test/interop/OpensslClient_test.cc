#include <gtest/gtest.h>

#include "interop/Openssl.h"
#include "interop/Origin.h"
#include "support/Loopback.h"
#include "support/TempDir.h"

// Our server, "openssl s_client" as its client.

namespace interop_test {
namespace {

using server_test::get;
using test_support::Authority;
using test_support::Certificate;

constexpr char kOldCiphers[] = "DEFAULT@SECLEVEL=0";

class OpensslClient : public testing::Test {
 protected:
  // Clients may be idle for as long as a case takes on a machine that has other work.
  static struct WFServerParams patient_params() {
    struct WFServerParams params = server_test::http_params();
    params.header_timeout = params.keep_alive_timeout = -1;
    return params;
  }
  // What s_client prints of a connection on which it only asks once.
  std::string session(const std::vector<std::string>& arguments,
                      const std::string& request = get("/x", "Connection: close\r\n")) {
    SslClient client(origin_.port(), arguments);
    // Input that it gets before the connection is made would be lost.
    client.write(request);
    if (arguments.empty() || arguments.back() != "-ign_eof") {
      client.prints("GET /x ");
    }
    client.close_stdin();
    client.exit_code();
    return client.output();
  }
  // Another client was there all the time, and is served on.
  void expect_served() {
    EXPECT_TRUE(other_.prints("Verify return code"));
    const std::string target = "/served" + std::to_string(++served_);
    EXPECT_TRUE(other_.write(get(target)));
    EXPECT_TRUE(other_.prints("GET " + target + " "));
  }
  static void expect_has(const std::string& output, const std::string& text) {
    EXPECT_NE(output.find(text), std::string::npos) << text << " in: " << output;
  }

  Authority authority_;
  const Certificate certificate_ = authority_.issue({"DNS:localhost"});
  Origin origin_{patient_params(), &certificate_};
  SslClient other_{origin_.port(), {}};
  int served_ = 0;
};

TEST_F(OpensslClient, SaysItsVersion) {
  const auto result = openssl({"version"});
  EXPECT_EQ(result.exit_code, 0);
  std::printf("%s", result.output.c_str());
}

TEST_F(OpensslClient, VerifiesTheChainAndTheHost) {
  const std::string output = session({"-CAfile", authority_.file(), "-verify_hostname", "localhost",
                                      "-servername", "localhost", "-verify_return_error"});
  expect_has(output, "Verify return code: 0 (ok)");
  expect_has(output, "Verified peername: localhost");
  expect_has(output, "HTTP/1.1 200 OK");
  expect_has(output, "GET /x ");
}

TEST_F(OpensslClient, NegotiatesHttp11) {
  expect_has(session({"-alpn", "http/1.1"}), "ALPN protocol: http/1.1");
  expect_has(session({"-alpn", "h2,http/1.1"}), "ALPN protocol: http/1.1");
  expect_has(session({}), "No ALPN negotiated");
}

TEST_F(OpensslClient, WhoSpeaksOnlyOtherProtocolsIsRefused) {
  const auto result =
      openssl({"s_client", "-connect", origin_.address(), "-alpn", "h2", "-ign_eof"});
  EXPECT_NE(result.exit_code, 0);
  expect_has(result.output, "no application protocol");
  expect_served();
}

TEST_F(OpensslClient, OldVersionsAreRefused) {
  for (const char* version : {"-tls1", "-tls1_1"}) {
    const auto result =
        openssl({"s_client", "-connect", origin_.address(), version, "-cipher", kOldCiphers});
    EXPECT_NE(result.exit_code, 0) << version;
    expect_has(result.output, "alert protocol version");
  }
  expect_served();
}

TEST_F(OpensslClient, WeakCiphersAreRefused) {
  for (const char* cipher : {"NULL@SECLEVEL=0", "aNULL@SECLEVEL=0"}) {
    const auto result =
        openssl({"s_client", "-connect", origin_.address(), "-tls1_2", "-cipher", cipher});
    EXPECT_NE(result.exit_code, 0) << cipher;
    expect_has(result.output, "handshake failure");
  }
  expect_served();
}

TEST_F(OpensslClient, ResumesTls12) {
  const auto result = openssl({"s_client", "-connect", origin_.address(), "-tls1_2", "-reconnect"});
  EXPECT_EQ(count_of(result.output, "Reused, TLSv1.2"), 5U) << result.output;
  const auto by_id =
      openssl({"s_client", "-connect", origin_.address(), "-tls1_2", "-reconnect", "-no_ticket"});
  EXPECT_EQ(count_of(by_id.output, "Reused, TLSv1.2"), 5U) << by_id.output;
}

TEST_F(OpensslClient, ResumesTls13ByTickets) {
  const test_support::TempDir folder;
  const std::string file = folder.path("session");
  expect_has(session({"-tls1_3", "-sess_out", file}), "New, TLSv1.3");
  expect_has(session({"-tls1_3", "-sess_in", file}), "Reused, TLSv1.3");
}

TEST_F(OpensslClient, RenegotiationIsRefused) {
  SslClient client(origin_.port(), {"-tls1_2"});
  ASSERT_TRUE(client.prints("Verify return code"));
  // s_client takes the letter for a command where it is all that one read brings.
  client.write("R\n");
  EXPECT_TRUE(client.prints("RENEGOTIATING"));
  client.exit_code();
  expect_has(client.output(), "no renegotiation");
  expect_served();
  EXPECT_EQ(origin_.requests(), 1);
}

TEST_F(OpensslClient, KeysAreUpdatedOnRequest) {
  SslClient client(origin_.port(), {"-tls1_3"});
  ASSERT_TRUE(client.prints("Verify return code"));
  client.write("k\n");
  EXPECT_TRUE(client.prints("KEYUPDATE"));
  client.write(get("/after-one"));
  EXPECT_TRUE(client.prints("GET /after-one "));
  // Asks the server to update its own, too.
  client.write("K\n");
  EXPECT_TRUE(client.prints("KEYUPDATE", 2));
  client.write(get("/after-two"));
  EXPECT_TRUE(client.prints("GET /after-two "));
}

TEST_F(OpensslClient, RecordsMayBeSmall) {
  const std::string large = pattern(100'000);
  std::string hex;
  for (const char c : large) {
    hex += static_cast<char>('a' + (c & 15));
  }
  const std::string output = session(
      {"-quiet", "-max_send_frag", "512", "-split_send_frag", "512", "-ign_eof"},
      "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n" + hex);
  EXPECT_NE(output.find("POST /x " + hex), std::string::npos) << output.size();
}

TEST_F(OpensslClient, AnotherGroupThanTheFirstGuess) {
  // Its first key is of a group that the server does not take: a HelloRetryRequest.
  const std::string output = session({"-tls1_3", "-groups", "ffdhe8192:P-384", "-msg"});
  expect_has(output, "GET /x ");
}

TEST_F(OpensslClient, EarlyDataIsNotTaken) {
  const test_support::TempDir folder;
  put(folder.path("early"), get("/early"));
  session({"-tls1_3", "-sess_out", folder.path("session")});
  const std::string output =
      session({"-tls1_3", "-sess_in", folder.path("session"), "-early_data", folder.path("early")});
  expect_has(output, "GET /x ");
  EXPECT_EQ(output.find("GET /early"), std::string::npos);
}

TEST_F(OpensslClient, HandshakesByTheHundreds) {
  const int enough = test_support::kSanitized ? 10 : 100;
  for (const char* kind : {"-new", "-reuse"}) {
    const int before = origin_.requests();
    // As many as a second allows, each time.
    for (int second = 0; origin_.requests() - before < enough; second++) {
      ASSERT_LT(second, 60);
      const auto result = openssl(
          {"s_time", "-connect", origin_.address(), kind, "-time", "1", "-www", "/bytes/100"});
      ASSERT_EQ(result.exit_code, 0) << result.output;
      expect_has(result.output, "connections in");
    }
  }
  expect_served();
}

// By the name that the client asks for (SNI).
class NamedServer : public WFHttpServer {
 public:
  NamedServer() : WFHttpServer(server_test::echo) {}
  ~NamedServer() override {
    stop();
    SSL_CTX_free(other_);
  }
  void add_other(const Certificate& certificate) {
    other_ = new_ssl_ctx(certificate.cert_file.c_str(), certificate.key_file.c_str());
  }

 protected:
  SSL_CTX* get_server_ssl_ctx(const char* name) override {
    if (std::string(name) == "unknown.test") return nullptr;
    return std::string(name) == "other.test" ? other_ : WFHttpServer::get_server_ssl_ctx(name);
  }

 private:
  SSL_CTX* other_ = nullptr;
};

TEST(OpensslClientName, ChoosesTheCertificate) {
  Authority authority;
  const Certificate first = authority.issue({"DNS:first.test"});
  const Certificate other = authority.issue({"DNS:other.test"});
  NamedServer server;
  server.add_other(other);
  ASSERT_EQ(server.start("127.0.0.1", 0, first.cert_file.c_str(), first.key_file.c_str()), 0);
  const std::string at = "127.0.0.1:" + std::to_string(test_support::port_of(server));
  const auto verify = [&](const std::vector<std::string>& how) {
    std::vector<std::string> all = {"s_client", "-connect",       at,
                                    "-CAfile",  authority.file(), "-verify_return_error"};
    all.insert(all.end(), how.begin(), how.end());
    return openssl(all);
  };
  EXPECT_EQ(verify({"-noservername", "-verify_hostname", "first.test"}).exit_code, 0);
  EXPECT_EQ(verify({"-servername", "first.test", "-verify_hostname", "first.test"}).exit_code, 0);
  EXPECT_EQ(verify({"-servername", "other.test", "-verify_hostname", "other.test"}).exit_code, 0);
  EXPECT_NE(verify({"-servername", "first.test", "-verify_hostname", "other.test"}).exit_code, 0);
  const auto refused = verify({"-servername", "unknown.test"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.output.find("unrecognized name"), std::string::npos) << refused.output;
}

}  // namespace
}  // namespace interop_test

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "interop/Openssl.h"
#include "interop/Origin.h"
#include "support/Fetch.h"
#include "workflow/WFGlobal.h"

// "openssl s_server", our client. With -www it answers in HTTP/1.0, ends the connection, and says
// how it was made.

namespace interop_test {
namespace {

using client_test::fetch;
using client_test::Fetched;
using namespace test_support;

class SslServer : public Program {
 public:
  SslServer(const Certificate& certificate, const std::vector<std::string>& arguments)
      : Program("stdbuf", unbuffered(with(certificate, arguments)), {.stderr_is_output = true}) {
    port_ = port();
  }
  std::string url(const std::string& host = "localhost") const {
    return "https://" + host + ":" + std::to_string(port_) + "/";
  }

 private:
  static std::vector<std::string> with(const Certificate& certificate,
                                       const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {
        "s_server", "-accept",           "127.0.0.1:0", "-cert", certificate.cert_file,
        "-key",     certificate.key_file};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
  uint16_t port_ = 0;
};

class OpensslServer : public testing::Test {
 protected:
  OpensslServer() {
    EXPECT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str()),
              1);
  }

  Authority authority_;
  const Certificate certificate_ = authority_.issue({"DNS:localhost", "IP:127.0.0.1"});
};

TEST_F(OpensslServer, TwoVersionsAreSpoken) {
  for (const std::string version : {"TLSv1.2", "TLSv1.3"}) {
    SslServer server(certificate_, {"-www", version == "TLSv1.2" ? "-tls1_2" : "-tls1_3"});
    const Fetched got = fetch(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << got.error;
    EXPECT_NE(got.body.find("New, " + version), std::string::npos) << got.body;
    EXPECT_NE(got.body.find("</pre></BODY></HTML>"), std::string::npos) << got.body;
    EXPECT_EQ(fetch(server.url("127.0.0.1")).state, WFT_STATE_SUCCESS);
  }
}

TEST_F(OpensslServer, SessionsAreResumed) {
  for (const std::string version : {"-tls1_2", "-tls1_3"}) {
    SslServer server(certificate_, {"-www", version});
    fetch(server.url());
    for (int i = 0; i < 3; i++) {
      EXPECT_NE(fetch(server.url()).body.find("Reused, TLSv1"), std::string::npos) << version;
    }
  }
}

TEST_F(OpensslServer, SessionsWithoutTicketsAreResumed) {
  SslServer server(certificate_, {"-www", "-tls1_2", "-no_ticket"});
  fetch(server.url());
  EXPECT_NE(fetch(server.url()).body.find("Reused, TLSv1.2"), std::string::npos);
}

TEST_F(OpensslServer, OldVersionsAreRefused) {
  SslServer server(certificate_, {"-www", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"});
  const Fetched got = fetch(server.url(), {.retry_max = 2});
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_GT(got.error, 0);
}

TEST_F(OpensslServer, ACertificateThatSignsItselfIsRefused) {
  const test_support::TempDir folder;
  const Certificate self = {folder.path("cert"), folder.path("key")};
  const auto made =
      openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-nodes", "-keyout", self.key_file, "-out", self.cert_file, "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:localhost", "-days", "2"});
  ASSERT_EQ(made.exit_code, 0) << made.output;
  SslServer server(self, {"-www"});
  const Fetched got = fetch(server.url(), {.retry_max = 2});
  EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(got.error, -X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT);
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), self.cert_file.c_str());
  EXPECT_EQ(fetch(server.url()).state, WFT_STATE_SUCCESS);
}

TEST_F(OpensslServer, ACertificateOfAnotherHostIsRefused) {
  const Certificate other = authority_.issue({"DNS:other.test", "IP:127.0.0.2"});
  SslServer server(other, {"-www"});
  const Fetched by_name = fetch(server.url());
  EXPECT_EQ(by_name.state, WFT_STATE_SSL_ERROR);
  EXPECT_EQ(by_name.error, -X509_V_ERR_HOSTNAME_MISMATCH);
  EXPECT_EQ(fetch(server.url("127.0.0.1")).error, -X509_V_ERR_IP_ADDRESS_MISMATCH);
  EXPECT_EQ(server.output().find("GET"), std::string::npos);
}

// The common name counts only where there is no other (RFC 6125, 6.4.4).
TEST_F(OpensslServer, TheCommonNameIsNoNameBesideOthers) {
  const test_support::TempDir folder;
  const Certificate self = {folder.path("cert"), folder.path("key")};
  const auto made =
      openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-nodes", "-keyout", self.key_file, "-out", self.cert_file, "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:other.test", "-days", "2"});
  ASSERT_EQ(made.exit_code, 0) << made.output;
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), self.cert_file.c_str());
  SslServer server(self, {"-www"});
  EXPECT_EQ(fetch(server.url()).error, -X509_V_ERR_HOSTNAME_MISMATCH);
}

TEST_F(OpensslServer, ItSeesTheNameAndChoosesTheCertificate) {
  const Certificate other = authority_.issue({"DNS:other.test"});
  SslServer server(other, {"-servername", "localhost", "-cert2", certificate_.cert_file, "-key2",
                           certificate_.key_file, "-www"});
  EXPECT_EQ(fetch(server.url()).state, WFT_STATE_SUCCESS);
  EXPECT_TRUE(server.prints("Hostname in TLS extension: \"localhost\""));
  // No name is sent for an address (RFC 6066, section 3): the first certificate.
  EXPECT_EQ(fetch(server.url("127.0.0.1")).error, -X509_V_ERR_IP_ADDRESS_MISMATCH);
}

TEST_F(OpensslServer, WhoIsAskedForACertificateAndHasNoneFails) {
  for (const std::string version : {"-tls1_2", "-tls1_3"}) {
    SslServer server(certificate_, {"-www", "-Verify", "1", "-verify_return_error", version});
    const Fetched got = fetch(server.url(), {.retry_max = 1});
    EXPECT_EQ(got.state, WFT_STATE_SSL_ERROR) << version;
    EXPECT_GT(got.error, 0) << version;
  }
}

// Without -www it prints what it receives, and takes commands.
TEST_F(OpensslServer, RenegotiationIsRefused) {
  SslServer server(certificate_, {"-tls1_2"});
  Fetched got;
  std::thread client([&] {
    got = fetch(server.url(), {.change = [](WFHttpTask* task) {
                  task->set_watch_timeout(-1);
                  task->set_receive_timeout(20'000);
                }});
  });
  EXPECT_TRUE(server.prints("GET / "));
  server.write("R\n");
  client.join();
  EXPECT_TRUE(got.state == WFT_STATE_SSL_ERROR || got.error == ECONNRESET)
      << got.state << " " << got.error;
  EXPECT_EQ(server.output().find("\nGET", server.output().find("GET / ") + 1), std::string::npos);
}

TEST_F(OpensslServer, FilesArriveWhole) {
  const test_support::TempDir folder;
  put(folder.path("file"), pattern(10'000'000));
  const std::string path = folder.path("file");
  // Files are looked for in the folder where it runs; an absolute path is not taken.
  Program server("/bin/sh",
                 {"-c",
                  "cd \"$1\" && exec openssl s_server -accept 127.0.0.1:0 -WWW -cert \"$2\" "
                  "-key \"$3\"",
                  "sh", folder.path(""), certificate_.cert_file, certificate_.key_file},
                 {.stderr_is_output = true});
  const std::string url = "https://localhost:" + std::to_string(server.port()) + "/file";
  const Fetched got = fetch(url);
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << got.error;
  EXPECT_TRUE(got.body == pattern(10'000'000)) << got.body.size();
}

}  // namespace
}  // namespace interop_test

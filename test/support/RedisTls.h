#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "support/Certificates.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "workflow/WFGlobal.h"

namespace redis_test {

// An authority that this process trusts and that issues certificates to servers. It has to live as
// long as they do.
class TrustedAuthority {
 public:
  TrustedAuthority() {
    EXPECT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str()),
              1);
  }

  RedisServer::Tls tls() { return {authority_.issue({"IP:127.0.0.1"}), authority_.file()}; }

 private:
  test_support::Authority authority_;
};

// From now on the server shows a certificate of another authority to everybody who connects.
inline void show_certificate_of(test_support::Authority& other, const RedisServer& server) {
  const test_support::Certificate certificate = other.issue({"IP:127.0.0.1"});
  EXPECT_EQ(run(server.url(), {"CONFIG", "SET", "tls-cert-file", certificate.cert_file,
                               "tls-key-file", certificate.key_file})
                .text,
            "OK");
}

}  // namespace redis_test

#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "support/TempDir.h"

namespace test_support {

// A certificate and its key as PEM files, which live as long as their authority.
struct Certificate {
  std::string cert_file;
  std::string key_file;
};

// A certificate authority of a test's own. Aborts on failure.
class Authority {
 public:
  Authority();

  // The authority's own certificate.
  const std::string& file() const { return file_; }

  // Issues a certificate for hosts, which are given as in "DNS:example.test" or "IP:127.0.0.1". It
  // is valid for `valid_s` seconds from now. If `valid_s` is negative, it expired that long ago.
  // The key is encrypted by `password`, if there is one.
  Certificate issue(const std::vector<std::string>& hosts, long valid_s = 3600,
                    const char* password = nullptr);

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using X509Pointer = std::unique_ptr<X509, Free>;

  static Key new_key();
  X509Pointer certify(EVP_PKEY* key, const std::string& name, const std::string& hosts,
                      long valid_s);
  std::string write(const std::string& name, X509* certificate, EVP_PKEY* key,
                    const char* password = nullptr);

  TempDir folder_;
  const Key key_;
  X509Pointer certificate_;
  std::string file_;
  long serial_ = 1;
};

}  // namespace test_support

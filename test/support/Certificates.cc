#include "support/Certificates.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace test_support {

namespace {

void need(bool condition) {
  if (!condition) {
    std::fprintf(stderr, "cannot make a certificate\n");
    std::abort();
  }
}

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  need(extension && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

// The name tells authorities apart, as a verifier looks for the issuer by it.
Authority::Authority() : key_(new_key()) {
  static std::atomic<int> made{0};
  certificate_ = certify(key_.get(), "test authority " + std::to_string(++made), "", 3600);
  file_ = write("authority", certificate_.get(), nullptr);
}

Authority::Key Authority::new_key() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  need(key != nullptr);
  return Key(key);
}

Authority::X509Pointer Authority::certify(EVP_PKEY* key, const std::string& name,
                                          const std::string& hosts, long valid_s) {
  X509Pointer made(X509_new());
  X509* certificate = made.get();
  need(certificate && X509_set_version(certificate, 2) == 1);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial_++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate), valid_s);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* issuer = certificate_ ? certificate_.get() : certificate;
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  if (hosts.empty()) {
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    add_extension(certificate, issuer, NID_subject_alt_name, hosts);
  }
  need(X509_sign(certificate, key_.get(), EVP_sha256()) > 0);
  return made;
}

std::string Authority::write(const std::string& name, X509* certificate, EVP_PKEY* key,
                             const char* password) {
  const std::string path = folder_.path(name + ".pem");
  FILE* file = std::fopen(path.c_str(), "w");
  need(file != nullptr);
  // The last argument is a password, the callback before it null.
  need((certificate ? PEM_write_X509(file, certificate)
                    : PEM_write_PrivateKey(file, key, password ? EVP_aes_256_cbc() : nullptr,
                                           nullptr, 0, nullptr, const_cast<char*>(password))) == 1);
  need(std::fclose(file) == 0);
  return path;
}

Certificate Authority::issue(const std::vector<std::string>& hosts, long valid_s,
                             const char* password) {
  std::string names;
  for (const std::string& host : hosts) {
    names += (names.empty() ? "" : ",") + host;
  }
  const Key key = new_key();
  const std::string number = std::to_string(serial_);
  const X509Pointer certificate = certify(key.get(), "common-name.test", names, valid_s);
  return {write("cert" + number, certificate.get(), nullptr),
          write("key" + number, nullptr, key.get(), password)};
}

}  // namespace test_support

#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "workflow/ProtocolMessage.h"

// Two ends of a connection in memory, whatever carries the bytes.
namespace ssl_pair {

template <class T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Deleter<SSL, SSL_free>>;

// Returns a self-signed certificate that is valid for one hour.
inline Certificate certify(EVP_PKEY* key) {
  Certificate certificate(X509_new());
  X509* x509 = certificate.get();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -60);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, key);
  X509_NAME* name = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x509, name);
  X509_sign(x509, key, EVP_sha256());
  return certificate;
}

struct Contexts {
  explicit Contexts(int version)
      : server(SSL_CTX_new(TLS_server_method())), client(SSL_CTX_new(TLS_client_method())) {
    for (SSL_CTX* context : {server.get(), client.get()}) {
      SSL_CTX_set_min_proto_version(context, version);
      SSL_CTX_set_max_proto_version(context, version);
    }
    Key key(EVP_EC_gen("P-256"));
    Certificate certificate = certify(key.get());
    if (SSL_CTX_use_certificate(server.get(), certificate.get()) != 1) std::abort();
    if (SSL_CTX_use_PrivateKey(server.get(), key.get()) != 1) std::abort();
  }
  Context server, client;
};

// The connection of one end, which collects what is written back.
class Wire : public protocol::MessageChannel {
 public:
  int write_now(const void* buf, size_t size) override {
    if (error != 0) {
      errno = error;
      return -1;
    }
    size = std::min(size, most);
    written.append(static_cast<const char*>(buf), size);
    return static_cast<int>(size);
  }
  std::string take() { return std::exchange(written, {}); }

  std::string written;
  int error = 0;
  size_t most = SIZE_MAX;
};

inline std::string encode(protocol::ProtocolMessage& message) {
  struct iovec vectors[8];
  const int count = message.encode(vectors, 8);
  if (count < 0) std::abort();
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  return bytes;
}

// Feeds `bytes` in pieces of at most `step`, as long as the other side takes them. `*rest` gets the
// remaining bytes.
inline int append_pieces(protocol::ProtocolMessage& message, const std::string& bytes,
                         size_t step = SIZE_MAX, std::string* rest = nullptr) {
  int result = 0;
  size_t at = 0;
  while (result == 0 && at < bytes.size()) {
    const size_t count = std::min(step, bytes.size() - at);
    std::unique_ptr<char[]> piece(new char[count]);
    bytes.copy(piece.get(), count, at);
    size_t taken = count;
    result = message.append(piece.get(), &taken);
    at += result > 0 ? taken : count;
  }
  if (rest != nullptr) *rest = bytes.substr(std::min(at, bytes.size()));
  return result;
}

// A message of bytes. The test says where it ends.
class Text : public protocol::ProtocolMessage {
 public:
  explicit Text(std::string_view content = "", size_t wanted = SIZE_MAX)
      : bytes(content), wanted_(wanted) {}
  int encode(struct iovec vectors[], int) override {
    vectors[0] = {bytes.data(), bytes.size()};
    return 1;
  }
  int append(const void* buf, size_t* size) override {
    *size = std::min(*size, wanted_ - bytes.size());
    bytes.append(static_cast<const char*>(buf), *size);
    return bytes.size() == wanted_;
  }
  using ProtocolMessage::append;
  std::string bytes;

 private:
  size_t wanted_;
};

}  // namespace ssl_pair

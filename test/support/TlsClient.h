#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "support/Certificates.h"
#include "support/RawClient.h"

namespace server_test {

// A client over TLS by OpenSSL alone, so that the library is not tested with itself. Blocks, with
// the patience of a test.
class TlsClient {
 public:
  struct Options {
    std::string ca_file = {};  // verifies the server's chain, if given
    std::string host = {};     // asked for by SNI, and verified, if given
    // Asked for instead in a second ClientHello; empty means that no name is sent in it.
    std::optional<std::string> second_host = {};
    std::string alpn = {};  // in wire format
    int min_version = 0;    // 0: whatever OpenSSL likes
    int max_version = 0;
    SSL_SESSION* session = nullptr;
    const test_support::Certificate* certificate = nullptr;
    SSL_psk_client_cb_func key = nullptr;  // one that the server has already (PSK)
  };

  TlsClient(uint16_t port, const Options& options) : raw_(port), host_(options.host) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    // Old versions can be offered only without a security level.
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), options.min_version);
    SSL_CTX_set_max_proto_version(context_.get(), options.max_version);
    if (!options.ca_file.empty()) {
      SSL_CTX_load_verify_file(context_.get(), options.ca_file.c_str());
      SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    }
    if (options.certificate) {
      SSL_CTX_use_certificate_chain_file(context_.get(), options.certificate->cert_file.c_str());
      SSL_CTX_use_PrivateKey_file(context_.get(), options.certificate->key_file.c_str(),
                                  SSL_FILETYPE_PEM);
    }
    SSL_CTX_set_psk_client_callback(context_.get(), options.key);
    ssl_.reset(SSL_new(context_.get()));
    if (!options.host.empty()) {
      SSL_set_tlsext_host_name(ssl_.get(), options.host.c_str());
      SSL_set1_host(ssl_.get(), options.host.c_str());
    }
    if (!options.alpn.empty()) {
      SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(options.alpn.data()),
                          static_cast<unsigned>(options.alpn.size()));
    }
    if (options.session) {
      // A copy, because OpenSSL resumes no session again whose connection did not end in order.
      SSL_SESSION* const copy = SSL_SESSION_dup(options.session);
      SSL_set_session(ssl_.get(), copy);
      SSL_SESSION_free(copy);
    }
    const struct timeval patience = {20, 0};
    ::setsockopt(raw_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(raw_.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    SSL_set_fd(ssl_.get(), raw_.fd());
    if (options.second_host) {
      SSL_set_msg_callback(ssl_.get(), change_host);
      SSL_set_msg_callback_arg(ssl_.get(), const_cast<std::string*>(&*options.second_host));
    }
    ERR_clear_error();
    connected_ = SSL_connect(ssl_.get()) == 1;
    SSL_set_msg_callback(ssl_.get(), nullptr);
    if (!connected_) {
      error_ = ERR_GET_REASON(ERR_peek_error());
    }
  }

  const std::string& host() const { return host_; }
  bool connected() const { return connected_; }
  // Why the client is not connected, or why nothing more can be read, as SSL_R_*. 0 if TLS has not
  // failed.
  int error() const { return error_; }
  SSL* ssl() { return ssl_.get(); }
  RawClient& raw() { return raw_; }
  bool resumed() { return SSL_session_reused(ssl_.get()) == 1; }
  std::string alpn() {
    const unsigned char* name = nullptr;
    unsigned length = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &length);
    return std::string(reinterpret_cast<const char*>(name), length);
  }
  std::string version() { return SSL_get_version(ssl_.get()); }

  bool send(std::string_view bytes) {
    ERR_clear_error();
    size_t sent = 0;
    return bytes.empty() || SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent) == 1;
  }

  // Reads up to `mark`, and returns that with it. If the connection ends before, returns what there
  // is.
  std::string read_until(std::string_view mark) {
    while (input_.find(mark) == std::string::npos && fill()) {
    }
    const size_t at = input_.find(mark);
    return take(at == std::string::npos ? input_.size() : at + mark.size());
  }
  std::string read(size_t size) {
    while (input_.size() < size && fill()) {
    }
    return take(std::min(size, input_.size()));
  }
  // Returns the body of the next reply, which has a Content-Length, or "(none)" if there is none.
  std::string body() {
    const std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    return at == std::string::npos ? "(none)"
                                   : read(std::strtoul(head.c_str() + at + 16, nullptr, 10));
  }
  // Returns whether the peer has announced that no more bytes will come.
  bool ends_in_order() {
    fill();
    return input_.empty() && ended_ == SSL_ERROR_ZERO_RETURN;
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // At the server's request for a second ClientHello, which is a ServerHello with a certain number
  // in the place of the random one (RFC 8446, 4.1.3).
  static void change_host(int sent, int /*version*/, int type, const void* message, size_t size,
                          SSL* ssl, void* host) {
    constexpr size_t kBeforeNumber = 6;
    constexpr std::string_view kRequest = "\xCF\x21\xAD\x74\xE5\x9A\x61\x11";
    const std::string_view bytes(static_cast<const char*>(message), size);
    if (sent || type != SSL3_RT_HANDSHAKE || size < kBeforeNumber + kRequest.size() ||
        bytes[0] != SSL3_MT_SERVER_HELLO ||
        bytes.substr(kBeforeNumber, kRequest.size()) != kRequest) {
      return;
    }
    const std::string& text = *static_cast<const std::string*>(host);
    const char* const name = text.empty() ? nullptr : text.c_str();
    SSL_set_tlsext_host_name(ssl, name);
  }

  bool fill() {
    char buffer[16384];
    ERR_clear_error();
    size_t n = 0;
    const int result = SSL_read_ex(ssl_.get(), buffer, sizeof buffer, &n);
    if (result != 1) {
      ended_ = SSL_get_error(ssl_.get(), result);
      error_ = ERR_GET_REASON(ERR_peek_error());
      return false;
    }
    input_.append(buffer, n);
    return true;
  }
  std::string take(size_t size) {
    const std::string taken = input_.substr(0, size);
    input_.erase(0, size);
    return taken;
  }

  RawClient raw_;
  std::string host_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
  bool connected_ = false;
  int error_ = 0;
  int ended_ = 0;
  std::string input_;
};

}  // namespace server_test

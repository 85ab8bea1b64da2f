#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>

namespace server_test {

// The client's side of TLS, between bytes and records in memory, by OpenSSL alone, so that the
// library is not tested with itself. The owner of the socket moves the records, so TLS adds no call
// that blocks or raises SIGPIPE. Not thread-safe.
class TlsLayer {
 public:
  enum class Result { kDone, kNeedsRecords, kEnd, kFailed };

  // Accepts only a server whose certificate for 127.0.0.1 `ca_file` vouches for. Asks for `host`
  // (SNI), if it is not null.
  explicit TlsLayer(const std::string& ca_file, const char* host = nullptr)
      : context_(SSL_CTX_new(TLS_client_method())), ssl_(nullptr) {
    SSL_CTX_load_verify_file(context_.get(), ca_file.c_str());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ssl_.reset(SSL_new(context_.get()));
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), "127.0.0.1");
    if (host) {
      SSL_set_tlsext_host_name(ssl_.get(), host);
    }
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  }

  Result handshake() {
    ERR_clear_error();
    return result_of(SSL_connect(ssl_.get()));
  }
  bool write(std::string_view bytes) {
    ERR_clear_error();
    return bytes.empty() || SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // Announces by a close_notify that no more bytes will be written.
  void end_writing() {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  // Appends to `bytes`. kEnd means that the peer has announced that no more will come.
  Result read(std::string& bytes) {
    char buffer[16 * 1024];
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), buffer, sizeof buffer);
    if (n > 0) {
      bytes.append(buffer, static_cast<size_t>(n));
    }
    return result_of(n);
  }

  // Returns the records to send, perhaps none.
  std::string take_records() {
    BIO* const out = SSL_get_wbio(ssl_.get());
    std::string records(BIO_ctrl_pending(out), '\0');
    BIO_read(out, records.data(), static_cast<int>(records.size()));
    return records;
  }
  // Takes the records that were received.
  void put_records(std::string_view records) {
    BIO_write(SSL_get_rbio(ssl_.get()), records.data(), static_cast<int>(records.size()));
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  Result result_of(int returned) {
    if (returned > 0) return Result::kDone;
    switch (SSL_get_error(ssl_.get(), returned)) {
      case SSL_ERROR_WANT_READ:
        return Result::kNeedsRecords;
      case SSL_ERROR_ZERO_RETURN:
        return Result::kEnd;
      default:
        return Result::kFailed;
    }
  }

  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace server_test

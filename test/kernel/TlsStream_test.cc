#include "kernel/TlsStream.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "kernel/TlsContext.h"
#include "support/Certificates.h"
#include "util/UniqueFd.h"

// One end of a connection; the other is OpenSSL alone.

namespace {

using workflow::TlsStream;
using workflow::UniqueFd;

class TlsStreamTest : public testing::Test {
 protected:
  TlsStreamTest()
      : certificate_(authority_.issue({"IP:127.0.0.1"})),
        context_(workflow::new_client_tls_context()),
        peers_context_(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free),
        peer_(nullptr, &SSL_free) {
    std::array<int, 2> fds = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    fd_ = UniqueFd(fds[0]);
    peers_fd_ = UniqueFd(fds[1]);
    const int size = 1024 * 1024;
    ::setsockopt(peers_fd_.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    SSL_CTX_use_certificate_chain_file(peers_context_.get(), certificate_.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(peers_context_.get(), certificate_.key_file.c_str(),
                                SSL_FILETYPE_PEM);
    peer_.reset(SSL_new(peers_context_.get()));
    SSL_set_fd(peer_.get(), peers_fd_.get());
    SSL_set_accept_state(peer_.get());
    stream_ = TlsStream::create(context_.get(), fd_.get(), TlsStream::Role::kClient);
    for (int i = 0; i < 10; i++) {
      stream_->handshake();
      SSL_do_handshake(peer_.get());
    }
    EXPECT_TRUE(SSL_is_init_finished(peer_.get()));
    read();  // the session tickets
  }

  void peer_writes(size_t size) {
    const std::vector<char> bytes(size, 'x');
    EXPECT_EQ(SSL_write(peer_.get(), bytes.data(), static_cast<int>(size)), static_cast<int>(size));
  }
  ssize_t read() {
    static std::array<char, 65536> buffer;
    drained_ = false;
    return stream_->read(buffer.data(), buffer.size(), &drained_);
  }

  test_support::Authority authority_;
  const test_support::Certificate certificate_;
  workflow::TlsContext context_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> peers_context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> peer_;
  UniqueFd fd_;
  UniqueFd peers_fd_;
  std::unique_ptr<TlsStream> stream_;
  bool drained_ = false;
};

}  // namespace

// Records in which OpenSSL keeps what a read has not taken, and the socket gets more before the
// next one: whoever waits for edges would wait for ever if that were called drained.
TEST_F(TlsStreamTest, DrainsTheSocketBeforeItSaysSo) {
  for (const size_t record : {size_t{1400}, size_t{5000}, size_t{16384}}) {
    for (const size_t first : {size_t{65536}, size_t{65736}, size_t{70000}}) {
      for (size_t sent = 0; sent < first;) {
        const size_t n = std::min(record, first - sent);
        peer_writes(n);
        sent += n;
      }
      size_t total = static_cast<size_t>(read());
      peer_writes(1000);  // an edge, or there was one for what is left
      do {
        const ssize_t n = read();
        total += n > 0 ? static_cast<size_t>(n) : 0;
      } while (!drained_);
      ASSERT_EQ(total, first + 1000) << "of " << first << " in records of " << record;
    }
  }
}

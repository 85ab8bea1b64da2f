#pragma once

#include <openssl/ssl.h>
#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "support/Certificates.h"
#include "support/RaceKit.h"
#include "support/RawServer.h"
#include "support/TestSeed.h"

namespace race {

// What a server of system calls does with a request.
enum class Conduct {
  kAtOnce,
  kLate,
  kInPieces,
  kAnnouncesClose,  // replies, and says that it closes
  kClosesAfter,     // replies, and closes without a word
  kResetsAfter,
  kJunkAfter,
  kClosesBefore,  // without a reply
  kClosesAmid,
  kResetsAmid,
  kSilent,  // until the client leaves
};
// The first so many: the connection stays good; a whole reply comes; any.
inline constexpr uint64_t kSteadyConducts = 3;
inline constexpr uint64_t kHonestConducts = 5;
inline constexpr uint64_t kAllConducts = 11;

inline std::string body_of(uint64_t number) {
  std::string body;
  for (uint64_t i = 0; i <= number % 40; i++) {
    body += "number " + std::to_string(number) + "\n";
  }
  return body;
}

inline uint64_t number_in(std::string_view target) {
  const size_t at = target.find("/n");
  return at == std::string_view::npos
             ? 0
             : std::strtoull(std::string(target.substr(at + 2, 20)).c_str(), nullptr, 10);
}

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// A server's end of one connection, in the clear or over TLS.
class Link {
 public:
  Link(client_test::Peer& peer, SSL_CTX* context) : peer_(peer) {
    if (context) {
      // OpenSSL writes with write(2); only this thread does without the signal.
      sigset_t pipe;
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);
      ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
      ssl_.reset(SSL_new(context));
      SSL_set_fd(ssl_.get(), peer.fd());
      good_ = SSL_accept(ssl_.get()) == 1;
    }
  }

  // The target of the next request; "" at the end.
  std::string request() {
    if (!ssl_) return target_of(peer_.request());
    size_t end = std::string::npos;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) return "";
    }
    size_t size = end + 4;
    const size_t at = input_.find("Content-Length: ");
    if (at < end) {
      size += std::strtoul(input_.c_str() + at + 16, nullptr, 10);
    }
    while (input_.size() < size) {
      if (!fill()) return "";
    }
    const std::string target = target_of(input_);
    input_.erase(0, size);
    return target;
  }
  void send(std::string_view bytes) {
    if (!ssl_) {
      peer_.send(bytes);
    } else if (good_) {
      good_ = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
    }
  }
  // The connection ends with a reset instead of a goodbye.
  void reset_at_end() {
    const struct linger hard = {1, 0};
    ::setsockopt(peer_.fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }
  void wait_for_end() {
    char byte;
    while (::recv(peer_.fd(), &byte, 1, 0) > 0) {
    }
  }

 private:
  static std::string target_of(const std::string& request) {
    const size_t begin = request.find(' ');
    return begin == std::string::npos
               ? ""
               : request.substr(begin + 1, request.find(' ', begin + 1) - begin - 1);
  }
  bool fill() {
    char buffer[16384];
    const int n = good_ ? SSL_read(ssl_.get(), buffer, sizeof buffer) : -1;
    good_ = n > 0;
    if (good_) {
      input_.append(buffer, static_cast<size_t>(n));
    }
    return good_;
  }

  client_test::Peer& peer_;
  std::unique_ptr<SSL, SslFree> ssl_;
  bool good_ = true;
  std::string input_;
};

// Whether the connection may carry another request.
inline bool serve(Link& link, uint64_t number, Conduct conduct, test_support::TestRandom random) {
  const std::string body = body_of(number);
  const std::string reply =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
      (conduct == Conduct::kAnnouncesClose ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n") + body;
  switch (conduct) {
    case Conduct::kLate:
      pause_us(random.below(8000));
      break;
    case Conduct::kInPieces:
      for (size_t at = 0; at < reply.size();) {
        const size_t size = 1 + random.below(reply.size());
        link.send(std::string_view(reply).substr(at, size));
        at += size;
        pause_us(random.below(300));
      }
      return true;
    case Conduct::kClosesBefore:
      return false;
    case Conduct::kResetsAmid:
      link.reset_at_end();
      [[fallthrough]];
    case Conduct::kClosesAmid:
      link.send(std::string_view(reply).substr(0, random.below(reply.size())));
      return false;
    case Conduct::kSilent:
      link.wait_for_end();
      return false;
    default:
      break;
  }
  link.send(reply);
  switch (conduct) {
    case Conduct::kResetsAfter:
      pause_us(random.below(500));
      link.reset_at_end();
      return false;
    case Conduct::kJunkAfter:
      pause_us(random.below(500));
      link.send("what is this?\r\n\r\n");
      return true;
    case Conduct::kAnnouncesClose:
    case Conduct::kClosesAfter:
      return false;
    default:
      return true;
  }
}

// What all servers of a test have: a certificate that its clients trust.
class Identity {
 public:
  Identity() : certificate_(authority_.issue({"IP:127.0.0.1"})) {
    context_.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate_chain_file(context_.get(), certificate_.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), certificate_.key_file.c_str(), SSL_FILETYPE_PEM);
  }
  const std::string& authority() const { return authority_.file(); }
  const test_support::Certificate& certificate() const { return certificate_; }
  SSL_CTX* context() const { return context_.get(); }

 private:
  test_support::Authority authority_;
  const test_support::Certificate certificate_;
  std::unique_ptr<SSL_CTX, SslFree> context_;
};

// The name of a failure, for messages.
inline std::string text_of(int state, int error, int reason) {
  return "state " + std::to_string(state) + ", error " + std::to_string(error) + ", reason " +
         std::to_string(reason);
}

}  // namespace race

#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "util/Mutex.h"

namespace workflow {

// The last TLS session of each endpoint, so that the next connection can resume it (RFC 8446, 2.2);
// of kMost endpoints at most. Thread-safe.
class TlsSessions {
 public:
  static constexpr size_t kMost = 1024;

  // What is kept of a session. Freeing it may run what the user has attached to it: under no lock.
  class Kept {
   public:
    Kept() = default;
    // Of a connection; of nothing if it cannot be resumed.
    explicit Kept(SSL* ssl);
    SSL_SESSION* session() const { return session_.get(); }

   private:
    struct Free {
      void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
      void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    std::unique_ptr<SSL_SESSION, Free> session_;
    // Which the endpoint's key names by its address: no other context has that meanwhile.
    std::unique_ptr<SSL_CTX, Free> context_;
  };

  // Has the new connection offer the endpoint's session, if there is one and its peer is as
  // trusted as the connection demands: a resumed one shows no certificate again.
  void offer(const std::string& endpoint, SSL* ssl);
  // Keeps it, unless it is of nothing.
  void keep(const std::string& endpoint, Kept kept);
  void forget(const std::string& endpoint);

 private:
  Mutex mutex_;
  std::unordered_map<std::string, Kept> sessions_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

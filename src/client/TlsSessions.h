#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "util/Mutex.h"

namespace workflow {

// The last TLS session of each endpoint, so that the next connection can resume it (RFC 8446, 2.2).
// At most kMax endpoints are remembered. Thread-safe.
class TlsSessions {
 public:
  static constexpr size_t kMax = 1024;

  // A TLS session that is kept. Freeing it may run user code that is attached to it, so the thread
  // that frees it holds no lock.
  class Kept {
   public:
    Kept() = default;
    // Takes the session of a connection. Empty if the session cannot be resumed.
    explicit Kept(SSL* ssl);
    SSL_SESSION* session() const { return session_.get(); }

   private:
    struct Free {
      void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
      void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    std::unique_ptr<SSL_SESSION, Free> session_;
    // The endpoint's key contains the address of its context. Holding the context here keeps
    // another one from getting the same address.
    std::unique_ptr<SSL_CTX, Free> context_;
  };

  // Makes a new connection offer the endpoint's session. Does nothing if there is no session, or if
  // the connection demands a verified peer and that of the session was not verified: a peer shows
  // no certificate when a session is resumed.
  void offer(const std::string& endpoint, SSL* ssl);
  // Keeps the session, unless it is empty.
  void keep(const std::string& endpoint, Kept kept);
  void forget(const std::string& endpoint);

 private:
  Mutex mutex_;
  std::unordered_map<std::string, Kept> sessions_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

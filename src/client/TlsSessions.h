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

  // Has the new connection offer the endpoint's session, if there is one and its peer is as
  // trusted as the connection demands: a resumed one shows no certificate again.
  void offer(const std::string& endpoint, SSL* ssl);
  // Keeps the connection's session, if it can be resumed.
  void keep(const std::string& endpoint, SSL* ssl);
  void forget(const std::string& endpoint);

 private:
  struct Free {
    void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  struct Kept {
    std::unique_ptr<SSL_SESSION, Free> session;
    // Which the endpoint's key names by its address: no other context has that meanwhile.
    std::unique_ptr<SSL_CTX, Free> context;
  };

  Mutex mutex_;
  std::unordered_map<std::string, Kept> sessions_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

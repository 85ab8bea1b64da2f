#include "client/TlsSessions.h"

#include <openssl/err.h>

namespace workflow {

void TlsSessions::offer(const std::string& endpoint, SSL* ssl) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(endpoint);
  if (found != sessions_.end()) {
    SSL_set_session(ssl, found->second.get());
    ERR_clear_error();  // without it there is a full handshake
  }
}

void TlsSessions::keep(const std::string& endpoint, SSL* ssl) {
  SSL_SESSION* const session = SSL_get0_session(ssl);
  if (!session || SSL_SESSION_is_resumable(session) != 1) {
    return;
  }
  MutexLock lock(mutex_);
  auto& kept = sessions_[endpoint];
  if (kept.get() != session) {
    SSL_SESSION_up_ref(session);
    kept.reset(session);
  }
  if (sessions_.size() > kMost) {
    // Any other: all of them save a little time.
    auto victim = sessions_.begin();
    if (victim->first == endpoint) {
      ++victim;
    }
    sessions_.erase(victim);
  }
}

}  // namespace workflow

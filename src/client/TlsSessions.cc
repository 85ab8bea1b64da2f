#include "client/TlsSessions.h"

#include <openssl/err.h>

#include <new>
#include <utility>

namespace workflow {

void TlsSessions::offer(const std::string& endpoint, SSL* ssl) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(endpoint);
  if (found != sessions_.end()) {
    SSL_set_session(ssl, found->second.session());
    if (SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE && SSL_get_verify_result(ssl) != X509_V_OK) {
      SSL_set_session(ssl, nullptr);
      SSL_set_verify_result(ssl, X509_V_OK);
    }
    ERR_clear_error();  // if the session cannot be set, the handshake is a full one
  }
}

TlsSessions::Kept::Kept(SSL* ssl) {
  SSL_SESSION* const session = SSL_get0_session(ssl);
  if (session && SSL_SESSION_is_resumable(session) == 1) {
    SSL_SESSION_up_ref(session);
    session_.reset(session);
    context_.reset(SSL_get_SSL_CTX(ssl));
    SSL_CTX_up_ref(context_.get());
  }
}

// `kept` and `dropped` live longer than the lock, so no session is freed under it.
void TlsSessions::keep(const std::string& endpoint, Kept kept) {
  if (!kept.session()) return;
  decltype(sessions_)::node_type dropped;
  MutexLock lock(mutex_);
  try {
    std::swap(sessions_[endpoint], kept);
  } catch (const std::bad_alloc&) {
    return;  // the next handshake is a full one
  }
  if (sessions_.size() > kMax) {
    // Drops any other session, because each of them saves only a little time.
    auto victim = sessions_.begin();
    if (victim->first == endpoint) {
      ++victim;
    }
    dropped = sessions_.extract(victim);
  }
}

void TlsSessions::forget(const std::string& endpoint) {
  decltype(sessions_)::node_type dropped;
  MutexLock lock(mutex_);
  dropped = sessions_.extract(endpoint);
}

}  // namespace workflow

#include "client/ClientTls.h"

#include <cstring>
#include <new>
#include <utility>

namespace workflow {

namespace {

SSL_CTX* retained(SSL_CTX* context) {
  if (context) {
    SSL_CTX_up_ref(context);
  }
  return context;
}

}  // namespace

ClientTls::ClientTls(const ClientTarget& target, const std::string& key, TlsSessions& sessions)
    : context_(retained(target.ssl_ctx)),
      host_(target.verified_host.empty() ? target.host : target.verified_host),
      names_host_(target.params.use_tls_sni),
      alpn_(target.alpn_protocol ? static_cast<char>(std::strlen(target.alpn_protocol)) +
                                       std::string(target.alpn_protocol)
                                 : std::string()),
      key_(key),
      sessions_(sessions) {}

bool ClientTls::begin(Stream& stream) const {
  try {
    if (!context_ || !stream.begin_tls(context_.get(), TlsStream::Role::kClient) ||
        (!host_.empty() && !stream.tls()->expect_host(host_.c_str(), names_host_)) ||
        (!alpn_.empty() && SSL_set_alpn_protos(stream.tls()->ssl(),
                                               reinterpret_cast<const unsigned char*>(alpn_.data()),
                                               static_cast<unsigned>(alpn_.size())) != 0)) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  sessions_.offer(key_, stream.tls()->ssl());
  return true;
}

void ClientTls::keep(TlsSessions::Kept session) const {
  sessions_.keep(key_, std::move(session));
}

void ClientTls::forget() const {
  sessions_.forget(key_);
}

}  // namespace workflow

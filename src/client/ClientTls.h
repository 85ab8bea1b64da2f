#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "client/TlsSessions.h"
#include "kernel/Stream.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

// How the connections of one endpoint use TLS: with which context, which name the peer must prove,
// what is offered to it, and which TLS session is resumed. Belongs to the endpoint.
//
// Thread-safe, because everything but the sessions is constant.
class ClientTls {
 public:
  // `key`: the key of the endpoint, under which its TLS session is kept. Both references must stay
  // valid.
  ClientTls(const ClientTarget& target, const std::string& key, TlsSessions& sessions);

  // Begins TLS on a connected stream, and offers to resume the last TLS session. Returns false if
  // there is no memory.
  bool begin(Stream& stream) const;
  // Keeps a TLS session for later connections. The caller does not hold the connection's lock.
  void keep(TlsSessions::Kept session) const;
  // Called after a handshake has failed, because the kept TLS session may be the reason. As keep().
  void forget() const;

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };

  const std::unique_ptr<SSL_CTX, Free> context_;  // null: there was no memory for one
  const std::string host_;                        // empty: the peer need not prove any name
  const bool names_host_;                         // tells the peer the name (SNI)
  const std::string alpn_;                        // as SSL_set_alpn_protos(3) takes it
  const std::string& key_;
  TlsSessions& sessions_;
};

}  // namespace workflow

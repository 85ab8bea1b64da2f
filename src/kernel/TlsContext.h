#pragma once

#include <openssl/ssl.h>

#include <memory>

namespace workflow {

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

// What both sides start from: TLS 1.2 and later, no renegotiation, no compression, nobody to be
// asked for the password of a key. Null with errno ENOMEM.
//
// The server's resumes sessions, by tickets and from its memory.
TlsContext new_server_tls_context();
// The client's verifies the peer's chain against the system's store.
TlsContext new_client_tls_context();

// The chain in `cert_file` and its key, both PEM. 0, or an errno: that of opening the file, EINVAL
// for what is in it, EKEYREJECTED when the key is not the certificate's.
int use_certificate(SSL_CTX* context, const char* cert_file, const char* key_file);

// A server that speaks only these protocols (RFC 7301), "a,b", the preferred one first: a client
// that offers others, and none of these, is refused. `names` lives as long as the context.
void speak_only(SSL_CTX* context, const char* names);

}  // namespace workflow

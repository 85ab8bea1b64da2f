#pragma once

#include <openssl/ssl.h>

#include <memory>

namespace workflow {

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

// The defaults of both sides: TLS 1.2 and later, no renegotiation, no compression, and no prompt
// for the password of a key. Null with errno ENOMEM.
//
// The server's context resumes sessions, by tickets and from its memory.
TlsContext new_server_tls_context();
// The client's context verifies the peer's chain against the system's store.
TlsContext new_client_tls_context();

// Uses the chain in `cert_file` and its key, both PEM. Returns 0 or an errno: the one of opening a
// file, EINVAL if its contents are invalid, EKEYREJECTED if the key does not belong to the
// certificate.
int use_certificate(SSL_CTX* context, const char* cert_file, const char* key_file);

// Restricts a server to these protocols (RFC 7301), in the form "a,b" with the preferred one first.
// A client that offers only other protocols is refused. `names` must live as long as the context.
void restrict_alpn(SSL_CTX* context, const char* names);

}  // namespace workflow

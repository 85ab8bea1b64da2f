#pragma once

#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <string_view>

namespace workflow {

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

// The defaults of both sides: TLS 1.2 and later, no renegotiation, no compression, and no prompt
// for the password of a key. Null with errno ENOMEM, or EIO if there are no random numbers.
//
// The server's context resumes sessions, by tickets and from its memory, but only those of
// handshakes that it made itself: its session id context is random.
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

// The name of a host, null-terminated, in the form in which names are compared: in lower case, and
// without the dot at the end of a fully qualified name. Empty means that there is no name.
using HostName = std::array<char, TLSEXT_MAXLEN_host_name + 1>;
// Empty if the name has a NUL in it, or is too long.
HostName canonical_host(std::string_view name);

// The next two functions are for the callback of SSL_CTX_set_client_hello_cb(3), which runs before
// OpenSSL looks for a session to resume and agrees on a version.

// Returns the host name that the client asks for (SNI, RFC 6066, 3). A malformed one counts as
// none: OpenSSL refuses it later, or goes on with the first context.
HostName requested_host(SSL* ssl);

// Makes the handshake go on with another context: its certificates, its demands on the client's
// certificate, its versions, options, ciphers and ALPN, and only its own sessions. All else remains
// that of the first context, such as ticket keys, the memory for sessions, groups, and callbacks
// for keys that were shared before (PSK). But if `context` asks for a certificate, no such key is
// accepted. Returns false if memory has run out; then the handshake must not go on.
bool switch_context(SSL* ssl, SSL_CTX* context);

// Keeps the name of the host, perhaps empty, for which the context of a connection was chosen.
// SSL_get_servername(3) may return another one: that of a second ClientHello (RFC 8446, 4.1.4), or
// before TLS 1.3 that of the session that was resumed. Called once for each SSL object. Returns
// false if memory has run out.
bool set_chosen_host(SSL* ssl, const HostName& name);
// Null before that.
const char* chosen_host(const SSL* ssl);

// Returns the context of a connection whose handshake is done, if what it demands of the client's
// certificate was in force, else null. A callback for server names can change the one without the
// other (SSL_set_SSL_CTX(3)).
const SSL_CTX* enforced_context(const SSL* ssl);

}  // namespace workflow

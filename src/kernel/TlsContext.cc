#include "kernel/TlsContext.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509_vfy.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace workflow {

namespace {

// OpenSSL's default callback would ask on the terminal, and block.
int no_password(char* /*buffer*/, int /*size*/, int /*for_writing*/, void* /*context*/) {
  return -1;
}

TlsContext new_context(const SSL_METHOD* method) {
  ERR_clear_error();
  TlsContext context(SSL_CTX_new(method));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    ERR_clear_error();
    errno = ENOMEM;
    return nullptr;
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Takes one system call per record instead of two. Bytes that were read ahead are used before the
  // next wait.
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  return context;
}

// The client's list has one length octet before each name, ours a comma after it.
int select_protocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_length,
                    const unsigned char* offered, unsigned int offered_length, void* names) {
  for (const char* name = static_cast<const char*>(names); *name != '\0';) {
    const size_t size = std::strcspn(name, ",");
    for (unsigned int at = 0; at < offered_length; at += offered[at] + 1u) {
      if (offered[at] == size && std::memcmp(offered + at + 1, name, size) == 0) {
        *out = offered + at + 1;
        *out_length = offered[at];
        return SSL_TLSEXT_ERR_OK;
      }
    }
    name += size;
    name += *name == ',';
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

void free_host(void* /*ssl*/, void* host, CRYPTO_EX_DATA* /*data*/, int /*index*/, long /*number*/,
               void* /*pointer*/) {
  OPENSSL_free(host);
}

// Where an SSL object keeps the chosen host (SSL_get_ex_new_index(3)). Negative if memory has run
// out; the next call may find some.
int host_index() {
  static std::atomic<int> index{-1};
  int found = index.load(std::memory_order_acquire);
  if (found >= 0) return found;
  const int made = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_host);
  // Another thread may have been faster. Then the new index stays unused.
  return index.compare_exchange_strong(found, made, std::memory_order_acq_rel) ? made : found;
}

// Does what OpenSSL does without a callback for the verification of a certificate: the store's own
// callback decides, if there is one.
int ask_store(int verdict, X509_STORE_CTX* chain) {
  const X509_STORE_CTX_verify_cb callback =
      X509_STORE_get_verify_cb(X509_STORE_CTX_get0_store(chain));
  return callback ? callback(verdict, chain) : verdict;
}

}  // namespace

TlsContext new_server_tls_context() {
  TlsContext context = new_context(TLS_server_method());
  if (!context) return nullptr;
  // Sessions can be resumed only with the context that created them, because one host may require
  // of its clients what another does not (SSL_CTX_set_session_id_context(3)). The id is random, so
  // this holds also for processes that share their ticket keys.
  std::array<unsigned char, SSL_MAX_SID_CTX_LENGTH> id;
  if (RAND_bytes(id.data(), id.size()) != 1 ||
      SSL_CTX_set_session_id_context(context.get(), id.data(), id.size()) != 1) {
    ERR_clear_error();
    errno = EIO;
    return nullptr;
  }
  return context;
}

TlsContext new_client_tls_context() {
  TlsContext context = new_context(TLS_client_method());
  if (context) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    // If there is no store no certificate is trusted, and the handshake reports that.
    SSL_CTX_set_default_verify_paths(context.get());
    ERR_clear_error();
  }
  return context;
}

int use_certificate(SSL_CTX* context, const char* cert_file, const char* key_file) {
  for (const char* file : {cert_file, key_file}) {
    if (::access(file, R_OK) != 0) return errno;
  }
  ERR_clear_error();
  int error = 0;
  if (SSL_CTX_use_certificate_chain_file(context, cert_file) != 1 ||
      SSL_CTX_use_PrivateKey_file(context, key_file, SSL_FILETYPE_PEM) != 1) {
    const bool mismatch = ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH;
    error = mismatch ? EKEYREJECTED : EINVAL;
  } else if (SSL_CTX_check_private_key(context) != 1) {
    error = EKEYREJECTED;
  }
  ERR_clear_error();
  return error;
}

void restrict_alpn(SSL_CTX* context, const char* names) {
  SSL_CTX_set_alpn_select_cb(context, select_protocol, const_cast<char*>(names));
}

HostName canonical_host(std::string_view name) {
  HostName host = {};
  if (name.size() > 1 && name.back() == '.') {
    name.remove_suffix(1);
  }
  if (name.size() < host.size() && name.find('\0') == std::string_view::npos) {
    std::transform(name.begin(), name.end(), host.begin(), to_lower);
  }
  return host;
}

HostName requested_host(SSL* ssl) {
  const unsigned char* list = nullptr;
  size_t size = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &list, &size) != 1) return {};
  // The list's length in two octets, and its only element: a type, a length in two octets, a name.
  constexpr size_t kBeforeName = 5;
  const auto number_at = [list](size_t at) { return size_t{list[at]} << 8 | list[at + 1]; };
  if (size < kBeforeName || number_at(0) != size - 2 || list[2] != TLSEXT_NAMETYPE_host_name ||
      number_at(3) != size - kBeforeName) {
    return {};
  }
  return canonical_host({reinterpret_cast<const char*>(list) + kBeforeName, size - kBeforeName});
}

bool switch_context(SSL* ssl, SSL_CTX* context) {
  // Takes over the certificates and the id of the context's sessions. What OpenSSL looks up in the
  // context follows by itself. The rest was copied by SSL_new(3).
  if (!SSL_set_SSL_CTX(ssl, context)) return false;
  const SSL_verify_cb callback = SSL_CTX_get_verify_callback(context);
  const int mode = SSL_CTX_get_verify_mode(context);
  // A null callback would leave the one of the first context in force.
  SSL_set_verify(ssl, mode, callback ? callback : ask_store);
  if ((mode & SSL_VERIFY_PEER) != 0) {
    // A key that client and first context share would stand in for the certificate.
    SSL_set_psk_find_session_callback(ssl, nullptr);
    SSL_set_psk_server_callback(ssl, nullptr);
  }
  SSL_clear_options(ssl, SSL_get_options(ssl) & ~SSL_CTX_get_options(context));
  SSL_set_options(ssl, SSL_CTX_get_options(context));
  // Without these flags only what the first context has left open would be set.
  X509_VERIFY_PARAM* const verification = SSL_get0_param(ssl);
  const uint32_t inheritance = X509_VERIFY_PARAM_get_inh_flags(verification);
  X509_VERIFY_PARAM_set_inh_flags(verification, X509_VP_FLAG_OVERWRITE | X509_VP_FLAG_RESET_FLAGS);
  const bool verifies = X509_VERIFY_PARAM_set1(verification, SSL_CTX_get0_param(context)) == 1;
  X509_VERIFY_PARAM_set_inh_flags(verification, inheritance);
  return verifies && SSL_set_min_proto_version(ssl, SSL_CTX_get_min_proto_version(context)) == 1 &&
         SSL_set_max_proto_version(ssl, SSL_CTX_get_max_proto_version(context)) == 1;
}

bool set_chosen_host(SSL* ssl, const HostName& name) {
  char* const copy = OPENSSL_strdup(name.data());
  if (copy && SSL_set_ex_data(ssl, host_index(), copy) == 1) return true;
  OPENSSL_free(copy);
  return false;
}

const char* chosen_host(const SSL* ssl) {
  return static_cast<const char*>(SSL_get_ex_data(ssl, host_index()));
}

const SSL_CTX* enforced_context(const SSL* ssl) {
  const SSL_CTX* const context = SSL_get_SSL_CTX(ssl);
  const int demands = SSL_CTX_get_verify_mode(context);
  return (SSL_get_verify_mode(ssl) & demands) == demands ? context : nullptr;
}

}  // namespace workflow

#include "kernel/ErrorText.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstring>

#include "workflow/WFTaskError.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

const char* or_unknown(const char* text) {
  return text ? text : "Unknown error";
}

const char* ssl_library_string(int error) {
  ::OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr);
  return or_unknown(::ERR_reason_error_string(static_cast<unsigned int>(error)));
}

const char* ssl_error_string(int error) {
  if (error < 0) return ::X509_verify_cert_error_string(-static_cast<long>(error));
  // Two kinds of codes: what SSL_get_error(3) returns, and those of ERR_get_error(3), which carry
  // a library number in the high bits and so are never small.
  switch (error) {
    case SSL_ERROR_NONE:
      return "No TLS error";
    case SSL_ERROR_SSL:
      return "Failure in the TLS library";
    case SSL_ERROR_WANT_READ:
      return "TLS waits to read";
    case SSL_ERROR_WANT_WRITE:
      return "TLS waits to write";
    case SSL_ERROR_WANT_X509_LOOKUP:
      return "TLS waits for a certificate";
    case SSL_ERROR_SYSCALL:
      return "System call failed in TLS";
    case SSL_ERROR_ZERO_RETURN:
      return "TLS connection closed by the peer";
    case SSL_ERROR_WANT_CONNECT:
      return "TLS waits to connect";
    case SSL_ERROR_WANT_ACCEPT:
      return "TLS waits to accept";
    default:
      return ssl_library_string(error);
  }
}

const char* task_error_string(int error) {
  switch (error) {
    case WFT_ERR_URI_PARSE_FAILED:
      return "Not a valid URI";
    case WFT_ERR_URI_SCHEME_INVALID:
      return "Unknown URI scheme";
    case WFT_ERR_URI_PORT_INVALID:
      return "Invalid port in the URI";
    case WFT_ERR_UPSTREAM_UNAVAILABLE:
      return "No server of the upstream is available";
    case WFT_ERR_HTTP_BAD_REDIRECT_HEADER:
      return "HTTP redirect without a usable Location";
    case WFT_ERR_HTTP_PROXY_CONNECT_FAILED:
      return "HTTP proxy refused to connect";
    case WFT_ERR_REDIS_ACCESS_DENIED:
      return "Redis refused the user, the password or the database";
    case WFT_ERR_REDIS_COMMAND_DISALLOWED:
      return "Redis command not allowed on a shared connection";
    default:
      return or_unknown(nullptr);
  }
}

}  // namespace

const char* error_text(int state, int error) {
  switch (state) {
    case WFT_STATE_UNDEFINED:
      return "Not finished";
    case WFT_STATE_SUCCESS:
      return "Success";
    case WFT_STATE_SYS_ERROR:
      return or_unknown(strerrordesc_np(error));
    case WFT_STATE_ABORTED:
      return "Aborted: the library has stopped";
    case WFT_STATE_TOREPLY:
      return "Not replied yet";
    case WFT_STATE_NOREPLY:
      return "Ended without a reply";
    case WFT_STATE_SSL_ERROR:
      return ssl_error_string(error);
    case WFT_STATE_DNS_ERROR:
      return ::gai_strerror(error);
    case WFT_STATE_TASK_ERROR:
      return task_error_string(error);
    default:
      return "Unknown state";
  }
}

}  // namespace workflow

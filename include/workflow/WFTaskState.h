#pragma once

// How a task ended. For some states get_error() says more, for the others it is 0:
//   SYS_ERROR   an errno value
//   SSL_ERROR   an OpenSSL code, or the negated X509_V_ERR_* value of a refused certificate
//   DNS_ERROR   an EAI_* code
//   TASK_ERROR  a WFT_ERR_* code (WFTaskError.h)
enum {
  WFT_STATE_UNDEFINED = -1,
  WFT_STATE_SUCCESS = 0,
  WFT_STATE_SYS_ERROR = 1,
  WFT_STATE_ABORTED = 2,  // the library, or the user's executor, stopped first
  WFT_STATE_TOREPLY = 3,  // server tasks: before the reply was sent
  WFT_STATE_NOREPLY = 4,  // server tasks: ended without a reply
  WFT_STATE_SSL_ERROR = 65,
  WFT_STATE_DNS_ERROR = 66,
  WFT_STATE_TASK_ERROR = 67
};

// What a network task that ended SYS_ERROR with ETIMEDOUT was waiting for.
enum {
  TOR_NOT_TIMEOUT = 0,
  TOR_WAIT_TIMEOUT,     // for a connection, while the limit of connections was reached
  TOR_CONNECT_TIMEOUT,  // for the peer to accept the connection, or for the TLS handshake
  TOR_TRANSMIT_TIMEOUT  // for bytes to be sent or received
};

#pragma once

// How a task ended. get_error() then holds, for
//   SYS_ERROR: an errno value;  SSL_ERROR: an OpenSSL code, or the X509_V_ERR_* value of a
//   certificate that was refused, negated;  DNS_ERROR: an EAI_* code;  TASK_ERROR: a WFT_ERR_* code
//   (WFTaskError.h);  ABORTED: 0 or why.
enum {
  WFT_STATE_UNDEFINED = -1,
  WFT_STATE_SUCCESS = 0,
  WFT_STATE_SYS_ERROR = 1,
  WFT_STATE_ABORTED = 2,  // the library was shutting down
  WFT_STATE_TOREPLY = 3,  // server tasks: before the reply was sent
  WFT_STATE_NOREPLY = 4,  // server tasks: ended without a reply
  WFT_STATE_SSL_ERROR = 65,
  WFT_STATE_DNS_ERROR = 66,
  WFT_STATE_TASK_ERROR = 67
};

// What a network task that ended SYS_ERROR with ETIMEDOUT was waiting for.
enum {
  TOR_NOT_TIMEOUT = 0,
  TOR_WAIT_TIMEOUT,     // for a connection: as many as may be were in use
  TOR_CONNECT_TIMEOUT,  // for the peer to accept it, or to agree on TLS
  TOR_TRANSMIT_TIMEOUT  // for bytes to go or to come
};

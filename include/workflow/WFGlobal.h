#pragma once

#include <openssl/ssl.h>

#include <string>

#include "workflow/EndpointParams.h"
#include "workflow/Executor.h"
#include "workflow/WFTaskError.h"

// The settings of the process. An aggregate to copy and change; its defaults are
// GLOBAL_SETTINGS_DEFAULT. The strings belong to the caller and must outlive the process's tasks.
//
// Numbers of threads: below 1, compute_threads is the number of processors that the process may
// use, poller_threads the same but at most 4, and handler_threads and fio_max_events count as 1.
//
// The environment variable WORKFLOW_FILE_IO says who carries out file operations: "threads", or
// "io_uring" where the kernel offers it, which is the default.
struct WFGlobalSettings {
  struct EndpointParams endpoint_params = ENDPOINT_PARAMS_DEFAULT;
  struct EndpointParams dns_server_params =
      ENDPOINT_PARAMS_DEFAULT;          // no effect: resolv.conf rules
  unsigned int dns_ttl_default = 3600;  // no effect: every answer names its time
  // Seconds. When no address of a host could be connected to the host is looked up again, but not
  // if its addresses are younger than this. How long answers are believed is theirs to say.
  unsigned int dns_ttl_min = 60;
  int dns_threads = 4;        // no effect: no thread waits for an answer
  int poller_threads = -1;    // wait for timers and descriptors
  int handler_threads = 20;   // run callbacks and process functions
  int compute_threads = -1;   // run go tasks
  int fio_max_events = 4096;  // file operations carried out at a time; others wait their turn
  const char *resolv_conf_path = "/etc/resolv.conf";
  const char *hosts_path = "/etc/hosts";
};

inline constexpr struct WFGlobalSettings GLOBAL_SETTINGS_DEFAULT {};

// Sets the process's settings. Call it before any other call of the library: the first use, which
// may be the creation of a named task, makes the threads, as many as the settings say at that
// moment. Afterwards numbers of threads no longer change anything. Not concurrently with the first
// use of the library.
extern void WORKFLOW_library_init(const struct WFGlobalSettings *settings);

// What belongs to the process as a whole. Any thread may call any of it at any time.
class WFGlobal {
 public:
  // The port of URLs that have that scheme and no port. Schemes ignore case (RFC 3986, 3.1). An
  // earlier registration is replaced. Known without it: http, https.
  static void register_scheme_port(const std::string &scheme, unsigned short port);

  // The port in decimal, or null for an unknown scheme. Valid for the life of the process.
  static const char *get_default_port(const std::string &scheme);

  // The context of clients that bring none of their own: verifies the peer's chain against the
  // system's store and the certificate's names against the host. Shared by the process; what is to
  // hold for all clients may be changed before the first of them, for instance
  // SSL_CTX_load_verify_file() for a certificate authority of one's own, or SSL_CTX_set_verify()
  // with SSL_VERIFY_NONE, which trusts anybody. Null without memory.
  static SSL_CTX *get_ssl_client_ctx();

  // A new context for a server, without a certificate; the caller's. TLS 1.2 and later, resumes
  // sessions, no renegotiation. Null without memory.
  static SSL_CTX *new_ssl_server_ctx();

  // What was set last. Valid for the life of the process; later settings do not change it.
  static const struct WFGlobalSettings *get_global_settings();

  // The same as WORKFLOW_library_init().
  static void set_global_settings(const struct WFGlobalSettings *settings);

  // Handlers and computing threads: one more, or one less as soon as one has nothing to do. 0, or
  // -1 with errno: EINVAL for the last one, EAGAIN when the system refuses, ECANCELED at the end.
  static int increase_handler_thread();
  static int decrease_handler_thread();
  static int increase_compute_thread();
  static int decrease_compute_thread();

  // The queue of go tasks of that name, and the library's computing threads, for functions that
  // take an ExecQueue and an Executor: to be used together. They live as long as the library; their
  // init() and deinit() do nothing.
  static ExecQueue *get_exec_queue(const std::string &queue_name);
  static Executor *get_compute_executor();

  // Around code that blocks a thread of the library by other means than the library's own waits: it
  // lends the thread meanwhile, so that other work goes on. Both on the same thread; pairs may be
  // nested. No effect on other threads.
  static void sync_operation_begin();
  static void sync_operation_end();

  // What get_state() and get_error() of a task mean, in English for people to read; never null. It
  // lives as long as the process.
  static const char *get_error_string(int state, int error);
};

#pragma once

#include <openssl/ssl.h>

#include <string>

#include "workflow/EndpointParams.h"
#include "workflow/Executor.h"
#include "workflow/WFTaskError.h"

// The settings of the process. Copy GLOBAL_SETTINGS_DEFAULT, which holds the defaults, and change
// the copy. The strings belong to the caller and must outlive the process's tasks.
//
// Numbers of threads below 1: compute_threads becomes the number of processors that the process may
// use, poller_threads the same but at most 4, and handler_threads and fio_max_events become 1.
//
// The environment variable WORKFLOW_FILE_IO selects what carries out file operations: "threads" or
// "io_uring". The default is io_uring where the kernel offers it.
struct WFGlobalSettings {
  struct EndpointParams endpoint_params = ENDPOINT_PARAMS_DEFAULT;
  struct EndpointParams dns_server_params =
      ENDPOINT_PARAMS_DEFAULT;          // no effect: resolv.conf rules
  unsigned int dns_ttl_default = 3600;  // no effect: every answer states its own validity
  // In seconds. If no address of a host could be connected to, the host is looked up again, unless
  // its addresses are younger than this. How long an answer is valid is stated by the answer
  // itself.
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
// may be the creation of a named task, creates as many threads as the settings say at that moment.
// After that, numbers of threads have no effect. Must not run concurrently with the first use of
// the library. `settings` must not be null; it is copied.
extern void WORKFLOW_library_init(const struct WFGlobalSettings *settings);

// Functions that concern the process as a whole. Any thread may call any of them at any time,
// except set_global_settings(), to which the rules of WORKFLOW_library_init() apply.
class WFGlobal {
 public:
  // Sets the port of URLs that have that scheme and name no port. Schemes ignore case (RFC 3986,
  // 3.1). An earlier registration is replaced. http and https are known without registration.
  static void register_scheme_port(const std::string &scheme, unsigned short port);

  // Returns the port in decimal, or null for an unknown scheme. Valid for the life of the process.
  static const char *get_default_port(const std::string &scheme);

  // Returns the context of clients that have none of their own. All clients of the process share
  // it, and the caller must not free it. It verifies the peer's chain against the system's store,
  // and the certificate's names against the host. To change it for all clients, do so before the
  // first of them: for instance, SSL_CTX_load_verify_file() adds a certificate authority of your
  // own, and SSL_CTX_set_verify() with SSL_VERIFY_NONE trusts anybody. Null without memory.
  static SSL_CTX *get_ssl_client_ctx();

  // Returns a new context for a server, without a certificate, which the caller owns. It speaks TLS
  // 1.2 and later, resumes sessions and does not renegotiate. Null without memory.
  static SSL_CTX *new_ssl_server_ctx();

  // Returns the settings that were set last. The result is valid for the life of the process, and
  // later settings do not change it.
  static const struct WFGlobalSettings *get_global_settings();

  // Does what WORKFLOW_library_init() does.
  static void set_global_settings(const struct WFGlobalSettings *settings);

  // Add a handler thread or a computing thread, or remove one as soon as one is idle. They return
  // 0, or -1 with errno: EINVAL for the last thread, EAGAIN if the system refuses a thread,
  // ECANCELED if the library has ended.
  static int increase_handler_thread();
  static int decrease_handler_thread();
  static int increase_compute_thread();
  static int decrease_compute_thread();

  // Return the queue of the go tasks of that name, and the library's computing threads, for
  // functions that take an ExecQueue and an Executor. Use them together. The library owns both, and
  // they live as long as the library. Do not call init() or deinit() on them: ExecQueue::init()
  // returns 0, Executor::init() fails with EALREADY, and nothing changes.
  static ExecQueue *get_exec_queue(const std::string &queue_name);
  static Executor *get_compute_executor();

  // Call these before and after code that blocks a thread of the library by other means than the
  // library's own waits. Another thread works in its place meanwhile. Both calls must be made on
  // the same thread; pairs may be nested. On threads that are not the library's they do nothing.
  // sync_operation_begin() always returns 0, and `cookie` is not used.
  static int sync_operation_begin();
  static void sync_operation_end(int cookie = 0);

  // Returns what get_state() and get_error() of a task mean, in English for people to read. Never
  // null, and valid for the life of the process.
  static const char *get_error_string(int state, int error);
};

#include "workflow/WFGlobal.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>

#include "client/ClientSettings.h"
#include "kernel/BlockingScope.h"
#include "kernel/Resolver.h"
#include "kernel/Runtime.h"
#include "kernel/TlsContext.h"
#include "util/Mutex.h"
#include "workflow/WFTask.h"

namespace workflow {

namespace {

// What is handed out as a pointer stays: replaced settings and ports are kept, not freed.
class ProcessSettings {
 public:
  void set(const WFGlobalSettings& settings) {
    MutexLock lock(mutex_);
    all_.push_back(settings);
    current_.store(&all_.back(), std::memory_order_release);
  }
  const WFGlobalSettings* get() const { return current_.load(std::memory_order_acquire); }

 private:
  Mutex mutex_;
  std::list<WFGlobalSettings> all_ WF_GUARDED_BY(mutex_);
  // Release and acquire publish the settings, which do not change any more: get() takes no lock.
  std::atomic<const WFGlobalSettings*> current_{&GLOBAL_SETTINGS_DEFAULT};
};

// Never destroyed: tasks may outlive static objects.
ProcessSettings& process_settings() {
  static ProcessSettings& settings = *new ProcessSettings;
  return settings;
}

Resolver::Options resolver_options(const WFGlobalSettings& settings) {
  Resolver::Options options;
  if (settings.resolv_conf_path) {
    options.files.resolv_conf_path = settings.resolv_conf_path;
  }
  if (settings.hosts_path) {
    options.files.hosts_path = settings.hosts_path;
  }
  options.cache.ttl_min_ns = static_cast<int64_t>(settings.dns_ttl_min) * kNsPerSec;
  return options;
}

}  // namespace

// The library's own threads and queues, in the shape of those that users own.
class LibraryExecutors final : public RuntimePart {
 public:
  Executor* executor() {
    MutexLock lock(mutex_);
    if (!executor_.pool_) {
      executor_.pool_ = &Runtime::current().compute();
    }
    return &executor_;
  }

  ExecQueue* queue(const std::string& name) {
    ComputeQueue* queue = Runtime::current().compute().queue(name);
    MutexLock lock(mutex_);
    ExecQueue& queue_interface = queues_[name];
    if (!queue_interface.queue_) {
      queue_interface.queue_ = queue;
    }
    return &queue_interface;
  }

 private:
  Mutex mutex_;
  Executor executor_;
  std::map<std::string, ExecQueue> queues_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

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

void WORKFLOW_library_init(const struct WFGlobalSettings* settings) {
  workflow::process_settings().set(*settings);
  workflow::Runtime::Options options;
  options.poller_threads = std::max(settings->poller_threads, 0);
  options.handler_threads = std::max(settings->handler_threads, 1);
  options.compute_threads = std::max(settings->compute_threads, 0);
  options.files.max_events = std::max(settings->fio_max_events, 1);
  workflow::Runtime::configure(options);
  workflow::set_default_endpoint_params(settings->endpoint_params);
  workflow::Resolver::configure(workflow::resolver_options(*settings));
}

void WFGlobal::register_scheme_port(const std::string& scheme, unsigned short port) {
  workflow::SchemePorts::process().set(scheme, port);
}

const char* WFGlobal::get_default_port(const std::string& scheme) {
  return workflow::SchemePorts::process().get(scheme);
}

SSL_CTX* WFGlobal::get_ssl_client_ctx() {
  return workflow::client_tls_context();
}

SSL_CTX* WFGlobal::new_ssl_server_ctx() {
  return workflow::new_server_tls_context().release();
}

int WFGlobal::increase_handler_thread() {
  return workflow::Runtime::current().handlers().increase_threads();
}

int WFGlobal::decrease_handler_thread() {
  return workflow::Runtime::current().handlers().decrease_threads();
}

int WFGlobal::increase_compute_thread() {
  return workflow::Runtime::current().compute().increase_threads();
}

int WFGlobal::decrease_compute_thread() {
  return workflow::Runtime::current().compute().decrease_threads();
}

ExecQueue* WFGlobal::get_exec_queue(const std::string& queue_name) {
  return workflow::Runtime::current().part<workflow::LibraryExecutors>().queue(queue_name);
}

Executor* WFGlobal::get_compute_executor() {
  return workflow::Runtime::current().part<workflow::LibraryExecutors>().executor();
}

int WFGlobal::sync_operation_begin() {
  workflow::BlockingScope::open();
  return 0;
}

void WFGlobal::sync_operation_end(int) {
  workflow::BlockingScope::close();
}

const struct WFGlobalSettings* WFGlobal::get_global_settings() {
  return workflow::process_settings().get();
}

void WFGlobal::set_global_settings(const struct WFGlobalSettings* settings) {
  WORKFLOW_library_init(settings);
}

const char* WFGlobal::get_error_string(int state, int error) {
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

#include "workflow/WFGlobal.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>

#include "client/ClientSettings.h"
#include "kernel/BlockingScope.h"
#include "kernel/ErrorText.h"
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
  return workflow::error_text(state, error);
}

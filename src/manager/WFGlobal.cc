#include "workflow/WFGlobal.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <set>
#include <string_view>

#include "kernel/Runtime.h"
#include "util/Mutex.h"

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
  std::atomic<const WFGlobalSettings*> current_{&GLOBAL_SETTINGS_DEFAULT};
};

class SchemePorts {
 public:
  SchemePorts() {
    set("http", 80);
    set("https", 443);
  }

  void set(std::string_view scheme, unsigned short port) {
    MutexLock lock(mutex_);
    ports_[lower(scheme)] = texts_.insert(std::to_string(port)).first->c_str();
  }

  const char* get(std::string_view scheme) const {
    MutexLock lock(mutex_);
    const auto found = ports_.find(lower(scheme));
    return found == ports_.end() ? nullptr : found->second;
  }

 private:
  static std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return result;
  }

  mutable Mutex mutex_;
  std::map<std::string, const char*> ports_ WF_GUARDED_BY(mutex_);
  std::set<std::string> texts_ WF_GUARDED_BY(mutex_);
};

// Never destroyed: tasks may outlive static objects.
ProcessSettings& process_settings() {
  static ProcessSettings& settings = *new ProcessSettings;
  return settings;
}

SchemePorts& scheme_ports() {
  static SchemePorts& ports = *new SchemePorts;
  return ports;
}

}  // namespace

// The library's own threads and queues, in the shape of those that users own.
class ComputeFaces final : public RuntimePart {
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
    ExecQueue& face = queues_[name];
    if (!face.queue_) {
      face.queue_ = queue;
    }
    return &face;
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
}

void WFGlobal::register_scheme_port(const std::string& scheme, unsigned short port) {
  workflow::scheme_ports().set(scheme, port);
}

const char* WFGlobal::get_default_port(const std::string& scheme) {
  return workflow::scheme_ports().get(scheme);
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
  return workflow::Runtime::current().part<workflow::ComputeFaces>().queue(queue_name);
}

Executor* WFGlobal::get_compute_executor() {
  return workflow::Runtime::current().part<workflow::ComputeFaces>().executor();
}

const struct WFGlobalSettings* WFGlobal::get_global_settings() {
  return workflow::process_settings().get();
}

void WFGlobal::set_global_settings(const struct WFGlobalSettings* settings) {
  WORKFLOW_library_init(settings);
}

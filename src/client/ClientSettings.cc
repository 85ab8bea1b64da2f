#include "client/ClientSettings.h"

#include <algorithm>

#include "kernel/TlsContext.h"

namespace workflow {

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

struct Defaults {
  Mutex mutex;
  struct EndpointParams params WF_GUARDED_BY(mutex);
};

// Never destroyed: tasks may outlive static objects.
Defaults& defaults() {
  static Defaults& settings = *new Defaults;
  return settings;
}

}  // namespace

SchemePorts& SchemePorts::process() {
  static SchemePorts& ports = *new SchemePorts;
  return ports;
}

void SchemePorts::set(std::string_view scheme, unsigned short port) {
  MutexLock lock(mutex_);
  ports_[lower(scheme)] = texts_.insert(std::to_string(port)).first->c_str();
}

const char* SchemePorts::get(std::string_view scheme) const {
  MutexLock lock(mutex_);
  const auto found = ports_.find(lower(scheme));
  return found == ports_.end() ? nullptr : found->second;
}

void set_default_endpoint_params(const struct EndpointParams& params) {
  MutexLock lock(defaults().mutex);
  defaults().params = params;
}

struct EndpointParams default_endpoint_params() {
  MutexLock lock(defaults().mutex);
  return defaults().params;
}

SSL_CTX* client_tls_context() {
  static SSL_CTX* const context = new_client_tls_context().release();
  return context;
}

}  // namespace workflow

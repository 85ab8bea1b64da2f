#pragma once

#include <openssl/ssl.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "util/Mutex.h"
#include "workflow/EndpointParams.h"

namespace workflow {

// The ports of URLs that name none, by scheme. Thread-safe.
class SchemePorts {
 public:
  // The process's.
  static SchemePorts& process();

  SchemePorts() {
    set("http", 80);
    set("https", 443);
  }

  void set(std::string_view scheme, unsigned short port);
  // In decimal, for ever; null for an unknown scheme.
  const char* get(std::string_view scheme) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, const char*> ports_ WF_GUARDED_BY(mutex_);
  std::set<std::string> texts_ WF_GUARDED_BY(mutex_);
};

// What targets made from now on are like. Any thread.
void set_default_endpoint_params(const struct EndpointParams& params);
struct EndpointParams default_endpoint_params();

// The context of clients without one of their own; null without memory. Lives for ever.
SSL_CTX* client_tls_context();

}  // namespace workflow

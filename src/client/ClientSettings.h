#pragma once

#include <openssl/ssl.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "util/Mutex.h"
#include "workflow/EndpointParams.h"

namespace workflow {

// The default port of each URL scheme, for URLs without a port. Thread-safe.
class SchemePorts {
 public:
  // Returns the one instance of the process.
  static SchemePorts& process();

  SchemePorts() {
    set("http", 80);
    set("https", 443);
    set("redis", 6379);
    set("rediss", 6379);
  }

  void set(std::string_view scheme, unsigned short port);
  // Returns the port in decimal, as a string that is never freed, or null for an unknown scheme.
  const char* get(std::string_view scheme) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, const char*> ports_ WF_GUARDED_BY(mutex_);
  std::set<std::string> texts_ WF_GUARDED_BY(mutex_);
};

// The parameters of targets that are created from now on. Any thread.
void set_default_endpoint_params(const struct EndpointParams& params);
struct EndpointParams default_endpoint_params();

// The TLS context of clients that have none of their own. Null if there is no memory. Never freed.
SSL_CTX* client_tls_context();

}  // namespace workflow

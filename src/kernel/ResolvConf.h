#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/HostAddress.h"
#include "util/Time.h"

namespace workflow {

// Which servers to ask and how, as resolv.conf(5) says. Pure data; reads no file.
//
// It knows `nameserver` (also with a port: "192.0.2.1:53", "[2001:db8::1]:53"), `search`, `domain`,
// and the options ndots, timeout, attempts and rotate. Everything else is ignored.
//
// c-ares 1.18 reads this file without the ports and scopes of servers, and without the options
// timeout and attempts.
struct ResolvConf {
  static constexpr uint16_t kPort = 53;
  static constexpr size_t kMaxServers = 8;
  static constexpr size_t kMaxDomains = 6;
  static constexpr int kMaxNdots = 15;
  static constexpr int kMaxTimeoutS = 30;
  static constexpr int kMaxAttempts = 5;

  ResolvConf() = default;
  explicit ResolvConf(std::string_view text);

  // The names to ask for in this order, until one of them exists, when `host` is wanted. If `host`
  // ends in a dot this is `host` alone, without the dot. Otherwise these are `host` and `host`
  // followed by each of the domains; `host` comes first if it has at least ndots dots, else last.
  std::vector<std::string> candidates(std::string_view host) const;

  std::vector<HostAddress> servers;  // with ports
  std::vector<std::string> domains;
  int ndots = 1;
  int64_t timeout_ns = 5 * kNsPerSec;  // for one query to one server; doubles with each attempt
  int attempts = 2;                    // queries to each server
  bool rotate = false;                 // successive look-ups begin with successive servers

 private:
  void read_line(std::string_view line);
  void read_option(std::string_view option);
  void read_domains(std::string_view words, size_t most);
};

}  // namespace workflow

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "kernel/HostAddress.h"
#include "util/Mutex.h"
#include "util/Time.h"

namespace workflow {

// Addresses that failed a short while ago, of hosts that have other addresses too. They are tried
// last, so that not every request waits again for an address where nobody answers. Thread-safe.
class FailedAddresses {
 public:
  // How long a failed address is tried only after all others. When this time has passed, one
  // request tries the address in its turn. For the other requests it counts as failed for the same
  // time again, unless it works before that.
  static constexpr int64_t kAvoidedNs = 30 * kNsPerSec;
  // At most this many are remembered.
  static constexpr size_t kMax = 1024;

  // If there is no memory, nothing is remembered.
  void failed(const HostAddress& address, int64_t now_ns);
  void worked(const HostAddress& address);

  // Returns the addresses, which have no ports, in the order in which to try them at that port: the
  // failed ones last, otherwise in the given order. If there is no memory, the order stays.
  HostAddresses in_order(HostAddresses addresses, uint16_t port, int64_t now_ns);

 private:
  bool is_avoided(const HostAddress& address, int64_t now_ns) WF_REQUIRES(mutex_);
  void forget_old(int64_t now_ns) WF_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, int64_t> until_ns_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

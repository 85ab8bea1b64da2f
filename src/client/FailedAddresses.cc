#include "client/FailedAddresses.h"

#include <iterator>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace workflow {

namespace {

std::string key_of(const HostAddress& address) {
  return std::string(reinterpret_cast<const char*>(&address.address), address.length);
}

}  // namespace

void FailedAddresses::failed(const HostAddress& address, int64_t now_ns) {
  try {
    MutexLock lock(mutex_);
    if (until_ns_.size() >= kMax) {
      forget_old(now_ns);
    }
    if (until_ns_.size() < kMax) {
      until_ns_[key_of(address)] = saturating_add(now_ns, kAvoidedNs);
    }
  } catch (const std::bad_alloc&) {
    // The address is not remembered, and the next request tries it again.
  }
}

void FailedAddresses::worked(const HostAddress& address) {
  try {
    MutexLock lock(mutex_);
    if (!until_ns_.empty()) {
      until_ns_.erase(key_of(address));
    }
  } catch (const std::bad_alloc&) {
    // The address is avoided until its time is up.
  }
}

HostAddresses FailedAddresses::in_order(HostAddresses addresses, uint16_t port, int64_t now_ns) {
  MutexLock lock(mutex_);
  if (until_ns_.empty()) return addresses;
  try {
    std::vector<HostAddress> first;
    std::vector<HostAddress> last;
    for (const HostAddress& address : *addresses) {
      HostAddress at = address;
      at.set_port(port);
      (is_avoided(at, now_ns) ? last : first).push_back(address);
    }
    if (last.empty() || first.empty()) return addresses;
    first.insert(first.end(), last.begin(), last.end());
    return std::make_shared<const std::vector<HostAddress>>(std::move(first));
  } catch (const std::bad_alloc&) {
    return addresses;
  }
}

bool FailedAddresses::is_avoided(const HostAddress& address, int64_t now_ns) {
  const auto found = until_ns_.find(key_of(address));
  if (found == until_ns_.end()) return false;
  if (now_ns < found->second) return true;
  found->second = saturating_add(now_ns, kAvoidedNs);
  return false;
}

void FailedAddresses::forget_old(int64_t now_ns) {
  for (auto each = until_ns_.begin(); each != until_ns_.end();) {
    each = each->second <= now_ns ? until_ns_.erase(each) : std::next(each);
  }
}

}  // namespace workflow

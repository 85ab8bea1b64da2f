#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernel/HostAddress.h"
#include "util/SipHash.h"
#include "util/Time.h"

namespace workflow {

// What is known about names, for as long as it may be believed.
//
// Pure data: no clock, no lock, no threads; each call is told the time, which never goes back.
// All costs are O(1) but those of clear() and check_invariants().
//
// Invariants (check_invariants):
// 1. At most max_names names; the one not asked for the longest goes first.
// 2. Addresses are fresh at most ttl_max_ns, what does not exist negative_ttl_ns, from the time
//    they were stored.
// 3. Addresses that are not fresh are given out by find_stale() and take_stale() only, and at most
//    for stale_ns.
class DnsCache {
 public:
  struct Limits {
    size_t max_names = 4096;
    int64_t ttl_max_ns = 24 * 3600 * kNsPerSec;
    int64_t ttl_min_ns = 0;  // forget() does not make addresses younger than this be asked again
    int64_t negative_ttl_ns = 5 * kNsPerSec;
    int64_t stale_ns = 3600 * kNsPerSec;
    int64_t stale_retry_ns = 30 * kNsPerSec;  // how long stale addresses count as fresh (RFC 8767)
  };

  struct Answer {
    int error = 0;            // 0, or the EAI_ value of a name without addresses
    HostAddresses addresses;  // null with an error
  };

  struct Stale {
    HostAddresses addresses;
    int64_t until_ns;  // may be given out before
  };

  explicit DnsCache(const Limits& limits) : limits_(limits) {}
  DnsCache(const DnsCache&) = delete;
  DnsCache& operator=(const DnsCache&) = delete;

  // What is fresh at `now_ns`.
  std::optional<Answer> find(std::string_view key, int64_t now_ns);

  // These replace what was known. They throw std::bad_alloc; then nothing is known. Addresses some
  // of which were stale already are not given out from `stale_until_ns` on.
  void store(std::string_view key, HostAddresses addresses, int64_t ttl_ns, int64_t now_ns,
             int64_t stale_until_ns = kNever);
  void store_missing(std::string_view key, int error, int64_t now_ns);

  // The addresses last known, if they have not been stale for too long.
  std::optional<Stale> find_stale(std::string_view key, int64_t now_ns);

  // The same when nobody could be asked; null if there are none. They count as fresh for
  // stale_retry_ns, so that not each look-up waits for the same failure.
  HostAddresses take_stale(std::string_view key, int64_t now_ns);

  // The addresses were of no use: they shall be asked for again, though not before they are
  // ttl_min_ns old. What is not asked remains as stale.
  void forget(std::string_view key, int64_t now_ns);

  void clear();
  size_t size() const { return names_.size(); }

  // Aborts the process with a message when an invariant does not hold.
  void check_invariants() const;

 private:
  struct Entry {
    std::string key;
    Answer answer;
    int64_t stored_ns;
    int64_t fresh_until_ns;
    int64_t stale_until_ns;
  };
  using Entries = std::list<Entry>;
  // Names may come from clients.
  struct Hash {
    Hash() : sip_key(SipKey::random()) {}
    size_t operator()(std::string_view key) const { return sip_hash(sip_key, key); }
    SipKey sip_key;
  };

  // The entry, now the one asked for last; null when there is none.
  Entry* use(std::string_view key);
  // The same if it has addresses that may be given out.
  Entry* use_stale(std::string_view key, int64_t now_ns);
  void put(Entry&& entry);
  void erase(std::string_view key);

  const Limits limits_;
  Entries entries_;  // the one asked for last is the first
  std::unordered_map<std::string_view, Entries::iterator, Hash> names_;
};

}  // namespace workflow

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

// What is known about names, for as long as it is valid.
//
// Pure data: it uses no clock, no lock and no threads. The caller passes the time, which must never
// go back. All calls cost O(1) except clear() and check_invariants().
//
// Invariants (check_invariants):
// 1. It holds at most max_names names. The least recently used one is removed first.
// 2. store() makes addresses fresh for at most ttl_max_ns, and store_missing() makes an answer that
//    there are none fresh for negative_ttl_ns. forget() shortens this. take_stale() makes stale
//    addresses fresh again for at most stale_retry_ns.
// 3. Addresses that are no longer fresh ("stale") are returned by find_stale() and take_stale()
//    only, and not later than stale_ns after the time up to which store() made them fresh.
class DnsCache {
 public:
  struct Limits {
    size_t max_names = 4096;
    int64_t ttl_max_ns = 24 * 3600 * kNsPerSec;
    int64_t ttl_min_ns = 0;  // forget() leaves younger addresses fresh until they have this age
    int64_t negative_ttl_ns = 5 * kNsPerSec;
    int64_t stale_ns = 3600 * kNsPerSec;
    int64_t stale_retry_ns = 30 * kNsPerSec;  // how long take_stale() makes addresses fresh (RFC
                                              // 8767)
  };

  struct Answer {
    int error = 0;            // 0, or the EAI_ value of a name without addresses
    HostAddresses addresses;  // null with an error
  };

  struct Stale {
    HostAddresses addresses;
    int64_t until_ns;  // must not be used from this time on
  };

  explicit DnsCache(const Limits& limits) : limits_(limits) {}
  DnsCache(const DnsCache&) = delete;
  DnsCache& operator=(const DnsCache&) = delete;

  // The answer that is fresh at `now_ns`, if any.
  std::optional<Answer> find(std::string_view key, int64_t now_ns);

  // Store an answer, which replaces the old one. They may throw std::bad_alloc; then nothing is
  // known of the name. If some of the addresses are stale already, none of them is returned from
  // `stale_until_ns` on.
  void store(std::string_view key, HostAddresses addresses, int64_t ttl_ns, int64_t now_ns,
             int64_t stale_until_ns = kNever);
  void store_missing(std::string_view key, int error, int64_t now_ns);

  // The last known addresses, fresh or stale, unless the time has come from which they must not be
  // used any more (invariant 3).
  std::optional<Stale> find_stale(std::string_view key, int64_t now_ns);

  // Returns the same addresses, for when no server could answer; null if there are none. They then
  // count as fresh for stale_retry_ns, so that not every look-up waits for the same failure.
  HostAddresses take_stale(std::string_view key, int64_t now_ns);

  // To be called when the addresses were of no use. They are no longer fresh once they are
  // ttl_min_ns old, so the servers are asked again. They stay in the cache as stale.
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
  // A keyed hash, because names may come from clients.
  struct Hash {
    Hash() : sip_key(SipKey::random()) {}
    size_t operator()(std::string_view key) const { return sip_hash(sip_key, key); }
    SipKey sip_key;
  };

  // Returns the entry and makes it the most recently used one; null when there is none.
  Entry* use(std::string_view key);
  // Like use(), but returns null unless the entry has addresses that may still be used.
  Entry* use_stale(std::string_view key, int64_t now_ns);
  void put(Entry&& entry);
  void erase(std::string_view key);

  const Limits limits_;
  Entries entries_;  // most recently used first
  std::unordered_map<std::string_view, Entries::iterator, Hash> names_;
};

}  // namespace workflow

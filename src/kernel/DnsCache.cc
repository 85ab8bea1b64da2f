#include "kernel/DnsCache.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace workflow {

DnsCache::Entry* DnsCache::use(std::string_view key) {
  const auto found = names_.find(key);
  if (found == names_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &*found->second;
}

void DnsCache::erase(std::string_view key) {
  if (const auto found = names_.find(key); found != names_.end()) {
    const auto entry = found->second;
    names_.erase(found);
    entries_.erase(entry);
  }
}

void DnsCache::put(Entry&& entry) {
  erase(entry.key);
  if (limits_.max_names == 0) return;
  if (entries_.size() >= limits_.max_names) {
    erase(std::string(entries_.back().key));
  }
  entries_.push_front(std::move(entry));
  try {
    names_.emplace(entries_.front().key, entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
}

std::optional<DnsCache::Answer> DnsCache::find(std::string_view key, int64_t now_ns) {
  const Entry* entry = use(key);
  if (!entry || entry->fresh_until_ns <= now_ns) return std::nullopt;
  return entry->answer;
}

void DnsCache::store(std::string_view key, HostAddresses addresses, int64_t ttl_ns, int64_t now_ns,
                     int64_t stale_until_ns) {
  const int64_t fresh_until_ns = std::min(
      saturating_add(now_ns, std::clamp<int64_t>(ttl_ns, 0, limits_.ttl_max_ns)), stale_until_ns);
  put({.key = std::string(key),
       .answer = {.error = 0, .addresses = std::move(addresses)},
       .stored_ns = now_ns,
       .fresh_until_ns = fresh_until_ns,
       .stale_until_ns =
           std::min(saturating_add(fresh_until_ns, limits_.stale_ns), stale_until_ns)});
}

void DnsCache::store_missing(std::string_view key, int error, int64_t now_ns) {
  const int64_t fresh_until_ns = saturating_add(now_ns, limits_.negative_ttl_ns);
  put({.key = std::string(key),
       .answer = {.error = error, .addresses = nullptr},
       .stored_ns = now_ns,
       .fresh_until_ns = fresh_until_ns,
       .stale_until_ns = fresh_until_ns});
}

DnsCache::Entry* DnsCache::use_stale(std::string_view key, int64_t now_ns) {
  Entry* entry = use(key);
  return entry && entry->answer.addresses && entry->stale_until_ns > now_ns ? entry : nullptr;
}

std::optional<DnsCache::Stale> DnsCache::find_stale(std::string_view key, int64_t now_ns) {
  const Entry* entry = use_stale(key, now_ns);
  return entry ? std::optional(Stale{entry->answer.addresses, entry->stale_until_ns})
               : std::nullopt;
}

HostAddresses DnsCache::take_stale(std::string_view key, int64_t now_ns) {
  Entry* entry = use_stale(key, now_ns);
  if (!entry) return nullptr;
  const int64_t retry_ns = saturating_add(now_ns, limits_.stale_retry_ns);
  entry->fresh_until_ns =
      std::max(entry->fresh_until_ns, std::min(retry_ns, entry->stale_until_ns));
  return entry->answer.addresses;
}

void DnsCache::forget(std::string_view key, int64_t now_ns) {
  const auto found = names_.find(key);
  if (found == names_.end()) return;
  Entry& entry = *found->second;
  const int64_t earliest_ns = saturating_add(entry.stored_ns, limits_.ttl_min_ns);
  entry.fresh_until_ns = std::min(entry.fresh_until_ns, std::max(earliest_ns, now_ns));
}

void DnsCache::clear() {
  names_.clear();
  entries_.clear();
}

void DnsCache::check_invariants() const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) {
      std::fprintf(stderr, "DnsCache: %s\n", what);
      std::abort();
    }
  };
  require(entries_.size() <= limits_.max_names, "too many names");
  require(entries_.size() == names_.size(), "names and entries differ in number");
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const auto found = names_.find(entry->key);
    require(found != names_.end() && &*found->second == &*entry, "an entry has another's name");
    require(!entry->answer.error == !!entry->answer.addresses, "an answer is neither or both");
    require(entry->fresh_until_ns <= entry->stale_until_ns, "fresh for longer than stale");
  }
}

}  // namespace workflow

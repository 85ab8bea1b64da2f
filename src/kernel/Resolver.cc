#include "kernel/Resolver.h"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace workflow {

namespace {

Resolver::Options& process_resolver_options() {
  static Resolver::Options& options = *new Resolver::Options;  // for ever: threads resolve at exit
  return options;
}

}  // namespace

void Resolver::configure(const Options& options) {
  process_resolver_options() = options;
}

const Resolver::Options& Resolver::configured() {
  return process_resolver_options();
}

Resolver::Resolver(Runtime& runtime, const Options& options)
    : runtime_(runtime),
      poller_(runtime.poller(0)),
      max_asking_(options.max_asking > 0 ? options.max_asking : 1),
      cache_(options.cache),
      files_(options.files) {}

std::string Resolver::key_of(std::string_view lower_case_host, int family) {
  std::string key(1, family == AF_INET ? '4' : family == AF_INET6 ? '6' : '*');
  return key.append(lower_case_host);
}

void Resolver::tell(ResolveRequest* request, const Answer& answer) {
  errno = answer.system_error;
  request->resolved(answer.what.error, answer.what.addresses);
}

void Resolver::tell(ResolveRequestList& requests, const Answer& answer) {
  while (ResolveRequest* request = requests.pop_front()) {
    tell(request, answer);
  }
}

void Resolver::resolve(std::string_view host, int family, ResolveRequest* request) {
  std::optional<Answer> answer;
  try {
    answer = answer_now(host, family, request);
  } catch (const std::bad_alloc&) {
    answer = no(EAI_MEMORY);
  }
  if (answer) {
    tell(request, *answer);
  }
}

std::optional<Resolver::Answer> Resolver::answer_now(std::string_view host, int family,
                                                     ResolveRequest* request) {
  if (family != AF_UNSPEC && family != AF_INET && family != AF_INET6) return no(EAI_FAMILY);
  if (const auto address = numeric_host(host)) {
    if (family != AF_UNSPEC && family != address->family()) return no(EAI_ADDRFAMILY);
    return Answer{{0, std::make_shared<const std::vector<HostAddress>>(1, *address)}};
  }
  if (!is_host_name(host)) return no(EAI_NONAME);
  return join(host, family, request);
}

std::optional<Resolver::Answer> Resolver::join(std::string_view host, int family,
                                               ResolveRequest* request) {
  const std::string name = lower_case(host);
  const std::string key = key_of(name, family);
  const int64_t now_ns = poller_.clock().now_ns();
  DnsLookup* made = nullptr;
  {
    MutexLock lock(mutex_);
    if (runtime_.waits_ended()) return no(EAI_CANCELED);
    if (now_ns < recheck_ns_) {
      if (auto known = cache_.find(key, now_ns)) return Answer{std::move(*known)};
    }
    auto found = lookups_.find(key);
    if (found == lookups_.end()) {
      DnsLookup::Owner& owner = *this;
      auto lookup = std::make_unique<DnsLookup>(poller_, owner, key, name, family);
      made = lookup.get();
      found = lookups_.emplace(key, std::move(lookup)).first;
    }
    found->second->requests.push_back(request);
  }
  // The look-up cannot end before it is posted.
  if (made && !poller_.post(made)) {
    finish(*made, no(EAI_CANCELED));
  }
  return std::nullopt;
}

bool Resolver::cancel(ResolveRequest* request) {
  MutexLock lock(mutex_);
  return ResolveRequestList::remove(request);
}

void Resolver::forget(std::string_view host, int family) {
  try {
    const std::string key = key_of(lower_case(host), family);
    const int64_t now_ns = poller_.clock().now_ns();
    MutexLock lock(mutex_);
    cache_.forget(key, now_ns);
  } catch (const std::bad_alloc&) {
    // Then the addresses stay in the cache for longer.
  }
}

void Resolver::end_waits(Runtime&) {
  ResolveRequestList requests;
  {
    MutexLock lock(mutex_);
    for (const auto& entry : lookups_) {
      requests.take_all(entry.second->requests);
    }
  }
  tell(requests, no(EAI_CANCELED));
}

void Resolver::begin(DnsLookup& lookup) {
  std::optional<Answer> answer;
  try {
    answer = find_here(lookup);
  } catch (const std::bad_alloc&) {
    answer = no(EAI_MEMORY);
  }
  if (answer) {
    finish(lookup, *answer);
    return;
  }
  waiting_.push_back(&lookup);
  start_waiting();
}

std::optional<Resolver::Answer> Resolver::find_here(const DnsLookup& lookup) {
  const int64_t now_ns = poller_.clock().now_ns();
  recheck(now_ns);
  {
    MutexLock lock(mutex_);
    if (auto known = cache_.find(lookup.key(), now_ns)) return Answer{std::move(*known)};
  }
  std::string_view name = lookup.host();
  if (name.ends_with('.')) {
    name.remove_suffix(1);
  }
  std::vector<HostAddress> addresses = files_.hosts().find(name, lookup.family());
  if (addresses.empty()) return std::nullopt;
  sort_by_route(addresses);
  const DnsCache::Answer answer{
      0, std::make_shared<const std::vector<HostAddress>>(std::move(addresses))};
  MutexLock lock(mutex_);
  cache_.store(lookup.key(), answer.addresses, kNever, now_ns);
  return Answer{answer};
}

void Resolver::recheck(int64_t now_ns) {
  {
    MutexLock lock(mutex_);
    if (now_ns < recheck_ns_) return;
  }
  const bool changed = files_.refresh();
  MutexLock lock(mutex_);
  if (changed) {
    cache_.clear();
  }
  recheck_ns_ = saturating_add(now_ns, kRecheckNs);
}

// A look-up may end inside its start(), and end() then calls this function again. The inner call
// returns at once, and the outer call goes on.
void Resolver::start_waiting() {
  if (std::exchange(starting_, true)) return;
  while (asking_ < max_asking_) {
    Runnable* const next = waiting_.pop_front();
    if (!next) break;
    auto& lookup = *static_cast<DnsLookup*>(next);
    if (drop_unwanted(lookup)) continue;
    asking_++;
    lookup.start(files_.conf(), files_.conf()->rotate ? turn_++ : 0);
  }
  starting_ = false;
}

bool Resolver::drop_unwanted(DnsLookup& lookup) {
  MutexLock lock(mutex_);
  if (!lookup.requests.empty()) return false;
  lookups_.erase(lookups_.find(lookup.key()));
  return true;
}

void Resolver::end(DnsLookup& lookup, DnsAnswer result) noexcept {
  const Answer answer = keep(lookup, result);
  asking_--;
  finish(lookup, answer);
  start_waiting();
}

int64_t Resolver::add_stale(const DnsLookup& lookup, std::vector<HostAddress>& addresses,
                            int64_t now_ns) {
  if (!lookup.is_open(AF_INET) && !lookup.is_open(AF_INET6)) return kNever;
  std::optional<DnsCache::Stale> stale;
  {
    MutexLock lock(mutex_);
    stale = cache_.find_stale(lookup.key(), now_ns);
  }
  if (!stale) return kNever;
  const size_t found = addresses.size();
  std::copy_if(stale->addresses->begin(), stale->addresses->end(), std::back_inserter(addresses),
               [&](const HostAddress& address) { return lookup.is_open(address.family()); });
  return addresses.size() > found ? stale->until_ns : kNever;
}

Resolver::Answer Resolver::keep(const DnsLookup& lookup, DnsAnswer& result) {
  const int64_t now_ns = poller_.clock().now_ns();
  // Whether the answer is from other servers than those that would be asked now.
  const bool outdated = lookup.conf() != files_.conf().get();
  // If the poller has not stopped, it has refused the timer because memory has run out.
  if (result.error == EAI_CANCELED && !runtime_.stopping()) {
    result.error = EAI_MEMORY;
  }
  Answer answer{{result.error, nullptr}, result.system_error};
  int64_t stale_until_ns = kNever;
  try {
    if (result.error == 0) {
      stale_until_ns = add_stale(lookup, result.addresses, now_ns);
      sort_by_route(result.addresses);
      answer.what.addresses =
          std::make_shared<const std::vector<HostAddress>>(std::move(result.addresses));
    }
  } catch (const std::bad_alloc&) {
    return no(EAI_MEMORY);
  }
  if (outdated || result.error == EAI_CANCELED) return answer;
  MutexLock lock(mutex_);
  try {
    if (result.error == 0) {
      cache_.store(lookup.key(), answer.what.addresses, result.ttl_ns, now_ns, stale_until_ns);
    } else if (result.error == EAI_NONAME || result.error == EAI_NODATA) {
      cache_.store_missing(lookup.key(), result.error, now_ns);
    } else if (HostAddresses stale = cache_.take_stale(lookup.key(), now_ns)) {
      return {{0, std::move(stale)}};
    }
  } catch (const std::bad_alloc&) {
    // Not remembered.
  }
  return answer;
}

void Resolver::finish(DnsLookup& lookup, const Answer& answer) {
  std::unique_ptr<DnsLookup> ended;
  ResolveRequestList requests;
  {
    MutexLock lock(mutex_);
    const auto found = lookups_.find(lookup.key());
    ended = std::move(found->second);
    lookups_.erase(found);
    requests.take_all(ended->requests);
  }
  ended.reset();  // closes its sockets before other code runs
  tell(requests, answer);
}

}  // namespace workflow

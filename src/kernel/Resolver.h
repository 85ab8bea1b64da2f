#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernel/DnsCache.h"
#include "kernel/DnsLookup.h"
#include "kernel/ResolveRequest.h"
#include "kernel/ResolverFiles.h"
#include "kernel/Runtime.h"
#include "util/Mutex.h"

namespace workflow {

// Finds the addresses of hosts, without ever blocking the thread that asks.
//
// It looks in this order: `host` itself (a numeric address is its own answer; a text that cannot be
// a name gives EAI_NONAME); the cache; localhost and the hosts file; the name servers of
// resolv.conf. Names are not case-sensitive. AF_UNSPEC asks for both families, and puts the family
// first that the machine prefers (sort_by_route).
//
// A part of its runtime. Thread-safe. Its sockets and time limits are on one poller. Only that
// poller's thread uses c-ares and looks at the two files. It checks the files at most once in
// kRecheckNs: the first resolve() after that time goes to the poller's thread even if the answer is
// cached. When a file has changed the cache is cleared.
//
// Nothing is called, posted or waited for under mutex_.
//
// Invariants:
// 1. A request is in the list of one look-up, or in none. The thread that removes it, under mutex_,
//    calls resolved() or has cancelled it.
// 2. A look-up is in lookups_ from its creation until its end, which removes all its requests.
//    There is at most one for each (host, family).
// 3. Once the runtime's waits have ended no request is in any list.
// 4. At most max_asking look-ups have sockets (each may have two to each server). The others wait
//    in a queue, so that many names at once do not use up the process's descriptors.
class Resolver final : public RuntimePart, private DnsLookup::Owner {
 public:
  static constexpr int64_t kRecheckNs = kNsPerSec;

  struct Options {
    ResolverFiles::Options files = {};
    DnsCache::Limits cache = {};
    size_t max_asking = 64;
  };

  // Sets the options of resolvers that are created from now on. To be called before the library's
  // first use, like Runtime::configure().
  static void configure(const Options& options);

  Resolver() : Resolver(Runtime::current(), configured()) {}
  Resolver(Runtime& runtime, const Options& options);
  ~Resolver() override = default;
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Any thread. `family` is AF_UNSPEC, AF_INET or AF_INET6. resolved() is called once, perhaps
  // before this returns.
  void resolve(std::string_view host, int family, ResolveRequest* request);

  // Any thread. Returns true if the request was waiting: resolved() will not be called. Returns
  // false if resolved() was called or is about to be called; the caller must know that the request
  // is alive. A query that was sent goes on, because its answer is useful for the cache.
  bool cancel(ResolveRequest* request);

  // Any thread. To be called when none of the host's addresses could be reached. The next resolve()
  // asks the servers again, if the addresses are at least ttl_min_ns old.
  void forget(std::string_view host, int family);

  // RuntimePart
  void end_waits(Runtime& runtime) override;

 private:
  struct Answer {
    DnsCache::Answer what;
    int system_error = 0;
  };

  static const Options& configured();
  static std::string key_of(std::string_view lower_case_host, int family);
  static Answer no(int error) { return {{error, nullptr}}; }
  static void tell(ResolveRequest* request, const Answer& answer);
  static void tell(ResolveRequestList& requests, const Answer& answer);

  // The answer, if there is no need to wait.
  std::optional<Answer> answer_now(std::string_view host, int family, ResolveRequest* request);
  std::optional<Answer> join(std::string_view host, int family, ResolveRequest* request);

  // On the poller's thread:
  void begin(DnsLookup& lookup) override;
  void end(DnsLookup& lookup, DnsAnswer result) noexcept override;
  // The answer, if it is known without asking a server.
  std::optional<Answer> find_here(const DnsLookup& lookup);
  void recheck(int64_t now_ns);
  void start_waiting();
  // Destroys a look-up that has not started if no request waits for it any more. Returns whether it
  // did.
  bool drop_unwanted(DnsLookup& lookup);
  // If the addresses of one family could not be found out, adds the stale ones from the cache that
  // may still be used to those of the other family. Returns the time until which all of them
  // together may be used. May throw std::bad_alloc.
  int64_t add_stale(const DnsLookup& lookup, std::vector<HostAddress>& addresses, int64_t now_ns);
  // Stores the result in the cache, and returns the answer for the waiting requests.
  Answer keep(const DnsLookup& lookup, DnsAnswer& result);

  // Destroys the look-up and calls resolved() on its requests. Any thread, if no other thread uses
  // the look-up.
  void finish(DnsLookup& lookup, const Answer& answer);

  Runtime& runtime_;
  Poller& poller_;
  const size_t max_asking_;

  Mutex mutex_;
  DnsCache cache_ WF_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::unique_ptr<DnsLookup>> lookups_ WF_GUARDED_BY(mutex_);
  int64_t recheck_ns_ WF_GUARDED_BY(mutex_) = 0;  // when to check the files again

  // Called on the poller's thread only.
  ResolverFiles files_;
  RunnableList waiting_;  // DnsLookups
  size_t asking_ = 0;
  bool starting_ = false;
  size_t turn_ = 0;  // the next look-up's first server, if resolv.conf says rotate
};

}  // namespace workflow

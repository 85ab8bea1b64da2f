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

// Finds the addresses of hosts, without ever blocking who asks.
//
// In this order: what `host` says by itself (numeric addresses; what cannot be a name is
// EAI_NONAME); what is remembered; localhost and the hosts file; the name servers of resolv.conf.
// Names are the same in any case of letters. AF_UNSPEC asks for both families, and puts the one
// first that the machine prefers (order_by_route).
//
// A part of its runtime. Thread-safe. Its sockets and time limits are on one poller, whose thread
// alone uses c-ares, and looks at the two files, at most once in kRecheckNs: the first resolve()
// after that goes there even if the answer is known. When a file has changed all is forgotten.
//
// D is mutex_. Nothing is called, posted or waited for under D.
//
// Invariants:
// 1. A request is in the list of one look-up, or nowhere. Who takes it out, under D, tells it or
//    has cancelled it.
// 2. A look-up is in lookups_ from its making until its end, which takes all its requests with it.
//    There is at most one of a (host, family).
// 3. Once the runtime's waits have ended no request is in any list.
// 4. At most max_asking look-ups have sockets (two each, for a moment). The others wait in line, so
//    that a crowd of names does not use up the process's descriptors.
class Resolver final : public RuntimePart, private DnsLookup::Owner {
 public:
  static constexpr int64_t kRecheckNs = kNsPerSec;

  struct Options {
    ResolverFiles::Options files = {};
    DnsCache::Limits cache = {};
    size_t max_asking = 64;
  };

  // How the resolvers made from now on work. Before the library's first use, like
  // Runtime::configure().
  static void configure(const Options& options);

  Resolver() : Resolver(Runtime::current(), configured()) {}
  Resolver(Runtime& runtime, const Options& options);
  ~Resolver() override = default;
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Any thread. `family` is AF_UNSPEC, AF_INET or AF_INET6. The request is told once, perhaps
  // before this returns.
  void resolve(std::string_view host, int family, ResolveRequest* request);

  // Any thread. True: the request was waiting, and will not be told. False: it was told, or is
  // about to be; the caller knows that it is alive. What is being asked for is asked on: the answer
  // will be wanted.
  bool cancel(ResolveRequest* request);

  // Any thread. None of the host's addresses could be reached: asks again the next time, if they
  // are at least ttl_min_ns old.
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
  static void tell(ResolveRequestList requests, const Answer& answer);

  // The answer, if there is no need to wait.
  std::optional<Answer> answer_now(std::string_view host, int family, ResolveRequest* request);
  std::optional<Answer> join(std::string_view host, int family, ResolveRequest* request);

  // On the poller's thread:
  void begin(DnsLookup& lookup) override;
  void end(DnsLookup& lookup, DnsAnswer result) noexcept override;
  // What is known without asking a server.
  std::optional<Answer> find_here(const DnsLookup& lookup);
  void recheck(int64_t now_ns);
  void start_waiting();
  // Destroys a look-up that has not started if nobody waits for it any more.
  bool drop_unwanted(DnsLookup& lookup);
  // Adds what was known, and may still be given out, of a family that could not be found out, to
  // the addresses of the other. Returns until when the whole may be given out. May throw
  // std::bad_alloc.
  int64_t add_stale(const DnsLookup& lookup, std::vector<HostAddress>& addresses, int64_t now_ns);
  // What the result means for those who wait, and for the cache.
  Answer keep(const DnsLookup& lookup, DnsAnswer& result);

  // Destroys the look-up and tells its requests. Any thread, if nobody else knows it.
  void finish(DnsLookup& lookup, const Answer& answer);

  Runtime& runtime_;
  Poller& poller_;
  const size_t max_asking_;

  Mutex mutex_;  // D
  DnsCache cache_ WF_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::unique_ptr<DnsLookup>> lookups_ WF_GUARDED_BY(mutex_);
  int64_t recheck_ns_ WF_GUARDED_BY(mutex_) = 0;  // from then on the files may have changed

  // The poller's thread only.
  ResolverFiles files_;
  RunnableList waiting_;  // DnsLookups
  size_t asking_ = 0;
  bool starting_ = false;
  size_t turn_ = 0;  // of servers, where they take turns
};

}  // namespace workflow

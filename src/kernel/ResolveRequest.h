#pragma once

#include "kernel/HostAddress.h"

namespace workflow {

class DnsLookup;

// Somebody who wants to know a host's addresses. Its owner keeps it alive until resolved() is
// called or Resolver::cancel() has answered true; it may then be used again.
class ResolveRequest {
 public:
  // `error` is 0 and `addresses` is not empty, or `error` is one of netdb.h's and `addresses` null:
  //   EAI_NONAME    there is no such name, or no name looks like that
  //   EAI_NODATA    the name has no address of the family
  //   EAI_ADDRFAMILY, EAI_FAMILY   the host is an address of another family; no such family
  //   EAI_AGAIN     no server answered, or could find out; a later try may succeed
  //   EAI_FAIL      the servers refuse, or do not speak so that it is understood
  //   EAI_MEMORY, EAI_SYSTEM (see errno)   the process is short of memory, of descriptors
  //   EAI_CANCELED  the runtime stops
  // Called exactly once, with no lock held: on the resolver's poller's thread, by the thread that
  // stops the runtime, or inside Resolver::resolve(). Returns soon, as others wait
  // for that thread. May delete this.
  virtual void resolved(int error, HostAddresses addresses) = 0;

 protected:
  ResolveRequest() = default;
  ~ResolveRequest() = default;

 private:
  friend class ResolveRequestList;
  ResolveRequest* previous_ = nullptr;
  ResolveRequest* next_ = nullptr;
  DnsLookup* lookup_ = nullptr;  // whose end it waits for; guarded by the resolver's mutex
};

// The requests that wait for one look-up. Owns none of them. Guarded by the resolver's mutex, but
// once it is taken off its look-up.
class ResolveRequestList {
 public:
  ResolveRequestList() = default;
  ResolveRequestList(ResolveRequestList&& other) noexcept { append(other); }
  ResolveRequestList(const ResolveRequestList&) = delete;
  ResolveRequestList& operator=(const ResolveRequestList&) = delete;

  static DnsLookup* lookup_of(const ResolveRequest* request) { return request->lookup_; }

  bool empty() const { return !head_; }
  void push_back(ResolveRequest* request, DnsLookup* lookup);
  void erase(ResolveRequest* request);
  // Of a list that take_all() has returned: who cancels looks at such a request at the same time.
  ResolveRequest* pop_front();
  void append(ResolveRequestList& other);

  // All of them wait for nothing any more: the caller tells them.
  ResolveRequestList take_all();

 private:
  ResolveRequest* head_ = nullptr;
  ResolveRequest* tail_ = nullptr;
};

}  // namespace workflow

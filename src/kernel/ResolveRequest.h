#pragma once

#include "kernel/HostAddress.h"

namespace workflow {

class DnsLookup;

// A request for a host's addresses. Its owner keeps it alive until resolved() is called or
// Resolver::cancel() has returned true. It may then be used again.
class ResolveRequest {
 public:
  // Either `error` is 0 and `addresses` is not empty, or `addresses` is null and `error` is one of
  // these values of netdb.h:
  //   EAI_NONAME    the name does not exist, or the text cannot be a name
  //   EAI_NODATA    the name has no address of the family
  //   EAI_ADDRFAMILY   the host is a numeric address of another family
  //   EAI_FAMILY    the family is not supported
  //   EAI_AGAIN     no server answered, or none could find out; a later try may succeed
  //   EAI_FAIL      the servers refuse, or their messages are broken
  //   EAI_MEMORY, EAI_SYSTEM (see errno)   the process is short of memory or descriptors
  //   EAI_CANCELED  the runtime stops
  // Called exactly once unless the request is cancelled, with no lock held: on the resolver's
  // poller's thread, by the thread that stops the runtime, or inside Resolver::resolve(). Must
  // return soon, because other work waits for that thread. May delete this.
  virtual void resolved(int error, HostAddresses addresses) = 0;

 protected:
  ResolveRequest() = default;
  ~ResolveRequest() = default;

 private:
  friend class ResolveRequestList;
  ResolveRequest* previous_ = nullptr;
  ResolveRequest* next_ = nullptr;
  DnsLookup* lookup_ = nullptr;  // the look-up whose end it waits for; guarded by the resolver's
                                 // mutex
};

// The requests that wait for one look-up. Owns none of them. Guarded by the resolver's mutex until
// it is taken off its look-up.
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
  // Only for a list that take_all() has returned. Resolver::cancel() may read a request of such a
  // list at the same time.
  ResolveRequest* pop_front();
  void append(ResolveRequestList& other);

  // Takes all requests off their look-up. The caller must call resolved() on each of them.
  ResolveRequestList take_all();

 private:
  ResolveRequest* head_ = nullptr;
  ResolveRequest* tail_ = nullptr;
};

}  // namespace workflow

#pragma once

#include <utility>

#include "kernel/HostAddress.h"

namespace workflow {

class ResolveRequestList;

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
  //   EAI_AGAIN     no server answered, could find out or was willing to; a later try may succeed
  //   EAI_FAIL      the messages of the servers are broken
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
  ResolveRequestList* waits_in_ = nullptr;  // guarded by the resolver's mutex
};

// Requests that wait for one look-up, or that have been taken off their look-ups so that resolved()
// can be called on each. Owns none of them. The list of a look-up is guarded by the resolver's
// mutex.
class ResolveRequestList {
 public:
  ResolveRequestList() = default;
  ResolveRequestList(const ResolveRequestList&) = delete;
  ResolveRequestList& operator=(const ResolveRequestList&) = delete;

  bool empty() const { return !head_; }

  void push_back(ResolveRequest* request) {
    request->waits_in_ = this;
    link(request);
  }

  // Removes the request from the list of the look-up for which it waits. Returns false if it does
  // not wait.
  static bool remove(ResolveRequest* request) {
    ResolveRequestList* const list = std::exchange(request->waits_in_, nullptr);
    if (list) {
      (request->previous_ ? request->previous_->next_ : list->head_) = request->next_;
      (request->next_ ? request->next_->previous_ : list->tail_) = request->previous_;
    }
    return list;
  }

  // Moves the requests of a look-up behind those of this list. They no longer wait, and the caller
  // must call resolved() on each of them.
  void take_all(ResolveRequestList& waiting) {
    while (ResolveRequest* const request = waiting.pop_front()) {
      request->waits_in_ = nullptr;
      link(request);
    }
  }

  // Null if the list is empty. Resolver::cancel() may look at a request that was taken off its
  // look-up at the same time.
  ResolveRequest* pop_front() {
    ResolveRequest* const first = head_;
    if (first) {
      head_ = first->next_;
      (head_ ? head_->previous_ : tail_) = nullptr;
    }
    return first;
  }

 private:
  void link(ResolveRequest* request) {
    request->next_ = nullptr;
    request->previous_ = tail_;
    (tail_ ? tail_->next_ : head_) = request;
    tail_ = request;
  }

  ResolveRequest* head_ = nullptr;
  ResolveRequest* tail_ = nullptr;
};

}  // namespace workflow

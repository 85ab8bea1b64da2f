#include "kernel/ResolveRequest.h"

#include <utility>

namespace workflow {

void ResolveRequestList::push_back(ResolveRequest* request, DnsLookup* lookup) {
  request->lookup_ = lookup;
  request->next_ = nullptr;
  request->previous_ = tail_;
  (tail_ ? tail_->next_ : head_) = request;
  tail_ = request;
}

void ResolveRequestList::erase(ResolveRequest* request) {
  (request->previous_ ? request->previous_->next_ : head_) = request->next_;
  (request->next_ ? request->next_->previous_ : tail_) = request->previous_;
  request->lookup_ = nullptr;
}

ResolveRequest* ResolveRequestList::pop_front() {
  ResolveRequest* const first = head_;
  if (first) {
    head_ = first->next_;
    (head_ ? head_->previous_ : tail_) = nullptr;
  }
  return first;
}

void ResolveRequestList::append(ResolveRequestList& other) {
  if (other.empty()) {
    return;
  }
  other.head_->previous_ = tail_;
  (tail_ ? tail_->next_ : head_) = other.head_;
  tail_ = std::exchange(other.tail_, nullptr);
  other.head_ = nullptr;
}

ResolveRequestList ResolveRequestList::take_all() {
  for (ResolveRequest* request = head_; request; request = request->next_) {
    request->lookup_ = nullptr;
  }
  return std::move(*this);
}

}  // namespace workflow

#pragma once

#include <cstddef>

namespace workflow {

class ClientSession;

// A session's place in the queue for a connection. It is in one queue at most.
class SessionPlace {
 public:
  SessionPlace(ClientSession* who, bool wants_fresh) : session(who), fresh(wants_fresh) {}
  SessionPlace(const SessionPlace&) = delete;
  SessionPlace& operator=(const SessionPlace&) = delete;

  ClientSession* const session;
  const bool fresh;  // only a new connection will do

 private:
  friend class SessionQueue;
  SessionPlace* previous_ = nullptr;
  SessionPlace* next_ = nullptr;
  bool queued_ = false;
  bool promised_ = false;
};

// The sessions that wait for a connection of an endpoint, in the order in which they came. Some of
// them are promised a new connection: a connection that closes makes room for it. Owns none of the
// sessions. Not thread-safe. The two searches pass at most the promised sessions, or those before
// the first promised one.
class SessionQueue {
 public:
  bool empty() const { return !head_; }
  size_t promised() const { return promised_; }

  void push_back(SessionPlace* place) {
    place->queued_ = true;
    place->previous_ = tail_;
    (tail_ ? tail_->next_ : head_) = place;
    tail_ = place;
  }

  // For a session that was the first, and has not got the connection for which it was taken out.
  void push_front(SessionPlace* place) {
    place->queued_ = true;
    place->next_ = head_;
    (head_ ? head_->previous_ : tail_) = place;
    head_ = place;
  }

  // Returns false if the place is not in the queue any more.
  bool erase(SessionPlace* place) {
    if (!place->queued_) return false;
    (place->previous_ ? place->previous_->next_ : head_) = place->next_;
    (place->next_ ? place->next_->previous_ : tail_) = place->previous_;
    place->queued_ = false;
    promised_ -= place->promised_ ? 1 : 0;
    return true;
  }

  void promise(SessionPlace* place) {
    place->promised_ = true;
    promised_++;
  }

  // Whose turn it is when there is room for a new connection, or null.
  SessionPlace* next_for_new() const {
    SessionPlace* place = head_;
    while (promised_ > 0 && place && !place->promised_) {
      place = place->next_;
    }
    return place;
  }
  // Whose turn it is when a connection is returned, or null.
  SessionPlace* first_unpromised() const {
    SessionPlace* place = head_;
    while (place && place->promised_) {
      place = place->next_;
    }
    return place;
  }

 private:
  SessionPlace* head_ = nullptr;
  SessionPlace* tail_ = nullptr;
  size_t promised_ = 0;
};

}  // namespace workflow

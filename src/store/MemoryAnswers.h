#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "store/StoreRequest.h"

namespace workflow {

// The answers that a store in memory remembers by the ids of their requests (rule 12 of
// StoreBackend).
//
// Not thread-safe.
//
// Invariants:
// 1. For each session, the answers to the last `remembered` requests are here, in the order in
//    which the requests were carried out or asked for.
// 2. An id that was forgotten is not greater than `newest_forgotten` of its session. Once a session
//    was dropped (sessions_dropped_), this includes all ids before the first one that a new session
//    is created with, because that may be the session that was dropped.
// 3. There are at most kMaxSessions sessions: those that were used last.
class MemoryAnswers {
 public:
  // If the request has an id that was answered or asked for before, gives it that answer and
  // returns true.
  bool repeat(StoreRequest& request) const;
  // Remembers the answer to a request that was carried out. No effect if the request has no id.
  void remember(const StoreRequest& request, size_t remembered);
  // Answers the question for an earlier request. Uses up the id if it is not known.
  void ask(AskRequest& ask, StoreFailure& failure, size_t remembered);

 private:
  static constexpr size_t kMaxSessions = 1000;

  struct Session {
    std::unordered_map<uint64_t, StoreRequest> answers;  // by number
    std::deque<uint64_t> order;
    uint64_t newest_forgotten = 0;
    uint64_t used = 0;
  };

  static bool is_remembered(const StoreRequest& request);
  static StoreRequest used_up(const WFStoreRequestId& id);
  // The session of a request. Creates it if there is none, and drops another one if there are too
  // many.
  Session& session(const WFStoreRequestId& request);
  static void insert(Session& session, StoreRequest request, size_t remembered);

  std::unordered_map<uint64_t, Session> sessions_;
  uint64_t uses_ = 0;
  bool sessions_dropped_ = false;
};

}  // namespace workflow

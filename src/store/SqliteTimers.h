#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/SqliteEnded.h"
#include "store/SqliteKinds.h"
#include "store/SqliteMeta.h"
#include "store/SqliteSchema.h"
#include "store/SqliteStatement.h"
#include "store/StoreRequest.h"

namespace workflow {

// The rules of StoreBackend.h over the table `timers`.
//
// Each carry_out() is called in a transaction, by one thread at a time, and fills in the answer of
// a request as it is at `now_us`. After an error of the connection the answers are worthless, and
// the transaction has to be undone. A request that fails by the rules has changed nothing.
//
// Where StoreBackend.h leaves a choice:
// 1. Whether a timer is fresh or overdue, and counts as overdue in a LookRequest, is decided by
//    the time from which it may be claimed, which is the end of the last lease for one that was
//    lost.
// 2. ClaimRequest::next_us is the earliest such time in the future; `more` tells of what is due
//    already.
// 3. A retry keeps the time at which the timer is due: it says for which date the run is.
// 4. A marked timer ends as its run says (kDone, kMissed, kFailed).
// 5. A reschedule of a marked timer whose lease is over takes the mark away.
// 6. A timer that fails while it has a next date recurs no more: its dates belong to the timer that
//    goes on.
class SqliteTimers {
 public:
  SqliteTimers(SqliteConnection& connection, SqliteMeta& meta, size_t remembered)
      : connection_(connection), meta_(meta), ended_(connection, meta, remembered) {}

  void carry_out(ScheduleRequest& request, StoreFailure& failure, int64_t now_us);
  void carry_out(CancelRequest& request, int64_t now_us);
  void carry_out(RescheduleRequest& request, int64_t now_us);
  void carry_out(ClaimRequest& request, int64_t now_us);
  void carry_out(FinishRequest& request, int64_t now_us);
  void carry_out(ExtendRequest& request, int64_t now_us);
  void carry_out(CountRequest& request);
  void carry_out(ListRequest& request, int64_t now_us);
  void carry_out(FailedRequest& request, int64_t now_us);
  // Counts one by one, but for `stored`.
  void carry_out(LookRequest& request, int64_t now_us);

  // What other processes should learn after the commit: that a timer is due soon, or that a running
  // one was cancelled. begin() sets both back.
  bool has_news() const { return has_news_; }
  void begin() {
    has_news_ = false;
    any_follow_.reset();
    ended_.begin();
  }
  // Before the commit of a transaction that has changed something.
  void save() { ended_.prune(); }
  // To be called when a transaction was undone.
  void forget() { kinds_.forget(); }

 private:
  // A timer that is due this much later, or earlier, is news.
  static constexpr int64_t kSoonUs = 1'100'000;

  struct Found {
    uint64_t id;
    SqliteSchema::State state;
    int64_t wake_us;
    uint64_t fence;
    std::string owner;
    unsigned attempts;

    bool running(int64_t now_us) const {
      return state == SqliteSchema::kLeased && wake_us > now_us;
    }
  };
  struct Run {
    std::string name;
    unsigned attempts;
    bool marked;
    bool blocks;
  };

  // A timer that is blocked by another one; the id is 0 if there is none.
  struct Follower {
    uint64_t id = 0;
    int64_t due_us = 0;
  };

  std::vector<Found> find(const std::string& name, SqliteSchema::State below, size_t max);
  bool exists(const std::string& name);
  WFStoreAnswer answer(const Found& timer, WFStoreVerdict verdict, int64_t now_us) const;
  bool find_run(const RunId& run, int64_t now_us, Run& found);
  void insert(const ScheduleRequest& request, uint64_t follows, int64_t now_us);
  // A new timer like `id`.
  void copy(uint64_t id, const RescheduleRequest* request, SqliteSchema::State state,
            int64_t due_us);
  void replace(const ScheduleRequest& request, std::vector<WFStoreAnswer>& answers,
               uint64_t& follows, int64_t now_us);
  void add_successor(const Found& timer, const RescheduleRequest& request);
  void end(uint64_t id, const std::string& name, unsigned attempts, WFStoreOutcome outcome,
           int64_t now_us);
  // Ends a timer by its run, which knows whether it blocks another timer.
  void end_run(uint64_t id, const Run& run, WFStoreOutcome outcome, int64_t now_us);
  // The timer that `id` blocks.
  Follower follower(uint64_t id);
  // It waits from now on.
  void release(uint64_t id, int64_t now_us);
  void fail(const FinishRequest& request, const Run& run, int64_t now_us);
  void end_marked(int64_t now_us);
  void claim(const ClaimRequest::Kind& kind, ClaimRequest& request, int64_t now_us);
  void claim_rows(SqliteCursor& rows, const std::string& kind, ClaimRequest& request);
  void lease(std::vector<ClaimRequest::Claimed>::iterator begin, ClaimRequest& request,
             int64_t now_us);
  void list(SqliteCursor& rows, ListRequest& request, int64_t now_us);
  // How many of the kind may be claimed from `from_us` on, and before `before_us`.
  uint64_t count_due(int64_t kind, int64_t from_us, int64_t before_us, LookRequest& request);
  // The first kind after that one of which there are timers that wait or run; 0 if there is none.
  int64_t next_kind(int64_t after);
  void tell(int64_t due_us, int64_t now_us);

  SqliteConnection& connection_;
  SqliteMeta& meta_;
  SqliteEnded ended_;
  SqliteKinds kinds_{connection_};
  bool has_news_ = false;
  // Whether there may be blocked timers; not known until this transaction has looked. Mostly there
  // are none, and no timer needs to be asked whom it blocks.
  std::optional<bool> any_follow_;

  SqliteStatement find_{connection_,
                        "SELECT id, state, wake, fence, owner, attempts"
                        " FROM timers INDEXED BY timers_name"
                        " WHERE name = ? AND state < ? ORDER BY id LIMIT ?"};
  SqliteStatement exists_{connection_,
                          "SELECT 1 FROM timers INDEXED BY timers_name"
                          " WHERE name = ? AND state < 3 LIMIT 1"};
  SqliteStatement insert_{
      connection_,
      "INSERT INTO timers(id, name, kind, wake, due, state, fence, owner, attempts, skip_after,"
      " repeat, marked, follows, reason, payload)"
      " VALUES(?1, ?2, ?3, iif(?5 = 0, ?4, NULL), ?4, ?5, ?6, NULL, 0, ?7, ?8, 0,"
      " nullif(?9, 0), NULL, ?10)"};
  SqliteStatement copy_{
      connection_,
      "INSERT INTO timers(id, name, kind, wake, due, state, fence, owner, attempts, skip_after,"
      " repeat, marked, follows, reason, payload)"
      " SELECT ?2, name, kind, iif(?4 = 0, ?3, NULL), ?3, ?4, ?5, NULL, 0, skip_after,"
      " iif(?6, ?7, repeat), 0, iif(?4 = 0, NULL, id), NULL, payload FROM timers WHERE id = ?1"};
  SqliteStatement remove_{connection_, "DELETE FROM timers WHERE id = ?"};
  SqliteStatement mark_{connection_, "UPDATE timers SET marked = 1 WHERE id = ?"};
  SqliteStatement follower_{connection_,
                            "SELECT id, due FROM timers INDEXED BY timers_follows"
                            " WHERE follows = ?"};
  SqliteStatement any_follows_{connection_,
                               "SELECT 1 FROM timers INDEXED BY timers_follows"
                               " WHERE follows IS NOT NULL LIMIT 1"};
  SqliteStatement release_{connection_,
                           "UPDATE timers SET state = 0, wake = due, follows = NULL WHERE id = ?"};
  // Makes a timer wait until its new due time.
  SqliteStatement move_{connection_,
                        "UPDATE timers SET state = 0, wake = ?2, due = ?2, fence = ?3,"
                        " owner = NULL, marked = 0, attempts = ?4,"
                        " repeat = iif(?5, ?6, repeat), reason = NULL WHERE id = ?1"};
  // Makes a timer wait for its next attempt.
  SqliteStatement retry_{connection_,
                         "UPDATE timers SET state = 0, wake = ?2, fence = ?3, owner = NULL"
                         " WHERE id = ?1"};
  SqliteStatement move_blocked_{connection_,
                                "UPDATE timers SET due = ?2, fence = ?3,"
                                " repeat = iif(?4, ?5, repeat) WHERE id = ?1"};
  SqliteStatement run_{connection_,
                       "SELECT state, fence, wake, marked, attempts, name FROM timers"
                       " WHERE id = ?"};
  SqliteStatement fail_{connection_,
                        "UPDATE timers SET state = 3, wake = NULL, owner = NULL, marked = 0,"
                        " reason = ?2, repeat = iif(?3, NULL, repeat) WHERE id = ?1"};
  SqliteStatement extend_{connection_, "UPDATE timers SET wake = ?2 WHERE id = ?1"};
  SqliteStatement marked_{connection_,
                          "SELECT id, name, attempts FROM timers INDEXED BY timers_marked"
                          " WHERE marked = 1 AND wake <= ? ORDER BY wake, id"};
  SqliteStatement fresh_{connection_,
                         "SELECT id, name, wake, due, attempts, skip_after, repeat, payload"
                         " FROM timers INDEXED BY timers_wake"
                         " WHERE kind = ? AND wake >= ? AND wake <= ? ORDER BY wake, id LIMIT ?"};
  SqliteStatement overdue_{connection_,
                           "SELECT id, name, wake, due, attempts, skip_after, repeat, payload"
                           " FROM timers INDEXED BY timers_wake"
                           " WHERE kind = ? AND wake < ? ORDER BY wake, id LIMIT ?"};
  SqliteStatement lease_{connection_,
                         "UPDATE timers SET state = 1, wake = ?2, fence = ?3, owner = ?4,"
                         " attempts = ?5 WHERE id = ?1"};
  SqliteStatement due_{connection_,
                       "SELECT 1 FROM timers INDEXED BY timers_wake"
                       " WHERE kind = ? AND wake <= ? LIMIT 1"};
  SqliteStatement next_{connection_,
                        "SELECT wake FROM timers INDEXED BY timers_wake"
                        " WHERE kind = ? AND wake > ? ORDER BY wake LIMIT 1"};
  SqliteStatement count_{connection_,
                         "SELECT count(*) FROM timers INDEXED BY timers_name"
                         " WHERE name >= ? AND name < ?"};
  // The next kind of which there are timers that wait or run.
  SqliteStatement next_kind_{connection_,
                             "SELECT kind FROM timers INDEXED BY timers_wake"
                             " WHERE kind > ? AND wake IS NOT NULL ORDER BY kind LIMIT 1"};
  SqliteStatement count_due_{
      connection_,
      "SELECT count(*) FROM (SELECT 1 FROM timers"
      " INDEXED BY timers_wake WHERE kind = ? AND wake >= ? AND wake < ? LIMIT ?)"};
  // It does without the index where that could not be made.
  SqliteStatement count_leased_{connection_,
                                "SELECT count(*) FROM timers WHERE state = 1 AND wake > ?"};
  SqliteStatement list_name_{
      connection_,
      "SELECT id, name, kind, payload, due, state, attempts, owner, reason, wake"
      " FROM timers INDEXED BY timers_name"
      " WHERE name = ? AND id > ? ORDER BY id LIMIT ?"};
  SqliteStatement list_{connection_,
                        "SELECT id, name, kind, payload, due, state, attempts, owner, reason, wake"
                        " FROM timers INDEXED BY timers_name"
                        " WHERE name >= ? AND name < ? ORDER BY name, id LIMIT ?"};
  SqliteStatement list_failed_name_{
      connection_,
      "SELECT id, name, kind, payload, due, state, attempts, owner, reason, wake"
      " FROM timers INDEXED BY timers_failed"
      " WHERE state = 3 AND name = ? AND id > ?"
      " ORDER BY id LIMIT ?"};
  SqliteStatement list_failed_{
      connection_,
      "SELECT id, name, kind, payload, due, state, attempts, owner, reason, wake"
      " FROM timers INDEXED BY timers_failed"
      " WHERE state = 3 AND name >= ? AND name < ?"
      " ORDER BY name, id LIMIT ?"};
  SqliteStatement failed_{connection_,
                          "SELECT id FROM timers INDEXED BY timers_failed"
                          " WHERE state = 3 AND name = ?"};
  SqliteStatement count_failed_{
      connection_,
      "SELECT count(*) FROM (SELECT 1 FROM timers"
      " INDEXED BY timers_failed WHERE state = 3 AND name >= x'' LIMIT ?)"};
};

}  // namespace workflow

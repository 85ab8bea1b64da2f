#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "store/SqliteMeta.h"
#include "store/SqliteStatement.h"
#include "store/StoreAnswers.h"
#include "store/StoreRequest.h"

namespace workflow {

// The answers to requests with an id: the tables `sessions` and `answers` (rule 12 of
// StoreBackend.h).
//
// All functions are called in a transaction, by one thread at a time.
//
// Invariants:
// 1. A session has at most `remembered` rows, those with the largest numbers, when a transaction
//    ends and when an old number is looked up. Rows up to `forgotten` may have been deleted, those
//    above have not.
// 2. At most kMaxSessions sessions have a row, those that were used last, and as many more as came
//    while another one was being dropped. `used` grows with each use, even if the clock has been
//    set back. The answers of a session that was dropped are deleted a few at a time
//    (meta.dropping), one session after the other.
// 3. Once a session was dropped (meta.has_dropped), what an unknown session has asked may be
//    forgotten.
class SqliteAnswers final : public StoreAnswers {
 public:
  SqliteAnswers(SqliteConnection& connection, SqliteMeta& meta, size_t remembered)
      : connection_(connection), meta_(meta), remembered_(static_cast<int64_t>(remembered)) {}

  // Makes a session known, so that what it has not asked is not taken for forgotten.
  void know(uint64_t session);

  // Before the commit of a transaction that has changed something: writes what is known of the
  // sessions, and deletes some of what belongs to a session that was dropped.
  void save();
  // At the beginning of each transaction: other processes may have changed the tables.
  void begin(int64_t now_us) {
    sessions_.clear();
    added_ = 0;
    last_use_us_ = 0;
    now_us_ = now_us;
  }

 private:
  static constexpr int64_t kMaxSessions = 256;
  // Deleted in one transaction, besides two for each row that it adds.
  static constexpr int64_t kDroppedRows = 64;

  struct Session {
    int64_t newest = 0;
    int64_t remembered = 0;
    int64_t forgotten = 0;
    int64_t used_us = 0;
    bool known = false;
    bool changed = false;
  };

  Session& session(uint64_t id);
  Found find(const WFStoreRequestId& id, WFStoreResult& result) override;
  void keep(const WFStoreRequestId& id, std::optional<std::string>&& answer) override;
  // Deletes the rows of the session that are too many: those of a group are deleted at once.
  void forget_oldest(uint64_t id, Session& session);
  // The n-th smallest number of the rows of a session; 0 if it has fewer.
  int64_t oldest(uint64_t id, int64_t n);
  void save_sessions();
  // The time of a use that happens now: later than that of each other one.
  int64_t next_use();
  // Drops a session if there are too many, but never `kept` (0: any): only that may be referred to.
  void drop_oldest(uint64_t kept);

  SqliteConnection& connection_;
  SqliteMeta& meta_;
  const int64_t remembered_;
  std::unordered_map<uint64_t, Session> sessions_;  // those that this transaction has met
  int64_t added_ = 0;                               // answers, in this transaction
  int64_t last_use_us_ = 0;                         // of any session; 0: not known
  int64_t now_us_ = 0;                              // of this transaction
  SqliteStatement session_{connection_,
                           "SELECT newest, remembered, forgotten, used FROM sessions"
                           " WHERE session = ?"};
  SqliteStatement save_session_{connection_,
                                "INSERT INTO sessions(session, newest, remembered, forgotten, used)"
                                " VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT(session) DO UPDATE SET"
                                " newest = ?2, remembered = ?3, forgotten = ?4, used = ?5"};
  SqliteStatement count_sessions_{connection_, "SELECT count(*) FROM sessions"};
  SqliteStatement oldest_session_{connection_,
                                  "SELECT session FROM sessions WHERE session <> ?"
                                  " ORDER BY used, session LIMIT 1"};
  SqliteStatement last_use_{connection_, "SELECT max(used) FROM sessions"};
  SqliteStatement remove_session_{connection_, "DELETE FROM sessions WHERE session = ?"};
  SqliteStatement select_{connection_,
                          "SELECT answer FROM answers WHERE session = ? AND number = ?"};
  SqliteStatement insert_{connection_,
                          "INSERT INTO answers(session, number, answer) VALUES(?, ?, ?)"};
  SqliteStatement oldest_{connection_,
                          "SELECT number FROM answers WHERE session = ?"
                          " ORDER BY number LIMIT 1 OFFSET ?"};
  SqliteStatement remove_{connection_, "DELETE FROM answers WHERE session = ? AND number <= ?"};
  SqliteStatement remove_all_{connection_, "DELETE FROM answers WHERE session = ?"};
};

}  // namespace workflow

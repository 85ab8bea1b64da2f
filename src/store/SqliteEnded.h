#pragma once

#include <cstdint>
#include <string_view>

#include "store/SqliteMeta.h"
#include "store/StoreRequest.h"

namespace workflow {

// The timers that have ended last: the table `done`.
//
// Invariant: the rows are numbered without a gap up to meta.ended. Only the last `remembered` of
// them count. Older ones are deleted before the commit, but not very many at a time: another
// process may have remembered more than this one.
class SqliteEnded {
 public:
  SqliteEnded(SqliteConnection& connection, SqliteMeta& meta, size_t remembered)
      : connection_(connection), meta_(meta), remembered_(static_cast<int64_t>(remembered)) {}

  // At the beginning of each transaction.
  void begin() { added_ = 0; }
  // Remembers that a timer has ended.
  void add(std::string_view name, uint64_t timer, unsigned attempts, WFStoreOutcome outcome,
           int64_t now_us);
  // Before the commit of a transaction that has changed something: deletes old rows.
  void prune();
  // kDone for the latest one of the name, or else kUnknown.
  WFStoreAnswer answer(std::string_view name);

 private:
  // How many rows a transaction deletes besides one for each that it has added.
  static constexpr int64_t kOldRows = 64;

  SqliteConnection& connection_;
  SqliteMeta& meta_;
  const int64_t remembered_;
  SqliteStatement insert_{connection_,
                          "INSERT INTO done(id, name, timer, outcome, at, attempts)"
                          " VALUES(?, ?, ?, ?, ?, ?)"};
  SqliteStatement oldest_{connection_, "SELECT id FROM done ORDER BY id LIMIT 1"};
  SqliteStatement remove_{connection_, "DELETE FROM done WHERE id <= ?"};
  SqliteStatement latest_{connection_,
                          "SELECT timer, outcome, at, attempts FROM done INDEXED BY done_name"
                          " WHERE name = ? AND id > ? ORDER BY id DESC LIMIT 1"};
  SqliteStatement newest_time_{connection_, "SELECT max(at) FROM done WHERE id <= ?"};
  int64_t added_ = 0;  // in this transaction
};

}  // namespace workflow

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "store/SqliteMeta.h"
#include "store/StoreRequest.h"

namespace workflow {

// The timers that have ended last: the table `done`.
//
// Invariant: the rows are numbered without a gap up to meta.ended. Only the last `remembered` of
// them count. Older ones are deleted a few at a time, with those that come, so that no transaction
// has much to delete; other processes may remember more than this one.
class SqliteEnded {
 public:
  SqliteEnded(SqliteConnection& connection, SqliteMeta& meta, size_t remembered)
      : connection_(connection), meta_(meta), remembered_(static_cast<int64_t>(remembered)) {}

  // Remembers that a timer has ended.
  void add(std::string_view name, uint64_t timer, unsigned attempts, WFStoreOutcome outcome,
           int64_t now_us);
  // kDone for the latest one of the name, or else kUnknown.
  WFStoreAnswer answer(std::string_view name);

 private:
  // How many rows an added one may delete.
  static constexpr int64_t kDeletedPerRow = 4;

  SqliteConnection& connection_;
  SqliteMeta& meta_;
  const int64_t remembered_;
  SqliteStatement insert_{connection_,
                          "INSERT INTO done(id, name, timer, outcome, at, attempts)"
                          " VALUES(?, ?, ?, ?, ?, ?)"};
  SqliteStatement oldest_{connection_, "SELECT id, at FROM done ORDER BY id LIMIT 1"};
  SqliteStatement remove_{connection_, "DELETE FROM done WHERE id = ?"};
  SqliteStatement latest_{connection_,
                          "SELECT timer, outcome, at, attempts FROM done INDEXED BY done_name"
                          " WHERE name = ? AND id > ? ORDER BY id DESC LIMIT 1"};
  SqliteStatement time_of_{connection_, "SELECT at FROM done WHERE id = ?"};
};

}  // namespace workflow

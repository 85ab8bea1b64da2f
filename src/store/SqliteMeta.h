#pragma once

#include <cstdint>

#include "store/SqliteConnection.h"
#include "store/SqliteStatement.h"

namespace workflow {

// The counters of a store: the one row of the table `meta`. They are read at the beginning of a
// transaction, changed in memory by what is carried out, and written before the commit.
class SqliteMeta {
 public:
  explicit SqliteMeta(SqliteConnection& connection) : connection_(connection) {}

  // Both return whether the connection has no error. A store without the row is damaged.
  bool load();
  bool save();

  int64_t next_fence() { return ++fence; }

  uint64_t identity = 0;     // of the store: drawn when it was created
  int64_t fence = 0;         // the last one that was given
  int64_t timer = 0;         // the last number of a timer
  int64_t ended = 0;         // the last number of a row of `done`
  int64_t commits = 0;       // how many transactions have changed the store
  int64_t stored = 0;        // rows of `timers`
  int64_t since_us = 0;      // each timer that has ended since then is remembered
  int64_t dropping = 0;      // the session whose answers are being deleted; 0: none
  bool has_dropped = false;  // whether any session was forgotten

  // A store that is owned by a process deletes answers in another way, and has the number of its
  // last owner here.
  int64_t owner() const { return dropping; }
  void set_owner(int64_t owner) { dropping = owner; }

 private:
  SqliteConnection& connection_;
  SqliteStatement select_{connection_,
                          "SELECT identity, fence, timer, ended, commits, stored, since, dropping,"
                          " has_dropped FROM meta WHERE only_row = 1"};
  SqliteStatement update_{connection_,
                          "UPDATE meta SET fence = ?, timer = ?, ended = ?, commits = ?,"
                          " stored = ?, since = ?, dropping = ?, has_dropped = ?"
                          " WHERE only_row = 1"};
};

}  // namespace workflow

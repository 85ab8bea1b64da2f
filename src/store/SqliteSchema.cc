#include "store/SqliteSchema.h"

#include <string>

#include "store/SqliteStatement.h"

namespace workflow {

namespace {

constexpr char kMetaTable[] = R"(
CREATE TABLE meta(
  only_row INTEGER PRIMARY KEY CHECK(only_row = 1),
  identity INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  timer INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  commits INTEGER NOT NULL,
  stored INTEGER NOT NULL,
  since INTEGER NOT NULL,
  dropping INTEGER NOT NULL,
  has_dropped INTEGER NOT NULL);
)";

constexpr char kOwnedTables[] = R"(
CREATE TABLE journal(
  id INTEGER PRIMARY KEY,
  records BLOB NOT NULL);
)";

constexpr char kSharedTables[] = R"(
CREATE TABLE kinds(
  id INTEGER PRIMARY KEY,
  name BLOB NOT NULL UNIQUE);
CREATE TABLE timers(
  id INTEGER PRIMARY KEY,
  name BLOB NOT NULL,
  kind INTEGER NOT NULL,
  wake INTEGER,
  due INTEGER NOT NULL,
  state INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner BLOB,
  attempts INTEGER NOT NULL,
  skip_after INTEGER NOT NULL,
  repeat BLOB,
  marked INTEGER NOT NULL,
  follows INTEGER,
  reason BLOB,
  payload BLOB);
CREATE INDEX timers_name ON timers(name);
CREATE INDEX timers_wake ON timers(kind, wake) WHERE wake IS NOT NULL;
CREATE INDEX timers_follows ON timers(follows) WHERE follows IS NOT NULL;
CREATE INDEX timers_marked ON timers(wake) WHERE marked = 1;
CREATE INDEX timers_failed ON timers(name) WHERE state = 3;
CREATE TABLE done(
  id INTEGER PRIMARY KEY,
  name BLOB NOT NULL,
  timer INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  at INTEGER NOT NULL,
  attempts INTEGER NOT NULL);
CREATE INDEX done_name ON done(name);
CREATE TABLE sessions(
  session INTEGER PRIMARY KEY,
  newest INTEGER NOT NULL,
  remembered INTEGER NOT NULL,
  forgotten INTEGER NOT NULL,
  used INTEGER NOT NULL);
CREATE TABLE answers(
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  answer BLOB,
  PRIMARY KEY(session, number)) WITHOUT ROWID;
)";

}  // namespace

bool SqliteSchema::create(SqliteConnection& connection, SqliteLayout layout, uint64_t identity,
                          int64_t now_us) {
  connection.run(kMetaTable);
  connection.run(layout == SqliteLayout::kOwned ? kOwnedTables : kSharedTables);
  if (layout == SqliteLayout::kShared) {
    connection.run(kLeasedIndex);
  }
  connection.run(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
  connection.run(("PRAGMA user_version = " + std::to_string(static_cast<int>(layout))).c_str());
  SqliteStatement insert(connection, "INSERT INTO meta VALUES(1, ?, 0, 0, 0, 1, 0, ?, 0, 0)");
  return insert.run(identity, now_us);
}

}  // namespace workflow

#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "store/SqliteStatement.h"

namespace workflow {

// The numbers of the kinds of timers: the table `kinds`. Rows are never changed or deleted, so what
// was read once stays right, and is kept in memory as long as there is not too much of it. So the
// table has a row for each kind that there has ever been, and is never read as a whole.
class SqliteKinds {
 public:
  explicit SqliteKinds(SqliteConnection& connection) : connection_(connection) {}

  // The number of a kind; 0 if there has been no timer of that kind.
  int64_t find(const std::string& name);
  // Like find(), but gives the kind a number if it has none.
  int64_t add(const std::string& name);
  // The name of a kind. Valid until the next call.
  const std::string& name(int64_t id);
  // To be called when a transaction was undone: kinds may have been added in it.
  void forget();

 private:
  static constexpr size_t kMaxKept = 1000;

  void keep(const std::string& name, int64_t id);

  SqliteConnection& connection_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<int64_t, std::string> names_;
  SqliteStatement select_{connection_, "SELECT id FROM kinds WHERE name = ?"};
  SqliteStatement insert_{connection_, "INSERT INTO kinds(name) VALUES(?) RETURNING id"};
  SqliteStatement name_of_{connection_, "SELECT name FROM kinds WHERE id = ?"};
};

}  // namespace workflow

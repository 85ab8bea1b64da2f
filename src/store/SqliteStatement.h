#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "store/SqliteConnection.h"

namespace workflow {

// The rows that a statement finds. The statement is reset when the cursor goes, and has no other
// cursor until then.
class SqliteCursor {
 public:
  SqliteCursor(SqliteConnection& connection, sqlite3_stmt* statement)
      : connection_(connection), statement_(statement) {}
  ~SqliteCursor() { sqlite3_reset(statement_); }
  SqliteCursor(const SqliteCursor&) = delete;
  SqliteCursor& operator=(const SqliteCursor&) = delete;

  // Goes to the first row, or to the next one. Returns false if there is none, and after an error.
  bool next();

  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  uint64_t unsigned_integer(int column) const { return static_cast<uint64_t>(integer(column)); }
  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  // Valid until next() is called.
  std::string_view bytes(int column) const;
  std::string text(int column) const { return std::string(bytes(column)); }

 private:
  SqliteConnection& connection_;
  sqlite3_stmt* const statement_;
};

// A prepared statement. It is prepared when it is used for the first time, and must go before its
// connection is closed. Parameters are integers and bytes, numbered from 1 in their order. Bytes
// must stay valid until the rows have been read; an empty text is stored as NULL, which takes no
// space, if it is passed as SqliteStatement::Optional.
class SqliteStatement {
 public:
  struct Optional {
    std::string_view bytes;
  };

  // `sql` must stay valid.
  SqliteStatement(SqliteConnection& connection, const char* sql)
      : connection_(connection), sql_(sql) {}
  ~SqliteStatement() { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  // Begins; the rows follow.
  template <class... VALUES>
  [[nodiscard]] SqliteCursor find(VALUES&&... values) {
    static_assert((!std::is_same_v<VALUES, std::string> && ...),
                  "a temporary text would be gone when the rows are read");
    if (prepare()) {
      int position = 0;
      (bind(++position, values), ...);
    }
    return SqliteCursor(connection_, statement_);
  }

  // Runs to the end. Returns whether the connection has no error.
  template <class... VALUES>
  bool run(const VALUES&... values) {
    SqliteCursor cursor = find(values...);
    while (cursor.next()) {
    }
    return connection_.code() == SQLITE_OK;
  }

  const char* sql() const { return sql_; }

 private:
  bool prepare();
  void bind(int position, int64_t value);
  void bind(int position, uint64_t value) { bind(position, static_cast<int64_t>(value)); }
  void bind(int position, int value) { bind(position, int64_t{value}); }
  void bind(int position, unsigned value) { bind(position, int64_t{value}); }
  void bind(int position, bool value) { bind(position, int64_t{value}); }
  void bind(int position, std::string_view bytes);
  void bind(int position, const std::string& bytes) { bind(position, std::string_view(bytes)); }
  void bind(int position, const Optional& bytes);

  SqliteConnection& connection_;
  const char* const sql_;
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace workflow

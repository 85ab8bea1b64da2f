#include "store/SqliteStatement.h"

namespace workflow {

bool SqliteCursor::next() {
  if (connection_.code() != SQLITE_OK) return false;
  const int code = sqlite3_step(statement_);
  connection_.note(code);
  return code == SQLITE_ROW;
}

std::string_view SqliteCursor::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data ? std::string_view(static_cast<const char*>(data), static_cast<size_t>(size))
              : std::string_view();
}

bool SqliteStatement::prepare() {
  if (statement_ == nullptr && connection_.code() == SQLITE_OK) {
    connection_.note(sqlite3_prepare_v3(connection_.handle(), sql_, -1, SQLITE_PREPARE_PERSISTENT,
                                        &statement_, nullptr));
  }
  return connection_.code() == SQLITE_OK;
}

void SqliteStatement::bind(int position, int64_t value) {
  connection_.note(sqlite3_bind_int64(statement_, position, value));
}

void SqliteStatement::bind(int position, std::string_view bytes) {
  // A null pointer would bind NULL.
  const char* data = bytes.data() ? bytes.data() : "";
  connection_.note(sqlite3_bind_blob64(statement_, position, data, bytes.size(), SQLITE_STATIC));
}

void SqliteStatement::bind(int position, const Optional& bytes) {
  if (bytes.bytes.empty()) {
    connection_.note(sqlite3_bind_null(statement_, position));
  } else {
    bind(position, bytes.bytes);
  }
}

}  // namespace workflow

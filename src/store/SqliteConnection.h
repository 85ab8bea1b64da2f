#pragma once

#include <sqlite3.h>

#include <string>

namespace workflow {

// One connection to a database of SQLite.
//
// Used by one thread at a time. The first error sticks: from then on its statements do nothing and
// find no rows, so that code which follows rules need not look after each step. The caller that
// began a transaction looks at code() before it commits, rolls back after an error, and then calls
// forget_error().
class SqliteConnection {
 public:
  // For how long a connection tries again when another one holds a lock.
  static constexpr int kBusyMs = 5000;

  SqliteConnection() = default;
  ~SqliteConnection() { close(); }
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  // Opens the file through the virtual file system of that name; null: the default one. `flags` are
  // those of sqlite3_open_v2(). Returns code() == SQLITE_OK.
  bool open(const std::string& path, int flags, const char* vfs);
  // All statements must be gone.
  void close();
  bool is_open() const { return handle_ != nullptr; }

  // Runs SQL text that has no parameters, and ignores its rows. Returns code() == SQLITE_OK.
  bool run(const char* sql);
  // The first column of the first row, for pragmas; 0 if there is none.
  int64_t number(const char* sql);

  // Whether closing the last connection to a file copies the log into the file and deletes the log.
  // SQLite does that by default. No effect if the connection is not open.
  void set_copies_on_close(bool copies);

  // How long it waits for locks from now on, in milliseconds.
  void set_patience(int ms) { patience_ms_ = ms; }

  // The first error: an extended result code.
  int code() const { return code_; }
  // What is said about the first error, in one line, and the errno value behind it (0: none).
  const std::string& message() const { return message_; }
  int system_error() const { return system_error_; }
  // Notes a result code of SQLite. Returns code() == SQLITE_OK.
  bool note(int code);
  void forget_error();

  // Forgets the first error and ends the transaction, if there is one, without its changes.
  void undo();
  bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }
  sqlite3* handle() const { return handle_; }

 private:
  static int busy(void* connection, int count);

  sqlite3* handle_ = nullptr;
  int patience_ms_ = kBusyMs;
  int64_t busy_since_ns_ = 0;
  int code_ = SQLITE_OK;
  int system_error_ = 0;
  std::string message_;
};

}  // namespace workflow

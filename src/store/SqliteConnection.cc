#include "store/SqliteConnection.h"

#include <algorithm>

#include "store/SqliteSeals.h"
#include "util/Thread.h"
#include "util/Time.h"

namespace workflow {

bool SqliteConnection::open(const std::string& path, int flags, const char* vfs) {
  const int code = sqlite3_open_v2(path.c_str(), &handle_,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, vfs);
  if (handle_) {
    sqlite3_busy_handler(handle_, busy, this);
  }
  return note(code);
}

void SqliteConnection::close() {
  // Fails only if statements are left, and then goes on when the last of them has gone.
  sqlite3_close_v2(handle_);
  handle_ = nullptr;
}

void SqliteConnection::set_copies_on_close(bool copies) {
  if (handle_) {
    // It can fail only if the option is unknown, which it has not been since SQLite 3.16.
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, copies ? 0 : 1, nullptr);
  }
}

bool SqliteConnection::run(const char* sql) {
  if (code_ == SQLITE_OK) {
    note(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr));
  }
  return code_ == SQLITE_OK;
}

int64_t SqliteConnection::number(const char* sql) {
  int64_t result = 0;
  if (code_ == SQLITE_OK) {
    note(sqlite3_exec(
        handle_, sql,
        [](void* out, int columns, char** values, char**) {
          if (columns > 0 && values[0]) {
            *static_cast<int64_t*>(out) = std::strtoll(values[0], nullptr, 10);
          }
          return 0;
        },
        &result, nullptr));
  }
  return result;
}

bool SqliteConnection::note(int code) {
  if (code_ != SQLITE_OK || code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) {
    return code_ == SQLITE_OK;
  }
  code_ = code;
  const bool is_write = code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_TRUNCATE;
  system_error_ = is_write ? SqliteSeals::take_write_error() : 0;
  if (system_error_ == 0 && handle_) {
    system_error_ = sqlite3_system_errno(handle_);
  }
  message_ = handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  return false;
}

void SqliteConnection::undo() {
  forget_error();
  if (in_transaction()) {
    run("ROLLBACK");
    forget_error();
  }
}

void SqliteConnection::forget_error() {
  code_ = SQLITE_OK;
  system_error_ = 0;
  message_.clear();
}

// SQLite's own handler sleeps for up to 100 ms at a time, so that a lock which is free most of the
// time is missed again and again.
int SqliteConnection::busy(void* connection, int count) {
  auto* self = static_cast<SqliteConnection*>(connection);
  const int64_t now = monotonic_ns();
  if (count == 0) {
    self->busy_since_ns_ = now;
  }
  if (now - self->busy_since_ns_ >= self->patience_ms_ * kNsPerMs) return 0;
  pause_ns(static_cast<long>(std::min<int64_t>(kNsPerMs, (count + 1) * 50 * kNsPerUs)));
  return 1;
}

}  // namespace workflow

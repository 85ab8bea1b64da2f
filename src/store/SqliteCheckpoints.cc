#include "store/SqliteCheckpoints.h"

#include <algorithm>
#include <utility>

#include "store/SqliteFile.h"
#include "store/SqliteSeals.h"

namespace workflow {

void SqliteCheckpoints::start() {
  thread_.start("wf-store-log", [this] { run(); });
}

void SqliteCheckpoints::stop() {
  if (thread_.joinable()) {
    {
      MutexLock lock(wake_mutex_);
      stops_ = true;
      wake_.notify_one();
    }
    thread_.join();
  }
}

// The transactions stand still while the rest is copied. So it must be small at first, and may be
// the larger the more the log has grown meanwhile.
bool SqliteCheckpoints::may_begin_anew(int64_t log_bytes, int64_t left) const {
  return log_bytes >= most_bytes_ || left <= (log_bytes - restart_bytes_) / 16;
}

void SqliteCheckpoints::committed(int64_t log_bytes) {
  int64_t copied = copied_bytes_;
  if (log_bytes < copied) {
    copied_bytes_ = copied = 0;  // the log has begun anew
  }
  const int64_t left = log_bytes - copied;
  const bool restarts = log_bytes >= restart_bytes_ && may_begin_anew(log_bytes, left);
  if (failed_ || (left < step_bytes_ && log_bytes < restart_bytes_)) return;
  if (restarts || !thread_.joinable()) {
    if (log_bytes >= most_bytes_) {
      mutex_.lock();
    } else if (!mutex_.try_lock()) {
      return;
    }
    copy(restarts ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE,
         log_bytes >= most_bytes_ ? kReaderMs : 0);
    mutex_.unlock();
    return;
  }
  MutexLock lock(wake_mutex_);
  asked_ = true;
  wake_.notify_one();
}

void SqliteCheckpoints::cut_log() {
  MutexLock lock(mutex_);
  copy(SQLITE_CHECKPOINT_TRUNCATE, kReaderMs);
}

void SqliteCheckpoints::sync_soon() {
  if (!thread_.joinable()) {
    MutexLock lock(mutex_);
    sync_log();
    return;
  }
  MutexLock lock(wake_mutex_);
  if (!asked_to_sync_) {
    asked_to_sync_ = true;
    wake_.notify_one();
  }
}

void SqliteCheckpoints::run() {
  for (;;) {
    bool copies = false;
    bool syncs = false;
    {
      MutexLock lock(wake_mutex_);
      while (!asked_ && !asked_to_sync_ && !stops_) {
        wake_.wait(wake_mutex_);
      }
      syncs = std::exchange(asked_to_sync_, false);
      copies = std::exchange(asked_, false) && !stops_;
      if (stops_ && !syncs) return;
    }
    MutexLock lock(mutex_);
    if (syncs) {
      sync_log();
    }
    if (copies && !copy(SQLITE_CHECKPOINT_PASSIVE, 0)) {
      sync_file();
    }
  }
}

// By the file that this connection has of the log: the other one is in use.
void SqliteCheckpoints::sync_log() {
  if (failed_) return;
  sqlite3_file* log = nullptr;
  for (int i = 0; i < 2 && (log == nullptr || log->pMethods == nullptr); i++) {
    if (i > 0) {
      connection_.number("PRAGMA schema_version");  // opens the log
    }
    sqlite3_file_control(connection_.handle(), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  }
  sync(log);
}

// Otherwise the thread of the transactions would sync all of it when the log begins anew.
void SqliteCheckpoints::sync_file() {
  if (failed_) return;
  sqlite3_file* file = nullptr;
  sqlite3_file_control(connection_.handle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  sync(file);
}

void SqliteCheckpoints::sync(sqlite3_file* file) {
  const bool is_open = file != nullptr && file->pMethods != nullptr;
  connection_.note(is_open ? file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) : SQLITE_IOERR_FSYNC);
  if (connection_.code() != SQLITE_OK) {
    note_failure();
  }
}

void SqliteCheckpoints::note_failure() {
  if (SqliteFile::is_sync(connection_)) {
    sync_failed_();
  }
  failed_ = true;
}

// Whoever reads just now is not waited for, unless the caller says so: the next time does it.
bool SqliteCheckpoints::copy(int mode, int patience_ms) {
  if (failed_) return true;
  int frames = 0;
  int copied = 0;
  connection_.set_patience(patience_ms);
  connection_.note(sqlite3_wal_checkpoint_v2(connection_.handle(), "main", mode, &frames, &copied));
  const int code = connection_.code() & 0xff;
  if (code == SQLITE_OK || code == SQLITE_BUSY || code == SQLITE_NOMEM ||
      SqliteFile::is_full(connection_)) {
    connection_.forget_error();
    copied_bytes_ = std::max(0, copied) * (SqliteSeals::kPageBytes + int64_t{24});
  } else {
    note_failure();
  }
  return copied == frames;
}

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "store/SqliteConnection.h"
#include "util/Mutex.h"
#include "util/Thread.h"

namespace workflow {

// Copies what is in the log of a store to its file, so that the log does not grow without bound;
// and syncs the log for callers that do not wait for it.
//
// A thread of its own copies and syncs what it has copied, while transactions go on. The log begins
// anew when everything was copied at a moment without a transaction, which between transactions is
// a matter of copying and syncing the last few pages: the thread of the transactions does it.
//
// While the disk is full, the thread of the transactions copies the log and cuts it.
//
// Invariants:
// 1. The connection is used with mutex_ locked. While the thread for checkpoints runs, the thread
//    of the transactions waits for the mutex only if the log has most_bytes_ or more, or if the
//    disk is full.
// 2. After an error of the disk nothing is copied any more. failed() is true then.
class SqliteCheckpoints {
 public:
  // For how long a log that is too large may make a commit wait for its readers.
  static constexpr int kReaderMs = 10;

  // The log begins anew when it has `log_bytes`, or soon after that: when nearly all of it is
  // copied.
  // `sync_failed` is called at once, on any thread, when a sync has failed.
  SqliteCheckpoints(SqliteConnection& connection, int64_t log_bytes,
                    std::function<void()> sync_failed)
      : connection_(connection), sync_failed_(std::move(sync_failed)), restart_bytes_(log_bytes) {}
  ~SqliteCheckpoints() { stop(); }
  SqliteCheckpoints(const SqliteCheckpoints&) = delete;
  SqliteCheckpoints& operator=(const SqliteCheckpoints&) = delete;

  // Without start(), or if the system refuses a thread, the thread of the transactions copies.
  void start();
  // The connection may be closed afterwards.
  void stop();

  // To be called after each commit, outside of transactions, with the size of the log.
  void committed(int64_t log_bytes);

  // Copies all of the log and gives its room back, unless somebody reads for long, or the file has
  // no room for what is copied. To be called outside of transactions.
  void cut_log();

  // What was committed so far is synced soon: what its commit has not done.
  void sync_soon();

  // Whether a checkpoint or a sync has met an error of the disk, or damage. The error is that of
  // the connection, which must not be used by the thread any more: call stop() first.
  bool failed() const { return failed_; }

 private:
  void run();
  // Whether the log may begin anew, although so much of it remains to be copied.
  bool may_begin_anew(int64_t log_bytes, int64_t left) const;
  // Returns whether all was copied. (Only then SQLite has synced the file.)
  bool copy(int mode, int patience_ms) WF_REQUIRES(mutex_);
  void sync_log() WF_REQUIRES(mutex_);
  void sync_file() WF_REQUIRES(mutex_);
  void sync(sqlite3_file* file) WF_REQUIRES(mutex_);

  void note_failure() WF_REQUIRES(mutex_);

  SqliteConnection& connection_;
  const std::function<void()> sync_failed_;
  const int64_t restart_bytes_;
  const int64_t step_bytes_ = restart_bytes_ / 16;               // so much is copied at a time
  const int64_t most_bytes_ = restart_bytes_ + 3 * step_bytes_;  // a log of that size is too large
  Thread thread_;
  Mutex mutex_;
  Mutex wake_mutex_;
  CondVar wake_;
  bool asked_ WF_GUARDED_BY(wake_mutex_) = false;  // to copy
  bool asked_to_sync_ WF_GUARDED_BY(wake_mutex_) = false;
  bool stops_ WF_GUARDED_BY(wake_mutex_) = false;
  // Both publish nothing but themselves, so relaxed would be enough where they are sequentially
  // consistent by default. If copied_bytes_ is out of date, a copy comes sooner or later than it
  // should. failed_ is changed under mutex_; a thread that finds it set joins the other one before
  // it reads the error.
  std::atomic<int64_t> copied_bytes_{0};  // of the log, as of the last checkpoint
  std::atomic<bool> failed_{false};
};

}  // namespace workflow

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "store/FileStatus.h"
#include "store/SqliteConnection.h"
#include "store/SqliteSchema.h"
#include "store/StoreRequest.h"

namespace workflow {

// What tests replace.
struct SqliteSettings {
  const char* base_vfs = nullptr;  // the file system below the seals; null: SQLite's default one
  bool full_sync = true;           // false: a loss of power may undo the last transactions
  int busy_ms = SqliteConnection::kBusyMs;
  int64_t reserve_bytes = int64_t{8} * 1024 * 1024;
  int64_t log_bytes = int64_t{64} * 1024 * 1024;  // as large as this the log begins anew
  // The type of the file system of a path, as statfs(2) tells it.
  std::function<long(const std::string& path)> file_system_type;
  // How many bytes are free on the file system of a path, as statvfs(3) tells it.
  std::function<int64_t(const std::string& path)> free_bytes;
};

// The file of a store, and two connections to it: one for the transactions, and one for
// checkpoints, which another thread may use.
//
// Used by one thread at a time, but for the connection for checkpoints.
//
// Invariants:
// 1. A file that is no store of ours, or of another layout, is never changed.
// 2. A new store appears under its name when it is complete, so there never is an empty one.
// 3. Opening and closing a store leaves the file and its log as they are until
//    set_copies_on_close(true): what is behind damage in the log may still be saved by hand.
class SqliteFile {
 public:
  SqliteFile(std::string path, SqliteSettings settings, SqliteLayout layout = SqliteLayout::kShared)
      : path_(std::move(path)),
        log_path_(path_ + "-wal"),
        index_path_(path_ + "-shm"),
        settings_(std::move(settings)),
        layout_(layout) {}
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Refuses network file systems, and directories where we must not write. Returns 0 or an errno
  // value, and then a message.
  int check_directory(std::string* message) const;
  // Whether there is a file of that name, and whether its log is there and not empty.
  bool exists() const;
  bool has_log() const;
  // Looks at the header of the file, which exists, before SQLite may change anything. The result is
  // as that of check_directory().
  int check_header(std::string* message) const;
  // Refuses a file that has other names besides: each name would have a log of its own, and what
  // comes from one log would overwrite what came from another. Removes the name `-new` if a creator
  // was killed before it did. Not while a process creates the store. The result is as that of
  // check_directory().
  int check_links(std::string* message) const;
  // Creates the store, whose file must be missing. Only one process does this at a time. The
  // result is as that of check_directory().
  int create(int64_t now_us, std::string* message) const;
  // Opens the store. The result is as that of check_directory().
  int open(std::string* message);
  void close();
  // Whether the last process that closes the store copies the log into the file and deletes the
  // log. It does not after open().
  void set_copies_on_close(bool copies);
  // Copies all of the log into the file, syncs the file, and empties the log. Not to be called in a
  // transaction. The result is as that of check_directory().
  int copy_log(std::string* message);

  // Reads all pages that hold something, and looks whether they make sense together. The result is
  // as that of check_directory(). O(size). Others can commit meanwhile, but the log does not begin
  // anew.
  int check_pages(std::string* message);

  // By how many bytes the file grows when all of the log is copied into it. Not to be called in a
  // transaction.
  int64_t growth();

  // Whether the paths still lead to the file that was opened and to its log. Otherwise sets
  // `failure`.
  bool is_same(StoreFailure* failure) const;
  // Which file was opened, whatever its name is now.
  std::pair<dev_t, ino_t> id() const { return {file_.device, file_.inode}; }
  // If somebody has deleted the log while it was open, and nothing is in its place, copies it into
  // the file, as long as there is a process that has it open. Whoever opens the store next makes a
  // new log. Returns whether the log was deleted. Not to be called in a transaction.
  bool save_lost_log();

  SqliteConnection& connection() { return connection_; }
  SqliteConnection& checkpoints() { return checkpoints_; }
  const std::string& path() const { return path_; }
  // The size of the log in bytes after the last commit of this process.
  int64_t log_bytes() const { return log_bytes_; }

  // The first error of a connection in the terms of a store.
  StoreFailure failure_of(const SqliteConnection& connection) const;
  // Whether a store goes on after a failure with this errno value: it was busy, or had no memory or
  // no room.
  static bool goes_on_after(int error);
  // Whether the error is that the disk has no room.
  static bool is_full(const SqliteConnection& connection);
  // Whether the error is that a sync has failed. What was to be synced may not be on the disk, even
  // if the next sync succeeds.
  static bool is_sync(const SqliteConnection& connection);

 private:
  int open_connection(SqliteConnection& connection, std::string* message) const;
  // Makes the next checkpoint, by whomever, copy all of the log, also what is in the file already:
  // after a failed sync that need not be on the disk. Returns the result code.
  int forget_copied();
  int fail(const SqliteConnection& connection, std::string* message) const;
  static int committed(void* file, sqlite3* connection, const char* database, int frames);

  const std::string path_;
  const std::string log_path_;
  const std::string index_path_;
  const SqliteSettings settings_;
  const SqliteLayout layout_;
  SqliteConnection connection_;
  SqliteConnection checkpoints_;
  FileStatus file_;
  FileStatus log_;    // an inode of 0: it is not open
  FileStatus index_;  // the same
  int64_t log_bytes_ = 0;
};

}  // namespace workflow

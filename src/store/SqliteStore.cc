#include "store/SqliteStore.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "util/Mutex.h"
#include "util/Time.h"

namespace workflow {

int SqliteStore::open(bool create, int64_t now_us, std::string* message) {
  int error = file_.check_directory(message);
  if (error == 0 && !file_.exists() && !create) {
    *message = file_.path() + ": there is no store";
    return ENOENT;
  }
  if (owns() && !(queue_.is_whole() && queue_.is_same())) {
    release();  // another process may have the file that is in its place
  }
  const bool owned_before = owns();
  if (error == 0 && !owned_before) {
    error = enter(message);
  }
  if (error == 0 && file_.exists()) {
    // Before anything else is touched: it may be a store of another layout, or none.
    error = file_.check_header(message);
  }
  if (error == 0) {
    error = open_queue(create, now_us, message);
  }
  if (error == 0) {
    error = open_file(message);
    if (error == ENOSPC) {
      // Also the index of the log needs some room.
      use_reserve();
      error = open_file(message);
    }
  }
  if (error != 0) {
    close_files(true);
    if (!owned_before) {
      release();
    }
  }
  return error;
}

int SqliteStore::enter(std::string* message) {
  const int error = opened_.enter(file_.path(), layout_ == SqliteLayout::kOwned);
  if (error == ECHILD) {
    *message = file_.path() +
               ": was open when this process was forked, and its locks have stayed with the "
               "parent";
  } else if (error == EBUSY) {
    *message = file_.path() + ": this process has the store open, and it has one owner";
  }
  return error;
}

int SqliteStore::open_queue(bool create, int64_t now_us, std::string* message) {
  MutexLock lock(SqliteOpened::creation());
  if (owns()) return make_file(create, now_us, message);
  if (const int error = queue_.open(file_.path() + "-queue", message, busy_ms_)) return error;
  if (layout_ == SqliteLayout::kOwned) {
    if (const int error = queue_.own()) {
      *message = file_.path() + (error == EBUSY
                                     ? ": another process has the store open, and it has one owner"
                                     : std::string("-queue: ") + std::strerror(error));
      return error;
    }
  }
  return make_file(create, now_us, message);
}

int SqliteStore::make_file(bool create, int64_t now_us, std::string* message) {
  if (const int error = queue_.lock_creation(message, busy_ms_)) return error;
  int error = 0;
  if (!file_.exists()) {
    if (file_.has_log() || queue_.page().commits > 0) {
      *message = file_.path() +
                 ": the file is missing, but what belongs to it is there; to begin anew, remove "
                 "the files whose names begin with this one";
      error = EILSEQ;
    } else if (create) {
      error = file_.create(now_us, message);
    } else {
      *message = file_.path() + ": there is no store";
      error = ENOENT;
    }
  } else {
    error = file_.check_links(message);
  }
  queue_.unlock_creation();
  return error;
}

int SqliteStore::open_file(std::string* message) {
  int error = file_.open(message);
  if (error == 0) {
    error = verify(message);
    if (error != 0) {
      file_.close();
    }
  }
  return error;
}

int SqliteStore::verify(std::string* message) {
  SqliteQueue::Page& page = queue_.page();
  // Before the store is read: other processes may commit in between.
  const int64_t commits = page.commits;
  SqliteConnection& connection = file_.connection();
  SqliteMeta meta(connection);
  connection.run("BEGIN");
  meta.load();
  connection.run("COMMIT");
  if (connection.code() != SQLITE_OK) {
    const StoreFailure failure = failure_of(connection);
    *message = failure.message;
    return failure.error;
  }
  if (identity_ != 0 && meta.identity != identity_) {
    *message = file_.path() +
               ": another store than this process had open here; to use that, close " +
               "this one and open it anew";
    return EILSEQ;
  }
  uint64_t identity = 0;
  if (!page.identity.compare_exchange_strong(identity, meta.identity) &&
      identity != meta.identity) {
    *message = file_.path() + ": another store than " + file_.path() + "-queue belongs to";
    return EILSEQ;
  }
  if (meta.commits < commits) {
    *message = file_.path() + ": has lost transactions: " + std::to_string(commits - meta.commits) +
               " of " + std::to_string(commits) + "; to accept that, remove " + file_.path() +
               "-queue";
    return EILSEQ;
  }
  if (meta.commits < commits_) {
    *message = file_.path() +
               ": has lost transactions: " + std::to_string(commits_ - meta.commits) + " of " +
               std::to_string(commits_) +
               ", since this process has opened it; to accept that, close it and open it anew";
    return EILSEQ;
  }
  if (identity_ != 0 && file_.id() != file_id_) {
    *message = file_.path() +
               ": a copy of the store is in its place, which may lack something; to use that, " +
               "close the store everywhere and open it anew";
    return EILSEQ;
  }
  if (was_damaged_ && layout_ == SqliteLayout::kShared) {  // an owner reads everything anyway
    if (const int error = file_.check_pages(message)) return error;
  }
  was_damaged_ = false;
  identity_ = meta.identity;
  file_id_ = file_.id();
  uint32_t failed_syncs = page.failed_syncs;
  if (failed_syncs != 0) {
    if (const int error = file_.copy_log(message)) return error;
    page.failed_syncs.compare_exchange_strong(failed_syncs, 0);
  }
  if (layout_ == SqliteLayout::kShared) {
    // An owner commits some things without a sync, which need not be on the disk.
    queue_.committed(meta.commits);
  }
  return 0;
}

void SqliteStore::begin(bool with_thread) {
  file_.set_copies_on_close(true);
  checkpoints_.emplace(file_.checkpoints(), log_bytes_, [this] { note_failed_sync(); });
  // What open() has used is still needed.
  if (queue_.page().disk_is_full == 0 && SqliteReserve::is_full(reserve_.make())) {
    queue_.page().disk_is_full = 1;
  }
  if (with_thread) {
    checkpoints_->start();
  }
}

void SqliteStore::close(bool has_failed) {
  close_files(has_failed);
  release();
}

void SqliteStore::close_files(bool has_failed) {
  if (checkpoints_) {
    checkpoints_->stop();
    if (checkpoints_->failed()) {
      has_failed = true;
      failure_of(file_.checkpoints());
    }
    checkpoints_.reset();
  }
  if (has_failed && !file_.save_lost_log()) {
    file_.set_copies_on_close(false);
  }
  file_.close();
  if (queue_.is_open() && queue_.is_whole() && queue_.page().identity == identity_) {
    commits_ = std::max<int64_t>(commits_, queue_.page().commits);
  }
}

void SqliteStore::release() {
  {
    // This takes away the locks of all threads on the file of the queue.
    MutexLock lock(SqliteOpened::creation());
    queue_.close();
  }
  opened_.leave();
}

bool SqliteStore::works(StoreFailure* failure) {
  if (checkpoints_->failed()) {
    checkpoints_->stop();
    *failure = failure_of(file_.checkpoints());
    if (SqliteFile::goes_on_after(failure->error)) {
      failure->error = EIO;  // nothing is copied any more
    }
    return false;
  }
  if (!queue_.is_whole()) {
    failure->error = EILSEQ;
    failure->message = file_.path() + "-queue: was cut";
    return false;
  }
  if (owns() && !queue_.is_same()) {
    failure->error = ESTALE;
    failure->message =
        file_.path() + "-queue: was deleted or replaced, and another process may own the store";
    return false;
  }
  return file_.is_same(failure);
}

bool SqliteStore::has_room() {
  SqliteQueue::Page& page = queue_.page();
  if (page.disk_is_full != 0 && monotonic_ns() >= look_for_room_ns_) {
    // A reserve that cannot be made for another reason does not mean that the disk is full.
    if (reserve_.has_room() && !SqliteReserve::is_full(reserve_.make())) {
      page.disk_is_full = 0;
    } else {
      look_for_room_ns_ = monotonic_ns() + kNsPerSec;
    }
  }
  return page.disk_is_full == 0;
}

void SqliteStore::use_reserve() {
  queue_.page().disk_is_full = 1;
  look_for_room_ns_ = monotonic_ns() + kNsPerSec;
  reserve_.release();
  if (checkpoints_) {
    cut_log();
  }
}

void SqliteStore::committed() {
  if (queue_.page().disk_is_full == 0) {
    checkpoints_->committed(file_.log_bytes());
  } else if (file_.log_bytes() >= log_bytes_ / 64) {
    cut_log();
  }
}

void SqliteStore::cut_log() {
  if (file_.growth() <= reserve_.free_bytes()) {
    checkpoints_->cut_log();
  }
}

size_t SqliteStore::group_size(std::span<StoreRequest* const> requests) {
  size_t size = 0;
  size_t bytes = 0;
  for (; size < requests.size() && size < kMaxRequests && bytes < kMaxBytes; size++) {
    // A look may count for long. Alone it only reads, and keeps nobody from writing.
    if (std::holds_alternative<LookRequest>(requests[size]->what)) return std::max<size_t>(size, 1);
    if (const auto* schedule = std::get_if<ScheduleRequest>(&requests[size]->what)) {
      bytes += schedule->spec.payload.size() + schedule->spec.name.size();
    }
  }
  return size;
}

void SqliteStore::note_failed_sync() {
  if (queue_.is_whole()) {
    queue_.page().failed_syncs++;
  }
}

StoreFailure SqliteStore::failure_of(const SqliteConnection& connection) {
  if (SqliteFile::is_sync(connection)) {
    note_failed_sync();
  }
  StoreFailure failure = file_.failure_of(connection);
  was_damaged_ = was_damaged_ || failure.error == EILSEQ;
  return failure;
}

}  // namespace workflow

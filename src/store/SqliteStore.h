#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "store/SqliteCheckpoints.h"
#include "store/SqliteFile.h"
#include "store/SqliteMeta.h"
#include "store/SqliteOpened.h"
#include "store/SqliteQueue.h"
#include "store/SqliteReserve.h"
#include "store/StoreRequest.h"

namespace workflow {

// The files of a store in SQLite, whatever its layout is, and what is checked about them.
//
//   <file>           the store; with <file>-wal and <file>-shm while it is open
//   <file>-queue     the order of processes, what they tell each other, and how many commits there
//                    have been (SqliteQueue)
//   <file>-reserve   room for the case that the disk is full (SqliteReserve)
//   <file>-new       a store that is being created
//
// Used by one thread at a time.
//
// Invariants:
// 1. A store that was not verified, or that has failed, is closed as it is: the log is not copied
//    into the file.
// 2. After a sync has failed, all of the log is copied into the file and synced anew before a store
//    is opened again. What the system still shows of the log need not be on the disk.
// 3. A store that has fewer commits than the queue has counted, or whose file is missing beside
//    its log or its queue, is not opened: something was lost that was reported as stored.
//    Nor is a file opened again that is another store than before, or a copy of it: what the
//    process knows of timers, fences and leases is not true of that, and a copy may lack what
//    others have copied from the log to the file, which nobody looks for in the log any more.
// 4. A process that has found its store damaged does not open it again before all pages are good.
//    Opening a shared store reads few of them. Otherwise what does not need the bad page would go
//    on: new timers would be stored, and none would start.
// 5. A store of the owned layout is open once. The process that has it open has a lock on the
//    queue, which the system takes back when the process dies. It keeps the lock while it opens the
//    store again after a failure, so that nobody else takes its timers while its leases live. It
//    gives the lock up only by close(), or when the file with the lock is not the queue any more.
class SqliteStore {
 public:
  SqliteStore(const std::string& path, SqliteLayout layout, const SqliteSettings& settings)
      : layout_(layout),
        log_bytes_(settings.log_bytes),
        busy_ms_(settings.busy_ms),
        file_(path, settings, layout),
        reserve_(path + "-reserve", settings) {}
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  // Opens the store, creates it if it is missing, and verifies it. Returns 0, or an errno value and
  // a message. After that either begin(), close(true) or close_files(true) follows. If it fails, an
  // owner that opens its store again is still the owner if owns() says so.
  int open(bool create, int64_t now_us, std::string* message);
  // The store is good: it is used from now on. With a thread for checkpoints, if there is to be
  // one.
  void begin(bool with_thread);
  // All statements must be gone. `has_failed`: see invariant 1.
  void close(bool has_failed);
  // Closes the files of an owner that is going to open the store again. It stays the owner
  // meanwhile.
  void close_files(bool has_failed);
  // Whether this is the owner of the store, which nobody else can open then.
  bool owns() const { return layout_ == SqliteLayout::kOwned && queue_.is_open(); }

  // Whether requests can be carried out, as far as is known. Otherwise sets `failure`.
  bool works(StoreFailure* failure);
  // Whether the disk has room as far as is known. If it was full, looks again once a second.
  bool has_room();
  // The disk is full: gives the reserve and the room of the log back. Outside of transactions.
  void use_reserve();
  // After a commit, outside of transactions.
  void committed();
  // Syncs what was committed without a sync, while the caller goes on.
  void sync_soon() { checkpoints_->sync_soon(); }
  // The first error of a connection to the file. Notes whether a sync has failed, or the
  // store is damaged.
  StoreFailure failure_of(const SqliteConnection& connection);

  // How many of the requests are one transaction at most, so that its memory is bounded.
  static size_t group_size(std::span<StoreRequest* const> requests);

  const std::string& path() const { return file_.path(); }
  SqliteFile& file() { return file_; }
  SqliteConnection& connection() { return file_.connection(); }
  SqliteQueue& queue() { return queue_; }

 private:
  // The most requests, and bytes of payloads, of one transaction.
  static constexpr size_t kMaxRequests = 4096;
  static constexpr size_t kMaxBytes = size_t{8} * 1024 * 1024;

  // Notes that this process has the store open, as far as it may.
  int enter(std::string* message);
  // Whoever owned the store no longer does. The files must be closed.
  void release();
  // Opens the queue, and creates the store if it is missing, while no other thread does.
  int open_queue(bool create, int64_t now_us, std::string* message);
  // Creates the store if it is missing. One that is there must have a single name.
  int make_file(bool create, int64_t now_us, std::string* message);
  // Opens the file, and verifies it. If that fails, the file is closed.
  int open_file(std::string* message);
  // The disk is full: gives the room of the log back if the disk has what copying the log takes.
  // Otherwise the rest of the room is left to what is appended to the log.
  void cut_log();
  // Lets every process know that what the log says need not be on the disk. Any thread.
  void note_failed_sync();
  // Compares the store with what the queue knows.
  int verify(std::string* message);

  const SqliteLayout layout_;
  const int64_t log_bytes_;
  const int busy_ms_;
  SqliteOpened opened_;
  SqliteFile file_;
  SqliteReserve reserve_;
  SqliteQueue queue_;
  std::optional<SqliteCheckpoints> checkpoints_;
  int64_t look_for_room_ns_ = 0;
  uint64_t identity_ = 0;  // of the store; 0: it has not been open yet
  std::pair<dev_t, ino_t> file_id_;
  int64_t commits_ = 0;       // how many it had at least when it was closed last
  bool was_damaged_ = false;  // and all pages must be read before it is open again
};

}  // namespace workflow

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "store/SqliteAnswers.h"
#include "store/SqliteCheckpoints.h"
#include "store/SqliteFile.h"
#include "store/SqliteNews.h"
#include "store/SqliteOpened.h"
#include "store/SqliteQueue.h"
#include "store/SqliteReserve.h"
#include "store/SqliteTimers.h"
#include "store/StoreBackend.h"

namespace workflow {

// A store in a file of SQLite, which processes of one machine may share.
//
//   <file>           the store; with <file>-wal and <file>-shm while it is open
//   <file>-queue     the order of processes, what they tell each other, and how many commits there
//                    have been (SqliteQueue)
//   <file>-reserve   room for the case that the disk is full (SqliteReserve)
//   <file>-new       a store that is being created
//
// execute() carries out its requests in one transaction, or in several if there are very many.
//
// Invariants:
// 1. While the file is open, rules_ exists. While it is not, broken_ says why: then nothing is
//    carried out until reopen() has succeeded.
// 2. No request has an answer that its transaction has not made durable.
// 3. While the disk is full (SqliteQueue::Page::disk_is_full), schedules are not carried out
//    (ENOSPC). Everything else is, in the room of the reserve.
// 4. A store that was not verified, or that has failed, is closed as it is: the log is not copied
//    into the file.
// 5. After a sync has failed, all of the log is copied into the file and synced anew before a store
//    is opened again. What the system still shows of the log need not be on the disk.
// 6. A store that has fewer commits than the queue has counted, or whose file is missing beside
//    its log or its queue, is not opened: something was lost that was reported as stored.
//
// If the file is busy for too long, or memory has run out, requests end with EBUSY or ENOMEM, and
// the store goes on. If two errors could be meant, the first one is reported.
class SqliteBackend : public StoreBackend {
 public:
  // Null with an errno value and a message.
  static std::unique_ptr<SqliteBackend> open(const std::string& place,
                                             const StoreBackendOptions& options,
                                             const SqliteSettings& settings, int* error,
                                             std::string* message);
  ~SqliteBackend() override;

  bool execute(std::span<StoreRequest* const> requests) override;
  int reopen(std::string* message) override;
  WFStoreReceipt receipt() const override;
  int64_t now_us() override;
  void close() override;

 private:
  using Requests = std::span<StoreRequest* const>;

  // The most requests, and bytes of payloads, of one transaction, so that its memory is bounded.
  static constexpr size_t kMostRequests = 4096;
  static constexpr size_t kMostBytes = size_t{8} * 1024 * 1024;

  // What is prepared over an open file.
  struct Rules {
    Rules(SqliteConnection& connection, size_t remembered)
        : meta(connection),
          timers(connection, meta, remembered),
          answers(connection, meta, remembered) {}
    SqliteMeta meta;
    SqliteTimers timers;
    SqliteAnswers answers;
  };

  SqliteBackend(const std::string& path, const StoreBackendOptions& options,
                const SqliteSettings& settings)
      : options_(options),
        settings_(settings),
        file_(path, settings),
        reserve_(path + "-reserve", settings) {}

  enum class Outcome { kCommitted, kFailed, kDiskIsFull };

  int open_file(bool create, std::string* message);
  // Opens the queue, and creates the store if it is missing, while no other thread does.
  int open_queue(bool create, std::string* message);
  // Creates the store if it is missing.
  int make_file(bool create, std::string* message);
  // Compares the store with what the queue knows.
  int verify(std::string* message);
  // Returns an error of the disk. Others are met by the first request if they stay.
  int know_session(std::string* message);
  void start_threads();
  void close_file();

  static size_t group_size(Requests requests);
  void execute_group(Requests requests);
  void read(Requests requests);
  void write(Requests requests);
  Outcome transact(Requests requests, bool schedules, StoreFailure* failure);
  // Begins, carries out, and prepares the commit. Returns whether the transaction changes the file.
  bool carry_out_all(Requests requests, bool schedules);
  void carry_out(StoreRequest& request, bool schedules);
  void carry_out_new(StoreRequest& request);
  // Ends the transaction, if there is one, after an error of the connection.
  void undo();
  // Whether the disk has room as far as is known. If it was full, looks again once a second.
  bool has_room();
  // The first error of a connection to the file. Notes whether a sync has failed.
  StoreFailure failure_of(const SqliteConnection& connection);

  void fail(Requests requests, const StoreFailure& failure);

  const StoreBackendOptions options_;
  const SqliteSettings settings_;
  SqliteOpened opened_;
  SqliteFile file_;
  SqliteReserve reserve_;
  SqliteQueue queue_;
  std::optional<SqliteNews> news_;
  std::optional<SqliteCheckpoints> checkpoints_;
  std::optional<Rules> rules_;
  StoreFailure broken_;
  int64_t look_for_room_ns_ = 0;
};

}  // namespace workflow

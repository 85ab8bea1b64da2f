#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "store/SqliteAnswers.h"
#include "store/SqliteMeta.h"
#include "store/SqliteNews.h"
#include "store/SqliteStore.h"
#include "store/SqliteTimers.h"
#include "store/StoreBackend.h"

namespace workflow {

// A store in a file of SQLite, which processes of one machine may share: the layout kShared of
// SqliteSchema, in the files of a SqliteStore.
//
// execute() carries out its requests in one transaction, or in several if there are very many.
//
// Invariants:
// 1. While the file is open, rules_ exists. While it is not, broken_ says why: then nothing is
//    carried out until reopen() has succeeded.
// 2. No request has an answer that its transaction has not made durable.
// 3. While the disk is full (SqliteQueue::Page::disk_is_full), schedules are not carried out
//    (ENOSPC). Everything else is, in the room of the reserve.
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
      : options_(options), settings_(settings), store_(path, SqliteLayout::kShared, settings) {}

  enum class Outcome { kCommitted, kFailed, kDiskIsFull };

  int open_file(bool create, std::string* message);
  // Returns an error of the disk. Others are met by the first request if they stay.
  int know_session(std::string* message);
  void close_file();

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

  void fail(Requests requests, const StoreFailure& failure);

  const StoreBackendOptions options_;
  const SqliteSettings settings_;
  SqliteStore store_;
  std::optional<SqliteNews> news_;
  std::optional<Rules> rules_;
  StoreFailure broken_;
};

}  // namespace workflow

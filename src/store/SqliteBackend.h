#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "store/SqliteAnswers.h"
#include "store/SqliteFile.h"
#include "store/SqliteTimers.h"
#include "store/StoreBackend.h"

namespace workflow {

// A store in a file of SQLite, which processes of one machine may share.
//
// execute() carries out its requests in one transaction, or in several if there are very many. It
// waits for other processes in the order in which they came.
//
// Invariants:
// 1. rules_ exists while file_ is open. broken_ has an error while it is not: then nothing is
//    carried out until reopen() has succeeded.
// 2. No request has an answer that its transaction has not made durable.
// 3. While the disk is full, schedules are not carried out (ENOSPC). Everything else is, from the
//    reserve.
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

  SqliteBackend(std::string path, const StoreBackendOptions& options,
                const SqliteSettings& settings)
      : options_(options), file_(std::move(path), settings) {}

  int open_file(bool create, std::string* message);
  static size_t group_size(Requests requests);
  bool execute_group(Requests requests);
  bool read(Requests requests);
  bool write(Requests requests, bool schedules);
  void carry_out(StoreRequest& request, bool schedules);
  void carry_out_new(StoreRequest& request);
  // Undoes the transaction after an error.
  void undo();
  // Returns false.
  bool fail_store(Requests requests, const StoreFailure& failure);
  static void fail(Requests requests, const StoreFailure& failure);

  const StoreBackendOptions options_;
  SqliteFile file_;
  std::optional<Rules> rules_;
  StoreFailure broken_;
};

}  // namespace workflow

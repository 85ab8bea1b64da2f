#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "store/SqliteAnswers.h"
#include "store/SqliteFileBackend.h"
#include "store/SqliteMeta.h"
#include "store/SqliteNews.h"
#include "store/SqliteTimers.h"

namespace workflow {

// A store in a file of SQLite, which processes of one machine may share: the layout kShared of
// SqliteSchema, in the files of a SqliteStore.
//
// execute() carries out its requests in one transaction, or in several if there are very many.
//
// Invariants:
// 1. While the file is open, rules_ exists.
// 2. No request has an answer that its transaction has not made durable.
// 3. While the disk is full (SqliteQueue::Page::disk_is_full), schedules are not carried out
//    (ENOSPC). Everything else is, in the room of the reserve.
class SqliteBackend final : public SqliteFileBackend {
 public:
  // Null with an errno value and a message.
  static std::unique_ptr<SqliteBackend> open(const std::string& place,
                                             const StoreBackendOptions& options,
                                             const SqliteSettings& settings, int* error,
                                             std::string* message);
  ~SqliteBackend() override;

 private:
  // After a look that has counted more than kManyCounted timers, later looks repeat its numbers
  // until kCountingPause times its duration has passed. So a process spends at most 2 % of its time
  // on counting.
  static constexpr uint64_t kManyCounted = 100'000;
  static constexpr int64_t kCountingPause = 50;

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
      : SqliteFileBackend(path, SqliteLayout::kShared, options, settings) {}

  int open_file(bool create, std::string* message) override;
  void close_file(bool opens_again) override;
  void carry_out_group(Requests requests) override;

  // Also gives the file of an older version the index that it lacks. Returns an error of the disk.
  // Others are met by the first request if they stay.
  int know_session(std::string* message);
  void read(Requests requests);
  void write(Requests requests);
  Outcome transact(Requests requests, bool schedules, StoreFailure* failure);
  // Begins, carries out, and prepares the commit. Returns whether the transaction changes the file.
  bool carry_out_all(Requests requests, bool schedules);
  void carry_out(StoreRequest& request, bool schedules);
  void carry_out_new(StoreRequest& request);
  void look(LookRequest& request, int64_t now_us);
  // Ends the transaction, if there is one, after an error of the connection.
  void undo();

  bool was_opened_ = false;  // since then the session is known, or was dropped
  std::optional<SqliteNews> news_;
  std::optional<Rules> rules_;
  LookRequest counted_;  // the last look that has counted many, ...
  int64_t count_again_ns_ = std::numeric_limits<int64_t>::min();  // ... which counts until then
};

}  // namespace workflow

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "store/SqliteStore.h"
#include "store/StoreBackend.h"

namespace workflow {

// What the backends over a file of SQLite have in common: groups of bounded size, what becomes of
// failures, opening again, and the end. How requests are carried out is the business of the classes
// below, whose destructors call close_file().
//
// Invariants:
// 1. While broken_ has no error, the file is open. While it has one, nothing is carried out until
//    reopen() has succeeded, and all requests fail with it.
// 2. If the file is busy for too long, or memory or room has run out, requests fail and the store
//    goes on. If two errors could be meant, the first one is reported.
class SqliteFileBackend : public StoreBackend {
 public:
  bool execute(std::span<StoreRequest* const> requests) final;
  int reopen(std::string* message) final;
  WFStoreReceipt receipt() const final;
  int64_t now_us() final;
  void close() final;

 protected:
  using Requests = std::span<StoreRequest* const>;
  enum class Outcome { kCommitted, kFailed, kDiskIsFull };

  SqliteFileBackend(const std::string& path, SqliteLayout layout,
                    const StoreBackendOptions& options, const SqliteSettings& settings)
      : options_(options), settings_(settings), store_(path, layout, settings) {}

  // Opens the file. Returns 0, or an errno value and a message; then it is closed.
  virtual int open_file(bool create, std::string* message) = 0;
  // Closes it if it is open. `opens_again`: open_file() follows, and an owner stays the owner.
  virtual void close_file(bool opens_again) = 0;
  // Carries out the requests in one transaction. They have no answers yet, and the store works.
  virtual void carry_out_group(Requests requests) = 0;

  // The requests have not been carried out.
  void fail(Requests requests, const StoreFailure& failure);
  // A schedule was not carried out, to keep room for what ends timers.
  void refuse_for_room(StoreRequest& request) const;
  // After a COMMIT that was begun then. One that has failed does not count.
  void note_commit(int64_t began_ns);
  bool has_failed() const { return broken_.error != 0; }

  const StoreBackendOptions options_;
  const SqliteSettings settings_;
  SqliteStore store_;

 private:
  StoreFailure broken_;
};

}  // namespace workflow

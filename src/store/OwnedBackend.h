#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "store/OwnedState.h"
#include "store/SqliteFileBackend.h"
#include "store/SqliteMeta.h"
#include "store/SqliteStatement.h"

namespace workflow {

// A store in a file of SQLite that one process owns: the layout kOwned of SqliteSchema, in the
// files of a SqliteStore.
//
// All timers are in memory (OwnedState), where requests are carried out. What they change is
// appended to a journal, which is a table of the file, in one transaction for all requests of a
// group; then they are answered. Opening the store reads the journal. So a request costs a few
// operations in memory, and its group one write at the end of a file; SQLite brings what is hard
// about files: checksums, recovery, checkpoints, a full disk.
//
// What makes it fast is also what need not be synced at once. A group without a request of a user
// is written, but not synced, before it is answered: no run waits for the disk, and none for the
// end of another one. If it ends runs, another thread syncs it while this one goes on.
//
// Invariants:
// 1. The file has one owner (SqliteStore). What was answered was written to it, so the death of the
//    process undoes nothing.
// 2. A request of a user that may change something is answered only after it, and all that was
//    written before it, has been synced. Counts and lists are answered without a sync. The loss of
//    power may undo claims, longer leases and ends of runs that were written since the last sync:
//    their timers run again, and these attempts may not count.
// 3. No fence is given twice, whatever is undone: `fence` in the file is ahead of all that may have
//    been given, and is where the next owner begins.
// 4. The leases of an owner are over as soon as there is another one: it looks at them as if they
//    had ended when it opened the store. An owner that opens the file again after a failure is
//    the owner all the time, and keeps its leases. If it could not stay the owner, because somebody
//    has removed the file with its lock, leases_are_lost() says so, or extensions are refused.
// 5. After any failure the memory may be ahead of the file (is_ahead_). Then nothing is carried out
//    until the journal has been read anew: by reopen() if the store has failed, and otherwise by
//    the next group.
// 6. While the disk is full schedules are not carried out (ENOSPC). The group that has met the full
//    disk is stored in the room of the reserve.
//
// Memory grows with the number of timers; docs/store.md says by how much.
class OwnedBackend final : public SqliteFileBackend {
 public:
  // Null with an errno value and a message.
  static std::unique_ptr<OwnedBackend> open(const std::string& place,
                                            const StoreBackendOptions& options,
                                            const SqliteSettings& settings, int* error,
                                            std::string* message);
  ~OwnedBackend() override;

  bool leases_are_lost() const override { return !store_.owns(); }

 private:
  // So many fences are taken from the file at a time, when less than half of them are left.
  static constexpr int64_t kFences = int64_t{1} << 20;

  // What is prepared over an open file.
  struct Statements {
    explicit Statements(SqliteConnection& connection)
        : meta(connection),
          begin(connection, "BEGIN IMMEDIATE"),
          commit(connection, "COMMIT"),
          append(connection, "INSERT INTO journal(id, records) VALUES(?, ?)"),
          drop(connection, "DELETE FROM journal WHERE id < ?"),
          read(connection, "SELECT id, records FROM journal ORDER BY id") {}
    SqliteMeta meta;
    SqliteStatement begin;
    SqliteStatement commit;
    SqliteStatement append;
    SqliteStatement drop;
    SqliteStatement read;
  };

  OwnedBackend(const std::string& path, const StoreBackendOptions& options,
               const SqliteSettings& settings)
      : SqliteFileBackend(path, SqliteLayout::kOwned, options, settings) {}

  int open_file(bool create, std::string* message) override;
  void close_file(bool opens_again) override;
  void carry_out_group(Requests requests) override;

  // Reads the journal. Returns 0, or an errno value and a message.
  int load(std::string* message);
  // Decides which leases are over (invariant 4).
  void look_at_owner();
  // Makes the session known that is new to the store.
  int commit_session(std::string* message);
  // Whether there is something to append, or to sync before the requests are answered.
  bool must_commit();
  // Appends to the file what the journal has in addition.
  Outcome commit(StoreFailure* failure);
  void fill_meta();
  void write_rows();
  // How a commit ends: with a sync, or when it is written.
  void set_sync(bool syncs);

  std::optional<Statements> statements_;
  std::unique_ptr<OwnedState> state_;
  bool is_ahead_ = false;
  OwnedState::Sync sync_ = OwnedState::Sync::kNotNeeded;  // of what is not yet appended
  bool syncs_ = true;                                     // how the connection is set
  bool has_unsynced_ = false;   // whether what was written may not be synced yet
  int64_t dropped_before_ = 0;  // rows before this one are not in the file
  int64_t given_fences_ = 0;    // `fence` in the file
  int64_t owner_ = 0;           // a number of this owner; the last one is in the file
  bool has_committed_ = false;  // as this owner
  bool was_known_ = false;      // the session may be in the file, or was dropped since
  uint64_t over_fence_ = 0;     // for the next load(): leases with this fence or less were over ...
  int64_t opened_us_ = 0;       // ... at this time
};

}  // namespace workflow

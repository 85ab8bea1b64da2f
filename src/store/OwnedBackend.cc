#include "store/OwnedBackend.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "store/SqlitePlace.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

std::unique_ptr<OwnedBackend> OwnedBackend::open(const std::string& place,
                                                 const StoreBackendOptions& options,
                                                 const SqliteSettings& settings, int* error,
                                                 std::string* message) {
  std::string path;
  SqliteLayout layout = SqliteLayout::kOwned;
  *error = find_sqlite_file(place, &path, &layout, message);
  if (*error != 0) return nullptr;
  std::unique_ptr<OwnedBackend> backend(new OwnedBackend(path, options, settings));
  *error = backend->open_file(options.create, message);
  return *error == 0 ? std::move(backend) : nullptr;
}

OwnedBackend::~OwnedBackend() {
  close_file(false);
}

int OwnedBackend::open_file(bool create, std::string* message) {
  state_.reset();
  if (const int error = store_.open(create, now_us(), message)) return error;
  statements_.emplace(store_.connection());
  syncs_ = settings_.full_sync;
  has_unsynced_ = settings_.full_sync;  // an owner that died may have left it
  int error = load(message);
  if (error == 0) {
    store_.begin(VirtualScheduler::current() == nullptr);
    error = commit_session(message);
  }
  if (error != 0) {
    statements_.reset();
    store_.close_files(true);
  }
  return error;
}

int OwnedBackend::load(std::string* message) {
  SqliteConnection& connection = store_.connection();
  state_ = std::make_unique<OwnedState>(options_.remembered);
  state_->set_now(now_us());
  sync_ = OwnedState::Sync::kNotNeeded;  // what has failed was not answered
  bool is_good = true;
  connection.run("BEGIN");
  SqliteMeta& meta = statements_->meta;
  if (meta.load()) {
    look_at_owner();
    SqliteCursor rows = statements_->read.find();
    while (is_good && rows.next()) {
      is_good = state_->read(rows.integer(0), rows.bytes(1));
    }
  }
  connection.run("COMMIT");
  if (connection.code() != SQLITE_OK) {
    const StoreFailure failure = store_.failure_of(connection);
    connection.undo();
    *message = failure.message;
    return failure.error;
  }
  OwnedState::Counters counters;
  counters.timers.last_number = static_cast<uint64_t>(meta.timer);
  counters.timers.last_fence = static_cast<uint64_t>(meta.fence);
  counters.timers.next_ended = static_cast<uint64_t>(meta.ended);
  counters.timers.since_us = meta.since_us;
  counters.has_dropped = meta.has_dropped;
  counters.stored = static_cast<uint64_t>(meta.stored);
  if (!is_good || !state_->restore(counters, over_fence_, opened_us_)) {
    *message = store_.path() + ": damaged: its journal does not make sense";
    return EILSEQ;
  }
  given_fences_ = meta.fence;
  dropped_before_ = state_->journal().first_row();
  is_ahead_ = false;
  // When the file is read again, the session may be one that was dropped meanwhile.
  if (options_.session != 0 && !(was_known_ && counters.has_dropped)) {
    state_->know_session(options_.session);
  }
  return 0;
}

void OwnedBackend::look_at_owner() {
  SqliteMeta& meta = statements_->meta;
  if (has_committed_ && meta.owner() == owner_) {
    over_fence_ = 0;  // that earlier leases are over is in the journal, since the first commit
    return;
  }
  const int64_t owner = meta.owner() + 1;
  if (owner != owner_) {
    opened_us_ = now_us();  // one that opens the file again before its first commit has opened it
  }
  owner_ = owner;
  has_committed_ = false;
  over_fence_ = static_cast<uint64_t>(meta.fence);
}

// An error of the disk is returned. After others, such as a full disk, what has to be written stays
// in the journal, and is written with the first group.
int OwnedBackend::commit_session(std::string* message) {
  sync_ = std::max(sync_, state_->write());
  if (!must_commit()) return 0;
  StoreFailure failure;
  if (commit(&failure) == Outcome::kFailed && !SqliteFile::goes_on_after(failure.error)) {
    *message = failure.message;
    return failure.error;
  }
  return 0;
}

void OwnedBackend::close_file(bool opens_again) {
  statements_.reset();
  if (opens_again) {
    store_.close_files(has_failed());
  } else {
    store_.close(has_failed());
  }
}

void OwnedBackend::carry_out_group(Requests requests) {
  StoreFailure failure;
  if (is_ahead_) {
    failure.error = load(&failure.message);
  }
  if (failure.error != 0) {
    fail(requests, failure);
    return;
  }
  const bool stores = store_.has_room();
  is_ahead_ = true;
  state_->set_now(now_us());
  for (StoreRequest* request : requests) {
    if (!state_->carry_out(*request, stores)) {
      refuse_for_room(*request);
    }
    if (auto* ask = std::get_if<AskRequest>(&request->what)) {
      ask->result.receipt = receipt();
      ask->result.request = ask->asked;
    }
  }
  sync_ = std::max(sync_, state_->write());
  Outcome outcome = Outcome::kCommitted;
  if (must_commit()) {
    outcome = commit(&failure);
    if (outcome == Outcome::kDiskIsFull) {
      store_.use_reserve();
      outcome = commit(&failure);
    }
  }
  if (outcome != Outcome::kCommitted) {
    fail(requests, failure);
    return;
  }
  is_ahead_ = false;
}

bool OwnedBackend::must_commit() {
  if (!state_->journal().written().empty()) return true;
  // An answer to a user may follow from what was written before, such as the end of a run.
  const OwnedState::Sync sync = std::exchange(sync_, OwnedState::Sync::kNotNeeded);
  if (sync == OwnedState::Sync::kNow && has_unsynced_) {
    sync_ = sync;
    return true;
  }
  return false;
}

OwnedBackend::Outcome OwnedBackend::commit(StoreFailure* failure) {
  SqliteConnection& connection = store_.connection();
  SqliteMeta& meta = statements_->meta;
  fill_meta();
  set_sync(sync_ == OwnedState::Sync::kNow);
  bool tried = false;
  if (statements_->begin.run()) {
    write_rows();
    tried = meta.save();
    was_known_ = was_known_ || tried;
    const int64_t began_ns = monotonic_ns();
    statements_->commit.run();
    note_commit(began_ns);
  }
  *failure = StoreFailure();
  if (connection.code() != SQLITE_OK) {
    meta.commits--;
    *failure = store_.failure_of(connection);
    const bool is_full = SqliteFile::is_full(connection);
    failure->in_doubt = tried && !is_full;
    connection.undo();
    return is_full ? Outcome::kDiskIsFull : Outcome::kFailed;
  }
  state_->journal().appended();
  dropped_before_ = state_->journal().first_row();
  given_fences_ = meta.fence;
  has_committed_ = true;
  const OwnedState::Sync sync = std::exchange(sync_, OwnedState::Sync::kNotNeeded);
  has_unsynced_ = !syncs_ && settings_.full_sync;
  if (sync == OwnedState::Sync::kNow && syncs_) {
    store_.queue().committed(meta.commits);
  } else if (sync == OwnedState::Sync::kSoon && settings_.full_sync) {
    store_.sync_soon();
  }
  store_.committed();
  return Outcome::kCommitted;
}

void OwnedBackend::fill_meta() {
  const OwnedState::Counters counters = state_->counters();
  SqliteMeta& meta = statements_->meta;
  const auto last_fence = static_cast<int64_t>(counters.timers.last_fence);
  if (last_fence > given_fences_ - kFences / 2) {
    meta.fence = last_fence + kFences;
    sync_ = OwnedState::Sync::kNow;
  }
  meta.timer = static_cast<int64_t>(counters.timers.last_number);
  meta.ended = static_cast<int64_t>(counters.timers.next_ended);
  meta.stored = static_cast<int64_t>(counters.stored);
  meta.since_us = counters.timers.since_us;
  meta.has_dropped = counters.has_dropped;
  meta.set_owner(owner_);
  meta.commits++;
}

void OwnedBackend::write_rows() {
  const MemoryJournal& journal = state_->journal();
  for (const MemoryJournal::Row& row : journal.written()) {
    statements_->append.run(row.number, row.bytes);
  }
  if (journal.first_row() > dropped_before_) {
    statements_->drop.run(journal.first_row());
  }
}

void OwnedBackend::set_sync(bool syncs) {
  syncs = syncs && settings_.full_sync;
  if (syncs != syncs_ && store_.connection().run(syncs ? "PRAGMA synchronous = FULL"
                                                       : "PRAGMA synchronous = NORMAL")) {
    syncs_ = syncs;
  }
}

}  // namespace workflow

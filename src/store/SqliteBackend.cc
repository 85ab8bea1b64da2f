#include "store/SqliteBackend.h"

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "store/OwnedBackend.h"
#include "store/SqlitePlace.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

std::unique_ptr<SqliteBackend> SqliteBackend::open(const std::string& place,
                                                   const StoreBackendOptions& options,
                                                   const SqliteSettings& settings, int* error,
                                                   std::string* message) {
  std::string path;
  SqliteLayout layout = SqliteLayout::kShared;
  *error = find_sqlite_file(place, &path, &layout, message);
  if (*error == 0 && layout != SqliteLayout::kShared) {
    *error = EINVAL;
    *message = path + ": this backend is for shared stores only";
  }
  if (*error != 0) return nullptr;
  std::unique_ptr<SqliteBackend> backend(new SqliteBackend(path, options, settings));
  *error = backend->open_file(options.create, message);
  return *error == 0 ? std::move(backend) : nullptr;
}

SqliteBackend::~SqliteBackend() {
  close_file(false);
}

int SqliteBackend::open_file(bool create, std::string* message) {
  if (const int error = store_.open(create, now_us(), message)) return error;
  rules_.emplace(store_.connection(), options_.remembered);
  news_.emplace(store_.queue());
  const bool has_threads = VirtualScheduler::current() == nullptr;
  store_.begin(has_threads);
  if (const int error = know_session(message)) {
    news_.reset();
    rules_.reset();
    store_.close(true);
    return error;
  }
  was_opened_ = true;
  if (has_threads && options_.clock->is_system_clock() && options_.changed) {
    news_->start(options_.changed);
  }
  return 0;
}

int SqliteBackend::know_session(std::string* message) {
  if (options_.session == 0) return 0;
  SqliteConnection& connection = store_.connection();
  if (connection.run(SqliteSchema::kLeasedIndex) && connection.run("BEGIN IMMEDIATE")) {
    rules_->answers.begin(now_us());
    rules_->meta.load();
    // When the store is opened again, the session may be one that was dropped meanwhile.
    if (!was_opened_ || !rules_->meta.has_dropped) {
      rules_->answers.know(options_.session);
    }
    rules_->answers.save();
    rules_->meta.commits++;
    rules_->meta.save();
    if (connection.run("COMMIT")) {
      store_.queue().committed(rules_->meta.commits);
    }
  }
  StoreFailure failure;
  if ((connection.code() & 0xff) == SQLITE_IOERR && !SqliteFile::is_full(connection)) {
    failure = store_.failure_of(connection);
    *message = failure.message;
  }
  undo();
  return failure.error;
}

void SqliteBackend::close_file(bool) {
  news_.reset();
  rules_.reset();
  store_.close(has_failed());
}

void SqliteBackend::carry_out_group(Requests requests) {
  if (std::all_of(requests.begin(), requests.end(),
                  [](const StoreRequest* request) { return only_reads(*request); })) {
    read(requests);
  } else {
    write(requests);
  }
}

void SqliteBackend::read(Requests requests) {
  SqliteConnection& connection = store_.connection();
  if (connection.run("BEGIN") && rules_->meta.load()) {
    for (StoreRequest* request : requests) {
      carry_out_new(*request);
    }
  }
  if (!connection.run("COMMIT")) {
    const StoreFailure failure = store_.failure_of(connection);
    undo();
    fail(requests, failure);
  }
}

void SqliteBackend::write(Requests requests) {
  const bool had_room = store_.has_room();
  StoreFailure failure;
  Outcome outcome = transact(requests, had_room, &failure);
  if (outcome == Outcome::kDiskIsFull) {
    store_.use_reserve();
    for (StoreRequest* request : requests) {
      clear_answer(*request);
    }
    outcome = transact(requests, false, &failure);
  }
  if (outcome != Outcome::kCommitted) {
    fail(requests, failure);
    return;
  }
  store_.committed();
}

SqliteBackend::Outcome SqliteBackend::transact(Requests requests, bool schedules,
                                               StoreFailure* failure) {
  SqliteConnection& connection = store_.connection();
  store_.queue().enter(settings_.busy_ms);
  const bool changes = carry_out_all(requests, schedules);
  bool commits = false;
  *failure = StoreFailure();
  if (connection.code() == SQLITE_OK && (!changes || store_.file().is_same(failure))) {
    commits = true;
    const int64_t began_ns = monotonic_ns();
    connection.run("COMMIT");
    if (changes) {
      note_commit(began_ns);
    }
  }
  Outcome outcome = Outcome::kCommitted;
  if (connection.code() != SQLITE_OK) {
    *failure = store_.failure_of(connection);
    const bool is_full = SqliteFile::is_full(connection);
    failure->in_doubt = commits && changes && !is_full;
    outcome = is_full ? Outcome::kDiskIsFull : Outcome::kFailed;
  } else if (failure->error != 0) {
    outcome = Outcome::kFailed;
  }
  if (outcome == Outcome::kCommitted) {
    store_.queue().committed(rules_->meta.commits);
  } else {
    undo();
  }
  store_.queue().leave();
  if (outcome == Outcome::kCommitted && rules_->timers.has_news()) {
    news_->tell();
  }
  return outcome;
}

bool SqliteBackend::carry_out_all(Requests requests, bool schedules) {
  SqliteConnection& connection = store_.connection();
  if (!connection.run("BEGIN IMMEDIATE")) return false;
  const int64_t before = sqlite3_total_changes64(connection.handle());
  rules_->answers.begin(now_us());
  rules_->timers.begin();
  rules_->meta.load();
  for (StoreRequest* request : requests) {
    if (connection.code() != SQLITE_OK) return false;
    carry_out(*request, schedules);
  }
  if (sqlite3_total_changes64(connection.handle()) == before) return false;
  rules_->timers.save();
  rules_->answers.save();
  rules_->meta.commits++;
  rules_->meta.save();
  return true;
}

void SqliteBackend::carry_out(StoreRequest& request, bool schedules) {
  if (rules_->answers.repeat(request)) return;
  if (!schedules && std::holds_alternative<ScheduleRequest>(request.what)) {
    refuse_for_room(request);
    return;
  }
  carry_out_new(request);
  if (store_.connection().code() == SQLITE_OK) {
    rules_->answers.add(request);
  }
}

void SqliteBackend::carry_out_new(StoreRequest& request) {
  const int64_t now = now_us();
  std::visit(
      [this, now, &request](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          rules_->timers.carry_out(what, request.failure, now);
        } else if constexpr (std::is_same_v<What, AskRequest>) {
          rules_->answers.carry_out(what, request.failure);
          what.result.receipt = receipt();
          what.result.request = what.asked;
        } else if constexpr (std::is_same_v<What, CountRequest>) {
          rules_->timers.carry_out(what);
        } else if constexpr (std::is_same_v<What, LookRequest>) {
          look(what, now);
        } else {
          rules_->timers.carry_out(what, now);
        }
      },
      request.what);
}

void SqliteBackend::look(LookRequest& request, int64_t now_us) {
  const int64_t began_ns = monotonic_ns();
  if (began_ns < count_again_ns_) {
    std::vector<std::string> handled = std::move(request.handled);
    request = counted_;
    request.handled = std::move(handled);
    request.stored = static_cast<uint64_t>(rules_->meta.stored);
    return;
  }
  rules_->timers.carry_out(request, now_us);
  if (request.due + request.failed_timers > kManyCounted) {
    counted_ = request;
    const int64_t ended_ns = monotonic_ns();
    count_again_ns_ = ended_ns + kCountingPause * (ended_ns - began_ns);
  }
}

void SqliteBackend::undo() {
  store_.connection().undo();
  rules_->timers.forget();
}

std::unique_ptr<StoreBackend> open_sqlite_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message) {
  std::string path;
  SqliteLayout layout = SqliteLayout::kShared;
  *error = find_sqlite_file(place, &path, &layout, message);
  if (*error != 0) return nullptr;
  if (layout == SqliteLayout::kOwned) {
    return OwnedBackend::open(place, options, SqliteSettings(), error, message);
  }
  return SqliteBackend::open(place, options, SqliteSettings(), error, message);
}

}  // namespace workflow

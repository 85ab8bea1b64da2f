#include "store/SqliteBackend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
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
  if (*error != 0) {
    return nullptr;
  }
  std::unique_ptr<SqliteBackend> backend(new SqliteBackend(path, options, settings));
  *error = backend->open_file(options.create, message);
  return *error == 0 ? std::move(backend) : nullptr;
}

SqliteBackend::~SqliteBackend() {
  close_file();
}

int SqliteBackend::open_file(bool create, std::string* message) {
  if (const int error = store_.open(create, now_us(), message)) {
    return error;
  }
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
  if (has_threads && options_.clock->is_system_clock() && options_.changed) {
    news_->start(options_.changed);
  }
  return 0;
}

int SqliteBackend::know_session(std::string* message) {
  if (options_.session == 0) {
    return 0;
  }
  SqliteConnection& connection = store_.connection();
  if (connection.run("BEGIN IMMEDIATE")) {
    rules_->answers.begin();
    rules_->meta.load();
    rules_->answers.know(options_.session, now_us());
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

void SqliteBackend::close_file() {
  news_.reset();
  rules_.reset();
  store_.close(broken_.error != 0);
}

bool SqliteBackend::execute(Requests requests) {
  while (!requests.empty()) {
    const size_t size = SqliteStore::group_size(requests);
    execute_group(requests.first(size));
    requests = requests.subspan(size);
  }
  return broken_.error == 0;
}

void SqliteBackend::execute_group(Requests requests) {
  for (StoreRequest* request : requests) {
    clear_answer(*request);
  }
  StoreFailure failure = broken_;
  if (failure.error != 0 || !store_.works(&failure)) {
    fail(requests, failure);
    return;
  }
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
    connection.run("COMMIT");
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
  if (!connection.run("BEGIN IMMEDIATE")) {
    return false;
  }
  const int64_t before = sqlite3_total_changes64(connection.handle());
  rules_->answers.begin();
  rules_->timers.begin();
  rules_->meta.load();
  for (StoreRequest* request : requests) {
    if (connection.code() != SQLITE_OK) {
      return false;
    }
    carry_out(*request, schedules);
  }
  if (sqlite3_total_changes64(connection.handle()) == before) {
    return false;
  }
  rules_->timers.save();
  rules_->answers.save();
  rules_->meta.commits++;
  rules_->meta.save();
  return true;
}

void SqliteBackend::carry_out(StoreRequest& request, bool schedules) {
  const bool has_id = request.id.number != 0;
  if (has_id) {
    switch (rules_->answers.find(request)) {
      case SqliteAnswers::Found::kYes:
        return;
      case SqliteAnswers::Found::kUsedUp:
        request.failure.error = ECANCELED;
        request.failure.message = "its id was asked for, and is used up";
        return;
      case SqliteAnswers::Found::kNo:
      case SqliteAnswers::Found::kForgotten:
        break;
    }
  }
  if (!schedules && std::holds_alternative<ScheduleRequest>(request.what)) {
    request.failure.error = ENOSPC;
    request.failure.message = store_.path() + ": the disk is full, and the timer was not stored";
    return;
  }
  carry_out_new(request);
  if (has_id && store_.connection().code() == SQLITE_OK) {
    rules_->answers.add(request, now_us());
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
          rules_->answers.carry_out(what, request.failure, now);
          what.result.receipt = receipt();
          what.result.request = what.asked;
        } else if constexpr (std::is_same_v<What, CountRequest>) {
          rules_->timers.carry_out(what);
        } else {
          rules_->timers.carry_out(what, now);
        }
      },
      request.what);
}

void SqliteBackend::undo() {
  SqliteConnection& connection = store_.connection();
  connection.forget_error();
  if (connection.in_transaction()) {
    connection.run("ROLLBACK");
    connection.forget_error();
  }
  rules_->timers.forget();
}

// A store whose file is busy, or that has no memory or no room, has not failed.
void SqliteBackend::fail(Requests requests, const StoreFailure& failure) {
  for (StoreRequest* request : requests) {
    clear_answer(*request);
    request->failure = failure;
  }
  if (!SqliteFile::goes_on_after(failure.error)) {
    broken_ = failure;
    broken_.in_doubt = false;
  }
}

int SqliteBackend::reopen(std::string* message) {
  close_file();
  const int error = open_file(false, message);
  broken_ = StoreFailure();
  if (error != 0) {
    broken_.error = error;
    broken_.message = *message;
  }
  return error;
}

WFStoreReceipt SqliteBackend::receipt() const {
  WFStoreReceipt receipt;
  receipt.level = WFStoreReceipt::kFile;
  return receipt;
}

int64_t SqliteBackend::now_us() {
  return options_.clock->now_ns_on(ClockId::kWall) / kNsPerUs;
}

void SqliteBackend::close() {
  close_file();
  broken_.error = ESHUTDOWN;
  broken_.message.clear();  // a text might need memory
}

std::unique_ptr<StoreBackend> open_sqlite_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message) {
  std::string path;
  SqliteLayout layout = SqliteLayout::kShared;
  *error = find_sqlite_file(place, &path, &layout, message);
  if (*error != 0) {
    return nullptr;
  }
  if (layout == SqliteLayout::kOwned) {
    return OwnedBackend::open(place, options, SqliteSettings(), error, message);
  }
  return SqliteBackend::open(place, options, SqliteSettings(), error, message);
}

}  // namespace workflow

#include "store/SqliteBackend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "store/SqlitePlace.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

bool only_reads(const StoreRequest& request) {
  return std::holds_alternative<CountRequest>(request.what) ||
         std::holds_alternative<ListRequest>(request.what) ||
         std::holds_alternative<LookRequest>(request.what);
}

// Takes back what an earlier attempt has answered.
void clear_answer(StoreRequest& request) {
  request.failure = StoreFailure();
  std::visit(
      [](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          what.timer = 0;
          what.answers.clear();
        } else if constexpr (std::is_same_v<What, CancelRequest> ||
                             std::is_same_v<What, RescheduleRequest>) {
          what.answers.clear();
        } else if constexpr (std::is_same_v<What, ClaimRequest>) {
          what.claimed.clear();
          what.next_us = kNeverUs;
          what.more = false;
        } else if constexpr (std::is_same_v<What, FinishRequest>) {
          what.accepted = false;
        } else if constexpr (std::is_same_v<What, ExtendRequest>) {
          what.extended.clear();
        } else if constexpr (std::is_same_v<What, AskRequest>) {
          what.found = false;
          what.result = WFStoreResult();
        } else if constexpr (std::is_same_v<What, CountRequest> ||
                             std::is_same_v<What, FailedRequest>) {
          what.count = 0;
        } else if constexpr (std::is_same_v<What, ListRequest>) {
          what.timers.clear();
          what.more = false;
        } else {
          what.stored = 0;
          what.overdue = 0;
          what.unhandled = 0;
        }
      },
      request.what);
}

}  // namespace

std::unique_ptr<SqliteBackend> SqliteBackend::open(const std::string& place,
                                                   const StoreBackendOptions& options,
                                                   const SqliteSettings& settings, int* error,
                                                   std::string* message) {
  std::string path;
  *error = find_sqlite_file(place, &path, message);
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
  int error = file_.check_directory(message);
  if (error == 0 && !create && !file_.exists()) {
    *message = file_.path() + ": there is no store";
    return ENOENT;
  }
  if (error == 0) {
    error = opened_.enter(file_.path());
    if (error != 0) {
      *message = file_.path() +
                 ": was open when this process was forked, and its locks have stayed with the "
                 "parent";
    }
  }
  if (error == 0) {
    error = open_queue(create, message);
  }
  if (error == 0) {
    error = file_.open(message);
  }
  if (error == 0) {
    rules_.emplace(file_.connection(), options_.remembered);
    error = verify(message);
  }
  if (error != 0) {
    close_file();
    return error;
  }
  file_.set_copies_on_close(true);
  checkpoints_.emplace(file_.checkpoints());
  news_.emplace(queue_);
  if (SqliteReserve::is_full(reserve_.make())) {
    queue_.page().disk_is_full = 1;
  }
  if (const int session_error = know_session(message)) {
    file_.set_copies_on_close(false);
    close_file();
    return session_error;
  }
  start_threads();
  return 0;
}

int SqliteBackend::open_queue(bool create, std::string* message) {
  MutexLock lock(SqliteOpened::creation());
  const int error = queue_.open(file_.path() + "-queue", message);
  return error != 0 ? error : make_file(create, message);
}

int SqliteBackend::make_file(bool create, std::string* message) {
  if (const int error = queue_.lock_creation()) {
    *message = file_.path() + "-queue: " + std::strerror(error);
    return error;
  }
  int error = 0;
  if (!file_.exists()) {
    if (file_.has_log() || queue_.page().commits > 0) {
      *message = file_.path() +
                 ": the file is missing, but what belongs to it is there; to begin anew, remove "
                 "the files whose names begin with this one";
      error = EILSEQ;
    } else if (create) {
      error = file_.create(now_us(), message);
    } else {
      *message = file_.path() + ": there is no store";
      error = ENOENT;
    }
  }
  queue_.unlock_creation();
  return error;
}

int SqliteBackend::verify(std::string* message) {
  SqliteQueue::Page& page = queue_.page();
  // Before the store is read: other processes may commit in between.
  const int64_t commits = page.commits;
  SqliteConnection& connection = file_.connection();
  connection.run("BEGIN");
  rules_->meta.load();
  connection.run("COMMIT");
  if (connection.code() != SQLITE_OK) {
    const StoreFailure failure = failure_of(connection);
    *message = failure.message;
    return failure.error;
  }
  uint64_t identity = 0;
  if (!page.identity.compare_exchange_strong(identity, rules_->meta.identity) &&
      identity != rules_->meta.identity) {
    *message = file_.path() + ": another store than " + file_.path() + "-queue belongs to";
    return EILSEQ;
  }
  if (rules_->meta.commits < commits) {
    *message = file_.path() +
               ": has lost transactions: " + std::to_string(commits - rules_->meta.commits) +
               " of " + std::to_string(commits) + "; to accept that, remove " + file_.path() +
               "-queue";
    return EILSEQ;
  }
  uint32_t failed_syncs = page.failed_syncs;
  if (failed_syncs != 0) {
    if (const int error = file_.copy_log(message)) {
      return error;
    }
    page.failed_syncs.compare_exchange_strong(failed_syncs, 0);
  }
  queue_.committed(rules_->meta.commits);
  return 0;
}

int SqliteBackend::know_session(std::string* message) {
  if (options_.session == 0) {
    return 0;
  }
  SqliteConnection& connection = file_.connection();
  if (connection.run("BEGIN IMMEDIATE")) {
    rules_->answers.begin();
    rules_->meta.load();
    rules_->answers.know(options_.session, now_us());
    rules_->answers.save();
    rules_->meta.commits++;
    rules_->meta.save();
    if (connection.run("COMMIT")) {
      queue_.committed(rules_->meta.commits);
    }
  }
  StoreFailure failure;
  if ((connection.code() & 0xff) == SQLITE_IOERR && !SqliteFile::is_full(connection)) {
    failure = failure_of(connection);
    *message = failure.message;
  }
  undo();
  return failure.error;
}

void SqliteBackend::start_threads() {
  if (VirtualScheduler::current() != nullptr) {
    return;
  }
  checkpoints_->start();
  if (options_.clock->is_system_clock() && options_.changed) {
    news_->start(options_.changed);
  }
}

void SqliteBackend::close_file() {
  news_.reset();
  bool has_failed = broken_.error != 0;
  if (checkpoints_) {
    checkpoints_->stop();
    if (checkpoints_->failed()) {
      has_failed = true;
      failure_of(file_.checkpoints());
    }
    checkpoints_.reset();
  }
  rules_.reset();
  if (has_failed && !file_.has_lost_log()) {
    file_.set_copies_on_close(false);
  }
  file_.close();
  {
    // This takes away the locks of all threads on the file of the queue.
    MutexLock lock(SqliteOpened::creation());
    queue_.close();
  }
  opened_.leave();
}

bool SqliteBackend::execute(Requests requests) {
  while (!requests.empty()) {
    const size_t size = group_size(requests);
    execute_group(requests.first(size));
    requests = requests.subspan(size);
  }
  return broken_.error == 0;
}

size_t SqliteBackend::group_size(Requests requests) {
  size_t size = 0;
  size_t bytes = 0;
  for (; size < requests.size() && size < kMostRequests && bytes < kMostBytes; size++) {
    if (const auto* schedule = std::get_if<ScheduleRequest>(&requests[size]->what)) {
      bytes += schedule->spec.payload.size() + schedule->spec.name.size();
    }
  }
  return size;
}

void SqliteBackend::execute_group(Requests requests) {
  for (StoreRequest* request : requests) {
    clear_answer(*request);
  }
  StoreFailure failure = broken_;
  if (failure.error == 0 && checkpoints_->failed()) {
    checkpoints_->stop();
    failure = failure_of(file_.checkpoints());
    if (SqliteFile::goes_on_after(failure.error)) {
      failure.error = EIO;  // nothing is copied any more
    }
  }
  if (failure.error == 0 && !queue_.is_whole()) {
    failure.error = EILSEQ;
    failure.message = file_.path() + "-queue: was cut";
  }
  if (failure.error != 0 || !file_.is_same(&failure)) {
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
  SqliteConnection& connection = file_.connection();
  if (connection.run("BEGIN") && rules_->meta.load()) {
    for (StoreRequest* request : requests) {
      carry_out_new(*request);
    }
  }
  if (!connection.run("COMMIT")) {
    const StoreFailure failure = failure_of(connection);
    undo();
    fail(requests, failure);
  }
}

void SqliteBackend::write(Requests requests) {
  const bool had_room = has_room();
  StoreFailure failure;
  Outcome outcome = transact(requests, had_room, &failure);
  if (outcome == Outcome::kDiskIsFull) {
    queue_.page().disk_is_full = 1;
    look_for_room_ns_ = monotonic_ns() + kNsPerSec;
    reserve_.release();
    for (StoreRequest* request : requests) {
      clear_answer(*request);
    }
    outcome = transact(requests, false, &failure);
  }
  if (outcome != Outcome::kCommitted) {
    fail(requests, failure);
    return;
  }
  checkpoints_->committed(file_.log_bytes());
}

bool SqliteBackend::has_room() {
  SqliteQueue::Page& page = queue_.page();
  if (page.disk_is_full != 0 && monotonic_ns() >= look_for_room_ns_) {
    // A reserve that cannot be made for another reason does not mean that the disk is full.
    if (reserve_.has_room() && !SqliteReserve::is_full(reserve_.make())) {
      page.disk_is_full = 0;
    } else {
      look_for_room_ns_ = monotonic_ns() + kNsPerSec;
    }
  }
  return page.disk_is_full == 0;
}

StoreFailure SqliteBackend::failure_of(const SqliteConnection& connection) {
  if (SqliteFile::is_sync(connection) && queue_.is_whole()) {
    queue_.page().failed_syncs++;
  }
  return file_.failure_of(connection);
}

SqliteBackend::Outcome SqliteBackend::transact(Requests requests, bool schedules,
                                               StoreFailure* failure) {
  SqliteConnection& connection = file_.connection();
  queue_.enter(settings_.busy_ms);
  const bool changes = carry_out_all(requests, schedules);
  bool commits = false;
  *failure = StoreFailure();
  if (connection.code() == SQLITE_OK && (!changes || file_.is_same(failure))) {
    commits = true;
    connection.run("COMMIT");
  }
  Outcome outcome = Outcome::kCommitted;
  if (connection.code() != SQLITE_OK) {
    *failure = failure_of(connection);
    const bool is_full = SqliteFile::is_full(connection);
    failure->in_doubt = commits && changes && !is_full;
    outcome = is_full ? Outcome::kDiskIsFull : Outcome::kFailed;
  } else if (failure->error != 0) {
    outcome = Outcome::kFailed;
  }
  if (outcome == Outcome::kCommitted) {
    queue_.committed(rules_->meta.commits);
  } else {
    undo();
  }
  queue_.leave();
  if (outcome == Outcome::kCommitted && rules_->timers.has_news()) {
    news_->tell();
  }
  return outcome;
}

bool SqliteBackend::carry_out_all(Requests requests, bool schedules) {
  SqliteConnection& connection = file_.connection();
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
    request.failure.message = file_.path() + ": the disk is full, and the timer was not stored";
    return;
  }
  carry_out_new(request);
  if (has_id && file_.connection().code() == SQLITE_OK) {
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
  SqliteConnection& connection = file_.connection();
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
  broken_.message = "the store is closed";
}

std::unique_ptr<StoreBackend> open_sqlite_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message) {
  return SqliteBackend::open(place, options, SqliteSettings(), error, message);
}

}  // namespace workflow

#include "store/SqliteBackend.h"

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "store/SqlitePlace.h"
#include "util/Time.h"

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
  close();
}

int SqliteBackend::open_file(bool create, std::string* message) {
  if (const int error = file_.check_directory(message)) {
    return error;
  }
  if (!file_.exists()) {
    if (file_.has_log()) {
      *message = file_.path() + ": the file is missing, but its log is there";
      return EILSEQ;
    }
    if (!create) {
      *message = file_.path() + ": there is no store";
      return ENOENT;
    }
    if (const int error = file_.create(now_us(), message); error != 0 && error != EEXIST) {
      return error;
    }
  }
  if (const int error = file_.open(message)) {
    return error;
  }
  rules_.emplace(file_.connection(), options_.remembered);
  SqliteConnection& connection = file_.connection();
  connection.run("BEGIN IMMEDIATE");
  if (connection.code() == SQLITE_OK && rules_->meta.load() && options_.session != 0) {
    rules_->answers.begin();
    rules_->answers.know(options_.session, now_us());
    rules_->answers.save();
    rules_->meta.commits++;
    rules_->meta.save();
  }
  connection.run("COMMIT");
  if (connection.code() != SQLITE_OK) {
    const StoreFailure failure = file_.failure_of(connection);
    *message = failure.message;
    close();
    return failure.error;
  }
  return 0;
}

bool SqliteBackend::execute(Requests requests) {
  while (!requests.empty()) {
    const size_t size = group_size(requests);
    if (broken_.error != 0) {
      fail(requests, broken_);
      return false;
    }
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

bool SqliteBackend::execute_group(Requests requests) {
  StoreFailure failure;
  if (!file_.is_same(&failure)) {
    return fail_store(requests, failure);
  }
  for (StoreRequest* request : requests) {
    clear_answer(*request);
  }
  const bool reads = std::all_of(requests.begin(), requests.end(),
                                 [](const StoreRequest* request) { return only_reads(*request); });
  return reads ? read(requests) : write(requests, true);
}

bool SqliteBackend::read(Requests requests) {
  SqliteConnection& connection = file_.connection();
  if (connection.run("BEGIN") && rules_->meta.load()) {
    for (StoreRequest* request : requests) {
      carry_out_new(*request);
    }
  }
  if (connection.run("COMMIT")) {
    return true;
  }
  const StoreFailure failure = file_.failure_of(connection);
  undo();
  return fail_store(requests, failure);
}

bool SqliteBackend::write(Requests requests, bool schedules) {
  SqliteConnection& connection = file_.connection();
  if (!connection.run("BEGIN IMMEDIATE")) {
    const StoreFailure failure = file_.failure_of(connection);
    undo();
    return fail_store(requests, failure);
  }
  rules_->answers.begin();
  rules_->timers.begin();
  const int64_t before = sqlite3_total_changes64(connection.handle());
  rules_->meta.load();
  for (StoreRequest* request : requests) {
    if (connection.code() != SQLITE_OK) {
      break;
    }
    carry_out(*request, schedules);
  }
  if (sqlite3_total_changes64(connection.handle()) != before) {
    rules_->answers.save();
    rules_->meta.commits++;
    rules_->meta.save();
  }
  if (connection.code() != SQLITE_OK) {
    const StoreFailure failure = file_.failure_of(connection);
    undo();
    return fail_store(requests, failure);
  }
  if (connection.run("COMMIT")) {
    return true;
  }
  StoreFailure failure = file_.failure_of(connection);
  failure.in_doubt = failure.error != ENOSPC;
  undo();
  return fail_store(requests, failure);
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

bool SqliteBackend::fail_store(Requests requests, const StoreFailure& failure) {
  fail(requests, failure);
  if (failure.error != EBUSY && failure.error != ENOMEM && failure.error != ENOSPC) {
    broken_ = failure;
    broken_.in_doubt = false;
  }
  return false;
}

void SqliteBackend::fail(Requests requests, const StoreFailure& failure) {
  for (StoreRequest* request : requests) {
    clear_answer(*request);
    request->failure = failure;
  }
}

int SqliteBackend::reopen(std::string* message) {
  close();
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
  rules_.reset();
  file_.close();
}

std::unique_ptr<StoreBackend> open_sqlite_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message) {
  return SqliteBackend::open(place, options, SqliteSettings(), error, message);
}

}  // namespace workflow

#include "workflow/WFTimerStore.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "factory/PrometheusText.h"
#include "store/StoreBackend.h"
#include "store/StoreDue.h"
#include "store/StoreEngine.h"
#include "store/StoreOpener.h"
#include "store/StoreTask.h"
#include "store/StoreText.h"
#include "store/StoreTime.h"
#include "workflow/WFTaskState.h"

using workflow::CancelRequest;
using workflow::CountRequest;
using workflow::FailedRequest;
using workflow::ListRequest;
using workflow::RescheduleRequest;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreBackendOptions;
using workflow::StoreDue;
using workflow::StoreEngine;
using workflow::StoreFailure;
using workflow::StoreOpener;
using workflow::StoreRequest;
using workflow::StoreTask;
using workflow::StoreText;
using workflow::us_from_ns;

namespace {

constexpr size_t kMaxName = 1024;
constexpr size_t kMaxKind = 255;
constexpr size_t kMaxPayload = 64 * 1024;
constexpr size_t kMaxListed = 10'000;

StoreFailure wrong(int error, const std::string& message) {
  return {error, message, false};
}

StoreFailure too_long(const char* what, size_t size, size_t most) {
  return wrong(EMSGSIZE, std::string(what) + " has " + std::to_string(size) + " bytes; at most " +
                             std::to_string(most) + " are allowed");
}

StoreFailure check_name(const char* what, const std::string& name) {
  return name.size() > kMaxName ? too_long(what, name.size(), kMaxName) : StoreFailure();
}

// Backends keep both numbers as signed ones, and use 0 for none.
bool is_valid(const WFStoreRequestId& id) {
  return id.session > 0 && id.session <= INT64_MAX && id.number > 0 && id.number <= INT64_MAX;
}

StoreFailure check_kind(const std::string& kind) {
  if (kind.empty()) return wrong(EINVAL, "the kind is empty");
  return kind.size() > kMaxKind ? too_long("the kind", kind.size(), kMaxKind) : StoreFailure();
}

// Carries out the request of a task that was just created.
WFStoreResult wait_for(WFStoreTask* task) {
  return static_cast<StoreTask*>(task)->run_and_free();
}

// A request that changes nothing.
StoreTask* task_of(const std::shared_ptr<StoreEngine>& engine, StoreRequest&& request,
                   StoreFailure failure, WFTimerStore::Callback&& callback) {
  return new StoreTask(engine, std::move(request), {}, std::move(failure), std::move(callback));
}

// One that changes something.
StoreTask* change_task(const std::shared_ptr<StoreEngine>& engine, StoreRequest&& request,
                       StoreFailure failure, WFTimerStore::Callback&& callback,
                       std::optional<StoreDue> due = std::nullopt) {
  StoreTask::Details details = {std::move(due), request.id.number == 0};
  return new StoreTask(engine, std::move(request), std::move(details), std::move(failure),
                       std::move(callback));
}

WFStoreTask* list_task(const std::shared_ptr<StoreEngine>& engine, const std::string& prefix,
                       const std::string& cursor, size_t max, bool failed_only,
                       WFTimerStore::Callback&& callback) {
  ListRequest list;
  list.prefix = prefix;
  list.max = std::min(max, kMaxListed);
  list.failed_only = failed_only;
  StoreFailure failure = check_name("the prefix", prefix);
  if (!StoreText::read_cursor(cursor, list)) {
    failure = wrong(EINVAL, "the cursor is not one of a list: " + StoreText::quoted(cursor));
  }
  return task_of(engine, {std::move(list), {}, {}}, failure, std::move(callback));
}

WFStoreTask* failed_task(const std::shared_ptr<StoreEngine>& engine, const std::string& name,
                         bool remove, WFTimerStore::Callback&& callback) {
  FailedRequest failed;
  failed.name = name;
  failed.remove = remove;
  return change_task(engine, {std::move(failed), {}, {}}, check_name("the name", name),
                     std::move(callback));
}

// How a URL begins that makes no sense, for a message. What follows may be a password, and what
// stands before an "@" may be one.
std::string beginning_of(const std::string& url) {
  const size_t colon = url.find(':');
  const size_t end =
      colon == std::string::npos ? url.size() : url.find_first_not_of('/', colon + 1);
  const std::string beginning = url.substr(0, end);
  if (beginning.find('@') != std::string::npos) return "";
  return (colon == std::string::npos ? ", but is " : ", but with ") + StoreText::quoted(beginning);
}

std::unique_ptr<StoreBackend> open_backend(const std::string& url,
                                           const StoreBackendOptions& options,
                                           StoreFailure* failure) {
  const auto place_of = [&url](std::string_view scheme) -> std::optional<std::string> {
    return url.starts_with(scheme) ? std::optional(url.substr(scheme.size())) : std::nullopt;
  };
  if (const auto place = place_of("sqlite:")) {
    return workflow::open_sqlite_backend(*place, options, &failure->error, &failure->message);
  }
  if (const auto place = place_of("memory:")) {
    return workflow::open_memory_backend(*place, options, &failure->error, &failure->message);
  }
  if (url.starts_with("redis://") || url.starts_with("rediss://") || url.starts_with("redis+") ||
      url.starts_with("rediss+")) {
    return workflow::open_redis_backend(url, options, &failure->error, &failure->message);
  }
  *failure = wrong(EINVAL,
                   "the URL begins with none of sqlite:, redis://, rediss://, redis+...:// and "
                   "memory:" +
                       beginning_of(url));
  return nullptr;
}

}  // namespace

WFStoreVerdict WFStoreResult::verdict() const {
  return answers.empty() ? WFStoreVerdict::kNone : answers.front().verdict;
}

std::string WFStoreReceipt::to_string() const {
  switch (level) {
    case kUnknown:
      break;
    case kMemory:
      return "memory";
    case kEverySecond:
      return "everysec";
    case kFsync:
      return "fsync";
    case kFile:
      return "file";
    case kReplicas:
      return "replicas(" + std::to_string(replicas) + ")";
  }
  return "unknown";
}

WFStoreDue WFStoreDue::every(workflow::Duration period) {
  return every(period, std::chrono::nanoseconds(period.ns()));
}

WFStoreDue WFStoreDue::every(workflow::Duration period, const WFTimerDue& first) {
  WFStoreDue due(first);
  // 0 means none, and is refused as too short.
  due.period_ns_ = std::max<int64_t>(period.ns(), 1);
  return due;
}

WFTimerStore* WFTimerStore::open(const std::string& url, const WFStoreOptions& options,
                                 std::string* message) {
  StoreFailure failure;
  const auto make_backend = [&url](const StoreBackendOptions& backend_options, StoreFailure* why) {
    return open_backend(url, backend_options, why);
  };
  WFTimerStore* const store = StoreOpener::open(options, make_backend, &failure);
  if (!store) {
    if (message) {
      *message = failure.message;
    }
    errno = failure.error;
  }
  return store;
}

WFTimerStore::WFTimerStore(std::shared_ptr<StoreEngine> engine) : engine_(std::move(engine)) {}

WFTimerStore::~WFTimerStore() {
  engine_->close_or_abandon();
}

bool WFTimerStore::close(workflow::Duration limit) {
  return engine_->close(limit.ns() < 0 ? workflow::kNever : limit.ns());
}

int WFTimerStore::handle(const std::string& kind, const Handler& handler,
                         const WFStoreHandlerOptions& options) {
  int error = check_kind(kind).error;
  if (!handler || options.max_running == 0) {
    error = EINVAL;
  }
  if (error == 0) {
    error = engine_->handle(kind, handler, options);
  }
  errno = error != 0 ? error : errno;
  return error == 0 ? 0 : -1;
}

WFStoreTask* WFTimerStore::create_schedule_task(const WFStoreTimer& timer, Callback callback) {
  ScheduleRequest schedule;
  schedule.spec = {timer.name, timer.kind, timer.payload, {}, -1};
  schedule.policy = timer.policy;
  if (timer.skip_if_later.ns() >= 0) {
    schedule.spec.skip_after_us = us_from_ns(timer.skip_if_later.ns());
  }
  StoreFailure failure = check_name("the name", timer.name);
  if (failure.error == 0) {
    failure = check_kind(timer.kind);
  }
  if (failure.error == 0 && timer.payload.size() > kMaxPayload) {
    failure = too_long("the payload", timer.payload.size(), kMaxPayload);
  }
  if (failure.error == 0 && (timer.policy < WF_TIMER_APPEND || timer.policy > WF_TIMER_KEEP)) {
    failure =
        wrong(EINVAL, "the policy is none of WF_TIMER_APPEND, WF_TIMER_REPLACE, WF_TIMER_KEEP");
  }
  const StoreDue due(timer.due, timer.every_missed_date);
  if (failure.error == 0) {
    failure = due.check(engine_->now_us());
  }
  if (failure.error == 0 && timer.request && !is_valid(*timer.request)) {
    failure = wrong(EINVAL, "the request id is out of range");
  }
  const WFStoreRequestId id = timer.request.value_or(WFStoreRequestId());
  return change_task(engine_, {std::move(schedule), id, {}}, failure, std::move(callback), due);
}

WFStoreResult WFTimerStore::schedule(const WFStoreTimer& timer) {
  return wait_for(create_schedule_task(timer, nullptr));
}

WFStoreTask* WFTimerStore::create_cancel_task(const std::string& name, size_t max,
                                              Callback callback) {
  CancelRequest cancel;
  cancel.name = name;
  cancel.max = max;
  return change_task(engine_, {std::move(cancel), {}, {}}, check_name("the name", name),
                     std::move(callback));
}

WFStoreResult WFTimerStore::cancel(const std::string& name, size_t max) {
  return wait_for(create_cancel_task(name, max, nullptr));
}

WFStoreTask* WFTimerStore::create_reschedule_task(const std::string& name, const WFStoreDue& due,
                                                  size_t max, Callback callback) {
  RescheduleRequest reschedule;
  reschedule.name = name;
  reschedule.max = max;
  const StoreDue new_due(due, false);
  StoreFailure failure = check_name("the name", name);
  if (failure.error == 0) {
    failure = new_due.check(engine_->now_us());
  }
  return change_task(engine_, {std::move(reschedule), {}, {}}, failure, std::move(callback),
                     new_due);
}

WFStoreResult WFTimerStore::reschedule(const std::string& name, const WFStoreDue& due, size_t max) {
  return wait_for(create_reschedule_task(name, due, max, nullptr));
}

WFStoreTask* WFTimerStore::create_count_task(const std::string& prefix, Callback callback) {
  return task_of(engine_, {CountRequest{prefix, 0}, {}, {}}, check_name("the prefix", prefix),
                 std::move(callback));
}

WFStoreResult WFTimerStore::count(const std::string& prefix) {
  return wait_for(create_count_task(prefix, nullptr));
}

WFStoreTask* WFTimerStore::create_list_task(const std::string& prefix, const std::string& cursor,
                                            size_t max, Callback callback) {
  return list_task(engine_, prefix, cursor, max, false, std::move(callback));
}

WFStoreResult WFTimerStore::list(const std::string& prefix, const std::string& cursor, size_t max) {
  return wait_for(create_list_task(prefix, cursor, max, nullptr));
}

WFStoreTask* WFTimerStore::create_list_failed_task(const std::string& prefix,
                                                   const std::string& cursor, size_t max,
                                                   Callback callback) {
  return list_task(engine_, prefix, cursor, max, true, std::move(callback));
}

WFStoreResult WFTimerStore::list_failed(const std::string& prefix, const std::string& cursor,
                                        size_t max) {
  return wait_for(create_list_failed_task(prefix, cursor, max, nullptr));
}

WFStoreTask* WFTimerStore::create_retry_failed_task(const std::string& name, Callback callback) {
  return failed_task(engine_, name, false, std::move(callback));
}

WFStoreResult WFTimerStore::retry_failed(const std::string& name) {
  return wait_for(create_retry_failed_task(name, nullptr));
}

WFStoreTask* WFTimerStore::create_remove_failed_task(const std::string& name, Callback callback) {
  return failed_task(engine_, name, true, std::move(callback));
}

WFStoreResult WFTimerStore::remove_failed(const std::string& name) {
  return wait_for(create_remove_failed_task(name, nullptr));
}

WFStoreTask* WFTimerStore::create_ask_task(const WFStoreRequestId& request, Callback callback) {
  workflow::AskRequest ask;
  ask.asked = request;
  StoreFailure failure;
  if (!is_valid(request)) {
    failure = wrong(EINVAL, "the request id is out of range");
  }
  return task_of(engine_, {std::move(ask), {}, {}}, failure, std::move(callback));
}

WFStoreResult WFTimerStore::ask(const WFStoreRequestId& request) {
  return wait_for(create_ask_task(request, nullptr));
}

WFTimerStoreStats WFTimerStore::stats() const {
  return engine_->stats();
}

std::string WFTimerStore::to_prometheus(const std::string& name, const std::string& prefix) const {
  return to_prometheus({{name, this}}, prefix);
}

std::string WFTimerStore::to_prometheus(
    const std::vector<std::pair<std::string, const WFTimerStore*>>& stores,
    const std::string& prefix) {
  using Stats = WFTimerStoreStats;
  std::vector<std::pair<std::string, Stats>> all;
  all.reserve(stores.size());
  for (const auto& [name, store] : stores) {
    all.emplace_back("store=\"" + StoreText::label_value(name) + "\"", store->stats());
  }
  workflow::PrometheusText text(prefix);
  const auto add = [&](const char* name, const char* type, const char* help, const auto& write) {
    if (all.empty()) return;
    text.head(name, type, help);
    for (const auto& [labels, stats] : all) {
      text.set_labels(labels);
      write(stats);
    }
  };
  const auto number = [&](const char* name, const char* type, const char* help, auto member) {
    add(name, type, help,
        [&](const Stats& stats) { text.line(name, {}, std::to_string(stats.*member)); });
  };
  const auto times = [&](const char* name, const char* help, auto member) {
    add(name, "histogram", help,
        [&](const Stats& stats) { text.histogram_lines(name, stats.*member); });
  };
  number("_timers", "gauge", "Timers in the store.", &Stats::stored);
  number("_failed_timers", "gauge", "Timers in the store that have failed and are kept.",
         &Stats::failed_timers);
  number("_due", "gauge",
         "Timers in the store that are due and that no process has taken. A shared file counts up "
         "to 1,000,000.",
         &Stats::due);
  number("_overdue", "gauge", "Those of them that have been due for more than a second.",
         &Stats::overdue);
  number("_unhandled", "gauge", "Overdue timers whose kind has no handler in this process.",
         &Stats::unhandled);
  number("_leased", "gauge", "Timers in the store of which any process has a lease.",
         &Stats::leased);
  number("_running", "gauge", "Runs of this process, whose timers it has leased.", &Stats::running);
  number("_scheduled_total", "counter", "Timers stored.", &Stats::scheduled);
  number("_cancelled_total", "counter", "Timers cancelled.", &Stats::cancelled);
  number("_rescheduled_total", "counter", "Timers moved.", &Stats::rescheduled);
  number("_begun_total", "counter", "Runs begun.", &Stats::begun);
  add("_ended_total", "counter", "Runs that have ended, by how.", [&](const Stats& stats) {
    const auto ended = [&](const char* how, uint64_t n) {
      text.line("_ended_total", "how=\"" + std::string(how) + "\"", std::to_string(n));
    };
    ended("acknowledged", stats.acknowledged);
    ended("retried", stats.retried);
    ended("failed", stats.failed);
    ended("missed", stats.missed);
    ended("lost", stats.lost);
    ended("in_doubt", stats.in_doubt);
  });
  number("_errors_total", "counter", "Failures of the store.", &Stats::errors);
  times("_lateness_seconds", "From the due time to the run.", &Stats::lateness);
  times("_group_seconds", "The time for requests that are carried out together.", &Stats::group);
  times("_commit_seconds", "The time of a commit to a file, with its sync if it has one.",
        &Stats::commit);
  times("_round_trip_seconds", "The time from a script for a Redis to its reply.",
        &Stats::round_trip);
  times("_request_seconds", "From a request to its answer.", &Stats::request);
  return text.take();
}

std::chrono::system_clock::time_point WFTimerStore::now() const {
  return std::chrono::system_clock::time_point(std::chrono::microseconds(engine_->now_us()));
}

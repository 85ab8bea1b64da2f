#include "Reminders.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

namespace {

int64_t milliseconds(std::chrono::system_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

const char* name_of(WFStoreVerdict verdict) {
  switch (verdict) {
    case WFStoreVerdict::kNone:
      return "none";
    case WFStoreVerdict::kWon:
      return "won";
    case WFStoreVerdict::kRunning:
      return "running";
    case WFStoreVerdict::kAfterRun:
      return "after_run";
    case WFStoreVerdict::kWonAfter:
      return "won_after";
    case WFStoreVerdict::kDone:
      return "done";
    case WFStoreVerdict::kUnknown:
      return "unknown";
    case WFStoreVerdict::kInDoubt:
      break;
  }
  return "in_doubt";
}

const char* name_of(WFStoreOutcome outcome) {
  switch (outcome) {
    case WFStoreOutcome::kNone:
      break;
    case WFStoreOutcome::kDone:
      return "done";
    case WFStoreOutcome::kCancelled:
      return "cancelled";
    case WFStoreOutcome::kMissed:
      return "missed";
    case WFStoreOutcome::kFailed:
      return "failed";
  }
  return "none";
}

const char* name_of(WFStoreStage stage) {
  switch (stage) {
    case WFStoreStage::kWaiting:
      break;
    case WFStoreStage::kRunning:
      return "running";
    case WFStoreStage::kBlocked:
      return "blocked";
    case WFStoreStage::kFailed:
      return "failed";
  }
  return "waiting";
}

int status_of(int error) {
  switch (error) {
    case EINVAL:
      return HttpStatusBadRequest;
    case EMSGSIZE:
      return HttpStatusRequestEntityTooLarge;
    case ENOSPC:
      return HttpStatusInsufficientStorage;
    default:
      return HttpStatusServiceUnavailable;
  }
}

// `body` is what was done besides.
void reply_failure(WFHttpTask* task, const WFStoreResult& result, json body = json::object()) {
  body["error"] = result.message;
  if (!result.answers.empty()) {
    body["verdict"] = name_of(result.verdict());  // in_doubt: it may have been carried out
  }
  reply_json(task, status_of(result.error), body);
}

// As in "2026-03-01T12:34:56.789Z".
std::string text_of(std::chrono::system_clock::time_point time) {
  const int64_t ms = milliseconds(time.time_since_epoch());
  const auto seconds = static_cast<time_t>(ms / 1000);
  struct tm utc = {};
  ::gmtime_r(&seconds, &utc);
  char date[32];
  const size_t length = std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%03dZ", static_cast<int>(ms % 1000));
  return std::string(date, length) + fraction;
}

json json_of(const WFStoreAnswer& answer) {
  json body = {{"verdict", name_of(answer.verdict)}};
  if (answer.timer != 0) {
    body["timer"] = answer.timer;
    body["attempts"] = answer.attempts;
  }
  if (answer.verdict == WFStoreVerdict::kRunning) {
    body["owner"] = answer.owner;
    body["fence"] = answer.fence;
    body["lease_left_ms"] = milliseconds(answer.lease_left);
  } else if (answer.verdict == WFStoreVerdict::kDone) {
    body["outcome"] = name_of(answer.outcome);
    body["ended"] = text_of(answer.when);
  } else if (answer.verdict == WFStoreVerdict::kUnknown) {
    body["remembers_since"] = text_of(answer.when);
  }
  return body;
}

}  // namespace

Reminders::Reminders(std::unique_ptr<WFTimerStore> store) : store_(std::move(store)) {
  store_->handle("remind", [](WFStoredTimer* timer) {
    const json line = {{"reminder", timer->name()},
                       {"payload", timer->payload()},
                       {"late_ms", timer->lateness().count() / 1000},
                       {"attempt", timer->attempt()}};
    std::printf("%s\n", line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  });
}

void Reminders::store(WFHttpTask* task, const std::string& name, uint64_t ms,
                      const std::string& payload, Answered answered) {
  WFStoreTimer timer;
  timer.name = name;
  timer.due = std::chrono::milliseconds(ms);
  timer.kind = "remind";
  timer.payload = payload;
  auto stored = [task, name, answered = std::move(answered)](WFStoreTask* done) {
    const WFStoreResult& result = done->result();
    if (!result.ok()) {
      reply_failure(task, result);
      return;
    }
    answered({{"name", name}, {"timer", result.timer}, {"receipt", result.receipt.to_string()}});
  };
  series_of(task)->push_back(store_->create_schedule_task(timer, std::move(stored)));
}

void Reminders::cancel(WFHttpTask* task, const std::string& name, size_t max, const json& body) {
  auto cancelled = [task, body](WFStoreTask* done) {
    if (!done->result().ok()) {
      reply_failure(task, done->result(), body);
      return;
    }
    json all = body;
    all["stored"] = json::array();
    for (const WFStoreAnswer& answer : done->verdicts()) {
      all["stored"].push_back(json_of(answer));
    }
    reply_json(task, HttpStatusOK, all);
  };
  series_of(task)->push_back(store_->create_cancel_task(name, max, std::move(cancelled)));
}

void Reminders::show(WFHttpTask* task, size_t max, Answered answered) {
  auto listed = [this, task, answered](const json& before, const WFStoreResult& result) {
    if (!result.ok()) {
      reply_failure(task, result);
      return;
    }
    json body = before;
    body["list"] = json::array();
    const auto now = store_->now();
    for (const WFStoreInfo& timer : result.timers) {
      body["list"].push_back({{"name", timer.name},
                              {"timer", timer.timer},
                              {"stage", name_of(timer.stage)},
                              {"remaining_ms", std::max<int64_t>(milliseconds(timer.due - now), 0)},
                              {"attempts", timer.attempts},
                              {"payload", timer.payload}});
    }
    answered(body);
  };
  auto counted = [this, task, max, listed, answered](WFStoreTask* done) {
    if (!done->result().ok()) {
      reply_failure(task, done->result());
      return;
    }
    const json body = {{"count", done->result().count}};
    if (max == 0) {
      answered(body);
      return;
    }
    series_of(task)->push_back(store_->create_list_task(
        "", "", max, [listed, body](WFStoreTask* list) { listed(body, list->result()); }));
  };
  series_of(task)->push_back(store_->create_count_task("", std::move(counted)));
}

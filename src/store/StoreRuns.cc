#include "store/StoreRuns.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "util/Time.h"

namespace workflow {

namespace {

// How many timers one claim takes of each kind at most.
constexpr size_t kClaim = 256;

}  // namespace

std::shared_ptr<StoreHandler> StoreRuns::handle(const std::string& kind,
                                                const WFTimerStore::Handler& handler,
                                                const WFStoreHandlerOptions& options,
                                                int64_t now_us) {
  auto handler_of_kind = std::make_shared<StoreHandler>();
  *handler_of_kind = {kind, handler, options};
  MutexLock lock(mutex_);
  Kind& entry = kinds_[kind];
  std::swap(entry.handler, handler_of_kind);
  entry.tokens = static_cast<double>(catch_up_rate_) / 10;
  entry.filled_us = now_us;
  return handler_of_kind;
}

bool StoreRuns::handles(const std::string& kind) const {
  MutexLock lock(mutex_);
  return kinds_.contains(kind);
}

std::shared_ptr<StoreHandler> StoreRuns::handler_of(const std::string& kind) const {
  MutexLock lock(mutex_);
  return kinds_.at(kind).handler;
}

void StoreRuns::refuse() {
  MutexLock lock(mutex_);
  refuses_ = true;
}

bool StoreRuns::refuses() const {
  MutexLock lock(mutex_);
  return refuses_;
}

bool StoreRuns::takes_timers() const {
  MutexLock lock(mutex_);
  return !refuses_ && !kinds_.empty();
}

std::vector<std::string> StoreRuns::handled() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds_) {
    names.push_back(name);
  }
  return names;
}

ClaimRequest StoreRuns::claim(int64_t now_us) {
  ClaimRequest claim;
  claim.owner = owner_;
  claim.lease_us = lease_us_;
  claim.fresh_us = kFreshUs;
  const double rate = static_cast<double>(catch_up_rate_);
  MutexLock lock(mutex_);
  left_places_ = false;
  for (auto& [name, kind] : kinds_) {
    const int64_t passed_us = std::clamp<int64_t>(now_us - kind.filled_us, 0, kUsPerSec);
    const double tokens = kind.tokens + static_cast<double>(passed_us) / 1e6 * rate;
    kind.tokens = std::min(tokens, std::max(rate / 10, 1.0));
    kind.filled_us = now_us;
    const size_t running = kind.running;
    const size_t places = kind.handler->options.max_running;
    if (running >= places) continue;
    // Overdue timers leave half of the places to those that are due now. Their own half is theirs
    // even if the other one is busy all the time.
    const size_t free = places - running;
    const size_t overdue_places = std::max<size_t>(places / 2, 1);
    const size_t overdue_free =
        overdue_places > kind.running_overdue ? overdue_places - kind.running_overdue : 0;
    const auto allowed = static_cast<size_t>(kind.tokens);
    const size_t max = std::min(free, kClaim);
    claim.kinds.push_back({name, max, std::min({max, overdue_free, allowed})});
    left_places_ = left_places_ || max < free || allowed < std::min(max, overdue_free);
  }
  return claim;
}

bool StoreRuns::left_places() const {
  MutexLock lock(mutex_);
  return left_places_;
}

ExtendRequest StoreRuns::extend(std::vector<std::shared_ptr<StoreRun>>& runs) const {
  ExtendRequest extend;
  extend.lease_us = lease_us_;
  MutexLock lock(mutex_);
  for (const auto& [fence, run] : runs_) {
    if (!run->ended) {
      extend.runs.push_back(run->id);
      runs.push_back(run);
    }
  }
  return extend;
}

void StoreRuns::begin(const std::shared_ptr<StoreRun>& run) {
  MutexLock lock(mutex_);
  runs_[run->id.fence] = run;
  Kind& kind = kinds_.at(run->handler->kind);
  const int64_t end_us = run->lease_end_us.load(std::memory_order_relaxed);
  // At the time of the claim, as the store has decided it.
  run->overdue = end_us - lease_us_ - run->wake_us > kFreshUs;
  if (run->overdue) {
    kind.tokens = std::max(kind.tokens - 1, 0.0);
    kind.running_overdue++;
  }
  next_extend_us_ = std::min(next_extend_us_, end_us - lease_us_ * 2 / 3);
  next_warning_us_ = std::min(next_warning_us_, end_us - lease_us_ / 6);
  kind.running++;
  live_++;
}

bool StoreRuns::end(StoreRun& run) {
  MutexLock lock(mutex_);
  run.ended = true;
  Kind& kind = kinds_.at(run.handler->kind);
  kind.running--;
  if (run.overdue) {
    kind.running_overdue--;
  }
  live_--;
  return runs_.contains(run.id.fence);
}

void StoreRuns::forget(const StoreRun& run) {
  MutexLock lock(mutex_);
  runs_.erase(run.id.fence);
}

std::vector<StoreRuns::Notice> StoreRuns::extended(
    const std::vector<std::shared_ptr<StoreRun>>& runs,
    const std::vector<ExtendRequest::Extended>& answers) {
  std::vector<Notice> notices;
  MutexLock lock(mutex_);
  notices.reserve(runs.size());  // nothing has changed if memory runs out
  for (size_t i = 0; i < runs.size(); i++) {
    const std::shared_ptr<StoreRun>& run = runs[i];
    if (answers[i].live) {
      run->lease_end_us.store(answers[i].lease_end_us, std::memory_order_release);
      if (answers[i].cancelled && !run->cancelled.load(std::memory_order_acquire)) {
        notices.push_back({run, ECANCELED});
      }
    } else if (!run->ended && runs_.erase(run->id.fence) > 0) {
      notices.push_back({run, ESTALE});
    }
  }
  find_next_times();
  return notices;
}

std::vector<StoreRuns::Notice> StoreRuns::lose_all() {
  std::vector<Notice> notices;
  MutexLock lock(mutex_);
  notices.reserve(runs_.size());  // nothing has changed if memory runs out
  for (const auto& [fence, run] : runs_) {
    if (!run->ended) {
      notices.push_back({run, ESTALE});
    }
  }
  std::erase_if(runs_, [](const auto& each) { return !each.second->ended; });
  find_next_times();
  return notices;
}

std::shared_ptr<StoreRun> StoreRuns::find(const RunId& id) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(id.fence);
  return found != runs_.end() && found->second->id.timer == id.timer ? found->second : nullptr;
}

bool StoreRuns::must_extend(int64_t now_us) {
  MutexLock lock(mutex_);
  if (now_us < next_extend_us_) return false;
  const bool any_known = !runs_.empty();
  next_extend_us_ = any_known ? saturating_add(now_us, lease_us_ / 12) : kNeverUs;
  return any_known;
}

std::vector<StoreRuns::Notice> StoreRuns::about_to_be_lost(int64_t now_us) {
  std::vector<Notice> notices;
  MutexLock lock(mutex_);
  if (now_us < next_warning_us_) return notices;
  for (const auto& [fence, run] : runs_) {
    const int64_t end_us = run->lease_end_us.load(std::memory_order_acquire);
    if (!run->ended && !run->warned && now_us >= end_us - lease_us_ / 6) {
      notices.push_back({run, ESTALE});
    }
  }
  for (const Notice& notice : notices) {
    notice.run->warned = true;
  }
  find_next_warning();
  return notices;
}

int64_t StoreRuns::next_us() const {
  MutexLock lock(mutex_);
  return std::min(next_extend_us_, next_warning_us_);
}

bool StoreRuns::any_known() const {
  MutexLock lock(mutex_);
  return !runs_.empty();
}

void StoreRuns::tell(const std::vector<Notice>& notices, Runtime& runtime) {
  for (const Notice& notice : notices) {
    notice.run->tell(notice.reason, runtime);
  }
}

void StoreRuns::find_next_times() {
  next_extend_us_ = kNeverUs;
  for (const auto& [fence, run] : runs_) {
    if (!run->ended) {
      const int64_t end_us = run->lease_end_us.load(std::memory_order_acquire);
      next_extend_us_ = std::min(next_extend_us_, end_us - lease_us_ * 2 / 3);
    }
  }
  find_next_warning();
}

void StoreRuns::find_next_warning() {
  next_warning_us_ = kNeverUs;
  for (const auto& [fence, run] : runs_) {
    if (!run->ended && !run->warned) {
      const int64_t end_us = run->lease_end_us.load(std::memory_order_acquire);
      next_warning_us_ = std::min(next_warning_us_, end_us - lease_us_ / 6);
    }
  }
}

}  // namespace workflow

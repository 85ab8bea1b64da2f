#include "store/StoreRun.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/Runtime.h"
#include "store/StoreRepeat.h"
#include "store/StoreTime.h"
#include "util/Time.h"

namespace workflow {

void StoreRun::tell(int reason, Runtime& runtime) {
  if (reason == ECANCELED) {
    cancelled.store(true, std::memory_order_release);
  }
  // Not at once: functions of a std::stop_callback are user code.
  if (Runnable* const later = SeriesScope::get(scope)->cancel_later(reason)) {
    runtime.handlers().post(later);
  }
}

constinit thread_local const StoreRunOwner* StoreRunOwner::Report::current_ = nullptr;

class StoreRun::LostReport final : public Runnable {
 public:
  LostReport(std::shared_ptr<StoreRunOwner> owner, std::shared_ptr<StoreRun> run)
      : owner_(std::move(owner)), run_(std::move(run)) {}
  void run_queued() override {
    {
      const StoreRunOwner::Report report(*owner_);
      run_->handler->options.on_lost(*run_->info, run_->id.fence);
    }
    owner_->lost_reported();
    delete this;
  }

 private:
  const std::shared_ptr<StoreRunOwner> owner_;
  const std::shared_ptr<StoreRun> run_;
};

Runnable* StoreRun::new_lost_report(std::shared_ptr<StoreRunOwner> owner,
                                    std::shared_ptr<StoreRun> run) {
  if (!run->info) return nullptr;
  return new (std::nothrow) LostReport(std::move(owner), std::move(run));
}

FinishRequest StoreRun::finish(const End& end, int64_t now_us, uint64_t random) {
  RunOutcome outcome;
  {
    MutexLock lock(mutex_);
    outcome = outcome_;
  }
  // Waits inside were cut short if the handler was told that the lease is about to be lost.
  const bool whole = end.completed && !end.stopping && scope.error() != ESTALE;
  switch (outcome.what) {
    case RunOutcome::kDefault:
      if (!whole) {
        const bool at_once = end.completed;
        return retry(saturating_add(now_us, at_once ? 0 : retry_delay_us(random)), !end.stopping);
      }
      break;
    case RunOutcome::kAcknowledge:
      break;
    case RunOutcome::kRetry:
      return retry(saturating_add(now_us, outcome.delay_us), true);
    case RunOutcome::kBackOff:
      return retry(saturating_add(now_us, retry_delay_us(random)), true);
    case RunOutcome::kGiveUp:
      return finish_without_run(FinishRequest::How::kFailed, outcome.reason);
  }
  return finish_without_run(FinishRequest::How::kDone, {});
}

FinishRequest StoreRun::retry(int64_t at_us, bool counts) const {
  const unsigned max_attempts = handler->options.max_attempts;
  if (counts && max_attempts > 0 && attempts >= max_attempts) {
    return finish_without_run(FinishRequest::How::kFailed, kAttemptsUsedUp);
  }
  FinishRequest request;
  request.run = id;
  request.how = FinishRequest::How::kRetry;
  request.next_us = at_us;
  return request;
}

FinishRequest StoreRun::finish_without_run(FinishRequest::How how,
                                           const std::string& reason) const {
  FinishRequest request;
  request.run = id;
  request.how = how;
  request.reason = reason;
  if (repeat.empty()) return request;
  if (const auto dates = StoreRepeat::parse(repeat)) {
    // If it has come already, the timer is due at once, for the latest that has come by then.
    request.next_us = dates->next_us(date_us);
  } else {
    request.how = FinishRequest::How::kFailed;
    request.reason = "no next date: its time zone is not known here";
  }
  return request;
}

int64_t StoreRun::retry_delay_us(uint64_t random) const {
  const WFStoreHandlerOptions& options = handler->options;
  const int64_t most_us = us_from_ns(options.max_retry_delay.positive_ns());
  int64_t delay_us = std::min(us_from_ns(options.retry_delay.positive_ns()), most_us);
  for (unsigned i = 1; i < attempts && delay_us < most_us; i++) {
    delay_us = std::min(saturating_add(delay_us, delay_us), most_us);
  }
  // Up to a quarter less.
  return delay_us - (delay_us >> 18) * static_cast<int64_t>(random & 0xffff);
}

class StoredTimerTask::Series final : public SeriesWork {
 public:
  Series(SubTask* first, SubTask* last, const WFScope& scope) : SeriesWork(first, nullptr) {
    set_last_task(last);
    use_scope(scope);
  }

 private:
  ~Series() override = default;
};

StoredTimerTask::StoredTimerTask(std::shared_ptr<StoreRunOwner> owner,
                                 std::shared_ptr<StoreRun> run, WFStoreInfo&& info,
                                 int64_t lateness_us)
    : owner_(std::move(owner)), run_(std::move(run)), processor_(*this) {
  info_ = std::move(info);
  lateness_ = std::chrono::microseconds(lateness_us);
  fence_ = run_->id.fence;
}

StoredTimerTask::~StoredTimerTask() {
  end(false);  // if the series was cancelled, it has dropped this task
}

Runnable* StoredTimerTask::begin() {
  new Series(&processor_, this, run_->scope);
  return &processor_;
}

void StoredTimerTask::Processor::dispatch() {
  try {
    task_.run_->handler->handler(&task_);
  } catch (const std::bad_alloc&) {
    task_.retry();
  }
  subtask_done();
}

void StoredTimerTask::dispatch() {
  end(true);
  subtask_done();
}

void StoredTimerTask::end(bool completed) {
  if (!std::exchange(ended_, true)) {
    if (run_->handler->options.on_lost) {
      run_->info.reset(new (std::nothrow) WFStoreInfo(std::move(info_)));
    }
    owner_->run_ended(run_, completed);
  }
}

std::chrono::microseconds StoredTimerTask::lease_left() const {
  const int64_t left_us = run_->lease_end_us.load(std::memory_order_acquire) - owner_->now_us();
  return std::chrono::microseconds(std::max<int64_t>(left_us, 0));
}

void StoredTimerTask::retry_after(Duration delay) {
  run_->set_outcome({RunOutcome::kRetry, us_from_ns(delay.positive_ns()), {}});
}

void StoredTimerTask::give_up(const std::string& reason) {
  run_->set_outcome({RunOutcome::kGiveUp, 0, reason.substr(0, 1024)});
}

}  // namespace workflow

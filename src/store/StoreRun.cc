#include "store/StoreRun.h"

#include <algorithm>
#include <new>
#include <utility>

#include "store/StoreEngine.h"

namespace workflow {

class StoredTimerTask::Series final : public SeriesWork {
 public:
  Series(SubTask* first, SubTask* last, const WFScope& scope) : SeriesWork(first, nullptr) {
    set_last_task(last);
    use_scope(scope);
  }

 private:
  ~Series() override = default;
};

StoredTimerTask::StoredTimerTask(std::shared_ptr<StoreEngine> engine, std::shared_ptr<StoreRun> run,
                                 WFStoreInfo&& info, int64_t lateness_us)
    : engine_(std::move(engine)), run_(std::move(run)), processor_(*this) {
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
    engine_->run_ended(run_, completed);
  }
}

std::chrono::microseconds StoredTimerTask::lease_left() const {
  const int64_t left_us = run_->lease_end_us.load(std::memory_order_acquire) - engine_->now_us();
  return std::chrono::microseconds(std::max<int64_t>(left_us, 0));
}

void StoredTimerTask::retry_after(Duration delay) {
  run_->set_outcome({RunOutcome::kRetry, (delay.positive_ns() + 999) / 1000, {}});
}

void StoredTimerTask::give_up(const std::string& reason) {
  run_->set_outcome({RunOutcome::kGiveUp, 0, reason.substr(0, 1024)});
}

}  // namespace workflow

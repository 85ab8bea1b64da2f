#include "store/StoreCall.h"

#include <utility>

#include "store/StoreTask.h"

namespace workflow {

void StoreWaiter::answer(WFStoreResult&& result) {
  MutexLock lock(mutex_);
  result_ = std::move(result);
  has_answer_ = true;
  answered_.notify_all();
}

WFStoreResult StoreWaiter::wait() {
  MutexLock lock(mutex_);
  while (!has_answer_) {
    answered_.wait(mutex_, waiter_);
  }
  return std::move(result_);
}

void StoreCall::will_answer(StoreTask& task) {
  MutexLock lock(mutex_);
  task_ = &task;
}

void StoreCall::will_answer(StoreWaiter& waiter) {
  MutexLock lock(mutex_);
  waiter_ = &waiter;
}

bool StoreCall::take() {
  MutexLock lock(mutex_);
  taken_ = task_ || waiter_;
  return taken_;
}

bool StoreCall::withdraw() {
  MutexLock lock(mutex_);
  task_ = nullptr;
  return taken_;
}

void StoreCall::answer(WFStoreResult&& result, bool in_doubt, RunnableList& posted) {
  StoreTask* task = nullptr;
  StoreWaiter* waiter = nullptr;
  {
    MutexLock lock(mutex_);
    waiter = std::exchange(waiter_, nullptr);
    task = std::exchange(task_, nullptr);
    if (task && !task->take_answer()) {
      task = nullptr;
    }
  }
  if (in_doubt && (waiter || task)) {
    put_in_doubt(result);
  }
  if (waiter) {
    waiter->answer(std::move(result));
  } else if (task) {
    task->finish(std::move(result), posted);
  }
}

void StoreCall::put_in_doubt(WFStoreResult& result) {
  result.answers = std::move(in_doubt_);
  result.answers[0].verdict = WFStoreVerdict::kInDoubt;
}

}  // namespace workflow

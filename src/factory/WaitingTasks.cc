#include "factory/WaitingTasks.h"

#include <cstdint>

#include "util/VirtualScheduler.h"

namespace workflow {

WaitingTasks::~WaitingTasks() {
  while (WaitingTask* task = parked_.pop()) {
    delete task;  // this may free others, if what it has captured was their last user
  }
}

void WaitingTasks::List::insert(WaitingTask* task) {
  task->list_ = this;
  task->previous_ = nullptr;
  task->next_ = head;
  if (head) {
    head->previous_ = task;
  }
  head = task;
}

void WaitingTasks::List::erase(WaitingTask* task) {
  (task->previous_ ? task->previous_->next_ : head) = task->next_;
  if (task->next_) {
    task->next_->previous_ = task->previous_;
  }
  task->list_ = nullptr;
}

WaitingTask* WaitingTasks::List::pop() {
  MutexLock lock(mutex);
  WaitingTask* const first = head;
  if (first) erase(first);
  return first;
}

WaitingTasks::List& WaitingTasks::list_of(const WaitingTask* task) {
  if (VirtualScheduler::current()) {
    return waiting_[0];  // so that a run does not depend on the addresses of its tasks
  }
  // The low bits of an address depend on its alignment. The next ones tell neighbours apart.
  const uintptr_t address = reinterpret_cast<uintptr_t>(task);
  return waiting_[((address >> 6) ^ (address >> 12)) % kLists];
}

WaitingTasks::Start WaitingTasks::start(WaitingTask* task) {
  List& list = list_of(task);
  MutexLock lock(list.mutex);
  unsigned parts = task->parts_.load(std::memory_order_acquire);
  for (;;) {
    const bool aborts = Runtime::current().waits_ended() && !(parts & WaitingTask::kClaimed);
    const unsigned started =
        parts | WaitingTask::kStarted | (aborts ? unsigned{WaitingTask::kAborted} : 0);
    if (parts & WaitingTask::kPublished || aborts) {
      if (task->parts_.compare_exchange_weak(parts, started, std::memory_order_acq_rel)) {
        return Start::kEnds;
      }
      continue;
    }
    // The task is in the list before another thread can see that it is started.
    list.insert(task);
    if (task->parts_.compare_exchange_strong(parts, started, std::memory_order_acq_rel)) {
      return Start::kWaits;
    }
    list.erase(task);
  }
}

void WaitingTasks::park(WaitingTask* task) {
  MutexLock lock(parked_.mutex);
  parked_.insert(task);
}

void WaitingTasks::remove(WaitingTask* task) {
  if (List* list = static_cast<List*>(task->list_)) {
    MutexLock lock(list->mutex);
    list->erase(task);
  }
}

bool WaitingTasks::abort(WaitingTask* task) {
  unsigned parts = task->parts_.load(std::memory_order_acquire);
  while (!(parts & WaitingTask::kClaimed)) {
    if (task->parts_.compare_exchange_weak(parts, parts | WaitingTask::kAborted,
                                           std::memory_order_acq_rel)) {
      task->state = WFT_STATE_ABORTED;
      return true;
    }
  }
  return false;
}

RunnableList WaitingTasks::abort_all(List& list) {
  RunnableList aborted;
  MutexLock lock(list.mutex);
  WaitingTask* task = list.head;
  while (task) {
    WaitingTask* const next = task->next_;
    if (abort(task)) {
      list.erase(task);
      aborted.push_front(task);  // the oldest is the last in the list
    }
    task = next;
  }
  return aborted;
}

void WaitingTasks::end_waits(Runtime& runtime) {
  for (List& list : waiting_) {
    RunnableList aborted = abort_all(list);
    RunnableList ended;
    while (Runnable* item = aborted.pop_front()) {
      WaitingTask* task = static_cast<WaitingTask*>(item);
      task->leave_waiting();
      if (task->leave_scope()) {
        ended.push_back(task);
      }
    }
    runtime.handlers().post(ended);
  }
}

bool WaitingTask::claim() {
  schedule_point();
  return !(parts_.fetch_or(kClaimed, std::memory_order_acq_rel) & (kClaimed | kAborted));
}

bool WaitingTask::publish() {
  schedule_point();
  const bool ends = parts_.fetch_or(kPublished, std::memory_order_acq_rel) & kStarted;
  // If not, the start may end and free the task here.
  schedule_point();
  return ends;
}

WaitingTask::Arrival WaitingTask::claim_and_publish() {
  schedule_point();
  unsigned parts = parts_.load(std::memory_order_relaxed);
  do {
    if (parts & (kClaimed | kAborted)) return Arrival::kRefused;
    schedule_point();
  } while (!parts_.compare_exchange_weak(parts, parts | kClaimed | kPublished,
                                         std::memory_order_acq_rel, std::memory_order_relaxed));
  // If the task is not started, the start may end and free it here.
  schedule_point();
  return parts & kStarted ? Arrival::kEnds : Arrival::kEarly;
}

void WaitingTask::on_cancel(int reason) {
  if (claim_for(reason) && publish()) {
    leave_waiting();
    leave_lists();
  }
}

bool WaitingTask::claim_for(int new_error) {
  schedule_point();
  unsigned parts = parts_.load(std::memory_order_acquire);
  do {
    if (parts & (kClaimed | kAborted)) return false;
  } while (!parts_.compare_exchange_weak(parts, parts | kClaimed | kCancelled,
                                         std::memory_order_acq_rel));
  state = WFT_STATE_SYS_ERROR;
  error = new_error;
  return true;
}

bool WaitingTask::leave_lists() {
  WaitingTasks::remove(this);
  return leave_scope();
}

void WaitingTask::release_late() {
  if (has(kCancelled)) {
    end_part(kLate, kEnded);
  }
}

void WaitingTask::end_part(unsigned part, unsigned other) {
  schedule_point();
  if (parts_.fetch_or(part, std::memory_order_acq_rel) & other) {
    WaitingTasks::remove(this);
    delete this;
  }
}

void WaitingTask::complete() {
  if (leave_lists()) {
    subtask_done();
  }
}

void WaitingTask::complete_all(RunnableList& tasks) {
  RunnableList ended;
  while (Runnable* item = tasks.pop_front()) {
    WaitingTask* task = static_cast<WaitingTask*>(item);
    if (task->leave_lists()) {
      ended.push_back(task);
    }
  }
  end_all(ended);
}

void WaitingTask::complete_elsewhere() {
  RunnableList posted;
  complete_elsewhere(posted);
  Runtime::current().handlers().post(posted);
}

void WaitingTask::complete_elsewhere(RunnableList& posted) {
  if (leave_lists()) {
    posted.push_back(this);
  }
}

void WaitingTask::dispatch() {
  schedule_point();
  if (has(kPublished)) {
    // From now on nobody sets a part that is not set already: see parts_.
    schedule_point();
    parts_.store(parts_.load(std::memory_order_relaxed) | kStarted, std::memory_order_relaxed);
    subtask_done();
    return;
  }
  if (const int reason = enter_scope()) {
    // If a sender is just about to end it, that comes soon.
    if (claim_for(reason)) {
      publish();
    }
  }
  if (WaitingTasks::current().start(this) == WaitingTasks::Start::kEnds) {
    if (is_aborted()) {
      state = WFT_STATE_ABORTED;
    }
    if (has(kAborted | kCancelled)) {
      leave_waiting();
    }
    if (leave_scope()) {
      subtask_done();
    }
  }
}

SubTask* WaitingTask::end_and_next() {
  if (!is_kept()) return delete_and_next();
  tell(true);
  const Place after = place();
  WaitingTasks::current().park(this);
  end_part(kEnded, kLate);  // an aborted task has no last sender, and stays parked
  return after.next();
}

}  // namespace workflow

#include "store/StoreAlarm.h"

#include <cerrno>
#include <new>

#include "workflow/WFTaskState.h"

namespace workflow {

void StoreAlarm::set(const WFTimerDue& due, const std::function<void()>& expired,
                     const std::function<void()>& lost) {
  MutexLock lock(mutex_);
  if (closed_ || timer_.reschedule(due) == WFTimerMove::kWon) return;
  WFTimerTask* const timer = WFTimer::create(due, [expired, lost](WFTimerTask* task) {
    if (task->get_state() == WFT_STATE_SUCCESS) {
      expired();
    } else if (task->get_state() == WFT_STATE_SYS_ERROR && task->get_error() != ECANCELED) {
      lost();
    }
  });
  timer_ = WFTimer::handle_of(timer);
  if (timer_ == WFTimerHandle()) {  // close() would not find the timer
    timer->dismiss();
    throw std::bad_alloc();
  }
  timer->start();
}

void StoreAlarm::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  timer_.cancel();
}

}  // namespace workflow

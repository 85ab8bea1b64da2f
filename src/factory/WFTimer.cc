#include "workflow/WFTimer.h"

#include <cerrno>
#include <new>
#include <utility>

#include "factory/TimerSlots.h"
#include "factory/TimerTask.h"
#include "util/Time.h"

using workflow::kNever;
using workflow::NamedTimerTask;
using workflow::TimerSlots;
using workflow::TimerTask;

namespace {

int64_t delay_of(std::chrono::nanoseconds delay) {
  return delay.count() < 0 ? kNever : delay.count();
}

}  // namespace

WFTimerVerdict WFTimerHandle::cancel() const {
  return TimerSlots::cancel(*this);
}

int WFTimerHandle::cancel_and_wait() const {
  const WFTimerVerdict verdict = cancel();
  if (!TimerSlots::wait(*this)) {
    errno = EDEADLK;
    return -1;
  }
  return verdict;
}

WFTimerVerdict WFTimerHandle::reschedule(std::chrono::nanoseconds delay) const {
  return TimerSlots::reschedule(*this, delay_of(delay));
}

std::optional<std::chrono::nanoseconds> WFTimerHandle::remaining() const {
  const int64_t remaining_ns = TimerSlots::remaining_ns(*this);
  if (remaining_ns < 0) {
    return std::nullopt;
  }
  return std::chrono::nanoseconds(remaining_ns);
}

WFTimerTask* WFTimer::create(std::chrono::nanoseconds delay, Callback callback) {
  return new TimerTask(delay_of(delay), std::move(callback));
}

WFTimerTask* WFTimer::create(const std::string& name, std::chrono::nanoseconds delay,
                             WFTimerPolicy policy, Callback callback) {
  return NamedTimerTask::create(name, delay_of(delay), policy, std::move(callback));
}

WFTimerHandle WFTimer::handle_of(WFTimerTask* task) {
  auto* const timer = dynamic_cast<TimerTask*>(task);
  if (!timer || timer->get_state() != WFT_STATE_UNDEFINED) {
    return WFTimerHandle();
  }
  try {
    return timer->handle();
  } catch (const std::bad_alloc&) {
    return WFTimerHandle();
  }
}

size_t WFTimer::reschedule(const std::string& name, std::chrono::nanoseconds delay) {
  return NamedTimerTask::reschedule(name, delay_of(delay));
}

size_t WFTimer::count(const std::string& name) {
  return NamedTimerTask::registry().count(name);
}

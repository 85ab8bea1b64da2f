#include "workflow/WFTaskFactory.h"

#include <cerrno>
#include <climits>
#include <cstdint>

#include "factory/CounterTask.h"
#include "factory/GoTask.h"
#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "util/Time.h"

using workflow::NamedCounterTask;
using workflow::NamedTimerTask;
using workflow::TimerTask;

namespace {

int64_t delay_of(time_t seconds, long nanoseconds) {
  if (nanoseconds < 0 || nanoseconds >= workflow::kNsPerSec) {
    return TimerTask::refused(EINVAL);
  }
  return seconds < 0 ? workflow::kNever : workflow::duration_ns(seconds, nanoseconds);
}

int count_of(size_t n) {
  return n > INT_MAX ? INT_MAX : static_cast<int>(n);
}

}  // namespace

WFTimerTask* WFTaskFactory::create_timer_task(time_t seconds, long nanoseconds,
                                              timer_callback_t callback) {
  return new TimerTask(delay_of(seconds, nanoseconds), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(const std::string& name, time_t seconds,
                                              long nanoseconds, timer_callback_t callback) {
  return new NamedTimerTask(name, delay_of(seconds, nanoseconds), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(timer_callback_t callback) {
  return new TimerTask(TimerTask::refused(ECANCELED), std::move(callback));
}

WFTimerTask* WFTaskFactory::create_timer_task(unsigned int microseconds,
                                              timer_callback_t callback) {
  return new TimerTask(microseconds * workflow::kNsPerUs, std::move(callback));
}

int WFTaskFactory::cancel_by_name(const std::string& name) {
  return count_of(NamedTimerTask::cancel(name, SIZE_MAX));
}

int WFTaskFactory::cancel_by_name(const std::string& name, size_t max) {
  return count_of(NamedTimerTask::cancel(name, max));
}

WFCounterTask* WFTaskFactory::create_counter_task(unsigned int target,
                                                  counter_callback_t callback) {
  return new WFCounterTask(target, std::move(callback));
}

WFCounterTask* WFTaskFactory::create_counter_task(const std::string& name, unsigned int target,
                                                  counter_callback_t callback) {
  return new NamedCounterTask(name, target, std::move(callback));
}

int WFTaskFactory::count_by_name(const std::string& name) {
  return count_of(NamedCounterTask::count(name, 1));
}

int WFTaskFactory::count_by_name(const std::string& name, unsigned int n) {
  return count_of(NamedCounterTask::count(name, n));
}

WFGoTask* WFTaskFactory::make_go_task(const std::string& queue_name,
                                      std::function<void()> function) {
  return new workflow::GoTask(workflow::Runtime::current().compute().queue(queue_name),
                              std::move(function));
}

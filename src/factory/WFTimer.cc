#include "workflow/WFTimer.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "factory/PeriodicTimer.h"
#include "factory/TickSchedule.h"
#include "factory/TimerSlots.h"
#include "factory/TimerTask.h"
#include "factory/UserDue.h"
#include "kernel/Runtime.h"
#include "util/Time.h"
#include "workflow/WFCron.h"

using workflow::clock_of;
using workflow::ClockId;
using workflow::CronTicks;
using workflow::EvenTicks;
using workflow::given_clock;
using workflow::kNever;
using workflow::NamedNode;
using workflow::NamedTimerTask;
using workflow::NameQuotas;
using workflow::PeriodicTimer;
using workflow::Runtime;
using workflow::timer_due;
using workflow::TimerDue;
using workflow::TimerSlots;
using workflow::TimerTask;

namespace {

std::chrono::nanoseconds now_on(ClockId clock) {
  return std::chrono::nanoseconds(Runtime::current_clock().now_ns_on(clock));
}

int set_quota_of(NameQuotas::Of of, const std::string& text, size_t max) {
  try {
    NamedTimerTask::registry().set_quota(of, text, max);
    return 0;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

}  // namespace

WFTimerCancel WFTimerHandle::cancel() const {
  return TimerSlots::cancel(*this);
}

WFTimerCancel WFTimerHandle::cancel_and_wait() const {
  const WFTimerCancel verdict = cancel();
  if (!TimerSlots::wait(*this)) {
    errno = EDEADLK;
    return WFTimerCancel::kWouldDeadlock;
  }
  return verdict;
}

WFTimerMove WFTimerHandle::reschedule(const WFTimerDue& due) const {
  return TimerSlots::reschedule(*this, timer_due(due), given_clock(due));
}

std::optional<std::chrono::nanoseconds> WFTimerHandle::remaining() const {
  const int64_t remaining_ns = TimerSlots::remaining_ns(*this);
  if (remaining_ns < 0) return std::nullopt;
  return std::chrono::nanoseconds(remaining_ns);
}

WFTimerTask* WFTimer::create(const WFTimerDue& due, Callback callback) {
  return new TimerTask(timer_due(due), std::move(callback), clock_of(due));
}

WFTimerTask* WFTimer::create(const WFTimerDue& due, const WFTimerOptions& options,
                             Callback callback) {
  if (!options.name) return new TimerTask(timer_due(due), std::move(callback), clock_of(due));
  return NamedTimerTask::create(*options.name, timer_due(due), options.policy, options.tag,
                                std::move(callback), clock_of(due));
}

WFTimerTask* WFTimer::create_periodic(const WFTimerPeriod& period, const WFTimerOptions& options,
                                      Tick tick, Callback callback) {
  const int64_t every_ns = period.every.ns();
  const WFTimerDue first = period.first.value_or(std::chrono::nanoseconds(every_ns));
  return PeriodicTimer::create(every_ns > 0 ? timer_due(first) : TimerDue::refused(EINVAL),
                               clock_of(first), std::make_unique<EvenTicks>(every_ns, period.pace),
                               period.overlap, options, std::move(tick), std::move(callback));
}

WFTimerTask* WFTimer::create_cron(const WFCron& cron, const WFTimerOptions& options, Tick tick,
                                  Callback callback) {
  auto schedule = std::make_unique<CronTicks>(cron);
  const int64_t first_ns = schedule->after(now_on(ClockId::kWall).count());
  const TimerDue first = first_ns == kNever ? TimerDue::refused(EINVAL) : TimerDue::at(first_ns);
  return PeriodicTimer::create(first, ClockId::kWall, std::move(schedule), false, options,
                               std::move(tick), std::move(callback));
}

WFTimerHandle WFTimer::handle_of(WFTimerTask* task) {
  auto* const timer = dynamic_cast<TimerTask*>(task);
  if (!timer || timer->get_state() != WFT_STATE_UNDEFINED) return WFTimerHandle();
  try {
    return timer->handle();
  } catch (const std::bad_alloc&) {
    return WFTimerHandle();
  }
}

size_t WFTimer::cancel(const std::string& name, size_t max) {
  return NamedTimerTask::cancel(name, max);
}

size_t WFTimer::reschedule(const std::string& name, const WFTimerDue& due) {
  return NamedTimerTask::reschedule(name, timer_due(due), given_clock(due));
}

int WFTimer::set_quota(const std::string& name, size_t max) {
  return set_quota_of(NameQuotas::Of::kName, name, max);
}

int WFTimer::set_prefix_quota(const std::string& prefix, size_t max) {
  return set_quota_of(NameQuotas::Of::kPrefix, prefix, max);
}

size_t WFTimer::count(const std::string& name) {
  return NamedTimerTask::registry().count(name);
}

size_t WFTimer::count_prefix(const std::string& prefix) {
  return NamedTimerTask::registry().count_prefix(prefix);
}

bool WFTimer::for_each(const std::string& prefix,
                       const std::function<bool(const WFTimerInfo&)>& visit) {
  if (!visit) return true;
  std::vector<WFTimerInfo> seen;
  bool has_memory = true;
  bool is_showing = false;
  const int64_t now_ns = Runtime::current().clock().now_ns();
  const auto look = [&seen, &has_memory, now_ns](std::string_view name, const NamedNode* node) {
    try {
      seen.push_back(NamedTimerTask::info_of(name, node, now_ns));
    } catch (const std::bad_alloc&) {
      has_memory = false;
    }
  };
  const auto show = [&seen, &has_memory, &is_showing, &visit] {
    is_showing = true;
    const bool goes_on = std::all_of(seen.begin(), seen.end(), std::cref(visit));
    is_showing = false;
    seen.clear();
    return goes_on && has_memory;
  };
  try {
    NamedTimerTask::registry().for_each_prefix(prefix, look, show);
  } catch (const std::bad_alloc&) {
    if (is_showing) {
      throw;  // by visit()
    }
    return false;
  }
  return has_memory;
}

std::vector<WFTimerInfo> WFTimer::list(const std::string& prefix, size_t max) {
  std::vector<WFTimerInfo> infos;
  const auto add = [&infos, max](const WFTimerInfo& info) {
    infos.push_back(info);
    return infos.size() < max;
  };
  if (max > 0 && !for_each(prefix, add)) {
    throw std::bad_alloc();
  }
  return infos;
}

std::chrono::steady_clock::time_point WFTimer::steady_now() {
  return std::chrono::steady_clock::time_point(now_on(ClockId::kMonotonic));
}

std::chrono::system_clock::time_point WFTimer::wall_now() {
  return std::chrono::system_clock::time_point(now_on(ClockId::kWall));
}

WFBootClock::time_point WFBootClock::now() {
  return time_point(now_on(ClockId::kBoottime));
}

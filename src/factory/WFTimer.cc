#include "workflow/WFTimer.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "factory/PeriodicTimer.h"
#include "factory/TickSchedule.h"
#include "factory/TimerSlots.h"
#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "util/Time.h"

using workflow::EvenTicks;
using workflow::kNever;
using workflow::NamedNode;
using workflow::NamedTimerTask;
using workflow::NameQuotas;
using workflow::PeriodicTimer;
using workflow::Runtime;
using workflow::TimerSlots;
using workflow::TimerTask;

namespace {

int64_t delay_of(std::chrono::nanoseconds delay) {
  return delay.count() < 0 ? kNever : delay.count();
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
  return NamedTimerTask::create(name, delay_of(delay), policy, 0, std::move(callback));
}

WFTimerTask* WFTimer::create(std::chrono::nanoseconds delay, const WFTimerOptions& options,
                             Callback callback) {
  if (!options.name) {
    return new TimerTask(delay_of(delay), std::move(callback));
  }
  return NamedTimerTask::create(*options.name, delay_of(delay), options.policy, options.tag,
                                std::move(callback));
}

WFTimerTask* WFTimer::create_periodic(const WFTimerPeriod& period, const WFTimerOptions& options,
                                      Tick tick, Callback callback) {
  const int64_t every_ns = period.every.count();
  const int64_t first_ns =
      every_ns > 0 ? delay_of(period.first.value_or(period.every)) : TimerTask::refused(EINVAL);
  return PeriodicTimer::create(first_ns, std::make_unique<EvenTicks>(every_ns, period.pace),
                               period.overlap, options, std::move(tick), std::move(callback));
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
  std::vector<WFTimerInfo> seen;
  bool has_memory = true;
  const int64_t now_ns = Runtime::current().clock().now_ns();
  const auto look = [&seen, &has_memory, now_ns](std::string_view name, const NamedNode* node) {
    try {
      seen.push_back(NamedTimerTask::info_of(name, node, now_ns));
    } catch (const std::bad_alloc&) {
      has_memory = false;
    }
  };
  const auto show = [&seen, &has_memory, &visit] {
    const bool goes_on = std::all_of(seen.begin(), seen.end(), visit);
    seen.clear();
    return goes_on && has_memory;
  };
  try {
    NamedTimerTask::registry().for_each_prefix(prefix, look, show);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return has_memory;
}

std::vector<WFTimerInfo> WFTimer::list(const std::string& prefix, size_t max) {
  std::vector<WFTimerInfo> infos;
  if (max > 0) {
    for_each(prefix, [&infos, max](const WFTimerInfo& info) {
      infos.push_back(info);
      return infos.size() < max;
    });
  }
  return infos;
}

#include "store/StoreDue.h"

#include <algorithm>
#include <cerrno>

#include "store/StoreRepeat.h"
#include "store/StoreTime.h"
#include "util/Time.h"

namespace workflow {

namespace {

constexpr int64_t kMinPeriodNs = 1'000'000;

// The time of `due` on the clock of the store, which shows `now_us`.
int64_t time_of(const WFTimerDue& due, int64_t now_us) {
  const int64_t ns = due.ns();
  if (due.is_deadline() && due.clock() == WF_CLOCK_WALL) {
    return us_from_ns(std::max<int64_t>(ns, 0));
  }
  if (!due.is_deadline()) return ns < 0 ? kNeverUs : saturating_add(now_us, us_from_ns(ns));
  const int64_t now_ns = due.clock() == WF_CLOCK_BOOTTIME
                             ? WFBootClock::now().time_since_epoch().count()
                             : WFTimer::steady_now().time_since_epoch().count();
  return ns == kNever ? kNeverUs
                      : saturating_add(now_us, us_from_ns(std::max<int64_t>(ns - now_ns, 0)));
}

}  // namespace

StoreFailure StoreDue::check(int64_t now_us) const {
  int64_t due_us = 0;
  std::string repeat_text;
  return read(now_us, due_us, repeat_text);
}

StoreFailure StoreDue::write_to(StoreRequest& request, int64_t now_us) const {
  if (auto* const schedule = std::get_if<ScheduleRequest>(&request.what)) {
    return read(now_us, schedule->due_us, schedule->spec.repeat);
  }
  auto& reschedule = std::get<RescheduleRequest>(request.what);
  StoreFailure failure = read(now_us, reschedule.due_us, reschedule.repeat);
  reschedule.changes_repeat = !reschedule.repeat.empty();
  return failure;
}

StoreFailure StoreDue::read(int64_t now_us, int64_t& due_us, std::string& repeat_text) const {
  if (due_.cron()) {
    const StoreRepeat repeat(due_, now_us, every_missed_date_);
    due_us = repeat.next_us(now_us);
    if (due_us == kNeverUs) return {EINVAL, "the cron expression is never due", false};
    repeat_text = repeat.to_text();
    return {};
  }
  due_us = time_of(due_.due(), now_us);
  if (due_.period_ns() != 0) {
    if (due_.period_ns() < kMinPeriodNs) {
      return {EINVAL, "the period is shorter than a millisecond", false};
    }
    repeat_text = StoreRepeat(due_, due_us, every_missed_date_).to_text();
  }
  return {};
}

}  // namespace workflow

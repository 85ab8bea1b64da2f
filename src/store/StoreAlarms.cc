#include "store/StoreAlarms.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "util/Time.h"

namespace workflow {

namespace {

// How often a hint of another process makes this one look at its leases, at most.
constexpr int64_t kHintPauseUs = kUsPerSec / 10;
constexpr int64_t kLongestSleepUs = 86'400 * kUsPerSec;

}  // namespace

void StoreAlarms::start_to_look() {
  try {
    set_look();
  } catch (const std::bad_alloc&) {
    look_lost();
  }
}

void StoreAlarms::due_at(int64_t us) {
  MutexLock lock(mutex_);
  if (us < next_claim_us_) {
    next_claim_us_ = us;
    must_set_ = true;
  }
}

void StoreAlarms::next_claim_is(int64_t us) {
  MutexLock lock(mutex_);
  next_claim_us_ = us;
  must_set_ = true;
}

void StoreAlarms::leases_have_changed() {
  MutexLock lock(mutex_);
  must_set_ = true;
}

bool StoreAlarms::take_hint() {
  MutexLock lock(mutex_);
  const int64_t now_us = backend_.now_us();
  const int64_t earliest_us = saturating_add(last_hint_us_, kHintPauseUs);
  if (now_us >= earliest_us) {
    last_hint_us_ = now_us;
    return true;
  }
  next_hint_us_ = earliest_us;
  must_set_ = true;
  return false;
}

void StoreAlarms::reopen_after(int64_t delay_us) {
  MutexLock lock(mutex_);
  reopen_delay_us_ = delay_us;
  sets_reopen_ = must_set_ = true;
}

void StoreAlarms::set_all_again() {
  MutexLock lock(mutex_);
  sets_look_ = must_set_ = true;
}

bool StoreAlarms::must_set() const {
  MutexLock lock(mutex_);
  return must_set_;
}

void StoreAlarms::set() {
  MutexLock setting(set_mutex_);
  int64_t next_us = kNeverUs;
  int64_t reopen_us = 0;
  bool sets_look = false;
  {
    MutexLock lock(mutex_);
    if (!std::exchange(must_set_, false)) return;
    sets_look = std::exchange(sets_look_, false);
    reopen_us = std::exchange(sets_reopen_, false) ? reopen_delay_us_ : 0;
    next_us = std::min(runs_.next_us(), next_hint_us_);
    if (runs_.takes_timers()) {
      next_us = std::min(next_us, next_claim_us_);
    }
  }
  if (reopen_us > 0) {
    reopen_.set(std::chrono::microseconds(reopen_us), when_alive(&StoreAlarms::reopen),
                when_alive(&StoreAlarms::alarm_lost));
  }
  if (sets_look) {
    set_look();
  }
  // This clock first: if time passes before the other one is read, the alarm is early and not late.
  const auto wall_now = WFTimer::wall_now();
  const int64_t now_us = backend_.now_us();
  if (next_us <= now_us) {
    check_times();
    // What is due now is carried out without a timer, and the alarm is set after it.
    return;
  }
  if (next_us != kNeverUs) {
    // The clock of the store may differ from that of this machine.
    const int64_t delay_us = std::min(next_us - now_us, kLongestSleepUs);
    const auto date = wall_now + std::chrono::microseconds(delay_us);
    wake_.set(date, when_alive(&StoreAlarms::wake), when_alive(&StoreAlarms::alarm_lost));
  }
}

void StoreAlarms::set_look() {
  // In a simulation time moves only if nothing else can happen, and no hint is lost. A manual clock
  // would stop at each second.
  if (!runtime_.clock().is_system_clock()) return;
  look_.set(std::chrono::seconds(1), when_alive(&StoreAlarms::look_around),
            when_alive(&StoreAlarms::look_lost));
}

bool StoreAlarms::lost_an_alarm() {
  MutexLock lock(mutex_);
  return std::exchange(lost_, false);
}

void StoreAlarms::close() {
  for (StoreAlarm* const alarm : {&wake_, &look_, &reopen_}) {
    alarm->close();
  }
}

void StoreAlarms::check_times() {
  std::vector<StoreRuns::Notice> notices;
  Due due;
  {
    MutexLock lock(mutex_);
    const int64_t now_us = backend_.now_us();
    notices = runs_.about_to_be_lost(now_us);  // first, because it may find no memory
    if (now_us < last_seen_us_) {
      // The clock was set back, and with it goes what was to be done at certain times.
      last_hint_us_ = 0;
      due.extend = true;
    }
    last_seen_us_ = now_us;
    if (now_us >= next_claim_us_) {
      due.claim = true;
      next_claim_us_ = kNeverUs;
    }
    if (now_us >= next_hint_us_) {
      next_hint_us_ = kNeverUs;
      last_hint_us_ = now_us;
      due.extend = true;
    }
    due.extend = runs_.must_extend(now_us) || due.extend;
    must_set_ = true;
  }
  listener_.on_due(due);
  StoreRuns::tell(notices, runtime_);
}

void StoreAlarms::wake() {
  try {
    check_times();
    set();  // here, too, because the thread may be busy for long with the store
  } catch (const std::bad_alloc&) {
    set_all_again();
    alarm_lost();
  }
}

void StoreAlarms::look_around() {
  listener_.on_due({.claim = true, .extend = false, .look = true, .reopen = true});
  wake();
  start_to_look();
}

void StoreAlarms::reopen() {
  {
    MutexLock lock(mutex_);
    reopen_delay_us_ = 0;
  }
  listener_.on_due({.claim = false, .extend = false, .look = false, .reopen = true});
}

void StoreAlarms::alarm_lost() {
  {
    MutexLock lock(mutex_);
    lost_ = must_set_ = true;
    sets_reopen_ = reopen_delay_us_ > 0;
  }
  listener_.on_due({});
}

void StoreAlarms::look_lost() {
  {
    MutexLock lock(mutex_);
    lost_ = must_set_ = sets_look_ = true;
  }
  listener_.on_due({});
}

std::function<void()> StoreAlarms::when_alive(void (StoreAlarms::*what)()) {
  return [this, owner = owner_, what] {
    if (const std::shared_ptr<const void> alive = owner.lock()) {
      (this->*what)();
    }
  };
}

}  // namespace workflow

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workflow/WFCron.h"
#include "workflow/WFTask.h"
#include "workflow/WFTimerDue.h"

namespace workflow {
class PeriodicTimer;
class TimerSlots;
}  // namespace workflow

// What a call about one timer has found. It is the truth about that timer, whatever other threads
// do at the same time: exactly one of all that end a timer wins.
enum WFTimerVerdict {
  // It took effect. Of cancel: the callback will see SYS_ERROR with ECANCELED.
  WF_TIMER_WON = 0,
  // Too late: what the callback will see is decided. It is running, or about to run; or the timer
  // was refused when it was created. No handle of this timer wins after that.
  // Of reschedule, in a tick of a periodic timer: the tick cannot be moved, and the timer goes on.
  WF_TIMER_RUNNING = 1,
  // Its callback has returned, or the timer was dropped (dismiss(), a cancelled series).
  WF_TIMER_DONE = 2,
  // The handle is of no timer.
  WF_TIMER_UNKNOWN = 3,
  // Of reschedule: nothing has changed, because the time is one of another clock than the timer's.
  WF_TIMER_OTHER_CLOCK = 4,
};

// Leads to one timer, named or not, and is safe to use for ever, also when that is gone long ago.
// A value: copy it, keep it where you like, compare it. It keeps nothing alive.
//
// All calls may be made from any thread, against anything that happens to the timer meanwhile.
// They take no memory and never block, but cancel_and_wait().
class WFTimerHandle {
 public:
  // Of no timer.
  WFTimerHandle() = default;

  // Ends the timer: with WF_TIMER_WON its callback runs soon on a thread of the library, or, if it
  // was not started yet, when it is. O(log n).
  WFTimerVerdict cancel() const;

  // The same, and returns after the callback has returned and what it had captured is destroyed,
  // whoever has ended the timer: what cancel() has found, a WFTimerVerdict. A timer that was not
  // started yet is waited for until it was, or was dropped. A thread of the library that waits is
  // lent to others.
  // -1 with EDEADLK when called in that callback: then the timer ends anyway, and nothing waits.
  int cancel_and_wait() const;

  // The timer expires at `due` instead of when it would have, earlier or later; a delay counts from
  // now, by the timer's clock, and from its start if it was not started. WF_TIMER_WON: it will, if
  // nothing ends it before. Later costs O(1), earlier O(log n).
  WFTimerVerdict reschedule(const WFTimerDue &due) const;

  // How long until it expires, by its clock as it stands now; 0 when it is overdue; of a timer that
  // was not started, its delay, or how long until its deadline; nanoseconds::max() for never. Empty
  // when it does not wait any more, or never will because it was refused.
  std::optional<std::chrono::nanoseconds> remaining() const;

  friend bool operator==(const WFTimerHandle &a, const WFTimerHandle &b) {
    return a.slot_ == b.slot_ && a.generation_ == b.generation_;
  }
  friend bool operator!=(const WFTimerHandle &a, const WFTimerHandle &b) { return !(a == b); }

 private:
  friend class workflow::TimerSlots;
  void *slot_ = nullptr;
  uint64_t generation_ = 0;
  uintptr_t timer_ = 0;  // where it was: fetched ahead, and read by way of the slot only
};

// What becomes of timers that have the name already when another one of that name is created.
enum WFTimerPolicy {
  WF_TIMER_APPEND = 0,   // they stay: any number may share a name
  WF_TIMER_REPLACE = 1,  // they end: SYS_ERROR, ECANCELED
  WF_TIMER_KEEP = 2,     // they stay, and the new one, which has no name then, ends when it is
                         // started: SYS_ERROR, EEXIST
};

// What a timer is created with, beside when it is due and its callback.
struct WFTimerOptions {
  std::optional<std::string> name;  // without one nobody finds it but its handles
  WFTimerPolicy policy = WF_TIMER_APPEND;
  // The user's own, for those who list named timers; another than 0 takes as much memory as a
  // handle.
  uint64_t tag = 0;
};

// When a periodic timer ticks. A tick is missed when its time comes before the one before is over.
enum WFTimerPace {
  // At multiples of the period from the first tick, without drift:
  WF_TIMER_SKIP = 0,   // missed ones are left out
  WF_TIMER_BURST = 1,  // missed ones follow at once, one after the other
  // One period after the one before was due, or, if that has passed already, from now:
  WF_TIMER_DELAY = 2,
  // One period after the one before has ended; of ticks that overlap, has begun:
  WF_TIMER_FIXED_DELAY = 3,
};

struct WFTimerPeriod {
  workflow::Duration every = std::chrono::nanoseconds(0);
  WFTimerPace pace = WF_TIMER_SKIP;
  // Ticks do not wait for each other: a tick begins when it is due, on another thread if need be.
  bool overlap = false;
  // The first tick, and by which clock all of them are; empty: one period after the start of the
  // timer, by the monotonic one.
  std::optional<WFTimerDue> first;
};

// One tick of a periodic timer, while it runs.
class WFTimerTick {
 public:
  WFTimerTick(const WFTimerTick &) = delete;
  WFTimerTick &operator=(const WFTimerTick &) = delete;

  uint64_t number = 0;              // of the ticks before it
  uint64_t missed = 0;              // ticks left out between the one before and this one
  std::chrono::nanoseconds late{};  // since it was due

  // No tick begins any more, but, of ticks that overlap, one that a thread is just about to call.
  // The timer ends when those that have begun are over: SUCCESS. No effect if something else has
  // ended it before.
  void end() const;

 private:
  friend class workflow::PeriodicTimer;
  explicit WFTimerTick(workflow::PeriodicTimer *timer) : timer_(timer) {}
  workflow::PeriodicTimer *timer_;
};

// Where a timer is on its way to its callback.
enum WFTimerStage {
  WF_TIMER_CREATED = 0,  // not started yet
  WF_TIMER_WAITING = 1,
  WF_TIMER_ENDING = 2,   // its time has come, or the library stops: its callback runs soon
  WF_TIMER_TICKING = 3,  // a periodic one, in a tick, or about to be
};

// A named timer at the moment when it was looked at.
struct WFTimerInfo {
  std::string name;
  uint64_t tag = 0;
  WFTimerStage stage = WF_TIMER_CREATED;
  WFTimerClock clock = WF_CLOCK_MONOTONIC;
  // Until it expires, by its clock, 0 when that is overdue; its delay, or how long until its
  // deadline, if it is not started; max() for never.
  std::chrono::nanoseconds remaining{};
  std::chrono::nanoseconds age{};  // since its creation
};

class WFTimer {
 public:
  using Callback = std::function<void(WFTimerTask *)>;

  // As WFTaskFactory::create_timer_task(). The first timer of another clock than the monotonic one
  // needs a descriptor for each poller; without it ends SYS_ERROR with EMFILE, ENFILE or ENOMEM.
  static WFTimerTask *create(const WFTimerDue &due, Callback callback);

  // With a name. Timers of that name are outstanding from their creation to their end; the policy
  // is applied when this one is created. With WF_TIMER_REPLACE the new one is there before
  // the old ones end, and of several that are created at once by several threads the last stays.
  static WFTimerTask *create(const std::string &name, const WFTimerDue &due, WFTimerPolicy policy,
                             Callback callback);

  // With what the options say. One that is refused, because of its policy or a quota, has no name
  // and ends as soon as it is started: SYS_ERROR with EEXIST or EDQUOT, which get_error() says from
  // its creation on. Nothing changes that: whoever cancels or reschedules it is too late.
  static WFTimerTask *create(const WFTimerDue &due, const WFTimerOptions &options,
                             Callback callback);

  // A periodic timer: `tick` is called again and again, on threads of the library, until the timer
  // is cancelled, in any way and from anywhere (also from inside a tick), a tick calls end(), or
  // the library stops; then the callback, once, after the last tick has returned. After a cancel no
  // further tick begins, but one that a thread is just about to call may; cancel_and_wait() returns
  // after that, too. To reschedule it while it waits moves the next tick, and those after it follow
  // that one; while a tick runs it is too late to, unless ticks overlap.
  // A period that is not positive: refused with EINVAL. It has no name then, and replaces nobody.
  using Tick = std::function<void(const WFTimerTick &)>;
  static WFTimerTask *create_periodic(const WFTimerPeriod &period, const WFTimerOptions &options,
                                      Tick tick, Callback callback);

  // The same at the dates of a cron expression, after the start of the timer. A tick that takes
  // longer than until the next date, a clock that is set forward and a system that was suspended
  // miss dates: they are counted, up to 1000, and left out, and if the timer waits for one of them
  // it ticks at once. When the clock is set back no date is ticked twice. An expression that is
  // never due: as a period that is not positive.
  static WFTimerTask *create_cron(const WFCron &cron, const WFTimerOptions &options, Tick tick,
                                  Callback callback);

  // A handle of a timer that was not started yet. Each call gives the same one. Without memory, for
  // tasks that are none of the library's timers, and in the callback, one of no timer.
  static WFTimerHandle handle_of(WFTimerTask *task);

  // Reschedules the timers of that name that were created before the call, as their handles would,
  // and returns for how many it took effect. Others wait at most for a few dozen of them.
  static size_t reschedule(const std::string &name, const WFTimerDue &due);

  // Quotas: at most `max` timers of that name, or of all names together that begin with that
  // prefix, are outstanding; one more is refused. Several may apply to a name, and each must have
  // room. Those that are there already stay. With WF_TIMER_REPLACE a timer takes the place of the
  // one it replaces, so it may be one too many until that has ended. kNoQuota takes the quota away.
  // 0, or -1 with ENOMEM, and then nothing has changed. To set one of another prefix, or take it
  // away, is O(all names, a 256th of them at a time, + quotas), of another name O(quotas); to
  // change it O(log quotas), as is the cost for timers. Timers that are created meanwhile may be
  // too many; and of several that are created at once one may be refused for the sake of another
  // that is refused in its turn.
  static constexpr size_t kNoQuota = SIZE_MAX;
  static int set_quota(const std::string &name, size_t max);
  static int set_prefix_quota(const std::string &prefix, size_t max);

  // How many timers of that name are outstanding. O(1).
  static size_t count(const std::string &name);
  // The same for all names that begin with that prefix; "": all named timers. O(all names).
  static size_t count_prefix(const std::string &prefix);

  // Calls visit(info) for each timer whose name begins with that prefix, in no order, on this
  // thread with no lock held, so that it may do anything; until it returns false. Timers that are
  // there all the while are visited once, those that come or go meanwhile once or not at all.
  // O(all names + timers visited); others wait at most for some dozens of them. False without
  // memory. What visit() throws ends it and goes on to the caller.
  static bool for_each(const std::string &prefix,
                       const std::function<bool(const WFTimerInfo &)> &visit);
  // The first `max` of these, for reports. Throws std::bad_alloc.
  static std::vector<WFTimerInfo> list(const std::string &prefix, size_t max);

  // The present by which timers expire: that of the system's clocks, or of a WFManualClock or
  // WFSimulation, if there is one. Programs that compute deadlines from these, and from
  // WFBootClock::now(), can be tested by them.
  static std::chrono::steady_clock::time_point steady_now();
  static std::chrono::system_clock::time_point wall_now();
};

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workflow/WFTimerDue.h"
#include "workflow/WFTimerTask.h"
#include "workflow/detail/Duration.h"

class WFCron;

namespace workflow {
class PeriodicTimer;
class TimerSlots;
}  // namespace workflow

// This header is all that a program needs for timers: to create, start, cancel and move them, and
// to put them into series. The callback of a timer that was dispatched runs exactly once. It finds
// one of these states and errors:
//
//   SUCCESS    0            its time has come; never early. Periodic timers: a tick called end()
//   SYS_ERROR  ECANCELED    it was cancelled by name or handle, or replaced by another timer of its
//                           name; or it was created without a time, and so ends at its dispatch
//                           (WFTaskFactory::create_timer_task(callback))
//              any errno    the scope around it ended with that error (WFScope.h): ETIMEDOUT for a
//                           deadline, ECANCELED for a client that left or a server that stops
//              EEXIST       refused: WF_TIMER_KEEP, and another timer has the name
//              EDQUOT       refused: a quota has no room
//              EINVAL       refused: nanoseconds outside [0, 1e9), a period that is not positive, a
//                           cron expression that is never due
//              ENOMEM       there was no memory when it was dispatched or, if it is periodic, later
//              EMFILE, ENFILE, ENOSPC  its clock is not the monotonic one, its poller has had no
//                           such timer, and cannot have or watch a descriptor for one
//   ABORTED    0            the library stops, or had stopped before the dispatch
//
// A timer is dropped, and its callback does not run, if it is dismissed, or if its series is
// cancelled or dismissed before the timer is dispatched.

// The result of a call about one timer. It is exact, whatever other threads do at the same time: of
// all attempts to end a timer, at most one succeeds.
enum WFTimerVerdict {
  // Returned by cancel_and_wait() only, inside the callback or a tick of that very timer: the call
  // has cancelled the timer if that was still possible, but has not waited, because it would wait
  // for itself. This verdict does not say whether the call was the one that ended the timer.
  WF_TIMER_WOULD_DEADLOCK = -1,
  // The call took effect. After cancel(), the callback will see SYS_ERROR with ECANCELED.
  WF_TIMER_WON = 0,
  // Too late: the outcome that the callback will see is already decided. The callback runs now or
  // soon or, if the timer was not dispatched, once it is; or the timer is just being dropped. No
  // later call through a handle of it succeeds. There is one exception: reschedule() also returns
  // this during a tick of a periodic timer without overlap, because a tick cannot be moved; that
  // timer goes on and can still be cancelled.
  WF_TIMER_RUNNING = 1,
  // Its callback has returned, or the timer was dropped (dismiss(), a cancelled series).
  WF_TIMER_DONE = 2,
  // The handle refers to no timer.
  WF_TIMER_UNKNOWN = 3,
  // Returned by reschedule() only. Nothing has changed, because the new time belongs to another
  // clock than the timer's.
  WF_TIMER_OTHER_CLOCK = 4,
};

// Refers to one timer, with or without a name. A handle is safe to use for ever, even long after
// the timer is gone. It is a value that can be copied, stored anywhere and compared. It keeps
// nothing alive.
//
// Every call may be made from any thread, whatever happens to the timer at the same time. The calls
// allocate no memory, and only cancel_and_wait() blocks.
class WFTimerHandle {
 public:
  // A handle that refers to no timer.
  WFTimerHandle() = default;

  // Ends the timer. If the result is WF_TIMER_WON, the callback runs soon on a thread of the
  // library. If the timer was not dispatched yet, the callback runs once it is. O(log n).
  WFTimerVerdict cancel() const;

  // Calls cancel() and returns its verdict, but only after the callback has returned and what it
  // had captured is destroyed, no matter which thread ended the timer. For a timer that was not
  // dispatched yet this waits until it is dispatched and ends, or is dropped. If the waiting thread
  // belongs to the library, another one works in its place meanwhile.
  //
  // If this is called inside the callback, or inside a tick, of that very timer, it returns
  // WF_TIMER_WOULD_DEADLOCK at once, with errno EDEADLK.
  WFTimerVerdict cancel_and_wait() const;

  // Makes the timer expire at `due`, which may be earlier or later than its present time. A delay
  // counts from now, by the timer's clock; if the timer was not dispatched yet, it counts from the
  // dispatch. WF_TIMER_WON means that the timer will expire then unless something ends it before.
  // Moving it to a later time costs O(1), to an earlier one O(log n).
  WFTimerVerdict reschedule(const WFTimerDue &due) const;

  // The time until the timer expires, by its clock as it stands now. For a timer that was not
  // dispatched it is the delay, or the time until the deadline. It is 0 if the timer is overdue and
  // nanoseconds::max() if it never expires. Empty if the timer does not wait now: it was cancelled
  // or refused, has ended, or is in a tick that does not overlap others.
  std::optional<std::chrono::nanoseconds> remaining() const;

  friend bool operator==(const WFTimerHandle &a, const WFTimerHandle &b) {
    return a.slot_ == b.slot_ && a.generation_ == b.generation_;
  }
  friend bool operator!=(const WFTimerHandle &a, const WFTimerHandle &b) { return !(a == b); }

 private:
  friend class workflow::TimerSlots;
  void *slot_ = nullptr;
  uint64_t generation_ = 0;
  uintptr_t timer_ = 0;  // where the timer was: a prefetch hint, never dereferenced
};

// What happens to the existing timers of a name when another timer of that name is created.
enum WFTimerPolicy {
  WF_TIMER_APPEND = 0,   // they stay: any number of timers may share a name
  WF_TIMER_REPLACE = 1,  // they end: SYS_ERROR, ECANCELED
  WF_TIMER_KEEP = 2,     // they stay; the new timer gets no name, and ends when it is dispatched:
                         // SYS_ERROR, EEXIST
};

// The optional properties of a new timer, for all calls that create one. In C++17 they are written
// in this order, or set one by one; C++20 can name them:
//
//   WFTimer::create(due, {"lease", WF_TIMER_REPLACE}, callback);
//   WFTimer::create(due, {.name = "lease", .policy = WF_TIMER_REPLACE}, callback);  // C++20
struct WFTimerOptions {
  // Any bytes; "" is a name like any other. A timer without a name is reachable through its handles
  // only.
  std::optional<std::string> name;
  WFTimerPolicy policy = WF_TIMER_APPEND;
  // A value of the user's own, reported when named timers are listed. A value other than 0 takes
  // the memory that handle_of() takes.
  uint64_t tag = 0;
};

// When a periodic timer ticks. A tick is missed if it is due by the time the previous tick is over.
enum WFTimerPace {
  // Ticks are due at multiples of the period from the first tick, without drift:
  WF_TIMER_SKIP = 0,   // missed ticks are left out
  WF_TIMER_BURST = 1,  // missed ticks follow at once, one after the other
  // The next tick is due one period after the previous one was due or, if that time has already
  // passed, one period from now:
  WF_TIMER_DELAY = 2,
  // The next tick is due one period after the previous one has ended. If ticks overlap, the period
  // counts from when the previous tick was handed to a thread:
  WF_TIMER_FIXED_DELAY = 3,
};

struct WFTimerPeriod {
  workflow::Duration every = std::chrono::nanoseconds(0);
  WFTimerPace pace = WF_TIMER_SKIP;
  // If set, ticks do not wait for each other: a tick begins when it is due, on another thread if
  // the previous one still runs.
  bool overlap = false;
  // When the first tick is due, and which clock all ticks follow. If empty, the first tick is due
  // one period after the dispatch of the timer, by the monotonic clock.
  std::optional<WFTimerDue> first;
};

// One tick of a periodic timer, valid while the tick runs.
class WFTimerTick {
 public:
  WFTimerTick(const WFTimerTick &) = delete;
  WFTimerTick &operator=(const WFTimerTick &) = delete;

  uint64_t number = 0;              // how many ticks came before this one
  uint64_t missed = 0;              // ticks left out between the previous tick and this one
  std::chrono::nanoseconds late{};  // the time since this tick was due

  // Ends the timer with SUCCESS, unless something else has ended it before. No further tick begins,
  // except that with overlapping ticks one that a thread is just about to call may still begin. The
  // timer ends when the ticks that have begun are over.
  void end() const;

 private:
  friend class workflow::PeriodicTimer;
  explicit WFTimerTick(workflow::PeriodicTimer *timer) : timer_(timer) {}
  workflow::PeriodicTimer *timer_;
};

// The stage that a timer has reached on the way to its callback.
enum WFTimerStage {
  WF_TIMER_CREATED = 0,  // not dispatched yet
  WF_TIMER_WAITING = 1,
  WF_TIMER_ENDING = 2,   // its time has come, or the library stops: its callback runs soon
  WF_TIMER_TICKING = 3,  // a periodic timer without overlap, in a tick or about to be
};

// A named timer, as it was at the moment when it was looked at.
struct WFTimerInfo {
  std::string name;
  uint64_t tag = 0;
  WFTimerStage stage = WF_TIMER_CREATED;
  WFTimerClock clock = WF_CLOCK_MONOTONIC;
  // The time until the timer expires, by its clock. For a timer that is not dispatched it is the
  // delay, or the time until the deadline. It is 0 if the timer is overdue and max() if it never
  // expires.
  std::chrono::nanoseconds remaining{};
  std::chrono::nanoseconds age{};  // since its creation
};

// Creates timers, and does things to all timers of a name. Every function may be called from any
// thread. Functions and callbacks that are null are not called. Creating a timer throws nothing but
// std::bad_alloc, and the other calls throw nothing unless they say so. A name of which there is no
// timer is no error: the calls return 0.
class WFTimer {
 public:
  using Callback = std::function<void(WFTimerTask *)>;

  // Creates a timer as the options describe it. Start it, push it to a series, or dismiss it.
  //
  // A timer with a name is outstanding from its creation until its outcome is decided, which is
  // before its callback. The policy is applied when the timer is created. With WF_TIMER_REPLACE the
  // new timer gets the name before the old ones end. If several threads create such timers at the
  // same time, the last one stays.
  //
  // A timer that is refused, because of its policy or a quota, has no name. It ends as soon as it
  // is dispatched, with SYS_ERROR and EEXIST or EDQUOT; get_error() returns that error from the
  // creation on. Nothing changes the outcome: every cancel() and reschedule() comes too late.
  //
  // Each poller needs one file descriptor from the first dispatch there of a timer by another clock
  // than the monotonic one.
  static WFTimerTask *create(const WFTimerDue &due, const WFTimerOptions &options,
                             Callback callback);
  static WFTimerTask *create(const WFTimerDue &due, Callback callback);

  // Creates a periodic timer. `tick` is called repeatedly on threads of the library, until the
  // timer is cancelled, a tick calls end(), or the library stops. A cancel by name, by a handle or
  // of its scope will do, from anywhere, including from inside a tick. The callback then runs once,
  // after the last tick has returned. After a cancel no further tick begins, except one that a
  // thread is just about to call; cancel_and_wait() waits for that one, too.
  //
  // Rescheduling the timer while it waits moves the next tick, and the ticks after it follow that
  // one. While a tick runs it is too late to reschedule, unless ticks overlap. A period that is not
  // positive is refused with EINVAL. The timer then has no name and replaces no other. Without a
  // `tick` the ticks are only counted.
  using Tick = std::function<void(const WFTimerTick &)>;
  static WFTimerTask *create_periodic(const WFTimerPeriod &period, const WFTimerOptions &options,
                                      Tick tick, Callback callback);

  // Like create_periodic(), but the ticks are due at the dates of a cron expression that are after
  // its dispatch. Dates are missed if a tick lasts beyond the next date, if the clock is set
  // forward, or if the system was suspended. If the clock jumps past the date that the timer
  // waits for, it ticks once, at once. The other missed dates are left out and counted, up to 1000.
  // When the clock is set back, no date is ticked twice. An expression that is never due is refused
  // with EINVAL, like a period that is not positive.
  static WFTimerTask *create_cron(const WFCron &cron, const WFTimerOptions &options, Tick tick,
                                  Callback callback);

  // The handle of a timer that was not started yet, for the thread that owns it. Each call for a
  // timer returns the same handle. The result refers to no timer if there is no memory, if the task
  // is null or not one of the library's timers, or if this is called in the timer's callback.
  static WFTimerHandle handle_of(WFTimerTask *task);

  // Cancels the timers of that name that were created before the call, started or not, oldest first
  // and at most `max` of them. Returns their number: it is exactly the number of timers that this
  // call made end with ECANCELED. The callback of each runs on a thread of the library once the
  // timer is dispatched, and never inside this call. O(1) for an unknown name, O(log n) for each
  // cancelled timer; other threads wait at most while a few dozen timers are cancelled.
  // WFTaskFactory::cancel_by_name() is the same call.
  static size_t cancel(const std::string &name, size_t max = SIZE_MAX);

  // Reschedules the timers of that name that were created before the call, as their handles would.
  // Returns the number of timers for which it took effect. Other threads wait at most while a few
  // dozen of them are handled.
  static size_t reschedule(const std::string &name, const WFTimerDue &due);

  // Quotas limit how many timers may be outstanding: at most `max` of that name, or of all names
  // together that begin with that prefix. A timer beyond a quota is refused. Several quotas may
  // apply to a name, and each of them must have room. Timers that exist already stay. With
  // WF_TIMER_REPLACE a timer takes the place of the one it replaces, so each such call may exceed
  // the quota by one until that one has ended. kNoQuota removes a quota.
  //
  // Returns 0, or -1 with ENOMEM; then nothing has changed. Setting the first quota of a prefix is
  // O(all names + quotas), but holds up a 256th of the names at a time. Setting the first quota of
  // a name, or removing a quota, is O(quotas). Changing a quota is O(log quotas), and so is the
  // cost for each timer. Timers created while a quota is being set may exceed it. If several timers
  // are created at the same time, several may be refused although there was room for one of them.
  static constexpr size_t kNoQuota = SIZE_MAX;
  static int set_quota(const std::string &name, size_t max);
  static int set_prefix_quota(const std::string &prefix, size_t max);

  // The number of outstanding timers of that name. O(1).
  static size_t count(const std::string &name);
  // The number of outstanding timers of all names that begin with that prefix; "" means all named
  // timers. O(all names).
  static size_t count_prefix(const std::string &prefix);

  // Calls visit(info) for each timer whose name begins with that prefix, in no particular order,
  // until visit() returns false. visit() runs on this thread with no lock held, so it may do
  // anything. A timer that exists during the whole call is visited once; one that comes or goes
  // meanwhile is visited once or not at all. O(all names + timers visited); other threads wait at
  // most while some dozens of timers are looked at. Returns false if there is no memory. If visit()
  // throws, the visit ends and the exception goes on to the caller.
  static bool for_each(const std::string &prefix,
                       const std::function<bool(const WFTimerInfo &)> &visit);
  // The first `max` timers that for_each() would visit, in no particular order: which ones these
  // are may differ from call to call. For reports. O(all names + timers listed). Throws
  // std::bad_alloc.
  static std::vector<WFTimerInfo> list(const std::string &prefix, size_t max);

  // The present time by which timers expire: that of the system's clocks or, if there is one, that
  // of a WFManualClock or WFSimulation. Programs that compute deadlines from these functions and
  // from WFBootClock::now() can be tested with those two.
  static std::chrono::steady_clock::time_point steady_now();
  static std::chrono::system_clock::time_point wall_now();
};

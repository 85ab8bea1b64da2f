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

// This header creates timers, and cancels and moves them by name or by handle.
//
// A timer is a task. It is *dispatched* when its turn comes: at once if it is started alone, in a
// series when the task before it has ended. Delays count from then. The callback of a timer that
// was dispatched runs exactly once, on a thread of the library or, when that has stopped, inside
// start(). It must not throw. There get_state() and get_error() of the timer return one of these
// outcomes:
//
//   SUCCESS    0            its time has come; never early. A periodic timer: a tick called end()
//   SYS_ERROR  ECANCELED    it was cancelled by name or handle, or replaced by another timer of its
//                           name, or made by WFTaskFactory::create_timer_task(callback)
//              any errno    the scope around it ended with that error (WFScope.h): ETIMEDOUT for a
//                           deadline, ECANCELED for a client that left or a server that stops
//              EEXIST       refused: WF_TIMER_KEEP, and another timer has the name
//              EDQUOT       refused: a quota has no room
//              EINVAL       refused: nanoseconds outside [0, 1e9), a period that is not positive, a
//                           cron expression that is never due
//              ENOMEM       there was no memory when it was dispatched or, if it is periodic, later
//              EMFILE, ENFILE, ENOSPC  its poller could not open or watch the descriptor that it
//                           needs for its first timer by another clock than the monotonic one
//   ABORTED    0            the library stops because the process exits, or had stopped before the
//                           dispatch
//
// A timer is *dropped*, and its callback never runs, if it is dismissed, or if its series is
// cancelled or dismissed before the timer is dispatched. Even a timer that was cancelled can be
// dropped. A *poller* is a thread of the library, or several, with a queue of timers for each
// clock. In the costs, n is the length of such a queue. docs/glossary.md explains the other terms.

// What WFTimerHandle::cancel() and cancel_and_wait() have found. The answer is true whatever other
// threads do at the same time: of all calls that try to end a timer, at most one succeeds.
enum class WFTimerCancel {
  // Returned by cancel_and_wait() only, where it would wait for itself. The call has cancelled the
  // timer if that was still possible, but has not waited. The value does not say whether this call
  // was the one that ended the timer.
  kWouldDeadlock = -1,
  // This call has ended the timer. Its callback sees SYS_ERROR with ECANCELED, unless the timer is
  // dropped.
  kWon = 0,
  // The timer was refused, its time has come, or something else has ended it. Its callback runs now
  // or soon or, if it was not dispatched, after the dispatch, unless it is dropped. After this
  // answer no call through a handle of the timer succeeds.
  kTooLate = 1,
  // Its callback has returned, and what it had captured is destroyed, or the timer was dropped. In
  // a child of fork(2) also the answer about every timer of the parent, which goes on there.
  kDone = 2,
  // The handle refers to no timer.
  kNoTimer = 3,
};

// What WFTimerHandle::reschedule() has found. The answer is true whatever other threads do at the
// same time. In all cases but kWon the call has changed nothing.
enum class WFTimerMove {
  // The timer has its new time.
  kWon = 0,
  // As WFTimerCancel::kTooLate, with one exception: it is also the answer while a periodic timer is
  // out of its queue for a tick (only a moment if ticks overlap). That timer goes on, and later
  // calls may succeed. (After this answer a cancel by the name of the timer may still come in
  // time.)
  kTooLate = 1,
  // As WFTimerCancel::kDone.
  kDone = 2,
  // The handle refers to no timer.
  kNoTimer = 3,
  // The WFTimerDue names another clock than the timer's.
  kOtherClock = 4,
};

// Refers to one timer, with or without a name. A handle is safe to use for ever, even long after
// the timer is gone. It is a value that can be copied, stored anywhere and compared. It keeps
// nothing alive.
//
// Every const call may be made from any thread, whatever happens to the timer at the same time.
// Only cancel_and_wait() blocks; the other calls allocate no memory.
class WFTimerHandle {
 public:
  // A handle that refers to no timer.
  WFTimerHandle() = default;

  // Ends the timer. After kWon the callback runs soon, after a tick that is running or, if the
  // timer was not dispatched yet, after the dispatch: on a thread of the library, never inside this
  // call. O(log n).
  WFTimerCancel cancel() const;

  // Calls cancel() and returns its answer, but only after the callback has returned and all that
  // the callback and the tick function had captured is destroyed, whatever ended the timer. A timer
  // that was not dispatched yet is waited for until it is dispatched and ends, or is dropped. If
  // this blocks a thread of the library, another one does that thread's other work meanwhile.
  //
  // In the callback or a tick of that very timer, or in a destructor of what these have captured,
  // it returns kWouldDeadlock at once, with errno EDEADLK. Other circles are not detected: for
  // example, two callbacks that wait for each other's timers wait for ever.
  WFTimerCancel cancel_and_wait() const;

  // Makes the timer expire at `due`, which may be earlier or later than its present time. A delay
  // counts from now, by the timer's clock; if the timer was not dispatched yet, it counts from the
  // dispatch. After kWon the timer expires at that time, unless something ends it or moves it again
  // before. Moving it to a later time costs O(1), to an earlier one O(log n).
  WFTimerMove reschedule(const WFTimerDue &due) const;

  // The time until the timer expires, by the timer's clock as it stands now: 0 if it is overdue,
  // nanoseconds::max() if it never expires. Before the dispatch it is the delay, or the time until
  // the deadline. Empty if there is no timer, or it was cancelled or refused, has ended, or has
  // left its queue, as in a tick that does not overlap others.
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
  // A value of the user's own, reported when named timers are listed; a timer without a name does
  // not keep it. A tag other than 0 takes the 64 bytes that the first handle_of() takes otherwise.
  uint64_t tag = 0;
};

// When a periodic timer ticks. A tick is *missed* if its time has come before the previous tick is
// over. If ticks overlap, the previous tick counts as over once it is handed to a thread.
enum WFTimerPace {
  // Ticks are due at multiples of the period from the first tick, without drift. Missed ticks are
  // left out.
  WF_TIMER_SKIP = 0,
  // Ticks are due at multiples of the period, without drift. Missed ticks follow at once.
  WF_TIMER_BURST = 1,
  // The next tick is due one period after the previous one was due or, if that time is missed,
  // one period after the previous one is over.
  WF_TIMER_DELAY = 2,
  // The next tick is always due one period after the previous one is over.
  WF_TIMER_FIXED_DELAY = 3,
};

struct WFTimerPeriod {
  workflow::Duration every = std::chrono::nanoseconds(0);
  WFTimerPace pace = WF_TIMER_SKIP;
  // If set, ticks do not wait for each other: a tick begins when it is due, on another thread if
  // the previous one still runs.
  bool overlap = false;
  // When the first tick is due. All ticks use the clock of this time. If empty, the first tick is
  // due one period after the dispatch of the timer, by the monotonic clock.
  std::optional<WFTimerDue> first = std::nullopt;
};

// One tick of a periodic timer, valid while the tick runs.
class WFTimerTick {
 public:
  WFTimerTick(const WFTimerTick &) = delete;
  WFTimerTick &operator=(const WFTimerTick &) = delete;

  uint64_t number = 0;              // how many ticks came before this one
  uint64_t missed = 0;              // ticks left out between the previous tick and this one
  std::chrono::nanoseconds late{};  // the time since this tick was due

  // Ends the timer with SUCCESS, unless something else has ended it before. The callback runs when
  // all ticks that have begun are over. No further tick begins, with one exception: if ticks
  // overlap, one that a thread is just about to call may still begin.
  void end() const;

 private:
  friend class workflow::PeriodicTimer;
  explicit WFTimerTick(workflow::PeriodicTimer *timer) : timer_(timer) {}
  workflow::PeriodicTimer *timer_;
};

// The stage that a timer has reached on the way to its callback.
enum class WFTimerStage {
  kCreated = 0,  // not dispatched yet
  kWaiting = 1,
  kEnding = 2,  // it has left its queue, and its callback runs soon; perhaps a cancel by name still
                // comes in time
  kTicking = 3,  // a periodic timer: it is in a tick, is about to be, or is ending
};

// A named timer, as it was when for_each() or list() came to it.
struct WFTimerInfo {
  std::string name;
  uint64_t tag = 0;
  WFTimerStage stage = WFTimerStage::kCreated;
  WFTimerClock clock = WF_CLOCK_MONOTONIC;
  // The time until the timer expires, as WFTimerHandle::remaining() returns it, but 0 where that is
  // empty.
  std::chrono::nanoseconds remaining{};
  std::chrono::nanoseconds age{};  // since its creation
};

// Creates timers, and does things to all timers of a name. Every function but handle_of() may be
// called from any thread. Functions and callbacks that are null are not called. Creating a timer
// throws nothing but std::bad_alloc, and then no other timer was replaced. The other calls throw
// nothing unless they say so. If no timer has the name, the calls return 0.
class WFTimer {
 public:
  using Callback = std::function<void(WFTimerTask *)>;

  // Creates a timer as the options describe it. The caller owns it until it starts it, pushes it to
  // a series, or dismisses it; one of these must follow.
  //
  // A timer with a name is *outstanding* from its creation until its outcome is decided, which is
  // before its callback, or until it is dropped. The policy is applied when the timer is created.
  // With WF_TIMER_REPLACE the new timer gets the name before the old ones end. If several threads
  // create such timers at the same time, the one that was last to get the name stays.
  //
  // A timer that is refused when it is created (EEXIST, EDQUOT, EINVAL) has no name. It ends as
  // soon as it is dispatched, with SYS_ERROR and that error, which get_error() returns from the
  // creation on. Nothing changes the outcome: no scope, no stop of the library, and every cancel()
  // and reschedule() comes too late.
  //
  // A poller opens a file descriptor, and keeps it, when the first timer by another clock than the
  // monotonic one is dispatched there, unless that is due already and not periodic.
  static WFTimerTask *create(const WFTimerDue &due, const WFTimerOptions &options,
                             Callback callback);
  static WFTimerTask *create(const WFTimerDue &due, Callback callback);

  // Creates a periodic timer. `tick` is called repeatedly on threads of the library, until a tick
  // calls end(), the timer is cancelled or replaced, its scope ends, or the library stops. Each of
  // these may happen inside a tick. The callback then runs once, after the last tick has returned.
  // After a cancel no further tick begins, except one that a thread is just about to call;
  // cancel_and_wait() waits for that one, too. A tick must not throw.
  //
  // Rescheduling the timer while it waits moves the next tick, and the ticks after it follow that
  // one. While a tick runs, reschedule() answers WFTimerMove::kTooLate; if ticks overlap, it does
  // so only for a moment. A period that is not positive is refused with EINVAL: the timer has no
  // name and replaces no other. Without a `tick` the ticks are only counted.
  using Tick = std::function<void(const WFTimerTick &)>;
  static WFTimerTask *create_periodic(const WFTimerPeriod &period, const WFTimerOptions &options,
                                      Tick tick, Callback callback);

  // Creates a periodic timer that ticks at the times of a cron expression that come after its
  // dispatch, by the wall clock; ticks do not overlap. If a tick lasts beyond the next time, that
  // time is missed. If the time for which the timer waits passes because the clock is set forward
  // or the system is suspended, the timer ticks at once, and only once, for that time. The other
  // times that have passed are missed: they are left out, and at most 1000 of them are counted in
  // WFTimerTick::missed. When the clock is set back, no time has a second tick. An expression that
  // is never due is refused with EINVAL, like a period that is not positive.
  static WFTimerTask *create_cron(const WFCron &cron, const WFTimerOptions &options, Tick tick,
                                  Callback callback);

  // Returns the handle of a timer. May be called only by the thread that owns the timer, before it
  // gives the timer away by a start or a series that is started. All handles of a timer are equal.
  // The first call for a timer takes 64 bytes, which later timers use again. The result refers to
  // no timer if there is no memory, if the task is null or not one of the library's timers, or in
  // its callback.
  static WFTimerHandle handle_of(WFTimerTask *task);

  // Cancels the timers of that name that were created before the call, started or not, oldest first
  // and at most `max` of them. Returns how many timers this call has ended, exactly: each ends with
  // ECANCELED, unless it is dropped. Its callback runs on a thread of the library once the timer is
  // dispatched, and never inside this call. O(1) for an unknown name, O(log n) for each cancelled
  // timer. Other threads that need the name wait at most while a few dozen timers are cancelled.
  // WFTaskFactory::cancel_by_name() is the same call.
  static size_t cancel(const std::string &name, size_t max = SIZE_MAX);

  // Reschedules the timers of that name that were created before the call, as their handles would.
  // Returns the number of timers for which it took effect. Other threads that need the name wait
  // at most while a few dozen of them are handled.
  static size_t reschedule(const std::string &name, const WFTimerDue &due);

  // Quotas limit how many timers may be outstanding: at most `max` of that name, or of all names
  // together that begin with that prefix. A timer beyond a quota is refused. Several quotas may
  // apply to a name, and each of them must have room. Timers that exist already stay. A timer that
  // replaces another one needs no room, because it takes the name before the old timer ends; so
  // each such call may exceed the quota by one for a moment. kNoQuota removes a quota.
  //
  // Returns 0, or -1 with ENOMEM; then nothing has changed. Setting a quota for a prefix that has
  // none is O(all names + quotas), but other threads wait for a 256th of the names at most. Setting
  // one for a name that has none, or removing one, is O(quotas). Changing one is O(log quotas),
  // which is also what quotas add to the creation and the end of each named timer. Timers created
  // while a quota is being set may exceed it. If several quotas apply to timers that are created at
  // the same time, all of these may be refused although there was room for one of them.
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
  // most while some dozens of timers are looked at. Returns false if memory has run out and some
  // timers were not visited. If visit() throws, that ends the visit and goes on to the caller.
  static bool for_each(const std::string &prefix,
                       const std::function<bool(const WFTimerInfo &)> &visit);
  // The first `max` timers that for_each() would visit, in no particular order: which ones these
  // are may differ from call to call. For reports. O(all names + timers listed). Throws
  // std::bad_alloc.
  static std::vector<WFTimerInfo> list(const std::string &prefix, size_t max);

  // The present time of the clocks by which timers expire: the system's clocks or, under a
  // WFManualClock or in a WFSimulation, the clocks of that. A program that computes its deadlines
  // from these functions and from WFBootClock::now() can be tested under both.
  static std::chrono::steady_clock::time_point steady_now();
  static std::chrono::system_clock::time_point wall_now();
};

// Older names of the answers and stages, for programs that use them.
using WFTimerVerdict = WFTimerCancel;

namespace workflow {
// A value of the same name in WFTimerCancel and WFTimerMove, which converts to both.
struct TimerVerdict {
  int value;
  constexpr operator WFTimerCancel() const { return static_cast<WFTimerCancel>(value); }
  constexpr operator WFTimerMove() const { return static_cast<WFTimerMove>(value); }
};
}  // namespace workflow

inline constexpr workflow::TimerVerdict WF_TIMER_WON{0};
inline constexpr workflow::TimerVerdict WF_TIMER_RUNNING{1};  // kTooLate
inline constexpr workflow::TimerVerdict WF_TIMER_DONE{2};
inline constexpr workflow::TimerVerdict WF_TIMER_UNKNOWN{3};  // kNoTimer
inline constexpr WFTimerCancel WF_TIMER_WOULD_DEADLOCK = WFTimerCancel::kWouldDeadlock;
inline constexpr WFTimerMove WF_TIMER_OTHER_CLOCK = WFTimerMove::kOtherClock;

inline constexpr WFTimerStage WF_TIMER_CREATED = WFTimerStage::kCreated;
inline constexpr WFTimerStage WF_TIMER_WAITING = WFTimerStage::kWaiting;
inline constexpr WFTimerStage WF_TIMER_ENDING = WFTimerStage::kEnding;
inline constexpr WFTimerStage WF_TIMER_TICKING = WFTimerStage::kTicking;

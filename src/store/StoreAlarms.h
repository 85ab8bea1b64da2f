#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernel/Runtime.h"
#include "store/StoreAlarm.h"
#include "store/StoreBackend.h"
#include "store/StoreRuns.h"
#include "util/Mutex.h"

namespace workflow {

// The times at which an engine has something to do without being asked, and the timers of the
// library that wake its thread for that. So the thread waits without a time limit, and a simulation
// or a manual clock drives it. There are three alarms:
//
// - wake_ is for what is due by the clock of the store: the next claim; the leases, of which
//   StoreRuns says when they must be extended and when they are about to be lost; and another look
//   at the leases that a hint has asked for too soon after the last one.
// - look_ rings once a second, in case a hint of another process was lost. It is not set in a
//   simulation or with a manual clock.
// - reopen_ ends the pause before a store that has failed is opened again.
//
// 1. What becomes known only makes must_set() true. Only set() sets the alarms, but for look_,
//    which start_to_look() sets. No mutex of the engine is held then.
// 2. wake_ is set for the earliest of its times, or earlier, whenever set() has returned and
//    nothing has become known since. Times that have come are told at once instead.
// 3. The listener is told of each time that has come. A time for a claim is told once, and then
//    forgotten until another one becomes known. If memory runs out first, nothing is forgotten.
// 4. If an alarm could not be set, must_set() and lost_an_alarm() say so. The thread then
//    pauses before it tries again.
//
// Thread-safe. Lock order: set_mutex_, the mutex of the engine, mutex_, that of StoreRuns. The
// listener is called, and runs are told, without mutex_.
class StoreAlarms {
 public:
  // What is to be done now.
  struct Due {
    bool claim = false;
    bool extend = false;
    bool look = false;
    bool reopen = false;
  };
  class Listener {
   public:
    virtual ~Listener() = default;
    // Any thread. Also called if nothing is due, but must_set() has become true.
    virtual void on_due(const Due& due) = 0;
  };

  StoreAlarms(Runtime& runtime, StoreBackend& backend, StoreRuns& runs, Listener& listener)
      : runtime_(runtime), backend_(backend), runs_(runs), listener_(listener) {}

  // Before everything else, once. The alarms keep `owner` alive while they ring, and do nothing
  // when it is gone.
  void belong_to(std::weak_ptr<const void> owner) { owner_ = std::move(owner); }
  // Begins to look around once a second.
  void start_to_look();

  // A timer may be claimed at that time, which may have passed.
  void due_at(int64_t us);
  // The store has been asked: this is the next time at which a timer may be claimed.
  void next_claim_is(int64_t us);
  // The times of StoreRuns may have become earlier.
  void leases_have_changed();
  // Another process may have changed something. Returns whether the leases are to be looked at now;
  // if they were looked at a moment ago, on_due() says so later.
  bool take_hint();
  // The store has failed, and is to be opened again after a pause.
  void reopen_after(int64_t delay_us);
  // What is known has changed in ways that nobody remembers, for want of memory.
  void set_all_again();

  bool must_set() const;
  // Sets the alarms if they must be set. Throws std::bad_alloc: then set_all_again() is to follow.
  void set();
  // Whether an alarm could not be set since the last call.
  bool lost_an_alarm();

  // Nothing rings any more, apart from what rings already.
  void close();

 private:
  void check_times();
  void set_look();
  // What the alarms call.
  void wake();
  void look_around();
  void reopen();
  void alarm_lost();
  void look_lost();
  // A function that calls `what` unless the owner is gone.
  std::function<void()> when_alive(void (StoreAlarms::*what)());

  Runtime& runtime_;
  StoreBackend& backend_;
  StoreRuns& runs_;
  Listener& listener_;
  std::weak_ptr<const void> owner_;  // constant after belong_to()

  // Held while the next time is looked up and wake_ is set for it: otherwise a slow thread might
  // set wake_ for an old time.
  Mutex set_mutex_;
  StoreAlarm wake_;
  StoreAlarm look_;
  StoreAlarm reopen_;

  mutable Mutex mutex_;
  bool must_set_ WF_GUARDED_BY(mutex_) = false;
  bool sets_look_ WF_GUARDED_BY(mutex_) = false;    // set() sets look_, too
  bool sets_reopen_ WF_GUARDED_BY(mutex_) = false;  // and reopen_
  bool lost_ WF_GUARDED_BY(mutex_) = false;
  int64_t reopen_delay_us_ WF_GUARDED_BY(mutex_) = 0;  // 0: there is nothing to ring for
  // By the clock of the store; they may be too early.
  int64_t next_claim_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  int64_t next_hint_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  // When hints of other processes made this one look at its leases last.
  int64_t last_hint_us_ WF_GUARDED_BY(mutex_) = 0;
  int64_t last_seen_us_ WF_GUARDED_BY(mutex_) = 0;
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstddef>

#include "util/Mutex.h"
#include "workflow/detail/CancelRegistration.h"
#include "workflow/detail/Ref.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// Ends what waits inside it: the timers alone, or everything. Each kind of registration is ended at
// most once. Scope tasks and their deadlines, clients that leave, and stops of servers that have a
// limit all use it.
//
// Its contract is that of std::stop_source and std::stop_callback, with three differences. A
// registration that comes after the end is not called: enter() returns the reason instead. Timers
// can be ended alone. And leave() never waits for a canceller that is in on_cancel(); only
// leave_after_call() does, which is for threads that block anyway. A task enters before it begins
// to wait, and leaves when it has ended. cancel() calls on_cancel() of each registration that is
// inside. If a task ends while its on_cancel() runs, it is handed over to the canceller, which
// posts it once the call has returned. So the task is not freed during the call.
//
// A task that has entered may be called before it has arrived at the place where it waits. Under
// the lock of that place, or in one atomic, it therefore looks for the reason, or for the mark that
// on_cancel() left, and stays out if it finds one.
//
// Ownership: reference counted. A thread that cancels the scope holds a reference, because the last
// task that it ends may drop the last other one. A registration belongs to what waits. That keeps
// the scope alive as long as the registration is inside or may still enter. Only a registration
// that belongs to the scope itself keeps nothing alive.
//
// Thread-safe. The mutex is a leaf: nothing is called while it is held, so any other lock may be
// held by the callers of enter(), leave() and reason_for(). cancel() must be called with no lock
// held.
//
// Invariants. There are two kinds of registrations: one for timers and nested scopes, one for all
// others.
// 1. reason_for(kind) is 0 while registrations of that kind may enter. The first reason that it is
//    given stays for ever.
// 2. A registration is in the list of its kind exactly while its state is kEntered.
// 3. Nothing of a kind enters once there is a reason for that kind. The thread that gave the reason
//    empties the list, so it calls each registration at most once.
// 4. A task whose registration is kCalled or kHandedOver (CancelRegistration::State) is not freed.
//    It is posted exactly once: by its own thread if leave() returns true, otherwise by the
//    canceller.
// 5. No thread holds the mutex longer than it takes to link or unlink one registration. Once there
//    is a reason, enter() does not lock.
class CancelScope {
 public:
  using Kind = CancelRegistration::Kind;

  // The caller holds the first reference.
  CancelScope() = default;
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  // Returns 0, or the reason for which waits of this kind have ended. In the second case nothing
  // has entered. O(1), never allocates.
  int enter(CancelRegistration& registration, Kind kind);

  // Called by the one thread that may complete the task, after it has stored the outcome and before
  // it posts `ended`. Returns false if the canceller posts `ended` instead. Then the caller must
  // not touch the task any more. Returns true, too, if the registration is not in the scope. O(1).
  bool leave(CancelRegistration& registration, Runnable* ended);

  // For a thread that has blocked, with a registration on its stack: leaves the scope, and
  // returns when no canceller is calling the registration any more. Its on_cancel() must be short.
  void leave_after_call(CancelRegistration& registration);

  // Ends the scope: `reason` is an errno value other than 0. Calls every registration inside, one
  // after the other. If cancel_timers() came before, all timers and nested scopes are left to that
  // call: they end with its reason, perhaps after this call has returned. Posts to the handlers
  // what was handed over to this call. Returns whether this call has ended the scope; if it had
  // ended before, nothing happens. O(registrations).
  bool cancel(int reason) WF_EXCLUDES(mutex_);

  // Does the same for the timers and nested scopes only, now and in future. The scope stays open
  // for everything else.
  void cancel_timers(int reason) WF_EXCLUDES(mutex_);

  // To be called when no task is inside, and none will enter any more. A computation that outlives
  // its task may still wait inside, or enter; nothing ends its waits then. Returns why the scope
  // has ended, or 0; then no call ends it from now on. So the result of this call and those of all
  // calls of cancel() agree.
  int finish();

  // 0 while the scope is open, otherwise why it ended.
  int reason() const { return reason_for(Kind::kOther); }
  // 0 while waits of this kind may begin.
  int reason_for(Kind kind) const { return list(kind).reason.load(std::memory_order_acquire); }

  void retain() { references_.add(); }
  // Frees the scope with the last reference. Only what belongs to the scope itself may be inside
  // then.
  void release();

 protected:
  virtual ~CancelScope();

 private:
  // Handed-over tasks are posted in groups of this size, so that one wake-up serves many.
  static constexpr size_t kGroup = 64;

  // The registrations of one kind. Guarded by mutex_, but the reason may be read without it.
  struct List {
    std::atomic<int> reason{0};
    CancelRegistration* first = nullptr;
    CancelRegistration* last = nullptr;
  };

  List& list(Kind kind) { return lists_[static_cast<size_t>(kind)]; }
  const List& list(Kind kind) const { return lists_[static_cast<size_t>(kind)]; }

  // Gives the reason, unless there is one. Returns whether it did.
  bool close(Kind kind, int reason) WF_REQUIRES(mutex_);
  void call_all(Kind kind, int reason) WF_EXCLUDES(mutex_);
  CancelRegistration* take_first(Kind kind) WF_EXCLUDES(mutex_);
  // Returns what the canceller has to post, or null.
  Runnable* end_call(CancelRegistration& registration) WF_EXCLUDES(mutex_);
  void link(CancelRegistration& registration) WF_REQUIRES(mutex_);
  void unlink(CancelRegistration& registration) WF_REQUIRES(mutex_);

  Mutex mutex_;
  List lists_[2];  // by Kind
  bool finished_ WF_GUARDED_BY(mutex_) = false;
  RefCount references_;
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "util/Mutex.h"
#include "workflow/detail/CancelRegistration.h"
#include "workflow/detail/Ref.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// A scope: one call of cancel(), with an errno value as the reason, ends everything that waits
// inside it. cancel_timers() ends only timers and nested scopes. Scope tasks and their deadlines
// use it (kernel/DeadlineScope.h), and servers do for a request whose client leaves, or when a stop
// has reached its time limit.
//
// What waits, usually a task, has a CancelRegistration. It *enters* the scope before it begins to
// wait, and is *inside* until it *leaves*. The canceller, a thread in cancel() or cancel_timers(),
// calls on_cancel() of each registration inside, which ends the wait. The one thread that may
// complete the task stores the outcome and calls leave(). Then it posts or ends the task, which may
// free it. But if on_cancel() is still running, leave() hands the task over: the canceller posts
// it when on_cancel() has returned. So the task is not freed during the call.
//
// The contract is that of std::stop_source and std::stop_callback, with three differences. When the
// scope has ended, enter() returns the reason, and on_cancel() is not called. Timers can be ended
// alone. And leave() never waits for a canceller that is in on_cancel(). Only leave_after_call()
// does, which is for threads that block anyway.
//
// on_cancel() may come before the task has arrived at the place where it waits, such as a queue. So
// the task looks, under the lock of the place or in one atomic operation, for the reason or for a
// mark that on_cancel() has left. If it finds one, it does not wait.
//
// Ownership: reference counted. A canceller must hold a reference, because the last task that it
// ends may drop the last other reference. The owner of a registration keeps the scope alive as long
// as the registration is inside or may still enter, unless the scope itself is that owner, as for
// DeadlineScope::stop_token().
//
// Most scopes have one registration inside at a time, because a series waits for one thing at a
// time. It enters a *slot*, one atomic word, and leaves it again without a lock. Only what enters
// while the slot is taken goes into a list, under the mutex.
//
// Thread-safe. The mutex is a leaf: nothing is called while it is held. So enter(), leave(),
// finish() and reason_for() may be called with any lock held that is not a leaf itself. cancel()
// and cancel_timers() must be called with no lock held, because on_cancel() may take any.
//
// Invariants. There are two kinds of registrations, Kind::kTimer for timers and nested scopes, and
// Kind::kOther. Each kind has a reason, a bit in the slot that says that it is closed, and a list.
// 1. reason_for(kind) is 0 until a canceller closes the kind. Once it is another value it never
//    changes. The canceller then sets the bit, which is never cleared.
// 2. A registration is inside while it is in the slot or in the list of its kind, never in both. It
//    is in the list exactly while its state is kEntered. In the slot its state is kOutside.
// 3. Nothing of a kind enters the slot once the bit is set, because one compare-and-swap sees both.
//    Nothing of a kind enters the list once there is a reason. The thread that gave the reason
//    looks for registrations after it has set the bit, so it misses none. It takes each out of the
//    slot or the list before it calls it, so it calls each at most once. It calls them in no
//    particular order.
// 4. The canceller takes a registration out of the slot and marks it kCalled under one hold of the
//    mutex. So leave(), which locks if its registration is not in the slot, sees the mark.
// 5. A task whose registration is kCalled or kHandedOver (CancelRegistration::State) is not freed.
//    Exactly one thread goes on with a task: the one that called leave() if that returned true,
//    otherwise the canceller.
// 6. No thread holds the mutex longer than it takes to link or unlink one registration. Once there
//    is a reason and its bit, enter() does not lock.
class CancelScope {
 public:
  using Kind = CancelRegistration::Kind;

  // The caller holds the first reference.
  CancelScope() = default;
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  // Returns 0 if the registration has entered. Otherwise returns the reason for which waits of this
  // kind have ended. A registration may enter again after it has left. O(1), never allocates.
  int enter(CancelRegistration& registration, Kind kind);

  // Called by the one thread that may complete the task, perhaps inside on_cancel(), after it has
  // stored the outcome. `ended` is what is to be posted, usually the task. Returns true if no
  // canceller calls on_cancel() now or later; then the caller goes on with the task. Returns false
  // if the canceller posts `ended`; then the caller must not touch the task any more. O(1).
  bool leave(CancelRegistration& registration, Runnable* ended);

  // Instead of leave(), for a thread that has blocked, with the registration on its stack. Returns
  // when no canceller is in its on_cancel(), which must be short, because this waits in a loop. Not
  // to be called inside on_cancel(), or with a lock held that on_cancel() takes.
  void leave_after_call(CancelRegistration& registration);

  // Ends the scope: `reason` is an errno value other than 0. Calls every registration inside, one
  // after the other, posts to the handler threads the tasks that were handed over, and returns
  // true. Returns false at once if finish() or another call has come first, even if the other call
  // has not called every registration yet. If cancel_timers() came first, that call ends the timers
  // and nested scopes with its own reason, perhaps after this call has returned. O(registrations).
  bool cancel(int reason) WF_EXCLUDES(mutex_);

  // Does the same for timers and nested scopes only, and later ones cannot enter. The scope stays
  // open for everything else. Does nothing if these have ended before, or if finish() came first.
  void cancel_timers(int reason) WF_EXCLUDES(mutex_);

  // To be called when no task is inside, and none will enter any more. Returns why the scope has
  // ended, or 0: no cancel() has ended it, and none will. From now on cancel_timers() does nothing.
  // A function that outlives its task (docs/scopes.md) may still wait inside, or enter; if the
  // scope is open, nothing ends its waits early.
  int finish();

  // 0 while the scope is open, otherwise why it ended.
  int reason() const { return reason_for(Kind::kOther); }
  // 0 while waits of this kind may begin.
  int reason_for(Kind kind) const { return list(kind).reason.load(std::memory_order_acquire); }

  void retain() { references_.add(); }
  // Frees the scope with the last reference. Only a registration that the scope itself owns may be
  // inside then; the destructor of the derived class takes it out.
  void release();

 protected:
  virtual ~CancelScope();
  // As enter(), but never takes the slot.
  int enter_list(CancelRegistration& registration, Kind kind) WF_EXCLUDES(mutex_);

 private:
  // Handed-over tasks are posted in groups of this size, so that one wake-up serves many.
  static constexpr size_t kGroup = 64;

  // The registrations of one kind. Guarded by mutex_, but the reason may be read without it.
  struct List {
    // Stored with release under mutex_. A reader without mutex_ acquires, so it sees what the
    // canceller did before. If it still reads 0, that is only a hint. enter() does not rely on it:
    // it looks at the bit in slot_, or reads the reason under mutex_, where relaxed is enough.
    std::atomic<int> reason{0};
    CancelRegistration* first = nullptr;
    CancelRegistration* last = nullptr;
  };

  // The bits of slot_. The others are the address of the registration in it, or 0.
  static constexpr uintptr_t kTimersClosed = 1;
  static constexpr uintptr_t kOthersClosed = 2;
  static constexpr uintptr_t kHoldsTimer = 4;  // the kind of the registration in it
  static constexpr uintptr_t kClosed = kTimersClosed | kOthersClosed;
  static_assert(alignof(CancelRegistration) > (kClosed | kHoldsTimer));

  static uintptr_t closed_bit(Kind kind) {
    return kind == Kind::kTimer ? kTimersClosed : kOthersClosed;
  }
  static uintptr_t slot_value(const CancelRegistration& registration, Kind kind) {
    return reinterpret_cast<uintptr_t>(&registration) | (kind == Kind::kTimer ? kHoldsTimer : 0);
  }

  List& list(Kind kind) { return lists_[static_cast<size_t>(kind)]; }
  const List& list(Kind kind) const { return lists_[static_cast<size_t>(kind)]; }

  // Gives the reason, unless there is one or finish() was called. Returns whether it did.
  bool close(Kind kind, int reason) WF_REQUIRES(mutex_);
  // Returns whether the registration was in the slot. If it was not, it never comes there again
  // before it enters again.
  bool leave_slot(const CancelRegistration& registration);
  void call_all(Kind kind, int reason) WF_EXCLUDES(mutex_);
  // Takes the registration out of the slot if it is of this kind. Returns it, or null.
  CancelRegistration* take_from_slot(Kind kind) WF_REQUIRES(mutex_);
  CancelRegistration* take_first(Kind kind) WF_EXCLUDES(mutex_);
  // Returns what the canceller has to post, or null.
  Runnable* end_call(CancelRegistration& registration) WF_EXCLUDES(mutex_);
  void link(CancelRegistration& registration) WF_REQUIRES(mutex_);
  void unlink(CancelRegistration& registration) WF_REQUIRES(mutex_);

  // Entering is a release, and taking out by a canceller an acquire, so the canceller sees the
  // registration and its owner as they were when it entered. Setting a bit is a release, and
  // enter() acquires, so what is refused sees the reason. leave() needs no order: whoever enters
  // the slot next does not look at the registration that has left, and a canceller that finds the
  // slot empty has nothing to look at. What leave() reads is not older than the entering, which
  // happened before: so it finds its registration unless a canceller has taken it.
  std::atomic<uintptr_t> slot_{0};
  Mutex mutex_;
  List lists_[2];  // by Kind
  bool finished_ WF_GUARDED_BY(mutex_) = false;
  RefCount references_;
};

}  // namespace workflow

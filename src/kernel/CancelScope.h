#pragma once

#include <atomic>
#include <cstddef>

#include "util/Mutex.h"
#include "workflow/Runnable.h"

namespace workflow {

// Something that waits inside a scope and can be ended early: a task, or a scope nested in the
// scope.
class CancelTarget {
 public:
  // Ends the wait with `reason`, an errno value, unless something else has ended it already. The
  // canceller calls this on its own thread, with no lock held. The target is not freed before it
  // returns.
  virtual void on_cancel(int reason) = 0;

 protected:
  ~CancelTarget() = default;
};

// The place of a target in a scope. It is embedded in a series, which waits for one thing at a
// time, so entering a scope never allocates.
//
// All members are guarded by the mutex of the scope that the target has entered.
class CancelRegistration {
 public:
  CancelRegistration() = default;
  CancelRegistration(const CancelRegistration&) = delete;
  CancelRegistration& operator=(const CancelRegistration&) = delete;

 private:
  friend class CancelScope;
  enum class State {
    kOutside,
    kEntered,    // in the list of its scope
    kCalled,     // a canceller has removed it from the list, and calls the target
    kHandedOver  // the target has ended meanwhile; the canceller posts `ended_`
  };

  CancelRegistration* next_ = nullptr;
  CancelRegistration* previous_ = nullptr;
  CancelTarget* target_ = nullptr;
  Runnable* ended_ = nullptr;
  State state_ = State::kOutside;
};

// Ends everything that waits inside it, once, for one reason. This is the only way in which the
// library ends a wait early for a deadline, a departed client, a stopping server or a user.
//
// Its contract is that of std::stop_source and std::stop_callback, except that nothing ever blocks.
// A target enters before it begins to wait, and leaves when it has ended. cancel() calls each
// target that is inside. A target that ends while it is being called is handed over: the canceller
// posts it once the call has returned, so that it is not freed under the call.
//
// A target that has entered may be called before it has arrived at the place where it waits. The
// place therefore checks reason() under its own lock before it takes the target in.
//
// Ownership: reference counted. The scope task and every WFScope hold a reference, and so does a
// thread while it cancels. Registrations belong to their series. A series inside the scope keeps
// its scope task, and with it the scope, alive.
//
// Thread-safe. The mutex is a leaf: nothing is called while it is held, so any other lock may be
// held by those who call enter(), leave() and reason(). cancel() must be called with no lock held.
//
// Invariants:
// 1. reason() is 0 while the scope is open. The first reason that cancel() gives it stays for ever.
// 2. A registration is in the list exactly while its state is kEntered.
// 3. Nothing enters once there is a reason. So cancel() ends: it calls each target at most once.
// 4. A target whose registration is kCalled or kHandedOver exists. It is posted exactly once: by
// its
//    own thread if leave() returns true, otherwise by the canceller.
// 5. No thread holds the mutex longer than it takes to link or unlink one registration.
class CancelScope {
 public:
  // The caller holds the first reference.
  CancelScope() = default;
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  // Returns 0, or the reason for which the scope has ended. In the second case the target has not
  // entered. O(1), never allocates.
  int enter(CancelRegistration& registration, CancelTarget& target);

  // The target has ended; its thread calls this before it posts `ended`, which completes the
  // target. Returns false if the canceller posts `ended` instead. Then the caller must not touch
  // the target any more. O(1).
  bool leave(CancelRegistration& registration, Runnable* ended);

  // Ends the scope: `reason` is an errno value other than 0. Calls every target inside, one after
  // the other, and posts those that were handed over to the handlers. Returns whether this call has
  // ended the scope; if it had ended before, nothing happens. O(targets).
  bool cancel(int reason) WF_EXCLUDES(mutex_);

  // 0 while the scope is open, otherwise why it ended.
  int reason() const { return reason_.load(std::memory_order_acquire); }

  void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
  // Frees the scope with the last reference. Nothing is inside then.
  void drop_reference();

 private:
  // Handed-over targets are posted in groups of this size, so that one wake-up serves many.
  static constexpr size_t kGroup = 64;

  ~CancelScope();

  CancelRegistration* take_first() WF_EXCLUDES(mutex_);
  // Returns what the canceller has to post, or null.
  Runnable* end_call(CancelRegistration& registration) WF_EXCLUDES(mutex_);
  void link(CancelRegistration& registration) WF_REQUIRES(mutex_);
  void unlink(CancelRegistration& registration) WF_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::atomic<int> reason_{0};  // written with mutex_ held
  CancelRegistration* first_ WF_GUARDED_BY(mutex_) = nullptr;
  CancelRegistration* last_ WF_GUARDED_BY(mutex_) = nullptr;
  std::atomic<int> references_{1};
};

}  // namespace workflow

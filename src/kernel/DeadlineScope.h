#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "kernel/CancelScope.h"
#include "kernel/OriginProcess.h"
#include "kernel/TimerDue.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "util/Time.h"

namespace workflow {

// A scope that may have a deadline, which ends it with ETIMEDOUT.
//
// The deadline is a timer of a poller. While the timer is queued, or has expired and was posted, it
// holds a reference to the scope. So nobody waits for it.
//
// In a child of fork(2) a scope of the parent counts as finished, because what is inside is the
// parent's. cancel() does not look at that, but WFScope::cancel() does.
//
// Thread-safe. Lock order: deadline_mutex_, then that of PollerTimers or CancelScope.
class DeadlineScope final : public CancelScope, public Runnable {
 public:
  // The caller holds the first reference. `owner` identifies what the scope was made for, if the
  // code inside needs to find out.
  explicit DeadlineScope(const void* owner = nullptr);

  // Whether this scope, or one around it, was made for `owner`.
  bool belongs_to(const void* owner) const;

  // Whether the scope was made before a fork(2) and this process is the child.
  bool belongs_to_parent_process() const { return origin_.is_parent(); }

  // Gives the scope a deadline, or moves the one that it has. A delay counts from start(), or from
  // now if start() was called. If the deadline has passed already, start() will answer ETIMEDOUT;
  // after start(), this call ends the scope, or another thread soon does. Returns 0, or an errno
  // value: the reason for which the scope has ended, ETIMEDOUT if the previous deadline has just
  // passed, ECANCELED after finish(), ENOMEM, or EMFILE, ENFILE or ENOSPC if the first timer of its
  // clock needs a descriptor. The caller holds no lock.
  //
  // Without a clock, `due` is a delay by the clock of the previous deadline, or by the monotonic
  // clock if there was none.
  int set_deadline(TimerDue due, std::optional<ClockId> clock);

  // The deadline counts from now on. `outer` is the scope around this one, or null. Returns 0,
  // ETIMEDOUT if the deadline has passed already, or ENOMEM, EMFILE, ENFILE or ENOSPC; the caller
  // ends the scope with it. Called once.
  int start(DeadlineScope* outer);

  // Cancels the scope, or its timers only, a little later. For threads that must not take long, or
  // that hold locks. Returns what the caller has to post, or null if that is posted already.
  [[nodiscard]] Runnable* cancel_later(int reason) { return later(Kind::kOther, reason); }
  [[nodiscard]] Runnable* cancel_timers_later(int reason) { return later(Kind::kTimer, reason); }

  // As CancelScope::finish(): nothing ends the scope any more, and so the deadline is dropped.
  int finish();

  // How long it is until the earliest deadline of this scope and of the scopes around it: kNever if
  // there is none, 0 if the scope has ended.
  int64_t remaining_ns() const;

  // The owner of a scope that accepts further work for the scope while it runs, such as a group of
  // coroutines.
  class Host {
   public:
    // Called with a lock held. Returns false if the host has ended. Otherwise the host does not end
    // before the caller has given it the work.
    virtual bool join() = 0;

   protected:
    ~Host() = default;
  };
  // Sets the host. Called with null before the host is destroyed.
  void set_host(Host* host);
  // Joins the host, or returns null if there is none any more.
  Host* join_host();
  // Whether there is or was a host. True for a scope of the parent process.
  bool was_hosted() const;

  // A token of which stop is requested when the scope ends, by the thread that ends it. Throws
  // std::bad_alloc.
  std::stop_token stop_token();

 private:
  class StopRequest;
  class Timer;
  enum class Stage { kCreated, kStarted, kFinished };

  ~DeadlineScope() override;

  // The turn that cancel_later() has asked for.
  void run_queued() override;
  Runnable* later(Kind kind, int reason);

  int set_timer(TimerDue due, ClockId clock, bool* passed) WF_REQUIRES(deadline_mutex_);
  int start_timer(TimerDue due, ClockId clock, Timer** started, bool* passed)
      WF_REQUIRES(deadline_mutex_);
  // Frees a timer, which may be null. Returns false if it has expired; then its turn frees it.
  static bool stop(Timer* timer);
  int64_t own_remaining_ns() const;
  const DeadlineScope* outer() const;

  const void* const owner_;
  const OriginProcess origin_;
  mutable Mutex deadline_mutex_;
  Stage stage_ WF_GUARDED_BY(deadline_mutex_) = Stage::kCreated;
  bool expired_ WF_GUARDED_BY(deadline_mutex_) = false;
  TimerDue due_ WF_GUARDED_BY(deadline_mutex_) = TimerDue::after(kNever);  // until start()
  ClockId clock_ WF_GUARDED_BY(deadline_mutex_) = ClockId::kMonotonic;     // of the last deadline
  Timer* timer_ WF_GUARDED_BY(deadline_mutex_) = nullptr;                  // until it has expired
  Ref<DeadlineScope> outer_ WF_GUARDED_BY(deadline_mutex_);
  int later_[2] WF_GUARDED_BY(deadline_mutex_) = {};    // by Kind: the reason, or 0
  bool posted_ WF_GUARDED_BY(deadline_mutex_) = false;  // for run_queued(), with a reference
  Host* host_ WF_GUARDED_BY(deadline_mutex_) = nullptr;
  bool hosted_ WF_GUARDED_BY(deadline_mutex_) = false;
  std::unique_ptr<StopRequest> stop_request_ WF_GUARDED_BY(deadline_mutex_);
};

}  // namespace workflow

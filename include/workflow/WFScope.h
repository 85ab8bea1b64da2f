#pragma once

#include <cerrno>
#include <chrono>
#include <utility>

#include "workflow/WFTimerDue.h"
#include "workflow/Workflow.h"
#include "workflow/detail/Ref.h"
#include "workflow/detail/TaskBase.h"

#if __cplusplus >= 202002L
#include <stop_token>
#endif

// Scopes end everything that waits inside them, at any time and from any thread.
//
// A scope task (WFTaskFactory::create_scope_task(), create_deadline_task(), with_deadline())
// contains a series, which runs in the scope of the task. The request of a server's task is a
// scope, too: task->scope(). Whatever runs inside is in the scope: parallels, modules, graphs, and
// scopes that are nested in it. docs/scopes.md lists how each kind of task ends.

namespace workflow {
class CoGroup;
class DeadlineScope;
}  // namespace workflow

// Refers to a scope. It is a value that can be copied, stored anywhere and used for ever, even long
// after everything inside has ended. Every call may be made from any thread, whatever happens to
// the scope at the same time. A default-constructed WFScope refers to no scope.
class WFScope {
 public:
  WFScope();
  WFScope(const WFScope &other);
  WFScope(WFScope &&other) noexcept;
  WFScope &operator=(WFScope other) noexcept;
  ~WFScope();

  // Whether this refers to a scope.
  explicit operator bool() const { return scope_.get() != nullptr; }

  // Ends the scope. Each task that waits inside is called back once, with SYS_ERROR and `error`. An
  // `error` that is not an errno value counts as ECANCELED. From now on, each task that would begin
  // to wait inside ends at once in the same way. (In the scope of a request whose client has left,
  // cancel_timers_on_closed() or a streamed reply may have ended the timers and nested scopes
  // before: these keep to the ECANCELED that they have got.) Tasks that do not wait run as ever, so
  // the series inside goes on to its end, unless a conditional or guard, or a task behind a pool or
  // queue, waits in it: that cancels its series.
  //
  // Returns true if this call has ended the scope: then the scope task ends with `error`. Returns
  // false if it had ended before, if everything inside had ended, or if this refers to no scope.
  // The callbacks of tasks run on threads of the library, never inside this call unless the library
  // has stopped them; functions of a std::stop_callback do run inside it. Waits for no task. Costs
  // less than a microsecond for each task that waits.
  bool cancel(int error = ECANCELED) const;

  // Why the scope has ended: the error that was given to cancel(), ETIMEDOUT for a deadline,
  // ECANCELED for a client that left or a server that stops, the error of the scope around it, or
  // the reason for which there was no timer for its deadline (ENOMEM, EMFILE, ENFILE, ENOSPC). 0 if
  // it has not ended. It stays 0 for a scope in which everything ended by itself.
  int error() const;

  // How long it is until the earliest deadline of this scope and, once the scope task has started,
  // of the scopes around it. Zero if the scope has ended, nanoseconds::max() if there is no
  // deadline. Once everything inside has ended by itself, only the scopes around it count.
  // Deadlines by other clocks than the monotonic one are converted at the time of the call.
  std::chrono::nanoseconds remaining() const;

  // Gives the scope a deadline, or moves the one that it has, to an earlier or a later time: at
  // that time the scope ends with ETIMEDOUT. A delay counts from now, or from the start of the
  // scope task if that is still to come (negative: see docs/limits.md). A deadline that has passed
  // already ends the scope soon, perhaps inside this call, or at the start of the scope task. A
  // delay without a clock goes by the clock that the last deadline had. Of nested scopes, each has
  // its own deadline.
  //
  // Returns false, with errno, if nothing has changed: the scope has ended (errno is its error),
  // its deadline has just passed (ETIMEDOUT), everything inside has ended (ECANCELED), there is no
  // scope (EINVAL), or the system has no memory (ENOMEM) or descriptors (EMFILE, ENFILE, ENOSPC)
  // for the timer.
  bool set_deadline(const WFTimerDue &due) const;

  // The innermost scope of the code that calls this: of a callback, a tick, a process function, or
  // the function of a go or thread task. A function that computes for long asks
  // WFScope::current().error() from time to time, and returns early when that is not 0. Refers to
  // no scope if there is none.
  static WFScope current();

#if __cplusplus >= 202002L
  // A token of which stop is requested when the scope ends. Callbacks that are registered with it
  // (std::stop_callback) run on the thread that ends the scope, and must not block. If this refers
  // to no scope, stop is never requested. Throws std::bad_alloc.
  std::stop_token stop_token() const;

  // In a scope that wf::scope() has made (WFCoroutine.h): begins the coroutine f(args...) inside,
  // on another thread or later on this one. f and the arguments are copied or moved into it. What
  // it returns is dropped; what it throws ends the scope. Any thread may call this, while anything
  // runs inside. Returns false, and does nothing, once everything inside has ended: errno is
  // ECANCELED then. In any other scope it is EINVAL.
  template <class F, class... A>
  bool start(F f, A... args) const;
#endif

  bool operator==(const WFScope &other) const {
    return scope_.get() == other.scope_.get();
  }
  bool operator!=(const WFScope &other) const {
    return !(*this == other);
  }

  // For the library.
  explicit WFScope(workflow::Ref<workflow::DeadlineScope> scope);

 private:
  friend class workflow::SeriesScope;
  friend class workflow::CoGroup;
  workflow::Ref<workflow::DeadlineScope> scope_;
};

// What was done in a scope task, for its callback.
enum class WFScopeExtent {
  kNothing,    // the scope had ended before its first task was started
  kPart,       // the scope ended, or the library stopped, before the series inside ended
  kEverything  // the series inside ended before the scope
};

// A task that contains a series and is a scope for it. It ends when the series inside has ended:
//   SUCCESS    the series ended before the scope did
//   SYS_ERROR  the scope ended first; get_error() is its error: ETIMEDOUT for a deadline, the error
//              of WFScope::cancel(), or that of a scope around this one. ENOMEM, EMFILE, ENFILE or
//              ENOSPC: there was no timer for the deadline, so the scope ended at its start
//   ABORTED    the library stopped meanwhile
class WFScopeTask
    : public workflow::TaskWithCallback<WFScopeTask, workflow::TaskBase<ParallelTask>> {
 public:
  // For the callback.
  WFScopeExtent get_extent() const { return extent_; }

  // May be called until the callback has returned. The scope may be cancelled before the task is
  // started: then nothing inside waits.
  WFScope scope() const { return scope_; }

  // The series inside. It may be extended until its last task is done, and lives until the callback
  // has returned. Once this task is dispatched, cancelling the series around it does not
  // cancel the series inside.
  SeriesWork *sub_series() { return series_; }
  const SeriesWork *sub_series() const { return series_; }

 protected:
  WFScopeTask(SeriesWork *series, const WFScope &scope, Callback &&callback)
      : TaskWithCallback(std::move(callback)), series_(series), scope_(scope) {}
  ~WFScopeTask() override = default;

  SeriesWork *const series_;
  const WFScope scope_;
  WFScopeExtent extent_ = WFScopeExtent::kNothing;
};

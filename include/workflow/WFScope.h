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

// A scope ends everything that waits inside it when it is cancelled or its deadline passes.
//
// A scope task (WFTaskFactory::create_scope_task(); with a deadline create_deadline_task() and
// with_deadline()) contains a series, which runs in the scope of the task. On a server, the series
// of a request runs in a scope, too: task->scope(). All that is in such a series is inside, also
// parallels, modules, graphs and scopes. A task that a callback starts with start() is not.
//
// A task *waits* if it was dispatched (its turn has come), has no result yet, and runs no function
// of the user's. A scope *has ended* if it was cancelled, its deadline has passed, or the scope
// around it has ended. If all that is inside is done before, the scope is *finished*: nothing ends
// it any more. docs/scopes.md lists how each kind of task ends, docs/glossary.md has more terms.

namespace workflow {
class CoGroup;
class DeadlineScope;
}  // namespace workflow

// Refers to a scope. It is a value that can be copied, stored anywhere and used for ever, even long
// after the scope is finished. It keeps no task alive. Every const call may be made from any
// thread, whatever happens to the scope at the same time. A default-constructed WFScope refers to
// no scope. In a child of fork(2) a scope of the parent that has not ended counts as finished.
class WFScope {
 public:
  WFScope();
  WFScope(const WFScope &other);
  WFScope(WFScope &&other) noexcept;
  WFScope &operator=(WFScope other) noexcept;
  ~WFScope();

  // Whether this refers to a scope.
  explicit operator bool() const { return scope_.get() != nullptr; }

  // Ends the scope. Each task that waits inside ends with SYS_ERROR and `error`, and its callback
  // runs once. From then on, each task that would begin to wait inside ends at once in the same
  // way. Tasks that need not wait run as usual. A function that runs goes on, but ETIMEDOUT ends
  // its go or thread task at once. So the series inside goes on to its end. The main exceptions:
  //
  // - A conditional, a guard, or a wait for a resource pool or message queue cancels its series
  //   instead: what follows is dropped.
  // - If the client of a request has left, cancel_timers_on_closed() or a streamed reply may have
  //   ended the timers and nested scopes of the request before. These end with ECANCELED.
  //
  // An `error` that is not an errno value, 1 to 4095, counts as ECANCELED.
  //
  // Returns true if this call has ended the scope; the scope task ends with `error` then. Returns
  // false, and does nothing, if the scope had ended or was finished, or if this refers to none.
  //
  // Waits for no task. The callbacks of tasks run on threads of the library, never inside this call
  // unless the library has stopped and has no threads. The functions of std::stop_callbacks do run
  // inside it: hold no lock that they take. Costs less than a microsecond for each task that waits.
  bool cancel(int error = ECANCELED) const;

  // Why the scope has ended: the error that was given to cancel(), ETIMEDOUT for a deadline,
  // ECANCELED for a client that left or a server that stops, the error of the scope around it, or
  // ENOMEM, EMFILE, ENFILE or ENOSPC if no timer could be made for its deadline. 0 if it has not
  // ended, and for ever if it is finished.
  int error() const;

  // The time until the earliest deadline of this scope and, once the scope task is dispatched, of
  // the scopes around it. Zero if the scope has ended, nanoseconds::max() if there is no deadline.
  // A scope that is finished has no deadline of its own any more. Each deadline is measured by its
  // own clock, as it stands now.
  std::chrono::nanoseconds remaining() const;

  // Sets the time at which the scope ends with ETIMEDOUT. If it has a deadline, moves that to an
  // earlier or a later time. The scopes around it keep their own deadlines.
  //
  // A delay counts from now, or from the dispatch of the scope task if that is still to come. A
  // delay without a clock is measured by the clock of the previous deadline, or by the monotonic
  // clock if there was none. A negative delay means no deadline (docs/limits.md). If the time has
  // passed already, the scope ends soon, perhaps inside this call (see cancel()), or at the
  // dispatch of the scope task.
  //
  // Returns false, sets errno and changes nothing if the scope has ended (errno is its error), its
  // previous deadline has just passed (ETIMEDOUT), it is finished (ECANCELED), this refers to no
  // scope (EINVAL), or no timer can be made (ENOMEM, EMFILE, ENFILE, ENOSPC).
  bool set_deadline(const WFTimerDue &due) const;

  // The innermost scope around the code that calls this: a callback, a coroutine, a tick of a
  // periodic timer, a server's `process` function, or the function of a go or thread task. The
  // callback of a scope task is outside the scope of that task. A function that computes for long
  // asks WFScope::current().error() from time to time, and returns early when that is not 0. The
  // result refers to no scope if there is none, and on threads of the application.
  static WFScope current();

#if __cplusplus >= 202002L
  // A token on which stop is requested when the scope ends, and never if it finishes or if this
  // refers to no scope. The functions of std::stop_callbacks run on the thread that ends the scope,
  // and must not block. Throws std::bad_alloc.
  std::stop_token stop_token() const;

  // Begins the coroutine f(args...) inside a scope that wf::scope() has made (WFCoroutine.h), on
  // another thread or on this one after this call. f and the arguments are copied or moved into it,
  // and its result is dropped. If it throws, the scope ends with ECANCELED, and wf::scope() throws
  // the first such exception. If the scope has ended, the waits of the coroutine end at once.
  //
  // Returns false, and begins nothing, if everything inside has ended (errno is ECANCELED), or if
  // the scope belongs to a scope task or request, or there is none (EINVAL). Throws std::bad_alloc.
  template <class F, class... A>
  bool start(F f, A... args) const;
#endif

  bool operator==(const WFScope &other) const {
    return scope_.get() == other.scope_.get();
  }
  bool operator!=(const WFScope &other) const {
    return !(*this == other);
  }

  // Used by the library.
  explicit WFScope(workflow::Ref<workflow::DeadlineScope> scope);

 private:
  friend class workflow::SeriesScope;
  friend class workflow::CoGroup;
  workflow::Ref<workflow::DeadlineScope> scope_;
};

// How much of a scope task was done.
enum class WFScopeExtent {
  kNothing,  // the scope ended before the first task inside was dispatched: none has waited
  kPart,     // the scope ended, or the library stopped, before the series inside had ended: perhaps
             // before any step of it had
  kEverything  // the series inside ended first: the scope is finished
};

// A task that contains a series, which it owns, and a scope, in which that series runs. It ends
// when the series inside has ended:
//   SUCCESS    the series ended first: the scope is finished
//   SYS_ERROR  the scope ended first; get_error() is its error: ETIMEDOUT for a deadline, the error
//              of WFScope::cancel(), or that of a scope around this one. ENOMEM, EMFILE, ENFILE or
//              ENOSPC: no timer could be made for the deadline, so the scope ended at the dispatch
//   ABORTED    the library stopped first, because the process exits
class WFScopeTask
    : public workflow::TaskWithCallback<WFScopeTask, workflow::TaskBase<ParallelTask>> {
 public:
  // May be called in the callback.
  WFScopeExtent get_extent() const { return extent_; }

  // May be called until the callback has returned; the result may be used for ever. The scope may
  // be cancelled before the task is started: then only tasks that need not wait do their work.
  WFScope scope() const { return scope_; }

  // The series inside. Tasks may be added until its last task is done. It lives until the callback
  // has returned. Before the dispatch, SeriesWork::cancel() of the series around this task drops
  // this task and all that is inside; afterwards it does not reach the series inside.
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

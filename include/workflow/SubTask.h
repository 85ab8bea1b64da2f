#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "workflow/detail/CancelRegistration.h"
#include "workflow/detail/Runnable.h"

class SeriesWork;
class Workflow;

namespace workflow {
class SeriesScope;
class TaskRegistration;
struct TaskContext;
}  // namespace workflow

// One step of a series. Users derive from it to bring their own asynchronous work.
//
// Life: a task is created, and then either joins a series or is started alone. It is dispatched
// when its turn comes. After subtask_done() its done() runs, which calls the user's callback,
// deletes the task and returns the next task of the series. Some kinds of tasks put themselves back
// into the series in done() instead, and are dispatched again (see come_back_after()). A task that
// is never dispatched is dropped: it is deleted without a callback.
//
// Threads: a task has one owner at a time. It may complete before dispatch() returns or much later,
// on any thread. subtask_done() is the last thing that its caller does with the task. done() runs
// on a thread of the library: if subtask_done() is called on another thread, the task is posted to
// the handler threads. A chain of tasks that complete inside their dispatch() uses constant stack.
class SubTask : public workflow::Runnable {
 public:
  // Begins the work. Every call must lead to exactly one subtask_done().
  virtual void dispatch() = 0;

  // The owning SeriesWork, or null if the task has not joined one yet.
  void *get_pointer() const {
    const uintptr_t owner = owner_.load(std::memory_order_acquire);
    return owner == kAlone || (owner & kWaited) ? own_series()
                                                : reinterpret_cast<void *>(owner & ~kMarks);
  }
  void set_pointer(void *pointer) {
    owner_.store(reinterpret_cast<uintptr_t>(pointer), std::memory_order_release);
  }

  ~SubTask() override = default;
  SubTask() = default;
  SubTask(const SubTask &) = delete;
  SubTask &operator=(const SubTask &) = delete;

 protected:
  // Ends the work that dispatch() began. The task may be gone when this returns.
  void subtask_done();

  // For kinds of tasks whose done() may return null although the task goes on, such as one that
  // delivers a response in pieces. Call this in done(), before the task may end on another thread.
  // Without this call, a null ends the branch of a ParallelTask.
  void goes_on_elsewhere();

  // The turn of a task that was posted to a thread of the library in order to end: runs done() and
  // what follows.
  void run_queued() override;

  // Dispatches the task as the only one of a series. The series is created only if somebody asks
  // for it: most tasks that are started alone never need one.
  void start_alone();

  // Dispatches a task. If it completes at once, everything that follows from it is dispatched, too.
  static void dispatch_chain(SubTask *first);

  // The owning series, or null for a task that runs alone.
  SeriesWork *joined_series() const;

  // What follows a task that does not end with delete_and_next(): take the place first, then give
  // up the task, and return place.next() from done(). leave_place() is for a task that outlives its
  // series. Not for tasks that come back.
  class Place {
   public:
    // Returns the next task of the series, or null.
    SubTask *next() const;

   private:
    friend class SubTask;
    explicit Place(uintptr_t owner) : owner_(owner) {}
    const uintptr_t owner_;
  };
  Place place() const { return Place(owner_.load(std::memory_order_acquire)); }
  Place leave_place();

  // Dispatches each of the tasks, and what follows from it, and leaves the list empty. If this
  // thread is already doing so for the same `owner` further up its stack, the tasks are left to be
  // dispatched there. If a callback says that it blocks, or if it takes long and
  // `may_go_elsewhere`, handler threads dispatch what is left, possibly after this call has
  // returned.
  static void dispatch_all(workflow::RunnableList &tasks, const void *owner,
                           bool may_go_elsewhere = true);

  // Calls subtask_done() for each of the tasks and leaves the list empty.
  static void end_all(workflow::RunnableList &tasks);

  // How done() ends: deletes this task and returns the next task of the series, or null.
  SubTask *delete_and_next();
  // Deletes this task and returns `task`, which takes its place in the series and is dispatched
  // next.
  SubTask *delete_and_continue_with(SubTask *task);
  // How done() ends for a task that comes back: pushes `task`, which is new, to the front of the
  // series, and this task behind it. Returns the next task of the series. A coroutine `lends`:
  // borrows() is then true for the tasks that run before this task comes back. When a task that
  // lends has come back, its done() calls came_back() first.
  SubTask *come_back_after(SubTask *task, bool lends = false);
  void came_back();

  // A kind of task that calls come_back_after() overrides this, and says whether it lends. Constant
  // for a task. Any thread may call it.
  enum class ComesBack { kNo, kYes, kLends };
  virtual ComesBack comes_back() const { return ComesBack::kNo; }

  // Whether a coroutine waits behind this task in its series, or in that of something that contains
  // the task. If so, a function of the task may be using the coroutine's variables, so the series
  // must not go on before that has returned.
  bool borrows() const;
  // How a task that borrows ends if its done() has returned null, after goes_on_elsewhere():
  // deletes the task and dispatches what follows. Called on a thread of the library.
  void end_late();
  // Whether the owning series is cancelled.
  bool is_series_canceled() const;
  // Whether a task may still join a series or be started: it has done neither.
  static bool is_unstarted(const SubTask *task) {
    return task->owner_.load(std::memory_order_acquire) == 0;
  }

  // Scopes end what waits inside them early (workflow/WFScope.h). A kind of task that can wait
  // takes part in this way:
  //
  // - Before it begins to wait, its dispatch() calls enter_scope(). If that returns 0, on_cancel()
  //   may be called from now on, by any thread. Otherwise the task has not entered, and must end at
  //   once with the returned errno value.
  // - The thread that owns its completion stores the outcome and then calls leave_scope(), before
  //   it calls subtask_done(). If leave_scope() returns false, the thread must not touch the task
  //   any more: a canceller posts `ended`, the task itself if null.
  //
  // A task outside any scope may call these, too.
  using ScopeKind = workflow::CancelRegistration::Kind;
  int enter_scope(ScopeKind kind = ScopeKind::kOther);
  bool leave_scope(workflow::Runnable *ended = nullptr);

  // Whether the task is inside a scope.
  bool has_scope() const;
  // Why the scope of the task has ended for waits of this kind: an errno value, or 0.
  int cancel_reason(ScopeKind kind = ScopeKind::kOther) const;

  // For kinds of tasks that contain a series, before that series begins: it runs in the scope of
  // this task, and what is in it borrows if this task does.
  void share_scope(SeriesWork *inside);

  // The task will not be dispatched (again). Deletes it. Kinds that others still point to override
  // this and wait.
  virtual void drop_unstarted() { delete this; }
  static void drop_unstarted(SubTask *task) { task->drop_unstarted(); }

 private:
  friend class ParallelTask;
  friend class SeriesWork;
  friend class workflow::SeriesScope;
  friend class workflow::TaskRegistration;

  // Called at most once between enter_scope() and leave_scope(), with no lock held: the wait must
  // end with `reason`, an errno value. The override takes the task out of the place where it waits.
  // If it finds the task there it owns the completion: it stores the outcome, and calls
  // leave_scope(), which returns false. Otherwise another thread is ending the task, and the
  // override does nothing. The task is not freed before this returns.
  virtual void on_cancel(int /*reason*/) {}

  // Runs the callback, deletes this and returns the next task to dispatch, or null.
  virtual SubTask *done() = 0;

  // The lowest bits of owner_ are marks; they are 0 in the address of a series or task.
  static constexpr uintptr_t kMark = 1;
  static constexpr uintptr_t kAlone = kMark;
  static constexpr uintptr_t kWaited = 2;
  static constexpr uintptr_t kBorrows = 4;
  static constexpr uintptr_t kMarks = kMark | kWaited | kBorrows;

  class StandIn;
  void *own_series() const;
  // What follows a task that had this value of owner_.
  static SubTask *next_at(uintptr_t owner);
  static void run_chain(SubTask *finished);
  static void follow(workflow::TaskContext &context, SubTask *finished);
  static bool dispatch_one(workflow::TaskContext &context, SubTask *task);
  static void dispatch_elsewhere(workflow::TaskContext &context, workflow::RunnableList &tasks);
  // Calls done() of a bare task (see owner_). Returns the task to dispatch next: the one that
  // done() returned, or else the next one of the branch's series. Null if the branch has ended.
  static SubTask *end_bare_task(workflow::TaskContext &context, SubTask *task);
  // Called by the series of such a branch when it ends: end_bare_task() must not use that series
  // any more.
  static void branch_ended(const SeriesWork *branch);

  // One of
  //   0                      the task has not joined a series
  //   a series               the owning series
  //   kAlone                 the task was started alone, and nobody has asked for its series yet
  //   a task, plus kWaited   the other task was started alone and comes back after this one. The
  //                          series, if there is one, is that of the other task
  //   a series, plus kMark   the task is bare: a ParallelTask was given it without a series, or it
  //                          follows such a task. The series was made for its branch, but done() of
  //                          the task need not know that
  // With kWaited, kBorrows says that the other task is a coroutine. Elsewhere the series knows.
  //
  // Loads acquire and changes release, because own_series() may publish a series here on any
  // thread, if it finds kAlone. All other changes are made by the one thread that has the task.
  mutable std::atomic<uintptr_t> owner_{0};
};

// A task made of subtasks that run side by side. It is done when each of its subtasks, and what
// follows the subtask in its series, is done.
//
// (derivable) Users bring their own done(). A subtask may be the first task of a series, which then
// runs as a branch of this task and deletes itself at its end. It may also be a task without a
// series; then its done() returns the task to dispatch next, or null at the end of the branch.
class ParallelTask : public SubTask {
 public:
  // The array may be filled in until dispatch(), which reads it. The caller keeps the array. The
  // caller also owns the subtasks until dispatch(): if this task is deleted before, nobody deletes
  // them. A subtask without a series gets one in dispatch(). If there is no memory for that, the
  // process ends (std::terminate()).
  ParallelTask(SubTask **tasks, size_t n) : subtasks(tasks), subtasks_nr(n) {}

  // Dispatches every subtask.
  void dispatch() override;

 protected:
  // For classes that override dispatch() and call dispatch_branches() there.
  ParallelTask() = default;

  // Dispatches the first task of each branch, and what follows from it, and leaves the list empty.
  // The series of these tasks know that they are in this parallel.
  void dispatch_branches(workflow::RunnableList &firsts);

  // Called once for each branch that has ended, from any thread.
  virtual void branch_done();

  // For classes that own the series of their branches. The first function makes a series that was
  // not started a branch of this task, the second one begins it and returns the task to dispatch,
  // and the third one deletes it.
  void adopt_series(SeriesWork *series);
  // Whether that is allowed.
  static bool may_adopt(const SeriesWork *series);
  static SubTask *begin_series(SeriesWork *series);
  static void delete_series(SeriesWork *series);

  // Makes a branch of the subtask's series, or of a new series for it. The series will delete
  // itself at its end. Returns the task to dispatch. If there is no memory for a series, the
  // process ends: nobody could be told, and the branches that were made before cannot be taken
  // back.
  SubTask *begin_branch(SubTask *task) noexcept;

  SubTask **subtasks = nullptr;
  size_t subtasks_nr = 0;

 private:
  friend class SeriesWork;
  friend class SubTask;

  // The branches that have not ended, and dispatch_branches() while it runs. Decrements are
  // acq_rel, so the last one sees what all branches did. The first store is relaxed: each dispatch
  // of a branch comes after it.
  std::atomic<size_t> remaining_{0};
};

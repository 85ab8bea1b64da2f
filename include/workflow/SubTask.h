#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "workflow/Runnable.h"

class ParallelWork;
class SeriesWork;
class Workflow;

namespace workflow {
class Interruption;
class InterruptScope;
struct ThreadContext;
}  // namespace workflow

// One step of a series. Users derive from it to bring their own asynchronous work.
//
// Life: created, joined to a series (or started alone), dispatch()ed once, and after
// subtask_done() its done() runs: it calls the user's callback, deletes the task and returns the
// next task of the series. A task that is not dispatched is dropped: deleted without a callback.
//
// Threads: one owner at a time. dispatch() may complete before it returns or much later, from any
// thread; subtask_done() is the last thing its caller does with the task. done() runs on a
// framework thread: when subtask_done() is called on another thread, the task is handed over.
// A chain of tasks that complete inside their dispatch() uses constant stack.
class SubTask : public workflow::Runnable {
 public:
  // Begins the work; must lead to exactly one subtask_done().
  virtual void dispatch() = 0;

  // The owning SeriesWork; null before the task joined one.
  void *get_pointer() const {
    const uintptr_t owner = owner_.load(std::memory_order_acquire);
    return owner == kAlone ? own_series() : reinterpret_cast<void *>(owner & ~kMark);
  }
  void set_pointer(void *pointer) {
    owner_.store(reinterpret_cast<uintptr_t>(pointer), std::memory_order_release);
  }

  ~SubTask() override = default;
  SubTask() = default;
  SubTask(const SubTask &) = delete;
  SubTask &operator=(const SubTask &) = delete;

 protected:
  // Ends the work begun by dispatch(). The task may be gone when this returns.
  void subtask_done();

  // For kinds whose done() may return null although the task goes on, as one that hands out a
  // response in pieces does: called in done(), before the task may end on another thread. Otherwise
  // null ends the branch of a ParallelTask.
  void goes_on_elsewhere();

  // For kinds that finish by being handed to a framework thread: their turn there.
  void take_turn() override;

  // Dispatches the task as the only one of a series that exists once somebody asks for it.
  // Most tasks started alone never need their series; this saves making it.
  void start_alone();

  // Dispatches a task and, if it completes at once, everything that follows from it.
  static void dispatch_chain(SubTask *first);

  // The owning series, or null for a task that runs alone.
  SeriesWork *joined_series() const;

  // The same, for a task that outlives its series: from now on it has none.
  SeriesWork *leave_series();

  // Dispatches each of the tasks, and what follows from it; the list is empty then. If this thread
  // does that for the same `owner` already, further up its stack, the tasks are left to be
  // dispatched there.
  static void dispatch_all(workflow::RunnableList &tasks, const void *owner);

  // subtask_done() of each of the tasks; the list is empty then.
  static void end_all(workflow::RunnableList &tasks);

  // How done() ends: deletes this and returns the next task of the series, or null.
  SubTask *delete_and_next();
  // The same with a task that takes this one's place in the series and is to be dispatched next.
  SubTask *delete_and_continue_with(SubTask *task);
  // Whether the owning series is cancelled.
  bool is_series_canceled() const;

  // Whether it has a scope to enter.
  bool has_scope() const;
  // For kinds that nobody can end once they have begun: not 0 if they shall not begin, because the
  // scope was interrupted, with this errno value.
  int interrupted() const;
  // Kinds that can wait, when they begin to: from now on interrupt() may be called. Not 0: they
  // shall end at once with this errno value instead, and are not entered.
  int enter_scope();
  // By the owner of the completion of a task that has entered, before it hands the task over:
  // interrupt() is not called any more. Not 0: it was, with this errno value.
  int leave_scope();

  // For kinds with a series of their own inside, before that begins: what it waits for, this does.
  void share_scope(SeriesWork *inside);

  // The task will not be dispatched (again). Deletes it; kinds that others still point to wait.
  virtual void drop_unstarted() { delete this; }
  static void drop_unstarted(SubTask *task) { task->drop_unstarted(); }

 private:
  friend class ParallelTask;
  friend class ParallelWork;
  friend class SeriesWork;
  friend class workflow::Interruption;
  friend class workflow::InterruptScope;

  // Once at most, after enter_scope(): what the task waits for shall end early, with the
  // interruption's error. Under the scope's lock. If the completion is the caller's then, the
  // interruption is told so. See factory/InterruptScope.h.
  virtual void interrupt(workflow::Interruption & /*interruption*/) {}
  // The second half, with no lock held, of a task that was handed to an interruption: sets the
  // outcome. Its turn on a framework thread follows.
  virtual void end_interrupted(int /*error*/) {}

  // Runs the callback, deletes this and returns the next task to dispatch, or null.
  virtual SubTask *done() = 0;

  // A mark in the lowest bit of owner_, which is 0 in the address of a series.
  static constexpr uintptr_t kMark = 1;
  static constexpr uintptr_t kAlone = kMark;

  void *own_series() const;
  static void run_chain(SubTask *finished);
  static void follow(workflow::ThreadContext &context, SubTask *finished);
  static bool dispatch_one(workflow::ThreadContext &context, SubTask *task);
  static void dispatch_elsewhere(workflow::ThreadContext &context, workflow::RunnableList &tasks);
  // Calls done() of a bare task (see owner_). Returns the task to dispatch next: the one that
  // done() returned, or else the next one of the branch's series. Null when the branch has ended.
  static SubTask *end_bare_task(workflow::ThreadContext &context, SubTask *task);
  // Called by the series of such a branch when it ends: end_bare_task() must not use it any more.
  static void branch_ended(const SeriesWork *branch);

  // One of
  //   0                      the task has not joined a series
  //   a series               the owning series
  //   kAlone                 the task runs alone, and nobody has asked for its series yet
  //   a series, plus kMark   the task is bare: a ParallelTask was given it without a series, or it
  //                          follows such a task. The series was made for its branch, but done() of
  //                          the task need not know that
  mutable std::atomic<uintptr_t> owner_{0};
};

// A task made of subtasks that run side by side. It is done when each subtask is done, and with it
// what follows it in its series.
//
// (derivable) Users bring their own done(). A subtask may be the first task of a series, which then
// runs as a branch of this task and deletes itself at its end. It may also be a task without a
// series; then its done() returns the task to dispatch next, or null at the end of the branch.
class ParallelTask : public SubTask {
 public:
  // dispatch() reads the array, which may be filled in until then. The array stays the caller's. So
  // do the subtasks until dispatch(): if this task is deleted before, nobody deletes them.
  ParallelTask(SubTask **tasks, size_t n) : subtasks(tasks), subtasks_nr(n) {}

  // Dispatches every subtask.
  void dispatch() override;

 protected:
  // For classes that override dispatch() and call dispatch_branches() there.
  ParallelTask() = default;

  // Dispatches the first task of each branch, and what follows from it; the list is empty then. The
  // series of these tasks know that they are in this parallel.
  void dispatch_branches(workflow::RunnableList &firsts);

  // Called once per branch when it has ended, from any thread.
  virtual void branch_done();

  SubTask **subtasks = nullptr;
  size_t subtasks_nr = 0;

 private:
  friend class SeriesWork;
  friend class SubTask;

  // Makes the series of a subtask, or a new one for it, a branch. Returns the task to dispatch.
  SubTask *begin_branch(SubTask *task);

  std::atomic<size_t> remaining_{0};
};

#pragma once

#include <atomic>
#include <cstddef>

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
    void *pointer = pointer_.load(std::memory_order_acquire);
    return pointer == this ? own_series() : pointer;
  }
  void set_pointer(void *pointer) { pointer_.store(pointer, std::memory_order_release); }

  ~SubTask() override = default;
  SubTask() = default;
  SubTask(const SubTask &) = delete;
  SubTask &operator=(const SubTask &) = delete;

 protected:
  // Ends the work begun by dispatch(). The task may be gone when this returns.
  void subtask_done();

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

  void *own_series() const;
  static void run_chain(SubTask *finished);
  static void follow(workflow::ThreadContext &context, SubTask *finished);
  static bool dispatch_one(workflow::ThreadContext &context, SubTask *task);
  static void dispatch_elsewhere(workflow::ThreadContext &context, workflow::RunnableList &tasks);

  // The owning series; `this` while the task runs alone and nobody asked for its series.
  mutable std::atomic<void *> pointer_{nullptr};
};

// A task made of subtasks that run side by side: done when all of them are.
class ParallelTask : public SubTask {
 public:
  ParallelTask() = default;

  // Dispatches every subtask.
  void dispatch() override;

 protected:
  // The first task of each branch; filled before dispatch(), which empties it.
  workflow::RunnableList subtasks_;

  // Called once per branch when it has ended, from any thread.
  virtual void branch_done();

 private:
  friend class SeriesWork;
  std::atomic<size_t> remaining_{0};
};

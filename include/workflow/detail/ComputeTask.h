#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "workflow/detail/Duration.h"
#include "workflow/detail/TaskBase.h"

class ExecQueue;
class Executor;

namespace workflow {

class ComputePool;
class ComputeQueue;
class TimeLimit;

// The queue in which a computation waits, and the threads that run it: either a queue of the
// library's threads, or a queue and an executor of the user's. These must exist until the task has
// ended.
struct ComputePlace {
  ComputePool *pool = nullptr;
  ComputeQueue *queue = nullptr;
  ExecQueue *own_queue = nullptr;
  Executor *own_executor = nullptr;

  static ComputePlace named(const std::string &queue_name);
  static ComputePlace of(ExecQueue *queue, Executor *executor);

  // The insides of an executor and a queue of the user. This object keeps them alive. Both pointers
  // are null if the executor or the queue was not initialised.
  struct Kept {
    ComputePool *pool;
    ComputeQueue *queue;
    std::shared_ptr<const void> own_pool;
    std::shared_ptr<const void> own_queue;
  };
  Kept keep_own() const;

  // Returns how many threads of the library run its computations.
  size_t threads() const;
};

// A duration as the creating functions take it. A value that is out of range is kept as an error.
struct TimeSpan {
  int64_t ns;  // not negative; INT64_MAX: never
  int error;   // 0, or EINVAL

  // Negative seconds: see docs/limits.md. Nanoseconds outside [0, 1e9) give EINVAL.
  static TimeSpan of(time_t seconds, long nanoseconds);
  // For negative durations see docs/limits.md.
  static TimeSpan of(Duration duration) {
    return duration.ns() < 0 ? never() : TimeSpan{duration.ns(), 0};
  }
  static TimeSpan never() { return {INT64_MAX, 0}; }
};

// A task that computes on a computing thread: compute() is called once, after the task's turn in
// the queue has come. WFComputeTask.h says how it ends.
//
// A task whose limit or scope has ended it while it computes lives until compute() has returned,
// but in no series: series_of() is null once the callback has returned. If a coroutine waits for
// the task (SubTask::borrows()), it may have lent its variables to the computation. Then the task
// keeps its place in the series until a computation that has begun has returned, and what follows
// it runs on the computing thread, or on a handler thread if compute() ends before the callback. A
// computation that will never begin is destroyed with all that it has captured.
class ComputeTask : public TaskBase<> {
 protected:
  ComputeTask(const ComputePlace &place, const TimeSpan &limit);
  ~ComputeTask() override;

  // Says which ends of the scope around the task may end it before a computation that has begun.
  enum class RunsOn : unsigned char {
    kAfterNothing,  // none; such a task has no time limit
    kAfterTimeout,  // those with ETIMEDOUT
    kAfterAnything  // all; and a coroutine that waits for the task has lent it nothing
  };

  virtual void compute() = 0;
  // Called when the task has ended and compute() will never be called. Drops what compute() would
  // have used.
  virtual void forget_computation() {}

  void dispatch() override;
  void run_queued() override;

  // How done() ends, after the callback: like delete_and_next(), but the task lives until compute()
  // has returned.
  SubTask *end_and_next();

 private:
  friend class TimeLimit;

  void on_cancel(int reason) override;
  // Posted there, the task runs when its turn in the queue has come, on the threads that exist now.
  // It is aborted if there are none (any more).
  void dispatch_to(ComputePool *pool, ComputeQueue *queue);
  bool enter_own_scope();
  bool start_limit();
  void compute_here();
  // After the outcome was claimed: whether the task keeps its place until compute() has returned.
  bool keeps_place() const;
  // Called when the computation has ended with `end_state`. If it returns true, the caller owns the
  // completion. If it returns false, the task may be gone.
  bool computed(int end_state);
  void complete_here();

  const ComputePlace place_;
  std::unique_ptr<TimeLimit> limit_;  // null: no limit
  bool queued_ = false;               // the task's turn in the queue is still to come
  // The callback has run, and the task has kept its place. Written by the completion before it
  // gives the task up.
  bool stays_ = false;

 protected:
  RunsOn runs_on_ = RunsOn::kAfterTimeout;  // constant after construction
};

}  // namespace workflow

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "workflow/Duration.h"
#include "workflow/WFGenericTask.h"

class ExecQueue;
class Executor;
class WFTaskFactory;

namespace workflow {

class ComputePool;
class ComputeQueue;
class TimeLimit;

// The queue in which a computation waits, and the threads that run it: either a queue of the
// library's threads, or a queue and an executor of the user's, which must outlive the computation.
struct ComputePlace {
  ComputePool *pool = nullptr;
  ComputeQueue *queue = nullptr;
  ExecQueue *own_queue = nullptr;
  Executor *own_executor = nullptr;

  static ComputePlace named(const std::string &queue_name);
  static ComputePlace of(ExecQueue *queue, Executor *executor);

  // Posts the item: it runs when its turn in the queue has come, on the threads that exist now.
  // Returns false, and does not take the item, if there are no threads (any more).
  bool post(Runnable *item) const;

  // The number of the library's threads that compute there.
  size_t threads() const;

 private:
  bool post_to_own(Runnable *item) const;
};

// A duration as the creating functions take it. A value that is out of range is kept as an error.
struct TimeSpan {
  int64_t ns;  // not negative; INT64_MAX: never
  int error;   // 0, or EINVAL

  // Negative seconds mean never. Nanoseconds outside [0, 1e9) give EINVAL.
  static TimeSpan of(time_t seconds, long nanoseconds);
  // A negative duration means never.
  static TimeSpan of(Duration duration) {
    return duration.ns() < 0 ? never() : TimeSpan{duration.ns(), 0};
  }
  static TimeSpan never() { return {INT64_MAX, 0}; }
};

// A task that computes on a computing thread: compute() is called once, after the task's turn in
// the queue has come.
//
// A time limit counts from dispatch(). If it passes before compute() has returned, the task ends
// with SYS_ERROR/ETIMEDOUT. A computation that has not begun by then never begins. One that has
// begun runs on, and the task object lives until it has returned, but in no series: series_of() is
// null once the callback has returned. If the scope around the task ends (WFScope.h) before the
// computation has begun, the task ends with SYS_ERROR and the error of the scope. Once it has
// begun, only ETIMEDOUT ends the task before it, as the task's own limit does. The task ends with
// EINVAL if the limit is out of range, and with ENOMEM if the limit could not be set.
//
// The callback runs on the computing thread after compute(). It runs on another thread after a
// timeout or the end of a scope, or if compute() ends at the same moment. ABORTED means that the
// library, or the user's executor, stopped before the computation began.
class ComputeTask : public SubTask {
 public:
  void start() {
    assert(!series_of(this));
    start_alone();
  }
  void dismiss() {
    assert(!series_of(this));
    drop_unstarted();
  }

  void *user_data = nullptr;

  int get_state() const { return state_; }
  int get_error() const { return error_; }

 protected:
  ComputeTask(const ComputePlace &place, const TimeSpan &limit);
  ~ComputeTask() override;

  virtual void compute() = 0;

  void dispatch() override;
  void run_queued() override;

  // How done() ends, after the callback: like delete_and_next(), but the task lives until compute()
  // has returned.
  SubTask *end_and_next();

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;

 private:
  friend class TimeLimit;

  void on_cancel(int reason) override;
  bool enter_own_scope();
  bool start_limit();
  void compute_here();
  // Called when the computation has ended with `state`. If it returns true, the caller owns the
  // completion. If it returns false, the task may be gone.
  bool computed(int state);
  void complete_here();

  const ComputePlace place_;
  std::unique_ptr<TimeLimit> limit_;  // null: no limit
  bool queued_ = false;               // the task's turn in the queue is still to come
};

}  // namespace workflow

// A task that runs a function on a computing thread. See ComputeTask for how it ends.
class WFGoTask : public workflow::ComputeTask {
 public:
  void set_callback(std::function<void(WFGoTask *)> callback) { callback_ = std::move(callback); }

 protected:
  WFGoTask(const workflow::ComputePlace &place, const workflow::TimeSpan &limit,
           std::function<void()> &&function)
      : ComputeTask(place, limit), function_(std::move(function)) {}
  ~WFGoTask() override = default;

  void compute() override { function_(); }
  SubTask *done() override {
    if (callback_) callback_(this);
    return end_and_next();
  }

  std::function<void()> function_;
  std::function<void(WFGoTask *)> callback_;

 private:
  friend class WFTaskFactory;
};

// A task that runs a function with an input and an output on a computing thread. The task holds
// both. See ComputeTask for how it ends: after a timeout the function may still be using them.
template <class IN, class OUT>
class WFThreadTask : public workflow::ComputeTask {
 public:
  IN *get_input() { return &input_; }
  const IN *get_input() const { return &input_; }
  OUT *get_output() { return &output_; }
  const OUT *get_output() const { return &output_; }

  void set_callback(std::function<void(WFThreadTask<IN, OUT> *)> callback) {
    callback_ = std::move(callback);
  }

 protected:
  WFThreadTask(const workflow::ComputePlace &place, const workflow::TimeSpan &limit,
               std::function<void(WFThreadTask<IN, OUT> *)> &&callback)
      : ComputeTask(place, limit), callback_(std::move(callback)) {}
  ~WFThreadTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return end_and_next();
  }

  IN input_{};
  OUT output_{};
  std::function<void(WFThreadTask<IN, OUT> *)> callback_;
};

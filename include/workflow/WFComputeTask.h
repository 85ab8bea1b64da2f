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

// Where a computation waits for its turn, and whose threads run it: a queue of the library's
// threads, or a queue and an executor of the user's, which outlive it.
struct ComputePlace {
  ComputePool *pool = nullptr;
  ComputeQueue *queue = nullptr;
  ExecQueue *own_queue = nullptr;
  Executor *own_executor = nullptr;

  static ComputePlace named(const std::string &queue_name);
  static ComputePlace of(ExecQueue *queue, Executor *executor);

  // Lets the item run when its turn has come, on the threads that there are now. False when there
  // are none (any more): it was not taken.
  bool post(Runnable *item) const;

  // How many threads of the library compute there.
  size_t threads() const;

 private:
  bool post_to_own(Runnable *item) const;
};

// A duration as the creating functions take it; what is out of range is kept as an error.
struct TimeSpan {
  int64_t ns;  // not negative; INT64_MAX: never
  int error;   // 0, or EINVAL

  // Negative seconds: never. Nanoseconds outside [0, 1e9): EINVAL.
  static TimeSpan of(time_t seconds, long nanoseconds);
  // A negative one: never.
  static TimeSpan of(Duration duration) {
    return duration.ns() < 0 ? never() : TimeSpan{duration.ns(), 0};
  }
  static TimeSpan never() { return {INT64_MAX, 0}; }
};

// A task that computes on a computing thread: compute() is called once, after its turn in the
// queue has come.
//
// With a time limit, counted from dispatch(), or a deadline around it (WFDeadline.h), it ends when
// that passes with SYS_ERROR/ETIMEDOUT if compute()
// has not returned. Not begun by then, it never begins; begun, it runs on, and the task object
// lives until it has returned, but in no series: series_of() is null once the callback has
// returned. EINVAL if the limit was out of range, ENOMEM when it could not be set.
//
// The callback runs on the computing thread after compute(); on another thread after a timeout, or
// when compute() ends just as its time does. ABORTED: the library, or the user's executor, stopped
// before it began.
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
  void take_turn() override;

  // How done() ends, after the callback: delete_and_next(), but the task lives until compute() has
  // returned.
  SubTask *end_and_next();

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;

 private:
  friend class TimeLimit;

  void interrupt(Interruption &interruption) override;
  bool enter_own_scope();
  bool start_limit();
  void compute_here();
  // The computation has ended so. True: the caller owns the completion; false: the task may be
  // gone.
  bool computed(int state);
  void complete_here();

  const ComputePlace place_;
  std::unique_ptr<TimeLimit> limit_;  // null: none
  bool queued_ = false;               // its turn in the queue is still to come
};

}  // namespace workflow

// A function to run on a computing thread. See ComputeTask for how it ends.
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

// A function with an input and an output, to run on a computing thread. The task holds both. See
// ComputeTask for how it ends: after a timeout the function may still be using them.
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

#pragma once

#include <functional>
#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/ComputeTask.h"

class WFTaskFactory;

// Tasks that run a function on a computing thread, once their turn in the queue has come. They end
// so:
//
//   SUCCESS    0          the function has returned
//   SYS_ERROR  ETIMEDOUT  the time limit, which counts from the dispatch, or a deadline of a scope
//                         around the task has passed before the function has returned
//              any errno  a scope around the task (WFScope.h) has ended with that error before the
//                         function has begun. Once it has begun, only ETIMEDOUT ends the task
//                         before the function has returned
//              EINVAL     the limit is out of range
//              ENOMEM     the limit could not be set
//   ABORTED    0          the library, or the user's executor, stopped before the function began
//
// A function that has not begun when its task ends never begins. One that has begun runs on: after
// a timeout it may still be using what it was given. Only if a coroutine waits for the task has the
// function returned when the coroutine goes on. (The exception is wf::go_detached(), which any
// error of its scope ends, too.)
//
// The callback runs on the computing thread after the function. It runs on another thread after a
// timeout or the end of a scope, or if the function returns at the same moment.

// A task that runs a function.
class WFGoTask : public workflow::TaskWithCallback<WFGoTask, workflow::ComputeTask> {
 protected:
  WFGoTask(const workflow::ComputePlace &place, const workflow::TimeSpan &limit,
           std::function<void()> &&function)
      : TaskWithCallback(nullptr, place, limit), function_(std::move(function)) {}
  ~WFGoTask() override = default;

  void compute() override {
    if (function_) function_();
  }
  void forget_computation() override {
    function_ = nullptr;
    callback_ = nullptr;  // it has been called
  }

  std::function<void()> function_;

 private:
  friend class WFTaskFactory;
};

// A task that runs a function with an input and an output. The task holds both. It lives until the
// function has returned, so that this may use them after a timeout.
template <class IN, class OUT>
class WFThreadTask
    : public workflow::TaskWithCallback<WFThreadTask<IN, OUT>, workflow::ComputeTask> {
 public:
  IN *get_input() { return &input_; }
  const IN *get_input() const { return &input_; }
  OUT *get_output() { return &output_; }
  const OUT *get_output() const { return &output_; }

 protected:
  WFThreadTask(const workflow::ComputePlace &place, const workflow::TimeSpan &limit,
               std::function<void(WFThreadTask<IN, OUT> *)> &&callback)
      : WFThreadTask::TaskWithCallback(std::move(callback), place, limit) {}
  ~WFThreadTask() override = default;

  IN input_{};
  OUT output_{};
};

#pragma once

#include <functional>
#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/ComputeTask.h"

class WFTaskFactory;

// A task that runs a function on a computing thread. See ComputeTask for how it ends.
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

// A task that runs a function with an input and an output on a computing thread. The task holds
// both. See ComputeTask for how it ends: after a timeout the function may still be using them.
// (When a coroutine goes on that has waited for the task, the function has returned.)
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

#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/Poller.h"
#include "workflow/WFComputeTask.h"

namespace workflow {

// The time limit of a computing task: a timer that races with the computation.
//
// 1. claim() decides the outcome: the first of timeout and end of the computation.
// 2. Who takes the timer out of the poller owns the completion. If the timer was popped, it belongs
//    to the second of both that comes to meet(): so neither touches a task that is gone.
// 3. The task has two users, its completion and the computation: it is deleted by the last.
//
// A timer that the stop ends decides nothing: the computation, which the stop waits for, does.
class TimeLimit final : public TimerNode, public Runnable {
 public:
  TimeLimit(ComputeTask* task, int64_t limit_ns) : task_(task), limit_ns_(limit_ns) {}
  ~TimeLimit() override = default;

  Poller::Start start();

  bool claim();
  // Before the computation has claimed: whether the timeout has.
  bool has_timed_out() const { return claimed_.load(std::memory_order_acquire); }
  // The computation has claimed the outcome. True: it owns the completion.
  bool take_timer();
  // True: the caller deletes the task.
  bool unref();

  // TimerNode, Runnable
  void left_queue(bool stopped, RunnableList& finished) override;
  void take_turn() override;

 private:
  bool meet();

  ComputeTask* const task_;
  const int64_t limit_ns_;
  std::atomic<bool> claimed_{false};
  std::atomic<bool> met_{false};
  std::atomic<int> users_{2};
};

}  // namespace workflow

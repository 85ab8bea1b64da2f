#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/Poller.h"
#include "util/Time.h"
#include "workflow/WFComputeTask.h"

namespace workflow {

// The time limit of a computing task: a timer that races with the computation. Also what else may
// end the task before its computation has: an interruption of its series (rule 9). Then there may
// be no timer.
//
// 1. claim() decides the outcome: the first of timeout, interruption and end of the computation.
// 2. Who takes the timer out of the poller owns the completion. If the timer was popped, it belongs
//    to the second of that and the one who has claimed that comes to meet(): so neither touches a
//    task that is gone. It belongs to a start that is refused; without a timer, to who has claimed.
// 3. The task has two users, its completion and the computation: it is deleted by the last.
//
// A timer that the stop ends decides nothing: the computation, which the stop waits for, does.
class TimeLimit final : public TimerNode, public Runnable {
 public:
  // kNever: no timer.
  TimeLimit(ComputeTask* task, int64_t limit_ns) : task_(task), limit_ns_(limit_ns) {}
  ~TimeLimit() override = default;

  bool has_timer() const { return limit_ns_ != kNever; }
  Poller::Start start();

  bool claim();
  // Before the computation has claimed: whether somebody else has.
  bool is_over() const { return claimed_.load(std::memory_order_acquire); }
  // Of an interruption, or of the computation, which has claimed the outcome. True: the caller owns
  // the completion. False: somebody else, whom it meets, or the coming start.
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

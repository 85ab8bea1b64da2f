#pragma once

#include <atomic>
#include <cstdint>

#include "factory/InterruptScope.h"
#include "kernel/Poller.h"
#include "workflow/WFDeadline.h"

namespace workflow {

// When a deadline passes: `ns` after the start, or at the time `ns` of the runtime's clock.
struct DeadlineTime {
  int64_t ns;  // kNever: never
  bool from_start;
};

// A series with a time limit: owns it and the scope of all that it waits for.
//
// 1. It ends when three parts have: dispatch(), the inside, and the timer. Each says so once, by
//    part_done(); the end of the inside does it for a timer that it takes out of the poller's
//    queue. One that was popped has its turn on a handler, and the task lives until then.
// 2. The outcome is decided when the inside ends, by whether its scope was interrupted before.
// 3. In the scope around it, if there is one, it is a task that waits from dispatch() to its end.
class DeadlineTask final : public WFDeadlineTask {
 public:
  // `series`: not started, in no parallel; owned from now on.
  DeadlineTask(SeriesWork* series, const DeadlineTime& time, Callback&& callback);

  void dispatch() override;

 private:
  class Timer final : public TimerNode, public Runnable {
   public:
    explicit Timer(DeadlineTask* task) : task_(task) {}
    ~Timer() override = default;

    // TimerNode
    void left_queue(bool stopped, RunnableList& finished) override;
    // Runnable
    void take_turn() override;

   private:
    DeadlineTask* const task_;
    bool stopped_ = false;
  };

  ~DeadlineTask() override;

  void interrupt(Interruption& interruption) override { scope_.interrupt(interruption); }
  // Of the inside.
  void branch_done() override;

  // 0, or why nothing inside shall wait.
  int enter_outer_scope();
  int start_timer();
  void part_done();

  const DeadlineTime time_;
  InterruptScope scope_{InterruptScope::Kinds::kAll};
  InterruptScope* outer_scope_ = nullptr;  // if entered
  Timer timer_{this};
  bool timer_started_ = false;
  std::atomic<int> parts_left_{2};
};

}  // namespace workflow

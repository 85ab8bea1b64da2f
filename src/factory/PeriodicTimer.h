#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "factory/TickSchedule.h"
#include "factory/TimerTask.h"
#include "workflow/detail/Ref.h"

namespace workflow {

// A timer that ticks until something ends it. Until then it keeps its name, its series and its
// handles. Each time its deadline passes, it leaves the queue, and is restarted for the next tick
// (rule 13).
//
// Rules (numbers as in docs/timer-protocol.md):
// 13. From the time it leaves the queue until the restart, the timer belongs to its tick, or to the
//     poller if ticks may overlap. A thread that ends the timer meanwhile marks it.
// 14. The callback runs after the last tick has returned. The schedule and each overlapping tick
//     are users of the timer, and the last of them goes on to the callback.
class PeriodicTimer final : public NamedTimerTask {
 public:
  // `first` is when the first tick is due, or refused(error). All ticks are by that clock. Throws
  // std::bad_alloc.
  static WFTimerTask* create(TimerDue first, ClockId clock, std::unique_ptr<TickSchedule> schedule,
                             bool overlap, const WFTimerOptions& options, WFTimer::Tick&& tick,
                             WFTimer::Callback&& callback);

  void left_queue(bool stopped, RunnableList& finished) override;

  // Called by a running tick, to end the timer with SUCCESS. Has no effect if something else has
  // ended the timer before.
  void end_with_tick();

 protected:
  ~PeriodicTimer() override { give_up_name_and_slot(); }
  void run_queued() override;
  void before_start() override;
  void forget_captured() override;

 private:
  class OverlappingTick;

  PeriodicTimer(TimerDue first, ClockId clock, std::unique_ptr<TickSchedule> schedule, bool overlap,
                WFTimer::Tick&& tick, WFTimer::Callback&& callback);

  void spawn_tick(RunnableList& finished);
  void call_tick(uint64_t number, uint64_t missed, int64_t due_ns);
  // Queues the timer, or posts it if it is due already, for the next tick. Returns false if there
  // is no next tick and the caller ends the timer, whose outcome is stored. If it returns true, the
  // caller must not touch the timer any more.
  bool restart();
  // Ends one use of the timer. After the last use, the callback runs.
  void drop_user();
  void end_by_last_user();

  const TimerDue created_due_;
  const std::unique_ptr<TickSchedule> schedule_;
  const bool overlap_;
  WFTimer::Tick tick_;

  // Used only by the current owner of the timer (rule 13).
  bool ticks_ = false;  // the next call of run_queued() is for a tick
  uint64_t number_ = 0;
  uint64_t missed_ = 0;
  uint64_t lost_ = 0;  // ticks left out for lack of memory

  // A tick stores it while it uses the timer, and it is read after the last use was dropped. users_
  // orders the two, so release and acquire are to spare.
  std::atomic<bool> ended_by_tick_{false};
  RefCount users_;
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "factory/TickSchedule.h"
#include "factory/TimerTask.h"

namespace workflow {

// A timer that ticks until something ends it. It keeps its name, its series and its handles all the
// while; each time its deadline passes it leaves the queue and is put back (rule 13).
//
// Rules (numbers as in docs/timer-protocol.md):
// 13. Between its leaving the queue and the restart the timer belongs to its tick; with ticks that
//     overlap, to the poller. Who wants to end it meanwhile marks it.
// 14. The callback runs after the last tick has returned: the schedule and each tick that overlaps
//     others are users of the timer, and the last of them goes on to the callback.
class PeriodicTimer final : public NamedTimerTask {
 public:
  // Throws std::bad_alloc. `first`: when the first tick is due, or refused(error).
  static WFTimerTask* create(const ClockedDue& first, std::unique_ptr<TickSchedule> schedule,
                             bool overlap, const WFTimerOptions& options, WFTimer::Tick&& tick,
                             WFTimer::Callback&& callback);

  void left_queue(bool stopped, RunnableList& finished) override;

  // By a tick that runs: it is the last.
  void end_with_tick();

 protected:
  ~PeriodicTimer() override { give_up_name_and_slot(); }
  void take_turn() override;
  void before_start() override;
  void forget_captured() override;

 private:
  class OverlappingTick;

  PeriodicTimer(const ClockedDue& first, std::unique_ptr<TickSchedule> schedule, bool overlap,
                WFTimer::Tick&& tick, WFTimer::Callback&& callback);

  void spawn_tick(RunnableList& finished);
  void call_tick(uint64_t number, uint64_t missed, int64_t due_ns);
  // Waits for the next tick; false if there is none: it has an outcome.
  bool restart();
  // A user less.
  void end_turn();
  void last_turn();

  const TimerDue created_due_;
  const std::unique_ptr<TickSchedule> schedule_;
  const bool overlap_;
  WFTimer::Tick tick_;

  // Used only by the current owner of the timer (rule 13).
  bool ticks_ = false;  // the coming turn is a tick
  uint64_t number_ = 0;
  uint64_t missed_ = 0;
  uint64_t lost_ = 0;  // ticks that there was no memory for

  std::atomic<bool> ended_by_tick_{false};
  std::atomic<size_t> users_{1};
};

}  // namespace workflow

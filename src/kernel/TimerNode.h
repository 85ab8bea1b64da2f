#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/TimerDue.h"
#include "kernel/TimerQueue.h"
#include "util/Clock.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class PollerTimers;

// A timer as a poller sees it: the base of everything that has a deadline. PollerTimers starts,
// moves and ends it.
//
// Its owner keeps it alive until it completes. Exactly one call tells its caller that it owns the
// completion: a start, a restart, a cancel, the end of a scope, or left_queue().
class TimerNode : public TimerQueueNode {
 public:
  // When the timer is to leave the queue. Valid before the start, or if the timer is refused.
  TimerDue due() const { return due_.load(std::memory_order_relaxed); }

  // The clock that its deadlines refer to. Constant.
  ClockId clock() const { return clock_; }

  // The node has left the queue because its deadline passed, or because the poller stops. Called
  // with no lock held. The calling thread owns the completion, or the tick if the node is periodic
  // and `stopped` is false. That is the poller's thread, except for nodes that
  // PollerTimers::start() has queued: then it may also be the thread that moves a manual clock, or
  // the node's starter when the start answers kDue. Items that are added to `finished` are run by
  // the leader or posted to the handler threads. The node may be destroyed as soon as it is in that
  // list.
  virtual void left_queue(bool stopped, RunnableList& finished) = 0;

 protected:
  // `restarts`: after the node has left the queue it will be started again, with
  // PollerTimers::restart().
  explicit TimerNode(TimerDue due = TimerDue::after(0), ClockId clock = ClockId::kMonotonic,
                     bool restarts = false)
      : restarts_(restarts), periodic_(restarts), clock_(clock), due_(due) {}
  ~TimerNode() = default;

  // Whether the node was created with `restarts`.
  bool is_periodic() const { return periodic_; }

  // To be called before the start. Changes due() to `to` if it still equals `from`, that is, if no
  // other thread has moved the timer.
  void change_due(TimerDue from, TimerDue to) {
    due_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }

  // The deadline that has passed. Valid from a left_queue() call with `stopped` false until the
  // next restart.
  int64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend class PollerTimers;
  // The small members come first because they fit behind the index of TimerQueueNode.
  // Set by both start and cancel: the first to exchange it to true decides (rule 3). The exchanges
  // are acq_rel, so the second sees what the first did before: a canceller sees timers_. A reader
  // that acquires true from a start also sees started() in due_. The one relaxed load has the lock
  // of PollerTimers, under which each start inserts its node.
  std::atomic<bool> flag_{false};
  // Guarded by the PollerTimers lock: what has ended the node. If the node was not queued then, its
  // coming start, or restart, is refused.
  enum class Mark : uint8_t { kNone, kCancelled, kScopeEnded };
  Mark mark_ = Mark::kNone;
  // Guarded by the PollerTimers lock: the timer is periodic, and nothing has removed it for good.
  bool restarts_;
  const bool periodic_ : 1;
  const ClockId clock_ : 7;  // selects the queue
  // Changed by both start and move: start exchanges it to started(), after setting timers_ (rule
  // 10). That exchange releases, and whoever looks for started() acquires, so it sees timers_. Any
  // other value publishes nothing. So due() and the store before a start may be relaxed.
  std::atomic<TimerDue> due_;
  // Guarded by the PollerTimers lock while the node is queued. The queue may hold an earlier
  // deadline if the node was moved to a later one since.
  int64_t deadline_ns_ = 0;
  PollerTimers* timers_ = nullptr;  // set by start, before flag_
};

}  // namespace workflow

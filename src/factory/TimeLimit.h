#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/PollerTimers.h"
#include "util/Time.h"
#include "workflow/WFComputeTask.h"
#include "workflow/detail/Ref.h"

namespace workflow {

// What may end a computing task before its computation has ended: its time limit, which is a timer,
// or the scope of the task. Without a time limit there is no timer.
//
// 1. claim() decides the outcome: it succeeds for the first of the timeout, the canceller of the
//    scope and the end of the computation. Once the computation has begun, only a timeout may end
//    the task before it: what the function has borrowed may be gone when its series goes on. A
//    detached one (wf::go_detached) has borrowed nothing, so any end of its scope may.
// 2. The thread that takes the timer out of the poller owns the completion. If the timer has
//    already expired, two threads come to arrive(): the one that handles the expiry, and the one
//    that has claimed the outcome. The second of them owns the completion, so neither touches a
//    task that is gone. If the poller refuses the timer, the start owns the completion. Without a
//    timer, the thread that has claimed the outcome does.
// 3. The task has two users, its completion and its computation. The last of them deletes it.
// 4. If a coroutine waits for the task, which is not detached, and the computation had begun when
//    the outcome was claimed, the task keeps its place in the series after its callback. Then the
//    last of the users also dispatches what follows. Otherwise the completion does.
//
// A timer that the stop of the library ends decides nothing. The computation does, for which the
// stop waits.
class TimeLimit final : public TimerNode, public Runnable {
 public:
  // There is no timer if the limit is kNever.
  TimeLimit(ComputeTask* task, int64_t limit_ns) : task_(task), limit_ns_(limit_ns) {}
  ~TimeLimit() override = default;

  bool has_timer() const { return limit_ns_ != kNever; }
  PollerTimers::Start start();

  // Keeps the scope of the task alive as long as this exists: the computation may outlive the
  // task's series. Before the task enters it.
  void keep(Ref<DeadlineScope> scope) { scope_ = std::move(scope); }
  DeadlineScope* scope() const { return scope_.get(); }

  bool claim();
  // Fails if the computation has begun, too.
  bool claim_before_begin();
  // The computation begins. Returns false if something has claimed the outcome before.
  bool begin();
  // Called by the canceller or the computation after it has claimed the outcome. Returns true if
  // the caller owns the completion. Otherwise another thread owns it: the one that handles the
  // expiry of the timer, or the one that is about to start the timer.
  bool take_timer();
  // After the outcome was claimed: whether the computation had begun before that.
  bool has_begun() const;
  // Returns true if the caller has to delete the task.
  bool unref();

  // TimerNode, Runnable
  void left_queue(bool stopped, RunnableList& finished) override;
  void run_queued() override;

 private:
  bool arrive();

  ComputeTask* const task_;
  const int64_t limit_ns_;
  Ref<DeadlineScope> scope_;
  // The outcome is claimed in kRefused, before the computation began, and in kClaimed, after it.
  enum class Stage { kQueued, kBegun, kRefused, kClaimed };
  // Its changes are read-modify-writes, which have one order whatever their memory order, so one of
  // those that claim comes first. It publishes nothing: what the claimant stores afterwards goes
  // through the locks of the poller and of the scope, arrived_ or users_. So acquire and release
  // are to spare here.
  std::atomic<Stage> stage_{Stage::kQueued};
  // Acquire and release: the second thread that arrives sees the outcome that was stored before the
  // first one arrived.
  std::atomic<bool> arrived_{false};
  RefCount users_{2};
};

}  // namespace workflow

#pragma once

#include <functional>
#include <memory>

#include "kernel/LendingCondition.h"
#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

class SeriesWork;

namespace workflow {

// A function of the user that is called when the client leaves before it has its reply.
//
// Shared by the exchange, which ends the hook, and the connection, which begins it. Either may come
// first. A hook that was ended does not begin any more. While the hook runs, end() waits for it,
// unless the hook itself has called end(). So the exchange's task and series are alive while the
// hook runs. Tasks that the hook completes go on elsewhere, not inside it.
//
// Thread-safe. No other lock is taken under mutex_, except those of the pools to which a waiter
// lends its thread.
class LeaveHook final : public Runnable, public std::enable_shared_from_this<LeaveHook> {
 public:
  // `series` is the series of the request.
  LeaveHook(std::function<void()> hook, SeriesWork* series)
      : hook_(std::move(hook)), series_(series) {}

  // Returns true if the caller has to post the hook to the handler threads. False if it has begun
  // or ended before.
  bool begin();
  // Keeps the hook from beginning, or waits until it has returned.
  void end();

 private:
  enum class State { kArmed, kBegun, kOver };

  void run_queued() override;

  std::function<void()> hook_;
  SeriesWork* const series_;
  Mutex mutex_;
  State state_ WF_GUARDED_BY(mutex_) = State::kArmed;
  LendingCondition over_;
  std::shared_ptr<LeaveHook> self_;  // set from begin() until the hook runs
};

}  // namespace workflow

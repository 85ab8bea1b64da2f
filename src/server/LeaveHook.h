#pragma once

#include <functional>
#include <memory>

#include "kernel/LendingCondition.h"
#include "util/Mutex.h"
#include "workflow/Runnable.h"

class SeriesWork;

namespace workflow {

// What a user wants to be called when the client leaves before it has its reply.
//
// Shared by the exchange, which ends it, and the connection, which begins it. Either can be first;
// once ended it does not begin any more, and while it runs the end waits for it, unless it comes
// from the hook itself. So the exchange's task and series live while the hook runs: what it
// completes goes on elsewhere, not inside it.
//
// Thread-safe. L is mutex_, a leaf but for the pools that a waiter lends its thread to.
class LeaveHook final : public Runnable, public std::enable_shared_from_this<LeaveHook> {
 public:
  // `series`: of the request.
  LeaveHook(std::function<void()> hook, SeriesWork* series)
      : hook_(std::move(hook)), series_(series) {}

  // True: the caller gives it a turn.
  bool begin();
  // Waits for one that runs.
  void end();

 private:
  enum class State { kArmed, kBegun, kOver };

  void take_turn() override;

  const std::function<void()> hook_;
  SeriesWork* const series_;
  Mutex mutex_;  // L
  State state_ WF_GUARDED_BY(mutex_) = State::kArmed;
  LendingCondition over_;
  std::shared_ptr<LeaveHook> self_;  // while it is begun
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "workflow/WFScope.h"
#include "workflow/Workflow.h"
#include "workflow/detail/CoTask.h"
#include "workflow/detail/Duration.h"
#include "workflow/detail/Ref.h"

namespace workflow {

class CoGroup;

// A coroutine that runs side by side with others of its group.
class CoBranch : public CoTask {
 protected:
  CoBranch() = default;
  ~CoBranch() override = default;

  bool takes_exceptions() const final { return true; }

  CoGroup *group() const { return group_; }

 private:
  friend class CoGroup;
  CoGroup *group_ = nullptr;  // set when the branch joins it
};

// The outcome of a group.
struct CoGroupEnd {
  static constexpr size_t kNone = SIZE_MAX;

  int reason = 0;                // why its scope has ended; 0: it has not
  size_t first = kNone;          // the branch for which claim_first() returned true
  std::exception_ptr exception;  // the first that was passed to fail()
};

// A task that runs coroutines side by side, in a scope of their own. It ends when each of them has
// ended and its frames are gone. The state of the task is always SUCCESS.
//
// 1. The group counts its parts: one for dispatch(), one for each branch, and one for each call of
//    start() that is under way. Only a part that exists may add another, so 0 is final.
// 2. Handles of the scope reach the group through the host of the scope. The host is taken away
//    before the group is deleted.
//
// Threads: for add() and dispatch(), the rules of every task hold. All other functions may be
// called on any thread by a branch, and start() also by a thread that has joined the host.
class CoGroup final : public TaskWithCallback<CoGroup, TaskBase<ParallelTask>> {
 public:
  // The limit counts from the dispatch (negative: see docs/limits.md). Throws std::bad_alloc.
  static CoGroup *create(Duration limit);

  WFScope scope() const;

  // These functions take the branch over. If they throw std::bad_alloc, the branch is dropped.
  //
  // Called before the dispatch.
  void add(CoBranch *branch);
  // Begins a branch in the group of that scope, on a handler thread. Returns false with errno if
  // there is none that runs; the branch is dropped then.
  static bool start(const WFScope &scope, CoBranch *branch);

  // Ends the scope with ECANCELED. Only the first exception is kept.
  void fail(std::exception_ptr exception);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // Returns true for the first branch that calls this, and then the scope ends with ECANCELED.
  bool claim_first(size_t index);

  // Called in the callback.
  const CoGroupEnd &result() const { return end_; }

  void dispatch() override;

 private:
  class Host;

  explicit CoGroup(Duration limit);
  ~CoGroup() override;

  void on_cancel(int reason) override;
  void branch_done() override;
  static SeriesWork *series_for(CoBranch *branch);
  SubTask *begin(CoBranch *branch);
  bool join();

  const std::unique_ptr<Host> host_;
  const Ref<DeadlineScope> scope_;
  RunnableList firsts_;  // the branches, until dispatch()
  // Rule 1. Decrements are acq_rel, so the last one sees what all parts did, end_ included. An
  // increment publishes nothing: that of dispatch() is relaxed.
  std::atomic<size_t> parts_{1};
  // Each exchange only chooses the branch that writes end_, which parts_ publishes.
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_first_{false};
  CoGroupEnd end_;  // first and exception: written by the branch that has set the flag
};

}  // namespace workflow

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

// How a group has ended.
struct CoGroupEnd {
  static constexpr size_t kNone = SIZE_MAX;

  int reason = 0;                // why its scope has ended; 0: it has not
  size_t first = kNone;          // the branch for which claim_first() returned true
  std::exception_ptr exception;  // the first that was passed to fail()
};

// Coroutines that run side by side in a scope of their own, as one task. It ends when each of them
// has ended and its frames are gone. The task always ends with SUCCESS.
//
// 1. It counts its parts: one for dispatch(), one for each branch, and one for each call of start()
//    that is under way. Only a part that exists may add another, so 0 is final.
// 2. Handles of its scope reach it through the scope's host, which is taken away before the group
//    is deleted.
//
// Threads: add() and dispatch() as for every task; the rest may be called from any thread, in a
// branch or, for start(), after joining the host.
class CoGroup final : public TaskWithCallback<CoGroup, TaskBase<ParallelTask>> {
 public:
  // The limit counts from the dispatch (negative: see docs/limits.md). Throws std::bad_alloc.
  static CoGroup *create(Duration limit);

  WFScope scope() const;

  // These take the branch over. If they throw std::bad_alloc, it is dropped.
  //
  // Before the dispatch.
  void add(CoBranch *branch);
  // Begins a branch in the group of that scope, on a handler. Returns false with errno if there is
  // none that runs; the branch is dropped then.
  static bool start(const WFScope &scope, CoBranch *branch);

  // The scope ends with ECANCELED. The first exception counts.
  void fail(std::exception_ptr exception);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // The first branch to call this gets true; then the scope ends with ECANCELED.
  bool claim_first(size_t index);

  // For the callback.
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
  std::atomic<size_t> parts_{1};
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_first_{false};
  CoGroupEnd end_;  // first and exception: written by the branch that has set the flag
};

}  // namespace workflow

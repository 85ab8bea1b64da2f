#pragma once

#include <atomic>

#include "kernel/TimerDue.h"
#include "workflow/WFScope.h"

namespace workflow {

// A series with a scope. Owns the series.
//
// 1. It ends when two parts have: dispatch(), and the series inside.
// 2. The outcome is decided when the series inside ends, by whether the scope had ended before.
// 3. In the scope around it, if there is one, it is a task that waits, from dispatch() to its end.
class ScopeTask final : public WFScopeTask {
 public:
  // `series`: not started, in no parallel; owned from now on. `scope` refers to a scope. Throws
  // nothing.
  ScopeTask(SeriesWork* series, const WFScope& scope, Callback&& callback);

  void dispatch() override;

 private:
  ~ScopeTask() override;

  void on_cancel(int reason) override;
  // Called when the series inside has ended.
  void branch_done() override;

  void part_done();

  // Acquire and release: the part that ends last sees what the other part has stored in the task.
  std::atomic<int> parts_left_{2};
};

}  // namespace workflow

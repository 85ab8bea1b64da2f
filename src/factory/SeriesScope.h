#pragma once

#include "kernel/DeadlineScope.h"
#include "workflow/WFScope.h"
#include "workflow/Workflow.h"

namespace workflow {

// The scope in which a series runs, and the series of a task, for the library's own code.
class SeriesScope {
 public:
  // Null if the series is null or runs in no scope. The scope lives as long as the series runs.
  static DeadlineScope* of(const SeriesWork* series) { return series ? series->scope_ : nullptr; }
  static DeadlineScope* of(const SubTask* task) { return of(task->joined_series()); }

  // The series that the task has joined. Null if it runs alone; unlike series_of(), which would
  // make one, this needs no memory.
  static SeriesWork* joined_by(const SubTask* task) { return task->joined_series(); }

  static DeadlineScope* get(const WFScope& scope) { return scope.scope_.get(); }

  // Before the series begins. The caller keeps the scope alive until the series has ended.
  static void set(SeriesWork* series, DeadlineScope* scope) { series->scope_ = scope; }

  // Before the series begins. What SubTask::share_scope() does besides, for a series that runs in
  // another scope than the task that contains it.
  static void set_borrows(SeriesWork* series, bool borrows) { series->borrows_ = borrows; }
};

}  // namespace workflow

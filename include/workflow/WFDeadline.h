#pragma once

#include <chrono>

#include "workflow/WFScope.h"
#include "workflow/detail/Duration.h"

// A task that contains a series with a time limit: a scope task whose scope has a deadline.
//
// If the deadline passes before the series inside has ended, whatever waits in it ends early: its
// callback sees SYS_ERROR with ETIMEDOUT. The series then goes on, and each task that would have to
// wait from then on ends at once in the same way, without having begun. So every task learns of the
// timeout. docs/scopes.md lists how each kind of task ends.
using WFDeadlineTask = WFScopeTask;

// The callback may be null; a task or series must not be.
//
// A task that runs `task` with a time limit, which counts from the dispatch of the returned task.
// For zero and negative limits see docs/limits.md. `task` may be a single step, a parallel, a graph
// or another deadline; of two deadlines the earlier one counts.
WFDeadlineTask *with_deadline(SubTask *task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback = nullptr);

// Like with_deadline(task, ...), for a series that was not started and is not in a parallel. The
// returned task owns the series.
WFDeadlineTask *with_deadline(SeriesWork *series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback = nullptr);

// Like those above, but the limit is a point of time, no matter when the task is started.
// time_point::max() means no limit.
WFDeadlineTask *with_deadline(SubTask *task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);
WFDeadlineTask *with_deadline(SeriesWork *series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);

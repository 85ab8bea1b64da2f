#include "workflow/SubTask.h"

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/VirtualScheduler.h"
#include "workflow/Workflow.h"

using workflow::Runtime;
using workflow::ThreadContext;

// How a chain of tasks uses constant stack: while this thread is inside next->dispatch(),
// ThreadContext::dispatching is `next`. A subtask_done() of that very task only leaves a mark, and
// the loop that called dispatch() goes on with its done(). Any other subtask_done() on the thread
// starts a loop of its own, one level deeper, which ends before it returns. When callbacks start
// tasks whose callbacks start tasks, and so on, the kMaxNesting-th is handed over instead.

namespace {

constexpr int kMaxNesting = 16;

}  // namespace

void SubTask::subtask_done() {
  workflow::schedule_point();
  ThreadContext& context = ThreadContext::current();
  if (context.dispatching == this) {
    context.dispatched_is_done = true;
  } else if (context.on_framework_thread() && context.nesting < kMaxNesting) {
    run_chain(this);
  } else {
    // User code runs on the library's threads only, and not too deep in their stacks.
    Runtime::current().handlers().post(this);
  }
}

void SubTask::run() {
  run_chain(this);
}

namespace {

// What a loop changes of its thread's context, put back when it ends.
class ChainScope {
 public:
  explicit ChainScope(ThreadContext& context)
      : context_(context),
        dispatching_(context.dispatching),
        dispatched_is_done_(context.dispatched_is_done),
        series_(context.series) {
    context_.nesting++;
  }
  ~ChainScope() {
    context_.nesting--;
    context_.dispatching = dispatching_;
    context_.dispatched_is_done = dispatched_is_done_;
    context_.series = series_;
  }
  ChainScope(const ChainScope&) = delete;
  ChainScope& operator=(const ChainScope&) = delete;

 private:
  ThreadContext& context_;
  SubTask* const dispatching_;
  const bool dispatched_is_done_;
  SeriesWork* const series_;
};

}  // namespace

SeriesWork* SubTask::joined_series() const {
  void* pointer = pointer_.load(std::memory_order_acquire);
  return pointer == this ? nullptr : static_cast<SeriesWork*>(pointer);
}

void SubTask::run_chain(SubTask* finished) {
  ThreadContext& context = ThreadContext::current();
  const ChainScope scope(context);
  for (;;) {
    context.dispatching = nullptr;
    context.series = finished->joined_series();
    SubTask* next = finished->done();
    if (!next) {
      break;
    }
    context.dispatching = next;
    context.dispatched_is_done = false;
    next->dispatch();
    if (!context.dispatched_is_done) {
      break;
    }
    finished = next;
  }
}

void SubTask::dispatch_chain(SubTask* first) {
  ThreadContext& context = ThreadContext::current();
  bool done;
  {
    const ChainScope scope(context);
    context.dispatching = first;
    context.dispatched_is_done = false;
    context.series = first->joined_series();
    first->dispatch();
    done = context.dispatched_is_done;
  }
  if (done) {
    first->subtask_done();
  }
}

void SubTask::start_alone() {
  set_pointer(this);
  dispatch_chain(this);
}

void* SubTask::own_series() const {
  SeriesWork* series = new SeriesWork();
  void* expected = const_cast<SubTask*>(this);
  if (pointer_.compare_exchange_strong(expected, series, std::memory_order_acq_rel)) {
    return series;
  }
  delete series;
  return expected;
}

SubTask* SubTask::delete_and_next() {
  SeriesWork* series = joined_series();
  delete this;
  return series ? series->pop() : nullptr;
}

void ParallelTask::dispatch() {
  // One more than the branches: dispatch() itself, so that the task outlives this loop.
  remaining_.store(subtasks_.size() + 1, std::memory_order_relaxed);
  for (SubTask* task : subtasks_) {
    dispatch_chain(task);
  }
  branch_done();
}

void ParallelTask::branch_done() {
  workflow::schedule_point();
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    subtask_done();
  }
}

#include "workflow/SubTask.h"

#include <cassert>
#include <memory>
#include <new>
#include <utility>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "kernel/PendingWork.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/VirtualScheduler.h"
#include "workflow/Workflow.h"

using workflow::DeadlineScope;
using workflow::PendingWork;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::Runtime;
using workflow::SeriesScope;
using workflow::TaskContext;
using workflow::ThreadContext;

// How a chain of tasks uses constant stack: while this thread is inside next->dispatch(),
// TaskContext::dispatching is `next`. A subtask_done() of that very task only sets a mark, and
// the loop that has called dispatch() goes on with the task's done(). Any other subtask_done() on
// the thread runs a loop of its own, one level deeper, before it returns. If callbacks start tasks
// whose callbacks start tasks, and so on, the task at the level kMaxNesting is posted to the
// handler threads.

void SubTask::subtask_done() {
  workflow::schedule_point();
  TaskContext& context = TaskContext::current();
  if (context.dispatching == this) {
    context.dispatched_is_done = true;
  } else if (TaskContext::runs_callbacks()) {
    run_chain(this);
  } else {
    Runtime::current().handlers().post(this);
  }
}

namespace {

// Saves what a loop changes in its thread's context, and restores it when the loop ends.
class ChainScope {
 public:
  explicit ChainScope(TaskContext& context)
      : context_(context),
        dispatching_(context.dispatching),
        dispatched_is_done_(context.dispatched_is_done),
        turn_ends_(std::exchange(context.turn_ends, false)),
        series_(context.series),
        scope_(std::exchange(context.scope, nullptr)) {
    context_.nesting++;
  }
  ~ChainScope() {
    context_.nesting--;
    context_.dispatching = dispatching_;
    context_.dispatched_is_done = dispatched_is_done_;
    context_.turn_ends = turn_ends_;
    context_.series = series_;
    context_.scope = scope_;
  }
  ChainScope(const ChainScope&) = delete;
  ChainScope& operator=(const ChainScope&) = delete;

 private:
  TaskContext& context_;
  SubTask* const dispatching_;
  const bool dispatched_is_done_;
  const bool turn_ends_;
  SeriesWork* const series_;
  workflow::DeadlineScope* const scope_;
};

}  // namespace

void SubTask::run_queued() {
  TaskContext& context = TaskContext::current();
  const bool is_outermost = context.nesting == 0 && ThreadContext::current().inline_depth == 0;
  const ChainScope scope(context);
  context.turn_ends = is_outermost;
  follow(context, this);
}

// A series that is made late.
//
// A task R that was started alone gets a series when somebody asks for it, on any thread. If R
// comes back, another task T may be running in its place at that moment. Both are in one series.
//
// 1. owner_ of R alone says whether there is a series. It changes once, from kAlone to the series.
//    owner_ of T is R with kWaited until T ends: the series of T is that of R.
// 2. The thread that makes the series cannot know whether R waits behind T or runs. If R is of a
//    kind that comes back, the series begins with a StandIn in the queue: when the turn of the
//    StandIn comes, R is the next task, and a StandIn that is dropped drops R. (R itself may be
//    posted to a thread, and then is in another queue.) If R lends, it is lender_ from the
//    beginning.
// 3. The end of T decides, when it reads owner_ of R. If that is kAlone, R is the next task.
//    Otherwise the next task is what the queue gives: what others have pushed to the front precedes
//    R, and a cancel drops R.
// 4. If R runs, the StandIn may be in the queue all the same. So before R pushes or pops at its
//    end, it retires the StandIn, which then only passes its turn on.
//
// Once others know the series, stand_in_ and waiting_ belong to the thread that runs it.

class SubTask::StandIn final : public SubTask {
 public:
  explicit StandIn(SubTask* waiting) : waiting_(waiting) {}
  ~StandIn() override {
    SeriesWork* const series = joined_series();
    if (series && series->stand_in_ == this) {
      series->stand_in_ = nullptr;
    }
  }

  // The first task of a series that others do not know yet.
  void join(SeriesWork* series) {
    series->stand_in_ = this;
    series->push_back(this);
  }
  // Called for a task that runs: nothing in `series` stands for it any more.
  static void retire(SeriesWork* series, const SubTask* task) {
    StandIn* const stand_in = series->stand_in_;
    if (!stand_in || stand_in->waiting_ != task) return;
    stand_in->waiting_ = nullptr;
    series->stand_in_ = nullptr;
    if (series->lender_ == task) {
      series->lender_ = nullptr;
    }
  }

  void dispatch() override { subtask_done(); }

 private:
  SubTask* done() override {
    SubTask* const waiting = waiting_;
    if (!waiting) return delete_and_next();
    delete this;
    return waiting;
  }
  void drop_unstarted() override {
    if (waiting_) waiting_->drop_unstarted();
    delete this;
  }

  SubTask* waiting_;  // null: this only passes its turn on
};

SeriesWork* SubTask::joined_series() const {
  static_assert(alignof(SeriesWork) > kMarks && alignof(SubTask) > kMarks &&
                (kAlone & ~kMarks) == 0);
  uintptr_t owner = owner_.load(std::memory_order_acquire);
  if (owner & kWaited) {
    const auto* const waiting = reinterpret_cast<const SubTask*>(owner & ~kMarks);
    owner = waiting->owner_.load(std::memory_order_acquire);
  }
  return reinterpret_cast<SeriesWork*>(owner & ~kMarks);
}

inline SubTask* SubTask::next_at(uintptr_t owner) {
  if (owner & kWaited) {
    auto* const waiting = reinterpret_cast<SubTask*>(owner & ~kMarks);
    owner = waiting->owner_.load(std::memory_order_acquire);
    if (owner == kAlone) return waiting;
  }
  auto* const series = reinterpret_cast<SeriesWork*>(owner & ~kMarks);
  return series ? series->pop() : nullptr;
}

SubTask* SubTask::Place::next() const {
  return next_at(owner_);
}

SubTask::Place SubTask::leave_place() {
  workflow::schedule_point();
  return Place(owner_.exchange(0, std::memory_order_acq_rel));
}

// Returns whether the task has ended when its dispatch() returns.
bool SubTask::dispatch_one(TaskContext& context, SubTask* task) {
  context.dispatching = task;
  context.dispatched_is_done = false;
  task->dispatch();
  return context.dispatched_is_done;
}

void SubTask::follow(TaskContext& context, SubTask* finished) {
  PendingWork::expose_all(ThreadContext::current().pending);
  for (;;) {
    const uintptr_t owner = finished->owner_.load(std::memory_order_acquire);
    context.dispatching = nullptr;
    const bool is_waited = owner & kWaited;
    context.series = is_waited ? nullptr : reinterpret_cast<SeriesWork*>(owner & ~kMarks);
    const bool is_bare = !is_waited && (owner & kMark) && owner != kAlone;
    SubTask* next = is_bare ? end_bare_task(context, finished) : finished->done();
    if (!next || !dispatch_one(context, next)) break;
    finished = next;
  }
}

SubTask* SubTask::end_bare_task(TaskContext& context, SubTask* task) {
  SeriesWork* const branch = context.series;
  SubTask* next = task->done();
  if (context.series != branch) {
    return nullptr;  // done() asked the series for the next task; there was none, so that it ended
  }
  if (!next) return branch->pop();
  if (next->owner_.load(std::memory_order_acquire) == 0) {
    next->owner_.store(reinterpret_cast<uintptr_t>(branch) | kMark, std::memory_order_release);
  } else if (next->joined_series() != branch) {
    // `next` is the first task of another series, which stands for the branch from now on.
    ParallelTask* const parallel = branch->in_parallel_;
    delete branch;
    next = parallel->begin_branch(next);
    context.series = next->joined_series();
  }
  return next;
}

void SubTask::branch_ended(const SeriesWork* branch) {
  TaskContext& context = TaskContext::current();
  if (context.series == branch) {
    context.series = nullptr;
  }
}

void SubTask::goes_on_elsewhere() {
  branch_ended(joined_series());
}

void SubTask::run_chain(SubTask* finished) {
  TaskContext& context = TaskContext::current();
  const ChainScope scope(context);
  follow(context, finished);
}

void SubTask::dispatch_chain(SubTask* first) {
  TaskContext& context = TaskContext::current();
  const bool runs = TaskContext::runs_callbacks();
  const ChainScope scope(context);
  context.series = first->joined_series();
  if (!dispatch_one(context, first)) return;
  if (runs) {
    follow(context, first);
  } else {
    Runtime::current().handlers().post(first);
  }
}

void SubTask::start_alone() {
  owner_.store(kAlone, std::memory_order_release);
  dispatch_chain(this);
}

void* SubTask::own_series() const {
  uintptr_t owner = owner_.load(std::memory_order_acquire);
  if (owner & kWaited) return reinterpret_cast<const SubTask*>(owner & ~kMarks)->get_pointer();
  if (owner != kAlone) return reinterpret_cast<void*>(owner);  // another thread has made one
  const ComesBack how = comes_back();
  std::unique_ptr<StandIn> stand_in;
  if (how != ComesBack::kNo) {
    stand_in = std::make_unique<StandIn>(const_cast<SubTask*>(this));
  }
  SeriesWork* const series = new SeriesWork();
  if (stand_in) {
    stand_in.release()->join(series);
    series->lender_ = how == ComesBack::kLends ? this : nullptr;
  }
  workflow::schedule_point();
  if (owner_.compare_exchange_strong(owner, reinterpret_cast<uintptr_t>(series),
                                     std::memory_order_acq_rel)) {
    return series;
  }
  StandIn::retire(series, this);
  delete series;
  return reinterpret_cast<void*>(owner);  // another thread was faster
}

SubTask* SubTask::delete_and_next() {
  const uintptr_t owner = owner_.load(std::memory_order_acquire);
  auto* const series = reinterpret_cast<SeriesWork*>(owner & ~kMarks);
  if (series && !(owner & kWaited)) {
    StandIn::retire(series, this);
  }
  delete this;
  return next_at(owner);
}

SubTask* SubTask::delete_and_continue_with(SubTask* task) {
  task->owner_.store(owner_.load(std::memory_order_acquire), std::memory_order_release);
  delete this;
  return task;
}

SubTask* SubTask::come_back_after(SubTask* task, bool lends) {
  assert(comes_back() == (lends ? ComesBack::kLends : ComesBack::kYes));
  if (owner_.load(std::memory_order_acquire) == kAlone) {
    const uintptr_t marks = lends ? kWaited | kBorrows : kWaited;
    task->owner_.store(reinterpret_cast<uintptr_t>(this) | marks, std::memory_order_release);
    return task;
  }
  SeriesWork* const series = series_of(this);
  StandIn::retire(series, this);
  if (lends && !series->lender_) {
    series->lender_ = this;
  }
  return series->go_on_before(this, task);
}

void SubTask::came_back() {
  if (SeriesWork* const series = joined_series(); series && series->lender_ == this) {
    series->lender_ = nullptr;
  }
}

bool SubTask::borrows() const {
  if (owner_.load(std::memory_order_acquire) & kBorrows) return true;
  const SeriesWork* const series = joined_series();
  return series && (series->borrows_ || series->lender_);
}

void SubTask::end_late() {
  TaskContext& context = TaskContext::current();
  const ChainScope scope(context);
  context.dispatching = nullptr;
  context.series = joined_series();
  SubTask* const next = delete_and_next();
  if (next && dispatch_one(context, next)) {
    follow(context, next);
  }
}

bool SubTask::is_series_canceled() const {
  const SeriesWork* series = joined_series();
  return series && series->is_canceled();
}

int SubTask::enter_scope(ScopeKind kind) {
  SeriesWork* const series = joined_series();
  if (!series || !series->scope_) return 0;
  series->registration_.task = this;
  return series->scope_->enter(series->registration_, kind);
}

bool SubTask::leave_scope(Runnable* ended) {
  SeriesWork* const series = joined_series();
  return !series || !series->scope_ ||
         series->scope_->leave(series->registration_, ended ? ended : this);
}

bool SubTask::has_scope() const {
  return SeriesScope::of(this) != nullptr;
}

int SubTask::cancel_reason(ScopeKind kind) const {
  const DeadlineScope* const scope = SeriesScope::of(this);
  return scope ? scope->reason_for(kind) : 0;
}

void SubTask::share_scope(SeriesWork* inside) {
  inside->share_scope(joined_series());
  inside->borrows_ = borrows();
}

namespace {

using Dispatch = void (*)(SubTask*);

// Makes a handler thread dispatch a task, or end it.
class PostedDispatch final : public Runnable {
 public:
  PostedDispatch(SubTask* task, Dispatch dispatch) : task_(task), dispatch_(dispatch) {}
  void run_queued() override {
    SubTask* const task = task_;
    const Dispatch dispatch = dispatch_;
    delete this;
    dispatch(task);
  }

 private:
  SubTask* const task_;
  const Dispatch dispatch_;
};

// Posts a turn for each task to the handler threads. Tasks for which there is no memory stay in the
// list.
void post_to_handlers(RunnableList& tasks, Dispatch dispatch) {
  RunnableList turns;
  while (SubTask* task = static_cast<SubTask*>(tasks.pop_front())) {
    PostedDispatch* turn = new (std::nothrow) PostedDispatch(task, dispatch);
    if (!turn) {
      tasks.push_front(task);
      break;
    }
    turns.push_back(turn);
  }
  Runtime::current().handlers().post(turns);
}

// Dispatches, or ends, tasks one after the other on this thread. If a callback blocks meanwhile and
// says so, handler threads get the tasks that are left. With kWhenHeldUp they also get them if it
// blocks or computes for long without saying so.
void run_one_by_one(RunnableList& tasks, const void* owner, Dispatch dispatch,
                    PendingWork::Give give, PendingWork::Gives when) {
  PendingWork work(owner, tasks, give, when);
  while (Runnable* const task = work.next()) {
    dispatch(static_cast<SubTask*>(task));
  }
}

}  // namespace

void SubTask::dispatch_all(RunnableList& tasks, const void* owner, bool may_go_elsewhere) {
  const ThreadContext& thread = ThreadContext::current();
  if (thread.pending && thread.pending->owner() == owner) {
    thread.pending->add(tasks);
    return;
  }
  TaskContext& context = TaskContext::current();
  if (context.nesting >= TaskContext::kMaxNesting) {
    post_to_handlers(tasks, &SubTask::dispatch_chain);
  }
  if (thread.on_framework_thread()) {
    run_one_by_one(
        tasks, owner, &SubTask::dispatch_chain,
        [](RunnableList& left) { post_to_handlers(left, &SubTask::dispatch_chain); },
        may_go_elsewhere ? PendingWork::Gives::kWhenHeldUp : PendingWork::Gives::kWhenItBlocks);
  } else {
    dispatch_elsewhere(context, tasks);
  }
}

// For a thread that runs no callbacks: tasks that end at once are posted to the handler threads
// together.
void SubTask::dispatch_elsewhere(TaskContext& context, RunnableList& tasks) {
  RunnableList ended;
  {
    const ChainScope scope(context);
    while (SubTask* task = static_cast<SubTask*>(tasks.pop_front())) {
      context.series = task->joined_series();
      if (dispatch_one(context, task)) {
        ended.push_back(task);
      }
    }
  }
  Runtime::current().handlers().post(ended);
}

// What a call by name ends runs inside that call: it may use what is on the stack of the caller,
// such as a message. So it is not given away behind the caller's back.
void SubTask::end_all(RunnableList& tasks) {
  if (TaskContext::runs_callbacks()) {
    run_one_by_one(
        tasks, &tasks, [](SubTask* task) { task->subtask_done(); },
        [](RunnableList& left) { Runtime::current().handlers().post(left); },
        PendingWork::Gives::kWhenItBlocks);
  } else {
    Runtime::current().handlers().post(tasks);
  }
}

void ParallelTask::dispatch() {
  RunnableList firsts;
  for (size_t i = 0; i < subtasks_nr; i++) {
    firsts.push_back(begin_branch(subtasks[i]));
  }
  dispatch_branches(firsts);
}

SubTask* ParallelTask::begin_branch(SubTask* task) noexcept {
  SeriesWork* series = series_of(task);
  const bool is_bare = series == nullptr;
  if (is_bare) {
    series = new SeriesWork();  // NOLINT(bugprone-unhandled-exception-at-new): ends the process
    task->owner_.store(reinterpret_cast<uintptr_t>(series) | kMark, std::memory_order_release);
  }
  assert(!series->in_parallel_);
  series->in_parallel_ = this;
  series->deletes_itself_ = true;
  share_scope(series);
  return is_bare ? task : series->begin();
}

void ParallelTask::dispatch_branches(RunnableList& firsts) {
  // One more than the branches, for this call itself, so that the task is alive until it returns.
  remaining_.store(firsts.size() + 1, std::memory_order_relaxed);
  dispatch_all(firsts, this);
  branch_done();
}

void ParallelTask::branch_done() {
  workflow::schedule_point();
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    subtask_done();
  }
}

bool ParallelTask::may_adopt(const SeriesWork* series) {
  return !series->in_parallel_ && series->first_;
}

void ParallelTask::adopt_series(SeriesWork* series) {
  assert(may_adopt(series));
  series->in_parallel_ = this;
}

SubTask* ParallelTask::begin_series(SeriesWork* series) {
  return series->begin();
}

void ParallelTask::delete_series(SeriesWork* series) {
  delete series;
}

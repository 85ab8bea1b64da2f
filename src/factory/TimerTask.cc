#include "factory/TimerTask.h"

#include <cerrno>

#include "factory/InterruptScope.h"
#include "factory/Names.h"
#include "kernel/Runtime.h"
#include "workflow/Workflow.h"

namespace workflow {

void TimerTask::dispatch() {
  Runtime& runtime = Runtime::current();
  if (delay_ns_ < 0) {
    set_outcome(WFT_STATE_SYS_ERROR, static_cast<int>(-delay_ns_));
  } else {
    Poller& poller = runtime.own_poller();
    if (enter_scope(poller) && start_with(poller)) {
      return;
    }
  }
  if (!leave_name()) {
    set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
  }
  // Through the handlers even from one of their threads: a timer whose callback starts the next
  // such timer must not nest.
  runtime.handlers().post(this);
}

bool TimerTask::enter_scope(Poller& poller) {
  SeriesWork* const series = joined_series();
  InterruptScope* scope = nullptr;
  auto entered = InterruptScope::Enter::kEntered;
  if (series && !series->scope_to_enter(&scope)) {
    entered = InterruptScope::Enter::kNoMemory;
  } else if (scope) {
    entered = scope->enter(this, poller);
  }
  if (entered == InterruptScope::Enter::kEntered) {
    return true;
  }
  const bool interrupted = entered == InterruptScope::Enter::kInterrupted;
  set_outcome(WFT_STATE_SYS_ERROR, interrupted ? ECANCELED : ENOMEM);
  return false;
}

// False: it has an outcome.
bool TimerTask::start_with(Poller& poller) {
  switch (poller.start_timer(this, delay_ns_)) {
    case Poller::Start::kQueued:
      return true;
    case Poller::Start::kCancelled:
      set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
      break;
    case Poller::Start::kStopped:
      set_outcome(WFT_STATE_ABORTED, 0);
      break;
    case Poller::Start::kNoMemory:
      set_outcome(WFT_STATE_SYS_ERROR, ENOMEM);
      break;
  }
  if (!leave_scope()) {
    set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
  }
  return false;
}

bool TimerTask::leave_scope() {
  const SeriesWork* const series = joined_series();
  InterruptScope* const scope = series ? series->scope_.load(std::memory_order_acquire) : nullptr;
  return !scope || scope->leave(this);
}

void TimerTask::left_queue(bool stopped, RunnableList& finished) {
  const bool has_left_name = leave_name();
  if (!leave_scope() || !has_left_name) {
    set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
  } else if (stopped) {
    set_outcome(WFT_STATE_ABORTED, 0);
  } else {
    set_outcome(WFT_STATE_SUCCESS, 0);
  }
  finished.push_back(this);
}

void TimerTask::end_interrupted(RunnableList& tasks) {
  RunnableList ended;
  while (TimerTask* task = static_cast<TimerTask*>(tasks.pop_front())) {
    task->leave_name();
    task->set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
    ended.push_back(task);
  }
  Runtime::current().handlers().post(ended);
}

NamedTimerTask::NamedTimerTask(std::string_view name, int64_t delay_ns,
                               std::function<void(WFTimerTask*)>&& callback)
    : TimerTask(delay_ns, std::move(callback)) {
  registry().link(this, name);
}

NamedTimerTask::~NamedTimerTask() {
  // Who sets an outcome leaves the name too; only what never started may still be linked.
  if (get_state() == WFT_STATE_UNDEFINED) {
    registry().unlink(this);
  }
}

bool NamedTimerTask::leave_name() {
  return registry().unlink(this);
}

NameRegistry& NamedTimerTask::registry() {
  return names_of<NamedTimerTask>();
}

size_t NamedTimerTask::cancel(std::string_view name, size_t max) {
  HandlerPool& handlers = Runtime::current().handlers();
  RunnableList finished;
  return registry().take(
      name, max, [](NamedNode*) { return true; },
      [&finished](NamedNode* node) {
        NamedTimerTask* task = static_cast<NamedTimerTask*>(node);
        if (Poller::cancel_timer(task) == Poller::Cancel::kTaken) {
          task->leave_scope();
          task->set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
          finished.push_back(task);
        }
      },
      [&finished, &handlers] { handlers.post(finished); });
}

}  // namespace workflow

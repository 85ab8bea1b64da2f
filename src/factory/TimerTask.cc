#include "factory/TimerTask.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "factory/Names.h"
#include "factory/TaskContext.h"
#include "kernel/Activity.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/VirtualScheduler.h"
#include "workflow/Workflow.h"

namespace workflow {

namespace {

// The names of the named timers of the simulation that the calling thread runs, or null. At exit a
// simulation may be destroyed later than what is local to the thread, so this has no destructor.
constinit thread_local std::map<const TimerTask*, std::string>* simulated_names = nullptr;

void note_simulated_name(const TimerTask* task, std::string_view name) {
  if (!simulated_names) {
    simulated_names = new std::map<const TimerTask*, std::string>;
  }
  (*simulated_names)[task] = name;
}

void forget_simulated_name(const TimerTask* task) {
  if (!simulated_names) return;
  simulated_names->erase(task);
  if (simulated_names->empty()) {
    delete std::exchange(simulated_names, nullptr);
  }
}

// Null if it has none.
const std::string* simulated_name(const TimerTask* task) {
  if (!simulated_names) return nullptr;
  const auto found = simulated_names->find(task);
  return found == simulated_names->end() ? nullptr : &found->second;
}

}  // namespace

std::string TimerTask::describe(const void* task) {
  const auto* const timer = static_cast<const TimerTask*>(task);
  const std::string* const name = simulated_name(timer);
  std::string text = name ? "timer \"" + *name + '"' : "a timer without a name";
  if (const uint64_t tag = timer->slot() ? TimerSlots::tag_of(timer->slot()) : 0) {
    text += " (tag " + std::to_string(tag) + ")";
  }
  return text;
}

void TimerTask::dispatch() {
  Runtime& runtime = Runtime::current();
  PollerTimers& timers = runtime.own_poller().timers();
  before_start();
  const TimerDue when = due();
  RunnableList finished;
  if (when.is_refused()) {
    refuse(when.error(), finished);
  } else {
    if (has_scope()) {
      timers.expect(this);
    }
    if (const int reason = enter_scope(ScopeKind::kTimer)) {
      refuse(reason, finished);
    } else {
      start_with(timers, finished);
    }
  }
  // Posts to the handler threads even if this is a handler thread. So callbacks that each start the
  // next timer do not nest, and other tasks run in between.
  const TaskContext& context = TaskContext::current();
  const bool turn_ends = context.turn_ends && context.dispatching == this &&
                         ThreadContext::current().pool == &runtime.handlers();
  runtime.handlers().post(finished, turn_ends);
}

void TimerTask::refuse(int refusal, RunnableList& finished) {
  end_with(WFT_STATE_SYS_ERROR, PollerTimers::close_unstarted(this) ? refusal : ECANCELED,
           finished);
}

// The task may belong to another thread when the poller has answered kQueued.
void TimerTask::start_with(PollerTimers& timers, RunnableList& finished) {
  using Start = PollerTimers::Start;
  switch (timers.start(this, PollerTimers::IfDue::kReport)) {
    case Start::kQueued:
      break;
    case Start::kDue:
      left_queue(false, finished);
      break;
    case Start::kCancelled:
      end_with(WFT_STATE_SYS_ERROR, ECANCELED, finished);
      break;
    case Start::kScopeEnded:
      end_with(WFT_STATE_SYS_ERROR, scope_error(), finished);
      break;
    case Start::kStopped:
      end_with(WFT_STATE_ABORTED, 0, finished);
      break;
    case Start::kNoMemory:
      end_with(WFT_STATE_SYS_ERROR, ENOMEM, finished);
      break;
    case Start::kNoClock:
      end_with(WFT_STATE_SYS_ERROR, errno, finished);
      break;
  }
}

bool TimerTask::leave_with(int end_state, int end_error) {
  if (leave_name() == Name::kTaken) {
    set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
  } else {
    set_outcome(end_state, end_error);
  }
  return leave_scope();
}

void TimerTask::end_with(int end_state, int end_error, RunnableList& finished) {
  if (leave_with(end_state, end_error)) {
    finished.push_back(this);
  }
}

void TimerTask::left_queue(bool stopped, RunnableList& finished) {
  end_with(stopped ? WFT_STATE_ABORTED : WFT_STATE_SUCCESS, 0, finished);
}

void TimerTask::on_cancel(int reason) {
  if (PollerTimers::end_for_scope(this)) {
    leave_with(WFT_STATE_SYS_ERROR, reason);
  }
}

void TimerTask::set_tag(uint64_t tag) {
  if (tag != 0) {
    handle();
    TimerSlots::set_tag(slot(), tag);
  }
}

WFTimerHandle TimerTask::handle() {
  TimerSlots::Slot* slot = this->slot();
  if (!slot) {
    slot = TimerSlots::instance().add(this);
    slot_.store(slot, std::memory_order_release);
  }
  return TimerSlots::handle_of(slot);
}

void TimerTask::give_up_slot() {
  TimerSlots::Slot* const slot = this->slot();
  if (slot) {
    {
      const RunningTimer running(slot, RunningTimer::Part::kCallback);
      // Each class calls give_up_slot() first in its destructor, so that its own override runs.
      // NOLINTNEXTLINE(clang-analyzer-optin.cplusplus.VirtualCall)
      forget_captured();
    }
    slot_.store(nullptr, std::memory_order_relaxed);
    TimerSlots::give_up(slot);
  }
}

WFTimerCancel TimerTask::cancel(RunnableList& ended) {
  using Cancel = PollerTimers::Cancel;
  if (due().is_refused()) {
    return WFTimerCancel::kTooLate;  // too late from its creation on (rule 19)
  }
  const Name name = leave_name();
  if (name == Name::kTaken) return WFTimerCancel::kTooLate;
  switch (PollerTimers::cancel(this)) {
    case Cancel::kBeforeStart:
    case Cancel::kBeforeRestart:
      break;
    case Cancel::kTaken:
      set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
      if (leave_scope()) {
        ended.push_back(this);
      }
      break;
    case Cancel::kTooLate:
      // The owner of the completion will find that the name was taken: this cancel decides.
      return name == Name::kLeft ? WFTimerCancel::kWon : WFTimerCancel::kTooLate;
  }
  return WFTimerCancel::kWon;
}

TimerTask::~TimerTask() {
  if (get_state() == WFT_STATE_UNDEFINED) {
    TimerCounters::add(TimerCounters::kDropped);
  }
  give_up_slot();
}

void TimerTask::refuse_start(int refusal) {
  change_due(due(), TimerDue::refused(refusal));
  error = refusal;
}

SubTask* TimerTask::done() {
  TimerCounters::add_end(state, error);
  const bool fired = state == WFT_STATE_SUCCESS && !is_periodic();
  const int64_t late_ns = fired ? now_ns() - deadline_ns() : 0;
  Clock& clock = Runtime::current_clock();
  const int64_t begin_ns = fired ? clock.now_ns() : 0;  // of a clock that nobody sets
  if (callback_ && slot()) {
    const RunningTimer running(slot(), RunningTimer::Part::kCallback);
    callback_(this);
  } else if (callback_ && VirtualScheduler::current()) [[unlikely]] {
    const Activity running("the callback of", this, &TimerTask::describe);
    callback_(this);
  } else if (callback_) {
    callback_(this);
  }
  if (fired) {
    TimerCounters::add_callback(late_ns, clock.now_ns() - begin_ns);
  }
  give_up_slot();
  return delete_and_next();
}

int64_t TimerTask::now_ns() const {
  return Runtime::current_clock().now_ns_on(clock());
}

void NamedTimerTask::give_up_name_and_slot() {
  // Every thread that stores an outcome also leaves the name, so only a timer that was never
  // started may still be linked. This comes before the slot is given up, because a thread that has
  // waited for that may use the name again.
  if (NameRegistry::was_linked(this) && get_state() == WFT_STATE_UNDEFINED) {
    registry().unlink(this);
  }
  give_up_slot();
  if (VirtualScheduler::current()) [[unlikely]] {
    forget_simulated_name(this);
  }
}

TimerTask::Name NamedTimerTask::leave_name() {
  if (!NameRegistry::was_linked(this)) return Name::kUnnamed;
  return registry().unlink(this) ? Name::kLeft : Name::kTaken;
}

NameRegistry& NamedTimerTask::registry() {
  return names_of<NamedTimerTask>();
}

WFTimerTask* NamedTimerTask::create(std::string_view name, TimerDue due, WFTimerPolicy policy,
                                    uint64_t tag, std::function<void(WFTimerTask*)>&& callback,
                                    ClockId clock) {
  const NameRegistry::NameKey name_key = registry().key_of(name);
  return give_name(new NamedTimerTask(due, std::move(callback), clock), name_key, policy, tag);
}

WFTimerTask* NamedTimerTask::give_name(NamedTimerTask* task, const NameRegistry::NameKey& name,
                                       WFTimerPolicy policy, uint64_t tag) {
  if (task->due().is_refused()) return task;
  using Policy = NameRegistry::Policy;
  using Linked = NameRegistry::Linked;
  const Policy others = policy == WF_TIMER_KEEP      ? Policy::kKeep
                        : policy == WF_TIMER_REPLACE ? Policy::kReplace
                                                     : Policy::kAppend;
  try {
    if (VirtualScheduler::current()) [[unlikely]] {
      note_simulated_name(task, name.name);
    }
    task->set_tag(tag);
    switch (registry().link(task, name, others, Runtime::current().clock().now_ns())) {
      case Linked::kAlone:
        break;
      case Linked::kWithOthers:
        if (policy == WF_TIMER_REPLACE) {
          cancel_if(name.name, SIZE_MAX,
                    [task](NamedNode* other) { return NameRegistry::is_older(other, task); });
        }
        break;
      case Linked::kNameTaken:
        task->refuse_start(EEXIST);
        break;
      case Linked::kOverQuota:
        task->refuse_start(EDQUOT);
        break;
    }
  } catch (...) {
    delete task;
    throw;
  }
  return task;
}

WFTimerInfo NamedTimerTask::info_of(std::string_view name, const NamedNode* node, int64_t now_ns) {
  const auto* const task = static_cast<const NamedTimerTask*>(node);
  WFTimerInfo info;
  info.name = name;
  info.tag = task->slot() ? TimerSlots::tag_of(task->slot()) : 0;
  const int64_t age_ns = now_ns - NameRegistry::linked_ns(node);
  info.age = std::chrono::nanoseconds(std::max<int64_t>(age_ns, 0));
  info.clock = static_cast<WFTimerClock>(task->clock());
  const bool started = PollerTimers::is_started(task);
  const int64_t remaining_ns = PollerTimers::remaining_ns(task, Runtime::current_clock());
  info.remaining = std::chrono::nanoseconds(std::max<int64_t>(remaining_ns, 0));
  if (!started) {
    info.stage = WFTimerStage::kCreated;
  } else if (remaining_ns >= 0) {
    info.stage = WFTimerStage::kWaiting;
  } else {
    info.stage = task->is_periodic() ? WFTimerStage::kTicking : WFTimerStage::kEnding;
  }
  return info;
}

template <class Wanted>
size_t NamedTimerTask::cancel_if(std::string_view name, size_t max, Wanted&& wanted) {
  HandlerPool& handlers = Runtime::current().handlers();
  RunnableList finished;
  return registry().take(
      name, max, wanted,
      [&finished](NamedNode* node) {
        NamedTimerTask* task = static_cast<NamedTimerTask*>(node);
        if (PollerTimers::cancel(task) == PollerTimers::Cancel::kTaken) {
          task->set_outcome(WFT_STATE_SYS_ERROR, ECANCELED);
          if (task->leave_scope()) {
            finished.push_back(task);
          }
        }
      },
      [&finished, &handlers] { handlers.post(finished); });
}

size_t NamedTimerTask::cancel(std::string_view name, size_t max) {
  return cancel_if(name, max, [](NamedNode*) { return true; });
}

size_t NamedTimerTask::reschedule(std::string_view name, TimerDue due,
                                  std::optional<ClockId> clock) {
  size_t moved = 0;
  registry().for_each(name, [&moved, due, clock](NamedNode* node) {
    auto* const task = static_cast<NamedTimerTask*>(node);
    moved += task->uses_clock(clock) && PollerTimers::move(task, due) == PollerTimers::Move::kMoved;
  });
  TimerCounters::add(TimerCounters::kRescheduled, moved);
  return moved;
}

}  // namespace workflow

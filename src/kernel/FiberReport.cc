#include <algorithm>
#include <string>
#include <vector>

#include "kernel/Activity.h"
#include "kernel/FiberScheduler.h"

// The reports of a simulation's scheduler: which thread waits for which.

namespace workflow {

// A thread that waits for work inside the library is not in a BlockingScope.
bool FiberScheduler::is_stuck(const VirtualThread& thread) {
  return thread.state == State::kLocking || thread.state == State::kJoining ||
         (thread.state == State::kWaiting && thread.context.blocking > 0);
}

bool FiberScheduler::any_stuck() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return is_stuck(*thread); });
}

std::string FiberScheduler::label(ThreadId id) const {
  return "thread " + std::to_string(id) + " (" + threads_[id]->name + ")";
}

std::string FiberScheduler::mutex_of(const VirtualThread& thread) const {
  std::string text = "waits for a mutex";
  for (const HeldMutex& held : held_) {
    if (held.mutex == thread.object) {
      text += " that " + label(held.owner->id) + " holds";
    }
  }
  return text;
}

std::string FiberScheduler::wait_of(const VirtualThread& thread) const {
  const WaitNote* const note = thread.context.waiting_for;
  if (!note) {
    return thread.context.blocking > 0 ? "waits in a call of the library" : "waits to be notified";
  }
  std::string text = std::string("waits in ") + note->how;
  if (note->subject) {
    text += " for " + note->describe(note->subject);
    for (const auto& other : threads_) {
      if (Activity::is_in(other->context.activity, note->subject)) {
        text += ", which " + label(other->id) + " runs";
      }
    }
  }
  return text;
}

std::string FiberScheduler::describe(const std::vector<ThreadId>& listed) const {
  std::string text;
  for (const auto& thread : threads_) {
    const bool wanted = std::find(listed.begin(), listed.end(), thread->id) != listed.end();
    std::string what;
    if (thread->state == State::kLocking) {
      what = mutex_of(*thread);
    } else if (thread->state == State::kJoining) {
      what = "waits for the end of " + label(thread->joined);
    } else if (thread->state == State::kReady) {
      what = "could run";
    } else if (thread->state == State::kWaiting && (wanted || is_stuck(*thread))) {
      what = wait_of(*thread);
    }
    if (!what.empty()) {
      const Activity* const inside = thread->context.activity;
      text += "  " + label(thread->id) + (inside ? ", in " + inside->text() + "," : "") + " " +
              what + "\n";
    }
  }
  return text;
}

}  // namespace workflow

#pragma once

#include <memory>
#include <string>

#include "factory/NameRegistry.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

class GuardTask;

// A place in the line for a resource. The oldest place of a name holds the resource.
struct GuardPlace final : NamedNode {
  explicit GuardPlace(GuardTask* guard) : task(guard) {}
  GuardTask* const task;  // alive while it owns the place
};

// Runs a task when the guard holds a resource. That is when the guard was dispatched, and all
// guards that were dispatched before it under the same name have released the resource.
//
// Invariants:
// 1. The oldest place linked under a name holds the resource. The others wait, in order.
// 2. The task owns its place until it holds the resource. Then the registry owns the place, until
//    the release.
// 3. The thread that passes the resource on delivers the message under the NameRegistry lock. A
//    guard that was aborted or cancelled refuses the message, and its place is unlinked.
class GuardTask final : public WFConditional {
 public:
  // If this throws std::bad_alloc, the task still belongs to the caller.
  GuardTask(const std::string& resource, SubTask* task, void** msgbuf)
      : WFConditional(nullptr, msgbuf),
        resource_(resource),
        place_(std::make_unique<GuardPlace>(this)) {
    own(task);
  }

  // Has no effect: a guard gets its message only from the release before it.
  void signal(void* /*message*/) override {}

  // Passes the resource on to the next in line. Returns false if there is none. `elsewhere`: the
  // next one does not go on on this thread.
  static bool release(const std::string& resource, void* message, bool elsewhere);

  static NameRegistry& registry();

 protected:
  ~GuardTask() override = default;
  void dispatch() override;
  void leave_waiting() override;
  bool is_known_by_address() const override { return false; }
  void message_unused(void* message) override { release(resource_, message, true); }

 private:
  bool enqueue();
  // Delivers the message. The caller holds the NameRegistry lock. Returns false if the guard
  // refuses it.
  bool take_over(void* message, bool* ends);

  const std::string resource_;
  std::unique_ptr<GuardPlace> place_;
};

}  // namespace workflow

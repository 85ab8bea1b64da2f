#pragma once

#include <memory>
#include <string>

#include "factory/NameRegistry.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

class GuardTask;

// A place in the line for a resource: the oldest place of its name is the one that holds it.
struct GuardPlace final : NamedNode {
  explicit GuardPlace(GuardTask* guard) : task(guard) {}
  GuardTask* const task;  // alive while it owns the place
};

// Runs a task when it holds a resource: once it is dispatched, and all that were dispatched before
// it under the same name have released.
//
// Invariants (B is the mutex of the name's shard):
// 1. The oldest place linked under a name holds the resource; the others wait, in order.
// 2. The task owns its place until it holds the resource; then the registry, until the release.
// 3. Who passes the resource on delivers the message under B; a guard that was aborted or
//    interrupted refuses, and its place is taken out of the line.
class GuardTask final : public WFConditional {
 public:
  GuardTask(const std::string& resource, SubTask* task, void** msgbuf)
      : WFConditional(task, msgbuf),
        resource_(resource),
        place_(std::make_unique<GuardPlace>(this)) {}

  // Only the release before tells a guard.
  void signal(void* /*message*/) override {}

  // Passes the resource on to the next in line, if any: true. `elsewhere`: never on this thread.
  static bool release(const std::string& resource, void* message, bool elsewhere);

  static NameRegistry& registry();

 protected:
  ~GuardTask() override = default;
  void dispatch() override;
  void leave_waiting() override;
  bool is_told_by_address() const override { return false; }
  void message_unused(void* message) override { release(resource_, message, true); }

 private:
  bool line_up();
  // Under B. False: it refuses.
  bool take_over(void* message, bool* ends);

  const std::string resource_;
  std::unique_ptr<GuardPlace> place_;
};

}  // namespace workflow

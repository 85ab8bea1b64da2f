#include "factory/GuardTask.h"

#include <cerrno>
#include <new>

#include "kernel/Runtime.h"
#include "workflow/Workflow.h"

namespace workflow {

namespace {

// Resources that are never released are held until the end of the runtime.
class GuardNames final : public RuntimePart, public NameRegistry {
 public:
  ~GuardNames() override {
    unlink_all([](NamedNode* place) { delete static_cast<GuardPlace*>(place); });
  }
};

}  // namespace

NameRegistry& GuardTask::registry() {
  return Runtime::current().part<GuardNames>();
}

void GuardTask::dispatch() {
  if (!enqueue()) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOMEM;
    place_.reset();
    if (claim()) {
      publish();
    }
  }
  WFConditional::dispatch();
}

// Returns false if there is no memory.
bool GuardTask::enqueue() {
  GuardPlace* place = place_.get();
  try {
    if (registry().link(place, resource_) == NameRegistry::Linked::kAlone) {
      static_cast<void>(place_.release());  // it is the registry's now
      deliver(nullptr);
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// The guard was aborted or cancelled. It may hold the resource by now, or a release may have
// unlinked its place.
void GuardTask::leave_waiting() {
  if (place_) {
    registry().unlink(place_.get());
  }
}

bool GuardTask::take_over(void* message, bool* ends) {
  if (!claim()) return false;
  // This comes first: as soon as the start can see the message, the task may be gone.
  static_cast<void>(place_.release());
  *ends = claimed_delivery(message) == Delivery::kEnds;
  return true;
}

bool GuardTask::release(const std::string& resource, void* message, bool elsewhere) {
  GuardTask* next = nullptr;
  GuardPlace* released = nullptr;
  bool ends = false;
  const bool passed = registry().advance(
      resource,
      [&](NamedNode* node) {
        GuardTask* task = static_cast<GuardPlace*>(node)->task;
        if (!task->take_over(message, &ends)) return false;
        next = task;
        return true;
      },
      [&released](NamedNode* node) {
        // The first place is that of the holder, and belongs to the registry.
        if (!released) {
          released = static_cast<GuardPlace*>(node);
        }
      });
  delete released;
  if (ends && elsewhere) {
    next->complete_elsewhere();
  } else if (ends) {
    next->complete();
  }
  return passed;
}

}  // namespace workflow

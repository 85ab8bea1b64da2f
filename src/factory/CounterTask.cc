#include "factory/CounterTask.h"

#include <algorithm>

#include "kernel/Runtime.h"

namespace workflow {

namespace {

class CounterNames final : public RuntimePart, public NameRegistry {};

}  // namespace

NamedCounterTask::NamedCounterTask(std::string_view name, unsigned int target,
                                   std::function<void(WFCounterTask*)>&& callback)
    : WFCounterTask(target > 0 ? 1 : 0, std::move(callback)), remaining_(target) {
  if (target > 0) {
    registry().link(this, name);
  }
}

NamedCounterTask::~NamedCounterTask() {
  registry().unlink(this);
}

NameRegistry& NamedCounterTask::registry() {
  return Runtime::current().part<CounterNames>();
}

void NamedCounterTask::count() {
  bool complete = false;
  registry().unlink_if(this, [this, &complete] {
    if (--remaining_ > 0) {
      return false;
    }
    complete = part_done();
    return true;
  });
  if (complete) {
    subtask_done();
  }
}

size_t NamedCounterTask::count(std::string_view name, unsigned int n) {
  RunnableList complete;
  return registry().take(
      name, SIZE_MAX,
      [&n](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        const unsigned int counted = std::min(n, task->remaining_);
        n -= counted;
        task->remaining_ -= counted;
        return task->remaining_ == 0;
      },
      [&complete](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        if (task->part_done()) {
          complete.push_back(task);
        }
      },
      [&complete] {
        while (Runnable* task = complete.pop_front()) {
          static_cast<NamedCounterTask*>(task)->subtask_done();
        }
      });
}

}  // namespace workflow

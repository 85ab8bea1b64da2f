#include "factory/CounterTask.h"

#include <algorithm>

#include "factory/Names.h"
#include "util/VirtualScheduler.h"

void WFCounterTask::count() {
  workflow::schedule_point();
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1 && claim() && publish()) {
    complete();
  }
}

namespace workflow {

NamedCounterTask::NamedCounterTask(std::string_view name, unsigned int target,
                                   std::function<void(WFCounterTask*)>&& callback)
    : WFCounterTask(target, std::move(callback)), left_(target) {
  if (target > 0) {
    registry().link(this, name);
  }
}

NamedCounterTask::~NamedCounterTask() {
  // Who ends a started one leaves the name.
  if (!is_started()) {
    registry().unlink(this);
  }
}

void NamedCounterTask::leave_waiting() {
  registry().unlink(this);
}

NameRegistry& NamedCounterTask::registry() {
  return names_of<NamedCounterTask>();
}

NamedCounterTask::Reached NamedCounterTask::reached() {
  if (!claim()) {
    return Reached::kAborted;
  }
  return publish() ? Reached::kEnds : Reached::kEarly;
}

void NamedCounterTask::count() {
  if (registry().unlink_if(this, [this] { return --left_ == 0; }) && reached() == Reached::kEnds) {
    complete();
  }
}

size_t NamedCounterTask::count(std::string_view name, unsigned int n) {
  size_t reached_count = 0;
  RunnableList ended;
  registry().take(
      name, SIZE_MAX,
      [&n](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        const unsigned int counted = std::min(n, task->left_);
        n -= counted;
        task->left_ -= counted;
        return task->left_ == 0;
      },
      [&ended, &reached_count](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        const Reached reached = task->reached();
        reached_count += reached != Reached::kAborted;
        if (reached == Reached::kEnds) {
          ended.push_back(task);
        }
      },
      [] {});
  // Not in between: one of them may wait for another.
  complete_all(ended);
  return reached_count;
}

}  // namespace workflow

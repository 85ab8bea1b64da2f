#include "factory/CounterTask.h"

#include "factory/Names.h"
#include "util/VirtualScheduler.h"

void WFCounterTask::count() {
  workflow::schedule_point();
  // Whoever reads 1 is the last, since nobody counts more often than the target. No other thread
  // will look at the number, so it need not be changed.
  if (remaining_.load(std::memory_order_acquire) != 1) {
    workflow::schedule_point();
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  }
  const Arrival arrival = claim_and_publish();
  if (arrival == Arrival::kEnds) complete();
  if (arrival == Arrival::kRefused) release_late();
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
  // A counter that was started has left its name when it ended.
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

void NamedCounterTask::count() {
  bool claimed = false;
  registry().unlink_if(this, [this, &claimed] {
    claimed = --left_ == 0 && claim();
    return left_ == 0;
  });
  if (claimed && publish()) {
    complete();
  }
}

size_t NamedCounterTask::count(std::string_view name, unsigned int n) {
  size_t reached_count = 0;
  bool claimed = false;
  RunnableList ended;
  registry().take(
      name, SIZE_MAX,
      [&n, &claimed](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        // A counter that has ended otherwise, and is about to leave its name, takes no counts.
        if (task->left_ > n && !task->is_claimed()) {
          task->left_ -= n;
          return false;
        }
        claimed = task->claim();
        n -= claimed ? task->left_ : 0;
        return true;
      },
      [&ended, &reached_count, &claimed](NamedNode* node) {
        NamedCounterTask* task = static_cast<NamedCounterTask*>(node);
        reached_count += claimed;
        if (claimed && task->publish()) {
          ended.push_back(task);
        }
      },
      [] {});
  // Only after all were counted, because one of them may wait for another.
  complete_all(ended);
  return reached_count;
}

}  // namespace workflow

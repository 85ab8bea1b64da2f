#pragma once

#include <functional>
#include <utility>

#include "workflow/WFGenericTask.h"

namespace workflow {

// Makes, when its turn has come, the task that takes its place in the series.
class DynamicTask final : public WFGenericTask {
 public:
  explicit DynamicTask(std::function<SubTask*(WFGenericTask*)>&& create)
      : create_(std::move(create)) {}

 protected:
  ~DynamicTask() override = default;

  // Here and not in dispatch(): user code runs on framework threads.
  SubTask* done() override {
    SubTask* task = create_ ? create_(this) : nullptr;
    if (task && !is_series_canceled()) {
      return delete_and_continue_with(task);
    }
    if (task) {
      SubTask::drop_unstarted(task);
    }
    return delete_and_next();
  }

 private:
  const std::function<SubTask*(WFGenericTask*)> create_;
};

}  // namespace workflow

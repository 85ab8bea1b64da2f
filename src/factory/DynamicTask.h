#pragma once

#include <functional>
#include <utility>

#include "workflow/WFGenericTask.h"

namespace workflow {

// When its turn comes in the series, creates the task that takes its place.
class DynamicTask final : public WFGenericTask {
 public:
  explicit DynamicTask(std::function<SubTask*(WFGenericTask*)>&& create)
      : create_(std::move(create)) {}

 protected:
  ~DynamicTask() override = default;

  // Calls create_ here and not in dispatch(), because user code runs on threads of the library.
  SubTask* done() override {
    SubTask* task = create_ ? create_(this) : nullptr;
    if (task && !is_series_canceled()) return delete_and_continue_with(task);
    if (task) {
      SubTask::drop_unstarted(task);
    }
    return delete_and_next();
  }

 private:
  const std::function<SubTask*(WFGenericTask*)> create_;
};

}  // namespace workflow

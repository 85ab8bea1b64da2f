#pragma once

#include <functional>
#include <utility>

#include "kernel/ComputePool.h"
#include "workflow/WFTask.h"

namespace workflow {

class GoTask final : public WFGoTask {
 public:
  GoTask(ComputeQueue* queue, std::function<void()>&& function)
      : queue_(queue), function_(std::move(function)) {}

  void dispatch() override;

 protected:
  void run() override;

 private:
  ComputeQueue* const queue_;
  std::function<void()> function_;
};

}  // namespace workflow

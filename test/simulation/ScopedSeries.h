#pragma once

#include "factory/SeriesScope.h"
#include "workflow/Workflow.h"

// A series with a scope of its own, which a test ends from outside.
class ScopedSeries final : public SeriesWork {
 public:
  explicit ScopedSeries(SubTask* first) : SeriesWork(first, nullptr) {
    use_scope(
        WFScope(workflow::Ref<workflow::DeadlineScope>::adopt(new workflow::DeadlineScope())));
  }

  // May be used after the series has ended.
  workflow::Ref<workflow::DeadlineScope> scope() const {
    return workflow::Ref<workflow::DeadlineScope>(workflow::SeriesScope::of(this));
  }
};

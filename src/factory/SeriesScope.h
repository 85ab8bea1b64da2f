#pragma once

#include <utility>

#include "kernel/DeadlineScope.h"
#include "workflow/WFScope.h"
#include "workflow/Workflow.h"

namespace workflow {

// The scope in which a series runs, for the library's own code.
class SeriesScope {
 public:
  // Null if the series is null or runs in no scope. The scope lives as long as the series runs.
  static DeadlineScope* of(const SeriesWork* series) { return series ? series->scope_ : nullptr; }
  static DeadlineScope* of(const SubTask* task) { return of(task->joined_series()); }

  static DeadlineScope* get(const WFScope& scope) { return scope.scope_; }

  // Before the series begins. The caller keeps the scope alive until the series has ended.
  static void set(SeriesWork* series, DeadlineScope* scope) { series->scope_ = scope; }
};

// A counted reference to a scope.
class ScopeReference {
 public:
  ScopeReference() = default;
  // Adds a reference. `scope` may be null.
  explicit ScopeReference(DeadlineScope* scope) : scope_(scope) {
    if (scope_) {
      scope_->add_reference();
    }
  }
  ScopeReference(ScopeReference&& other) noexcept : scope_(std::exchange(other.scope_, nullptr)) {}
  ScopeReference& operator=(ScopeReference&& other) noexcept {
    std::swap(scope_, other.scope_);
    return *this;
  }
  ~ScopeReference() {
    if (scope_) {
      scope_->drop_reference();
    }
  }

  explicit operator bool() const { return scope_ != nullptr; }
  DeadlineScope* operator->() const { return scope_; }
  DeadlineScope* get() const { return scope_; }

 private:
  DeadlineScope* scope_ = nullptr;
};

}  // namespace workflow

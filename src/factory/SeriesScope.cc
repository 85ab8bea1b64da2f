#include "factory/SeriesScope.h"

using workflow::DeadlineScope;
using workflow::SeriesScope;

void SeriesWork::use_scope(const WFScope& scope) {
  scope_ = SeriesScope::get(scope);
  scope_->retain();
  scope_->start(nullptr);  // without a deadline this does not fail
  owns_scope_ = true;
}

void SeriesWork::share_scope(const SeriesWork* outer) {
  if (DeadlineScope* const scope = SeriesScope::of(outer)) {
    scope_ = scope;
  }
}

int SubTask::enter_scope(ScopeKind kind) {
  SeriesWork* const series = joined_series();
  if (!series || !series->scope_) {
    return 0;
  }
  series->registration_.task = this;
  return series->scope_->enter(series->registration_, kind);
}

bool SubTask::leave_scope(workflow::Runnable* ended) {
  SeriesWork* const series = joined_series();
  return !series || !series->scope_ ||
         series->scope_->leave(series->registration_, ended ? ended : this);
}

bool SubTask::has_scope() const {
  return SeriesScope::of(this) != nullptr;
}

int SubTask::cancel_reason(ScopeKind kind) const {
  const DeadlineScope* const scope = SeriesScope::of(this);
  return scope ? scope->reason_for(kind) : 0;
}

void SubTask::share_scope(SeriesWork* inside) {
  inside->share_scope(joined_series());
  inside->borrows_ = borrows();
}

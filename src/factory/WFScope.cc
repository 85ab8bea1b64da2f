#include "workflow/WFScope.h"

#include <utility>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "factory/UserDue.h"

using workflow::DeadlineScope;
using workflow::Ref;
using workflow::SeriesScope;
using workflow::TaskContext;

WFScope::WFScope() = default;
WFScope::WFScope(const WFScope& other) = default;
WFScope::WFScope(WFScope&& other) noexcept = default;
WFScope::WFScope(Ref<DeadlineScope> scope) : scope_(std::move(scope)) {}
WFScope::~WFScope() = default;

WFScope& WFScope::operator=(WFScope other) noexcept {
  scope_ = std::move(other.scope_);
  return *this;
}

bool WFScope::cancel(int error) const {
  constexpr int kLastErrno = 4095;  // as in the kernel
  const WFScope kept(*this);        // a callback may destroy this
  return kept && !kept.scope_->belongs_to_parent_process() &&
         kept.scope_->cancel(error > 0 && error <= kLastErrno ? error : ECANCELED);
}

int WFScope::error() const {
  return scope_ ? scope_->reason() : 0;
}

std::chrono::nanoseconds WFScope::remaining() const {
  return std::chrono::nanoseconds(scope_ ? scope_->remaining_ns() : workflow::kNever);
}

bool WFScope::set_deadline(const WFTimerDue& due) const {
  const WFScope kept(*this);  // a callback may destroy this
  const int error =
      kept ? kept.scope_->set_deadline(workflow::timer_due(due), workflow::given_clock(due))
           : EINVAL;
  if (error != 0) {
    errno = error;
  }
  return error == 0;
}

WFScope WFScope::current() {
  const TaskContext& context = TaskContext::current();
  return WFScope(
      Ref<DeadlineScope>(context.series ? SeriesScope::of(context.series) : context.scope));
}

std::stop_token WFScope::stop_token() const {
  return scope_ ? scope_->stop_token() : std::stop_token();
}

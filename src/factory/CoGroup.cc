#include "workflow/detail/CoGroup.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/DeadlineScope.h"
#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"

namespace workflow {

class CoGroup::Host final : public DeadlineScope::Host {
 public:
  explicit Host(CoGroup* of) : group(of) {}
  bool join() override { return group->join(); }

  CoGroup* const group;
};

CoGroup* CoGroup::create(Duration limit) {
  return new CoGroup(limit);
}

CoGroup::CoGroup(Duration limit)
    : host_(std::make_unique<Host>(this)), scope_(Ref<DeadlineScope>::adopt(new DeadlineScope())) {
  state = WFT_STATE_SUCCESS;
  if (limit.ns() >= 0) {
    scope().set_deadline(std::chrono::nanoseconds(limit.ns()));  // only stored until the start
  }
  scope_->set_host(host_.get());
}

CoGroup::~CoGroup() {
  scope_->set_host(nullptr);
  while (SubTask* branch = static_cast<SubTask*>(firsts_.pop_front())) {
    delete_series(series_of(branch));
    drop_unstarted(branch);
  }
}

WFScope CoGroup::scope() const {
  return WFScope(scope_);
}

SeriesWork* CoGroup::series_for(CoBranch* branch) {
  try {
    return Workflow::create_series_work(branch, nullptr);
  } catch (...) {
    drop_unstarted(branch);
    throw;
  }
}

// The branch is in a series of its own. Returns what to dispatch.
SubTask* CoGroup::begin(CoBranch* branch) {
  branch->group_ = this;
  SubTask* const first = begin_branch(branch);
  SeriesScope::set(series_of(branch), scope_.get());
  SeriesScope::set_borrows(series_of(branch), true);  // a coroutine waits for the group
  return first;
}

void CoGroup::add(CoBranch* branch) {
  series_for(branch);
  firsts_.push_back(begin(branch));
}

bool CoGroup::join() {
  schedule_point();
  size_t parts = parts_.load(std::memory_order_acquire);
  while (parts != 0) {
    if (parts_.compare_exchange_weak(parts, parts + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

bool CoGroup::start(const WFScope& scope, CoBranch* branch) {
  SeriesWork* const series = series_for(branch);
  DeadlineScope::Host* const host = scope ? scope.scope_->join_host() : nullptr;
  if (!host) {
    delete_series(series);
    errno = scope && scope.scope_->was_hosted() ? ECANCELED : EINVAL;
    return false;
  }
  // What has joined is the part of the branch.
  Runtime::current().handlers().post(static_cast<Host*>(host)->group->begin(branch));
  return true;
}

void CoGroup::fail(std::exception_ptr exception) {
  if (!failed_.exchange(true, std::memory_order_acq_rel)) {
    end_.exception = std::move(exception);
    scope_->cancel(ECANCELED);
  }
}

bool CoGroup::claim_first(size_t index) {
  if (has_first_.exchange(true, std::memory_order_acq_rel)) return false;
  end_.first = index;
  scope_->cancel(ECANCELED);
  return true;
}

void CoGroup::dispatch() {
  int reason = enter_scope(ScopeKind::kTimer);
  if (reason == 0) {
    reason = scope_->start(SeriesScope::of(this));
  }
  if (reason != 0) {
    scope_->cancel(reason);  // nothing is inside yet
  }
  parts_.fetch_add(firsts_.size(), std::memory_order_relaxed);
  // Coroutines wait by co_await. Which of them ends first does not depend on how long they take to
  // get there.
  dispatch_all(firsts_, this, false);
  branch_done();
}

void CoGroup::on_cancel(int reason) {
  scope_->cancel(reason);
}

// Called for each part that ends.
void CoGroup::branch_done() {
  schedule_point();
  if (parts_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  end_.reason = scope_->finish();
  if (leave_scope()) {
    subtask_done();
  }
}

}  // namespace workflow

#include "server/ClientWatch.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "factory/SeriesScope.h"
#include "server/LeaveHook.h"
#include "server/ReplyStream.h"

namespace workflow {

void ClientWatch::Notice::tell(int error, RunnableList& posted) const {
  if (hook && hook->begin()) {
    posted.push_back(hook.get());
  }
  if (stream) {
    stream->over(error);
  }
  if (cancel) {
    posted.push_back(cancel);
  }
}

void ClientWatch::add(std::shared_ptr<LeaveHook>& hook, OnLeaving what) {
  if (hook) {
    hook_.swap(hook);
  }
  on_leaving_ = std::max(on_leaving_, what);
}

void ClientWatch::lose(Notice& notice) {
  cancel(std::exchange(on_leaving_, OnLeaving::kNothing), notice);
  notice.hook = std::exchange(hook_, nullptr);
}

void ClientWatch::cancel(OnLeaving what, Notice& notice) {
  DeadlineScope* const scope = SeriesScope::of(series_);
  if (what == OnLeaving::kEndScope) {
    notice.cancel = scope->cancel_later(ECANCELED);
  } else if (what == OnLeaving::kEndTimers) {
    notice.cancel = scope->cancel_timers_later(ECANCELED);
  }
}

Ref<DeadlineScope> ClientWatch::scope() const {
  return Ref(SeriesScope::of(series_));
}

void ClientWatch::end(Notice& notice) {
  on_leaving_ = OnLeaving::kNothing;
  if (hook_) {
    notice.hook = std::move(hook_);
  }
}

}  // namespace workflow

#include "workflow/detail/CoAwait.h"

#include <cerrno>

namespace workflow {

CoSeriesTask* CoSeriesTask::create(SeriesWork* series) {
  if (!series) {
    co_misuse("co_await of a null series");
  }
  if (!may_adopt(series)) {
    co_misuse("co_await of a series that was started, or is in a parallel");
  }
  try {
    return new CoSeriesTask(series);
  } catch (...) {
    series->dismiss();
    throw;
  }
}

CoSeriesTask::CoSeriesTask(SeriesWork* series) : series_(series) {
  state = WFT_STATE_SUCCESS;
  adopt_series(series);
}

CoSeriesTask::~CoSeriesTask() {
  delete_series(series_);
}

void CoSeriesTask::dispatch() {
  share_scope(series_);
  RunnableList first;
  first.push_back(begin_series(series_));
  dispatch_branches(first);
}

SubTask* CoSeriesTask::done() {
  if (series_->is_canceled()) {
    state = WFT_STATE_SYS_ERROR;
    error = ECANCELED;
  }
  return TaskWithCallback::done();
}

}  // namespace workflow

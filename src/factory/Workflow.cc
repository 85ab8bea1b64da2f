#include "workflow/Workflow.h"

#include "factory/SeriesScope.h"
#include "workflow/WFTask.h"

using workflow::DeadlineScope;
using workflow::SeriesScope;

SubTask* workflow::DroppedTasks::done() {
  return joined_series()->pop();  // the series, and this in it, may be gone now
}

SeriesWork* Workflow::create_series_work(SubTask* first, series_callback_t callback) {
  return new SeriesWork(first, std::move(callback));
}

SeriesWork* Workflow::create_series_work(SubTask* first, SubTask* last,
                                         series_callback_t callback) {
  SeriesWork* series = new SeriesWork(first, std::move(callback));
  series->set_last_task(last);
  return series;
}

void Workflow::start_series_work(SubTask* first, series_callback_t callback) {
  create_series_work(first, std::move(callback))->start();
}

void Workflow::start_series_work(SubTask* first, SubTask* last, series_callback_t callback) {
  create_series_work(first, last, std::move(callback))->start();
}

ParallelWork* Workflow::create_parallel_work(parallel_callback_t callback) {
  return new ParallelWork(std::move(callback));
}

ParallelWork* Workflow::create_parallel_work(SeriesWork* const all_series[], size_t n,
                                             parallel_callback_t callback) {
  return new ParallelWork(all_series, n, std::move(callback));
}

void Workflow::start_parallel_work(SeriesWork* const all_series[], size_t n,
                                   parallel_callback_t callback) {
  create_parallel_work(all_series, n, std::move(callback))->start();
}

SeriesWork::SeriesWork(SubTask* first, series_callback_t&& series_callback)
    : callback(std::move(series_callback)), first_(first) {
  assert(!series_of(first));
  first->set_pointer(this);
}

SeriesWork::~SeriesWork() {
  drop_tasks();
  if (owns_scope_) {
    scope_->finish();
    scope_->release();
  }
}

void SeriesWork::start() {
  assert(!in_parallel_);
  SubTask::dispatch_chain(begin());
}

void SeriesWork::dismiss() {
  assert(!in_parallel_);
  delete this;
}

SubTask* SeriesWork::begin() {
  if (is_canceled()) {
    drop_tasks();
    dropped_.set_pointer(this);
    return &dropped_;
  }
  return take_first();
}

SubTask* SeriesWork::take_first() {
  return std::exchange(first_, nullptr);
}

void SeriesWork::push_back(SubTask* task) {
  assert(!series_of(task));
  task->set_pointer(this);
  queue_.push_back(task);
}

void SeriesWork::push_front(SubTask* task) {
  assert(!series_of(task));
  task->set_pointer(this);
  queue_.push_front(task);
}

void SeriesWork::push_first(SubTask* task) {
  assert(first_ && !series_of(task));
  task->set_pointer(this);
  queue_.push_front(std::exchange(first_, task));
}

SubTask* SeriesWork::take_next() {
  SubTask* const next = queue_.pop();
  return next ? next : std::exchange(last_, nullptr);
}

SubTask* SeriesWork::pop() {
  SubTask* const next = take_next();
  return next && !is_canceled() ? next : end_before(next);
}

SubTask* SeriesWork::go_on_before(SubTask* waiting, SubTask* task) {
  assert(!series_of(task));
  task->set_pointer(this);
  queue_.put_back(waiting);
  return !is_canceled() ? task : end_before(task);
}

SubTask* SeriesWork::end_before(SubTask* next) {
  if (next) {
    next->drop_unstarted();
    drop_tasks();
  }
  finish();
  return nullptr;
}

void SeriesWork::drop_tasks() {
  if (SubTask* first = take_first()) {
    first->drop_unstarted();
  }
  while (SubTask* task = take_next()) {
    task->drop_unstarted();
  }
}

void SeriesWork::finish() {
  finished_.store(true, std::memory_order_release);
  if (callback) {
    callback(this);
    callback = nullptr;  // what it owns goes while everything is there that it may use
  }
  after_callback();
}

void SeriesWork::after_callback() {
  ParallelTask* const parallel = in_parallel_;
  if (!parallel) {
    delete this;
    return;
  }
  if (deletes_itself_) {
    SubTask::branch_ended(this);
    delete this;
  }
  parallel->branch_done();  // the parallel, and a series that it owns, may be gone now
}

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

ParallelWork::ParallelWork(SeriesWork* const all_series[], size_t n,
                           parallel_callback_t parallel_callback)
    : callback(std::move(parallel_callback)) {
  series_.reserve(n);
  for (size_t i = 0; i < n; i++) {
    add_series(all_series[i]);
  }
}

void ParallelWork::add_series(SeriesWork* series) {
  series_.push_back(series);
  adopt_series(series);  // nothing fails any more
}

void ParallelWork::dispatch() {
  workflow::RunnableList firsts;
  for (SeriesWork* series : series_) {
    share_scope(series);
    firsts.push_back(begin_series(series));
  }
  dispatch_branches(firsts);
}

void ParallelWork::dismiss() {
  assert(!series_of(this));
  drop_unstarted();
}

SubTask* ParallelWork::done() {
  if (callback) {
    callback(this);
  }
  return delete_and_next();
}

ParallelWork::~ParallelWork() {
  for (SeriesWork* series : series_) {
    delete_series(series);
  }
}

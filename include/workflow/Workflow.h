#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "workflow/SubTask.h"
#include "workflow/detail/SeriesQueue.h"

class ParallelWork;
class SeriesWork;
class WFScope;

namespace workflow {

class DeadlineScope;
class SeriesScope;

// Registers a series with its scope. There is one for each series, because at most one task of a
// series waits at a time: `task` is that task.
class TaskRegistration final : public CancelRegistration {
 public:
  SubTask *task = nullptr;

 private:
  void on_cancel(int reason) override { task->on_cancel(reason); }
};

// Stands for the tasks of a series that was cancelled before it began. It is a part of the series,
// so that even without memory the callback runs on a thread that runs callbacks.
class DroppedTasks final : public SubTask {
  void dispatch() override { subtask_done(); }
  SubTask *done() override;
};

}  // namespace workflow

using series_callback_t = std::function<void(const SeriesWork *)>;
using parallel_callback_t = std::function<void(const ParallelWork *)>;

// Creates series and parallels. Callbacks may be null. Tasks and series must not be null, except
// `last`, and must not be started nor be in a series or a parallel. When a function throws
// std::bad_alloc, they still belong to the caller.
class Workflow {
 public:
  // Creates a series that begins with `first`. It is not started: start it, add it to a parallel,
  // or dismiss it. The callback runs when the series ends. `last` is dispatched after everything
  // else.
  static SeriesWork *create_series_work(SubTask *first, series_callback_t callback);
  static SeriesWork *create_series_work(SubTask *first, SubTask *last, series_callback_t callback);
  static void start_series_work(SubTask *first, series_callback_t callback);
  static void start_series_work(SubTask *first, SubTask *last, series_callback_t callback);

  // Creates a parallel of the `n` series in `all_series`. A parallel without series ends as soon as
  // it is started.
  static ParallelWork *create_parallel_work(parallel_callback_t callback);
  static ParallelWork *create_parallel_work(SeriesWork *const all_series[], size_t n,
                                            parallel_callback_t callback);
  static void start_parallel_work(SeriesWork *const all_series[], size_t n,
                                  parallel_callback_t callback);
};

// Tasks that run one after the other. A series deletes itself after its callback; a series in a
// parallel lives until the parallel's callback has returned.
//
// Threads: the tasks of a series run one at a time. While the series runs, push_back(),
// push_front() and cancel() may be called from any thread. The caller ensures that the series still
// runs; inside a task's callback it always does.
class SeriesWork {
 public:
  // Dispatches the first task. Not allowed for a series in a parallel.
  void start();

  // Deletes a series that was not started and all its tasks, recursively and without callbacks. Not
  // allowed for a series in a parallel.
  void dismiss();

  // push_front() makes `task` the next one to be dispatched; before start(), the second one. The
  // task must not be null, and must not be in a series.
  void push_back(SubTask *task);
  void push_front(SubTask *task);
  // Only before start(): `task` becomes the first task, followed by the task that was first.
  void push_first(SubTask *task);

  void *get_context() const { return context; }
  void set_context(void *new_context) { context = new_context; }

  // The tasks that are not dispatched yet will be deleted, recursively and without callbacks,
  // instead of being dispatched. The running task is not affected, and the callback of the series
  // still runs.
  virtual void cancel() { canceled_.store(true, std::memory_order_release); }
  bool is_canceled() const { return canceled_.load(std::memory_order_acquire); }
  bool is_finished() const { return finished_.load(std::memory_order_acquire); }

  void set_callback(series_callback_t new_callback) { callback = std::move(new_callback); }

  // Returns an object that a derived series offers under a key. This one returns null.
  virtual void *get_specific(const char * /*key*/) { return nullptr; }

  // The parallel that this series is a branch of, or null.
  const ParallelTask *get_in_parallel() const { return in_parallel_; }

  // For implementations of tasks: done() ends with `return series->pop()`. (That of a class derived
  // from WFRepeaterTask ends with `return delete_and_next()` instead.) Returns the next task to
  // dispatch. Null means that the series has ended; it may be deleted then.
  SubTask *pop();
  SubTask *get_last_task() const { return last_; }
  void set_last_task(SubTask *last) {
    if (last) last->set_pointer(this);
    last_ = last;
  }
  void unset_last_task() { last_ = nullptr; }

 protected:
  SeriesWork(SubTask *first, series_callback_t &&series_callback);
  SeriesWork(const SeriesWork &) = delete;
  SeriesWork &operator=(const SeriesWork &) = delete;
  // Drops the tasks that were not dispatched.
  virtual ~SeriesWork();

  // Returns the task to start with. If the series is cancelled already, this is a placeholder for
  // all of its tasks, so that the callback runs on a thread that runs callbacks.
  SubTask *begin();

  // Makes the series run in a scope that nothing else runs in. Its deadline ends with the series.
  // Only before the start. Throws nothing.
  void use_scope(const WFScope &scope);

  void *context = nullptr;
  series_callback_t callback;

 private:
  friend class ParallelTask;
  friend class SubTask;
  friend class Workflow;
  friend class workflow::SeriesScope;

  // Creates a series whose only task has been dispatched already.
  SeriesWork() = default;
  // Called after the callback: ends the parallel's branch, or deletes this.
  virtual void after_callback();
  // Does what pop() does after a push of `task`, which is new, to the front, followed by `waiting`,
  // a task of this series that runs and waits for the new one.
  SubTask *go_on_before(SubTask *waiting, SubTask *task);
  // Ends the series, and drops what is left of it: `next`, if that is not null, and all behind it.
  // Returns null.
  SubTask *end_before(SubTask *next);
  SubTask *take_next();
  SubTask *take_first();
  void drop_tasks();
  void finish();
  // Called before this series begins: it runs in the scope of `outer`, if that has one.
  void share_scope(const SeriesWork *outer);

  SubTask *first_ = nullptr;  // null once it is dispatched
  SubTask *last_ = nullptr;
  // The first of the coroutines that wait in this series, or, if it was made late, that may wait in
  // it; null if none does.
  const SubTask *lender_ = nullptr;
  // Stands in the queue for a task that comes back, if the series was made late (see SubTask.cc).
  SubTask::StandIn *stand_in_ = nullptr;
  ParallelTask *in_parallel_ = nullptr;
  workflow::DeadlineScope *scope_ = nullptr;  // constant once the series runs; null: none
  workflow::TaskRegistration registration_;
  bool owns_scope_ = false;  // one reference of the scope is the series'
  // Set if this is a branch of a ParallelTask, which does not own its branches: the series deletes
  // itself at its end.
  bool deletes_itself_ = false;
  bool borrows_ = false;  // a coroutine waits for what contains this; constant once this runs
  // Both only become true. Release and acquire: whoever reads true sees what the thread that
  // cancelled, or the tasks of the series, did before.
  std::atomic<bool> canceled_{false};
  std::atomic<bool> finished_{false};
  workflow::SeriesQueue queue_;
  workflow::DroppedTasks dropped_;
};

// The series of a task, or null if the task has not joined one yet. `task` must not be null. For a
// task that was started alone, the first call creates the series, and may throw std::bad_alloc. If
// that task is one that comes back, such as a repeater or a coroutine, what it waits for is in the
// same series.
inline SeriesWork *series_of(const SubTask *task) {
  return static_cast<SeriesWork *>(task->get_pointer());
}

// The task must have joined a series.
inline SeriesWork &operator*(const SubTask &task) {
  return *series_of(&task);
}

inline SeriesWork &operator<<(SeriesWork &series, SubTask *task) {
  series.push_back(task);
  return series;
}

// Series that run side by side. A parallel is itself a task: it can be a task of another series,
// and start() runs it in a series of its own. The callback runs when every series has ended. After
// it the parallel deletes itself and its series.
class ParallelWork : public ParallelTask {
 public:
  void start() {
    assert(!series_of(this));
    start_alone();
  }
  // Deletes a parallel that was not started, recursively and without callbacks.
  void dismiss();

  // Only before the start. The series must not be started and not be in another parallel. When this
  // throws std::bad_alloc, the series still belongs to the caller.
  void add_series(SeriesWork *series);

  void dispatch() override;

  void *get_context() const { return context; }
  void set_context(void *new_context) { context = new_context; }

  // Null for an index that is out of range; operator[] requires one that is in range.
  SeriesWork *series_at(size_t index) { return index < size() ? series_[index] : nullptr; }
  const SeriesWork *series_at(size_t index) const {
    return index < size() ? series_[index] : nullptr;
  }
  SeriesWork &operator[](size_t index) { return *series_at(index); }
  const SeriesWork &operator[](size_t index) const { return *series_at(index); }

  size_t size() const { return series_.size(); }
  SeriesWork *const *begin() { return series_.data(); }
  SeriesWork *const *end() { return series_.data() + size(); }
  const SeriesWork *const *begin() const { return series_.data(); }
  const SeriesWork *const *end() const { return series_.data() + size(); }

  void set_callback(parallel_callback_t new_callback) { callback = std::move(new_callback); }

 protected:
  explicit ParallelWork(parallel_callback_t parallel_callback)
      : callback(std::move(parallel_callback)) {}
  // Creates a parallel of the `n` series in `all_series`.
  ParallelWork(SeriesWork *const all_series[], size_t n, parallel_callback_t parallel_callback);
  ~ParallelWork() override;
  SubTask *done() override;

  void *context = nullptr;
  parallel_callback_t callback;

 private:
  friend class Workflow;

  std::vector<SeriesWork *> series_;
};

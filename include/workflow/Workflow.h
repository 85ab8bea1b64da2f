#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "workflow/SubTask.h"

class ParallelWork;
class SeriesWork;
class WFGraphNode;
class WFModuleTask;
class WFRepeaterTask;

namespace workflow {
class DatagramPort;
class DeadlineTask;
class InterruptScope;
class Interruption;
class ServerConnection;
class TimerTask;
}  // namespace workflow

using series_callback_t = std::function<void(const SeriesWork *)>;
using parallel_callback_t = std::function<void(const ParallelWork *)>;

// Makes series and parallels.
class Workflow {
 public:
  // A series of `first`, not started: start it, add it to a parallel, or dismiss it. The callback,
  // which may be null, runs when the series ends. `last` is dispatched after everything else.
  static SeriesWork *create_series_work(SubTask *first, series_callback_t callback);
  static SeriesWork *create_series_work(SubTask *first, SubTask *last, series_callback_t callback);
  static void start_series_work(SubTask *first, series_callback_t callback);
  static void start_series_work(SubTask *first, SubTask *last, series_callback_t callback);

  static ParallelWork *create_parallel_work(parallel_callback_t callback);
  static ParallelWork *create_parallel_work(SeriesWork *const all_series[], size_t n,
                                            parallel_callback_t callback);
  static void start_parallel_work(SeriesWork *const all_series[], size_t n,
                                  parallel_callback_t callback);
};

// Tasks that run one after the other. It deletes itself after its callback; a series in a parallel
// lives until the parallel's callback has returned.
//
// Threads: the tasks of a series run one at a time. push_back, push_front and cancel may be called
// from any thread while the series runs; the caller makes sure that it does (from inside a task's
// callback it always does).
class SeriesWork {
 public:
  // Dispatches the first task. Not for a series in a parallel.
  void start();

  // Deletes a series that was not started, with all its tasks, recursively and without callbacks.
  // Not for a series in a parallel.
  void dismiss();

  // push_front: dispatched next. Before start() that is right after the first task.
  void push_back(SubTask *task);
  void push_front(SubTask *task);
  // Before start(): `task` becomes the first, and what was the first follows it.
  void push_first(SubTask *task);

  void *get_context() const { return context; }
  void set_context(void *new_context) { context = new_context; }

  // The tasks not yet dispatched will be deleted, recursively and without callbacks, instead of
  // being dispatched. The running one is not touched; the series' callback still runs.
  virtual void cancel() { canceled_.store(true, std::memory_order_release); }
  bool is_canceled() const { return canceled_.load(std::memory_order_acquire); }
  bool is_finished() const { return finished_.load(std::memory_order_acquire); }

  void set_callback(series_callback_t new_callback) { callback = std::move(new_callback); }

  // Something a derived series offers under a key; null here.
  virtual void *get_specific(const char * /*key*/) { return nullptr; }

  // The parallel this series is a branch of, or null.
  const ParallelTask *get_in_parallel() const { return in_parallel_; }

  // For implementations of tasks: done() ends with `return series->pop()`. The next task to
  // dispatch; null ends the series, which may be gone then.
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

  // Before the start: interrupt() will have an effect.
  void allow_interrupt();
  // The timers that the series waits for, and those of the series inside it, end at once with the
  // error of the interruption, and what a deadline inside it covers; so do all that it will start.
  // Any thread, while the series runs; then Interruption::finish().
  void interrupt(workflow::Interruption &interruption);

  void *context = nullptr;
  series_callback_t callback;

 private:
  friend class ParallelTask;
  friend class ParallelWork;
  friend class SubTask;
  friend class WFGraphNode;
  friend class WFGraphTask;
  friend class WFModuleTask;
  friend class WFRepeaterTask;
  friend class Workflow;
  friend class workflow::DatagramPort;
  friend class workflow::DeadlineTask;
  friend class workflow::InterruptScope;
  friend class workflow::TimerTask;
  friend class workflow::ServerConnection;

  // A series whose only task has been dispatched already.
  SeriesWork() = default;
  // After the callback: ends the parallel's branch, or deletes this.
  virtual void after_callback();
  // The task to start with. If cancelled already, one that stands in for all the others, so that
  // the callback runs where callbacks do.
  SubTask *begin();
  // A new task to the front, and behind it one that belongs to this series and waits for it.
  void push_front_both(SubTask *task, SubTask *waiting);
  SubTask *take_next();
  SubTask *take_first();
  void drop_tasks();
  void finish();
  // What all kinds that can wait are to enter; null when that of the series is for timers only.
  workflow::InterruptScope *scope_for_all() const;
  // What its timers are to enter; null when nobody can interrupt the series. False without memory.
  bool scope_to_enter(workflow::InterruptScope **scope);
  // Before it begins: what it waits for, `outer` waits for.
  void share_scope(SeriesWork *outer);

  SubTask *first_ = nullptr;  // until it is dispatched
  SubTask *last_ = nullptr;
  ParallelTask *in_parallel_ = nullptr;
  // Null: nobody can interrupt the series. Else see InterruptScope.
  std::atomic<workflow::InterruptScope *> scope_{nullptr};
  bool owns_scope_ = false;
  // It is a branch of a ParallelTask that does not own its branches: it deletes itself at its end.
  bool deletes_itself_ = false;
  std::atomic<bool> canceled_{false};
  std::atomic<bool> finished_{false};
  // Whether queue_ holds something; written with mutex_ held. A pop that finds nothing does without
  // the mutex: whoever pushes makes sure that the series goes on until then.
  std::atomic<bool> queued_{false};
  workflow::RunnableList queue_;  // guarded by mutex_
  std::mutex mutex_;
};

// The series of a task, or null when it has joined none yet.
inline SeriesWork *series_of(const SubTask *task) {
  return static_cast<SeriesWork *>(task->get_pointer());
}

inline SeriesWork &operator*(const SubTask &task) {
  return *series_of(&task);
}

inline SeriesWork &operator<<(SeriesWork &series, SubTask *task) {
  series.push_back(task);
  return series;
}

// Series that run side by side. Itself a task: started, it runs in a series of its own; it can be
// a task of another series. The callback runs when every series has ended, and it deletes itself
// and its series after it.
class ParallelWork : public ParallelTask {
 public:
  void start() {
    assert(!series_of(this));
    Workflow::start_series_work(this, nullptr);
  }
  // Deletes a parallel that was not started, recursively and without callbacks.
  void dismiss();

  // Before start. The series must not be started and not be in another parallel.
  void add_series(SeriesWork *series);

  void dispatch() override;

  void *get_context() const { return context; }
  void set_context(void *new_context) { context = new_context; }

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
  // The same, with the `n` series in `all_series` added.
  ParallelWork(SeriesWork *const all_series[], size_t n, parallel_callback_t parallel_callback);
  ~ParallelWork() override;
  SubTask *done() override;

  void *context = nullptr;
  parallel_callback_t callback;

 private:
  friend class SeriesWork;
  friend class Workflow;

  std::vector<SeriesWork *> series_;
};

#pragma once

#include <cassert>
#include <list>
#include <unordered_map>

#include "util/Mutex.h"
#include "workflow/Runnable.h"
#include "workflow/SubTask.h"

class SeriesWork;

namespace workflow {

// One interruption of what series wait for: its reason, and the tasks whose completion has fallen
// to who interrupts. Used by one thread.
class Interruption {
 public:
  // `error`: the errno value that the tasks end with.
  explicit Interruption(int error) : error_(error) {}
  ~Interruption() { assert(tasks_.empty() && ended_.empty()); }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  int error() const { return error_; }

  // By SubTask::interrupt(): the completion is the interrupter's.
  void take(SubTask* task) { tasks_.push_back(task); }
  // The same, of a task that has its outcome, or comes to it, and whose turn comes by another item
  // than itself.
  void take_ended(Runnable* item) { ended_.push_back(item); }

  // With no lock held: the tasks end.
  void finish();

 private:
  const int error_;
  RunnableList tasks_;
  RunnableList ended_;
};

// What a series waits for, and the series inside it, so that it can be ended from outside: the one
// entry by which tasks complete early.
//
// To a task it is what a name is: it enters when it begins to wait and leaves on its way to its
// completion, and who takes it out decides its outcome.
//
// That of a deadline is for all kinds that can wait, and a part of its task. That of a request on a
// server is for timers, and deadlines with all that is in them; it is made when the first enters,
// as most series of a server never wait. Until then, and if it is interrupted before,
// SeriesWork::scope_ says so by idle() and over().
//
// Scopes are nested: a deadline is a task in the scope around it, and hands an interruption on.
//
// Thread-safe. I is mutex_. Order: B or C, then I of the outer scope, I of the inner one, then P.
// Under I a task in the scope is alive.
class InterruptScope {
 public:
  enum class Kinds { kTimers, kAll };

  explicit InterruptScope(Kinds kinds, int error = 0) : kinds_(kinds), error_(error) {}
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Stand for a scope that does not exist yet, or needs not any more.
  static InterruptScope* idle();
  static InterruptScope* over();

  bool is_for_all() const { return kinds_ == Kinds::kAll; }

  // Before the series begins: its scope, which outlives it.
  void attach(SeriesWork* series);

  // Before the task begins to wait. Not 0: it has not entered, but shall end with this errno value.
  int enter(SubTask* task);
  // The owner of the completion, before it sets an outcome. Not 0: an interruption has taken the
  // task out, with this errno value.
  int leave(SubTask* task);
  // Takes all out. Nothing enters any more: the first interruption counts.
  void interrupt(Interruption& interruption);
  // That of the interruption, or 0.
  int error() const;

 private:
  const Kinds kinds_;
  mutable Mutex mutex_;  // I
  int error_ WF_GUARDED_BY(mutex_) = 0;
  // Mostly there is one at a time.
  SubTask* one_ WF_GUARDED_BY(mutex_) = nullptr;
  // The others, in the order of their entering: in a simulation every run with a seed is the same.
  using Tasks = std::list<SubTask*>;
  Tasks others_ WF_GUARDED_BY(mutex_);
  std::unordered_map<SubTask*, Tasks::iterator> places_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>

#include "workflow/detail/FutexMutex.h"
#include "workflow/detail/Runnable.h"

class SubTask;

namespace workflow {

// The tasks of a series that are not dispatched yet, in their order.
//
// Most series have one task queued at a time: the one that the running task has pushed. That task
// is in one atomic word, so it is pushed and popped by an atomic operation each. When a second one
// is pushed, both are in a list, under a mutex, which is used until it is empty again.
//
// push_back() and push_front() may be called from any thread. pop() is for the thread that runs the
// series. The caller of a push ensures that the series does not end before. So the push happens
// before the pop() that must see it, and a pop() that finds nothing needs no order of the word.
//
// Invariants.
// 1. word_ is 0 if nothing is queued, the task if there is one outside the list, and kList
//    otherwise. It is kList exactly while the list is not empty, but for a thread that holds the
//    mutex.
// 2. Only a thread that holds the mutex changes word_ to kList or from kList to something else. So
//    a task that is pushed while there is a list goes into the list, and nothing overtakes it.
class SeriesQueue {
 public:
  SeriesQueue() = default;
  SeriesQueue(const SeriesQueue &) = delete;
  SeriesQueue &operator=(const SeriesQueue &) = delete;

  void push_back(SubTask *task);
  void push_front(SubTask *task);
  // Pushes both at once: `first`, and `second` right behind it.
  void push_front(SubTask *first, SubTask *second);
  // Removes and returns the first task, or null.
  SubTask *pop();

 private:
  static constexpr uintptr_t kList = 1;

  static uintptr_t word_of(const SubTask *task) { return reinterpret_cast<uintptr_t>(task); }
  static SubTask *task_of(uintptr_t word) { return reinterpret_cast<SubTask *>(word); }

  // Returns false if something else is queued.
  bool push_alone(SubTask *task);
  // With mutex_ held: moves what is outside the list into it, so that the word is kList.
  void use_list();

  // Putting a task there is a release; taking it, or moving it into the list, is an acquire: so the
  // thread that does that sees the task as it was pushed. Other values publish nothing. The tasks
  // in the list are published by mutex_.
  std::atomic<uintptr_t> word_{0};
  RunnableList list_;  // guarded by mutex_
  NativeMutex mutex_;
};

}  // namespace workflow

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
// is pushed, both are in a list, under a mutex, which is used until pop() takes the whole list.
// From then on the tasks of that list belong to the thread that pops, and need neither.
//
// push_back() and push_front() may be called from any thread. pop() and put_back() are for the
// thread that runs the series. The caller of a push ensures that the series does not end before. So
// the push happens before the pop() that must see it, and a pop() that finds nothing needs no order
// of the word.
//
// Invariants.
// 1. The order is: the first ahead_ tasks of the list, then ready_, then the rest of the list. A
//    task in the word has the place that it would have in the list.
// 2. word_ is 0 if nothing is queued outside ready_, the task if there is one outside the list, and
//    kList otherwise. It has kList exactly while the list is not empty, and kAhead exactly while a
//    task in the word was pushed to the front or ahead_ is not 0; but for a thread that holds the
//    mutex.
// 3. Only a thread that holds the mutex changes word_ to kList or from kList to something else. So
//    a task that is pushed while there is a list goes into the list, and nothing overtakes it.
class SeriesQueue {
 public:
  SeriesQueue() = default;
  SeriesQueue(const SeriesQueue &) = delete;
  SeriesQueue &operator=(const SeriesQueue &) = delete;

  void push_back(SubTask *task);
  void push_front(SubTask *task);
  // Does what push_front() does. It needs no lock, unless something was pushed to the front that
  // was not popped yet.
  void put_back(SubTask *task);
  // Removes and returns the first task, or null.
  SubTask *pop();

 private:
  static constexpr uintptr_t kList = 1;
  static constexpr uintptr_t kAhead = 2;

  static uintptr_t word_of(const SubTask *task) { return reinterpret_cast<uintptr_t>(task); }
  static SubTask *task_of(uintptr_t word) { return reinterpret_cast<SubTask *>(word & ~kAhead); }

  // Returns false if something else is queued outside ready_. `ahead` is kAhead or 0.
  bool push_alone(SubTask *task, uintptr_t ahead);
  // With mutex_ held: moves what is outside the list into it, so that the word has kList.
  void use_list();
  SubTask *pop_ready();
  SubTask *pop_from_list();

  // Putting a task there is a release; taking it, or moving it into the list, is an acquire: so the
  // thread that does that sees the task as it was pushed. Other values publish nothing. The tasks
  // in the list are published by mutex_.
  std::atomic<uintptr_t> word_{0};
  RunnableStack ready_;  // of the thread that runs the series
  RunnableList list_;    // guarded by mutex_, like ahead_
  NativeMutex mutex_;
  uint32_t ahead_ = 0;
};

}  // namespace workflow

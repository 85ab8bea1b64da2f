#pragma once

#include <type_traits>

#include "kernel/ThreadContext.h"

class SeriesWork;
class SubTask;

namespace workflow {

class DeadlineScope;

// What a thread knows about the tasks that it is running: the part of ThreadContext that belongs to
// the layer of tasks.
//
// Lives in the room that ThreadContext has for it. So each thread, also each virtual thread of a
// simulation, has one of its own, and only that thread uses it.
struct TaskContext {
  // The task whose dispatch() the completion loop of this thread is in (see SubTask.cc).
  SubTask* dispatching;
  // Whether `dispatching` has completed.
  bool dispatched_is_done;
  // Whether the thread does nothing else after the loop before it returns to its pool. Then, if the
  // task that is being dispatched does not complete at once, the thread returns to its pool when
  // dispatch() returns.
  bool turn_ends;
  // How many completion loops this thread is in, each inside a callback that the one before runs.
  int nesting;
  // The most loops that may nest. At this depth, tasks that complete are posted to the handler
  // threads instead.
  static constexpr int kMaxNesting = 16;
  // The series whose user code this thread is running. Null if there is none, and perhaps if it was
  // made late, for a task that was started alone (SubTask.cc).
  SeriesWork* series;
  // The scope of the computation that this thread is running, if `series` is null: a computation
  // may outlive its series. The thread holds a reference. Null if there is none.
  DeadlineScope* scope;

  // Whether callbacks may run here: only on the library's threads, and not too deep in their
  // stacks.
  static bool runs_callbacks() {
    return ThreadContext::current().on_framework_thread() && current().nesting < kMaxNesting;
  }

  // Returns the context of the calling thread.
  static TaskContext& current() {
    return *reinterpret_cast<TaskContext*>(ThreadContext::current().upper_layer);
  }
};

// ThreadContext begins as zeroes, and is copied byte by byte.
static_assert(std::is_trivial_v<TaskContext> &&
              sizeof(TaskContext) <= sizeof(ThreadContext::upper_layer) &&
              alignof(TaskContext) <= alignof(void*));

}  // namespace workflow

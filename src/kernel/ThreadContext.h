#pragma once

#include <cstdint>
#include <utility>

class SeriesWork;
class SubTask;

namespace workflow {

class BlockingScope;
class Poller;
class RunnableList;
class Runtime;
class WorkerPool;

class Activity;
class PendingWork;
struct WaitNote;

// What the library keeps per thread. A simulation gives each of its virtual threads one of its own.
struct ThreadContext {
  // The pool whose worker this thread is; null on threads that are not the library's.
  WorkerPool* pool = nullptr;
  // The poller whose thread this is, or null.
  Poller* poller = nullptr;
  // The poller whose leader runs callbacks on this thread now, or null (see Leadership.h).
  Poller* away_from = nullptr;
  // The runtime that tasks made on this thread belong to; null means the process-wide one.
  Runtime* runtime = nullptr;
  // The task whose dispatch() the completion loop of this thread is in (see SubTask.cc).
  SubTask* dispatching = nullptr;
  bool dispatched_is_done = false;
  // Whether that loop is all that the thread does in its turn. Then, if the task that is being
  // dispatched does not complete at once, the thread goes back to its pool when dispatch() returns.
  bool turn_ends = false;
  // How many of the loops there this thread is in, one inside a callback of the other.
  int nesting = 0;
  // Not deeper than this: then what completes is handed over.
  static constexpr int kMaxNesting = 16;
  // What this thread will do when the callback it is in returns; the innermost of it.
  PendingWork* pending = nullptr;
  // The user code that this thread is in, of what others may wait for; the innermost.
  const Activity* activity = nullptr;
  // How many BlockingScopes this thread is in.
  int blocking = 0;
  // What it waits for there, if that is known.
  const WaitNote* waiting_for = nullptr;
  // How many BlockingScope::open() have no close() yet, and the scope that the first one made.
  int open_scopes = 0;
  BlockingScope* opened_scope = nullptr;
  // The series whose user code this thread is running, or null.
  SeriesWork* series = nullptr;
  // Of a thread that runs items after its HandlerPool has stopped: how deep they nest, and where
  // the deepest leaves what it posts.
  int inline_depth = 0;
  RunnableList* inline_items = nullptr;
  // Spreads threads over pollers; 0 until first used.
  uint32_t slot = 0;

  // Whether callbacks may run here.
  bool on_framework_thread() const { return pool || away_from; }

  static ThreadContext& current() { return current_; }

  // `body`, for a new thread that is to belong to the runtime of the calling one.
  template <class Body>
  static auto in_same_runtime(Body body) {
    return [body, runtime = current().runtime] {
      current().runtime = runtime;
      body();
    };
  }

 private:
#if defined(__GNUC__)
  [[gnu::tls_model("initial-exec")]]
#endif
  static constinit thread_local ThreadContext current_;
};

// Work that a thread has begun to do, one piece after the other, and that waits while user code
// runs in one of the pieces. Lives on the stack of that thread, and is used by it alone.
class PendingWork {
 public:
  // `owner`: tells this work from others' of the thread.
  explicit PendingWork(const void* owner)
      : owner_(owner), outer_(std::exchange(ThreadContext::current().pending, this)) {}
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  const void* owner() const { return owner_; }

  // The thread is about to block: gives what is left to others.
  virtual void hand_over() = 0;

  // Of all pending work of the calling thread.
  static void hand_over_all() {
    for (PendingWork* work = ThreadContext::current().pending; work; work = work->outer_) {
      work->hand_over();
    }
  }

 protected:
  ~PendingWork() { ThreadContext::current().pending = outer_; }

 private:
  const void* const owner_;
  PendingWork* const outer_;
};

}  // namespace workflow

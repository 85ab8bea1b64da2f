#pragma once

#include <cstddef>
#include <cstdint>

namespace workflow {

class BlockingScope;
class HandlerPool;
class LeaderThreads;
class Poller;
class RunnableList;
class Runtime;
class WorkQueue;
class WorkerPool;

class Activity;
class PendingWork;
struct WaitNote;

// The library's data of one thread. A simulation gives each of its virtual threads one of its own.
struct ThreadContext {
  // The pool whose worker this thread is; null on threads that are not the library's.
  WorkerPool* pool = nullptr;
  // The items that this worker has taken and not begun; null on other threads.
  WorkQueue* own_queue = nullptr;
  // The handler threads to which this thread has posted last, and how many items it has left in
  // their intake since it last emptied that intake.
  const HandlerPool* posted_to = nullptr;
  size_t posted = 0;
  // For some queues of computations, how many items this thread has left in the intake of each
  // of these queues since it last emptied that intake.
  struct LeftItems {
    uint64_t pool = 0;  // the number of its ComputePool; 0: no queue
    uint32_t queue = 0;
    uint32_t items = 0;
  };
  static constexpr size_t kLeftIn = 32;
  LeftItems left_in[kLeftIn];
  // The poller whose thread this is, or null.
  Poller* poller = nullptr;
  // The threads of the poller whose leader runs callbacks on this thread now, or null.
  LeaderThreads* running_for = nullptr;
  // The runtime to which tasks created on this thread belong; null means the process-wide one.
  Runtime* runtime = nullptr;
  // Room for what an upper layer keeps for each thread; only that layer knows what it is.
  alignas(void*) std::byte upper_layer[32] = {};
  // What this thread has to do when the callback that it runs returns; the innermost of such work.
  PendingWork* pending = nullptr;
  // The innermost user code that this thread runs, if other threads may wait for its end.
  const Activity* activity = nullptr;
  // How many parts of clients' responses this thread is delivering to user code, each inside the
  // one before.
  int deliveries = 0;
  // How many BlockingScopes this thread is in.
  int blocking = 0;
  // What the thread waits for in them, if that is known.
  const WaitNote* waiting_for = nullptr;
  // How many calls of BlockingScope::open() have had no close() yet, and the scope that the first
  // of them created.
  int open_scopes = 0;
  BlockingScope* opened_scope = nullptr;
  // For a thread that runs items itself after its HandlerPool has stopped: how deep they nest, and
  // the list to which the deepest adds the items that it posts.
  int inline_depth = 0;
  RunnableList* inline_items = nullptr;
  // Spreads threads over pollers; 0 until first used.
  uint32_t slot = 0;
  // What gettid(2) returns; 0 until first used.
  int32_t thread_id = 0;

  // Whether callbacks may run here.
  bool on_framework_thread() const { return pool || running_for; }

  static ThreadContext& current() { return current_; }

  // Returns `body` wrapped so that a new thread which runs it belongs to the runtime of the calling
  // thread.
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

}  // namespace workflow

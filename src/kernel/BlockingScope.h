#pragma once

namespace workflow {

class LeaderThreads;
class WorkQueue;
class WorkerPool;

// Declares that the current thread is about to wait for something that other work may have to bring
// about. The thread's pending work is posted to the handler threads. On a worker of a pool, another
// thread of the pool works in its place meanwhile. A leader of a poller is replaced.
class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

  // A scope without an object: it begins with the first open() of this thread and ends with the
  // matching close(). If memory has run out there is no scope.
  static void open();
  static void close();

 private:
  friend class LendingCondition;

  // Creates a scope for a thread that does not wait yet; begin() follows. Posts the pending work of
  // the thread to the handler threads.
  enum Later { kLater };
  explicit BlockingScope(Later later);

  // These two call no user code and wait for no thread. The caller may hold mutexes that come
  // before those of pools and pollers in the lock order.
  void begin();
  void end();

  WorkerPool* const pool_;
  WorkQueue* const own_queue_;  // of the worker that is in the scope
  LeaderThreads* const leaders_;
  const bool nested_;  // an enclosing scope of this thread does all the work
  bool told_ = false;
};

}  // namespace workflow

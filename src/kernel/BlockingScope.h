#pragma once

namespace workflow {

class Poller;
class WorkerPool;

// Declares that the current thread is about to wait for something other work may have to bring
// about. What the thread has left to do is handed to the handlers. On a worker its pool lends a
// thread meanwhile; a poller's leader is replaced.
class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

  // The same without an object: a scope from the first open() of this thread to the close() that
  // belongs to it. Without memory there is none.
  static void open();
  static void close();

 private:
  friend class LendingCondition;

  // The thread does not wait yet. Ended threads of its pool are joined.
  enum Later { kLater };
  explicit BlockingScope(Later later);

  // Calls nothing of the user's and waits for no thread: the caller may hold mutexes that are taken
  // before those of pools and pollers.
  void begin();
  void end();

  WorkerPool* const pool_;
  Poller* const poller_;
  const bool nested_;  // a scope further up the stack does it all
  bool told_ = false;
};

}  // namespace workflow

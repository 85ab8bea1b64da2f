#pragma once

#include <atomic>
#include <cstddef>

#include "kernel/FileOperation.h"
#include "kernel/FileQueue.h"
#include "kernel/HandlerPool.h"
#include "kernel/WorkerPool.h"

namespace workflow {

// Threads that carry out file operations by plain system calls, which may block.
//
// Thread-safe. Operations that were tried elsewhere before (kBegun) begin before all others.
// Otherwise they begin in the order in which they were posted. The threads start with the first
// operation. There are few, but when all of them are blocked and another operation waits, more are
// started, so that a network file system that does not answer does not block the other operations
// for ever.
//
// Invariants:
// 1. An operation taken is finished or aborted, once, and then posted to the handler threads,
//    unless withdraw() gives it back.
// 2. Once refuse() has returned no operation begins, except those that were begun elsewhere
//    (kBegun).
class FileThreads final : public WorkerPool {
 public:
  enum class Progress {
    kNew,   // has not begun, so it may still be aborted
    kBegun  // tried elsewhere: will be carried out even while the library stops
  };

  // `most`: the most operations that are carried out at a time.
  FileThreads(HandlerPool& handlers, int most);

  // Returns 0, or why the operation was not taken: ECANCELED after refuse(), EAGAIN without
  // threads, or its end_reason().
  int post(FileOperation* operation, Progress progress);

  // See FileIo::withdraw(). An operation that a thread has begun goes on until its system calls
  // return.
  bool withdraw(FileOperation* operation);

  // From now on no new operation is taken. Operations that are queued and not begun are aborted.
  void refuse();

  // To be called after refuse(), and after the last operation that was begun elsewhere has been
  // posted. Waits for the operations in progress, and then ends the threads.
  void stop();

 private:
  friend class FileOperation;

  size_t waiting() const WF_REQUIRES(mutex_) override { return waiting_; }
  Runnable* next(Begins begins) WF_REQUIRES(mutex_) override;
  // Starts the threads if needed. Returns 0, or the error that post() returns if there are no
  // threads.
  int ensure_started();
  void execute(FileOperation* operation);

  HandlerPool& handlers_;
  Mutex starting_;  // taken before mutex_
  // Changed under starting_. The store releases and the load without starting_ acquires, so whoever
  // reads true comes after start().
  std::atomic<bool> started_{false};
  bool stopped_ WF_GUARDED_BY(starting_) = false;
  FileQueue queue_ WF_GUARDED_BY(mutex_);
  FileQueue begun_ WF_GUARDED_BY(mutex_);
  size_t waiting_ WF_GUARDED_BY(mutex_) = 0;  // operations in both queues
  bool refusing_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

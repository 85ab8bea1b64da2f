#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernel/FileOperation.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "util/UniqueFd.h"

namespace workflow {

// File operations through io_uring(7).
//
// Thread-safe. One thread of its own fills the ring, waits for completions and hands them over. It
// cannot be the threads that start operations: the kernel ties each operation to the thread that
// submitted it, cancels it when that thread ends, and interrupts that thread's waits with its
// completion. Nor pollers, whose timers must not wait for data to be copied.
//
// Only what the ring does exactly as the system call goes through it (suits()).
//
// Invariants:
// 1. An operation taken is finished or aborted, once, and then posted to the handlers, unless
//    interrupt() gives it back.
// 2. At most most_in_flight_ operations, kMostCancels requests to cancel one, and the wake-up, are
//    in the ring. The completion queue has room for all of them, so it never overflows. The others
//    wait in waiting_ and to_cancel_, first in first out.
// 3. asleep_ implies that the thread waits, or is about to, and will be woken by nothing but a
//    completion or wake_fd_. Who changes it to false writes to wake_fd_. Who waits in waiting_ does
//    that only if there is room in the ring (idle_).
// 4. Once refuse() has returned no operation enters the ring.
// 5. An answer that the system call would not give (the kernel could not do it without waiting, or
//    cancelled it) is nobody's result: FileThreads does the operation again, or it was interrupted.
// 6. An interrupted operation ends when the kernel has answered, and so has given up its buffer:
//    with the kernel's result if that is whole, else with the interruption's error.
class FileRing {
 public:
  // Null with errno when the kernel has no io_uring, forbids it, or has an older one whose answers
  // may differ from the system calls', or when descriptors, memory or threads have run out.
  static std::unique_ptr<FileRing> create(HandlerPool& handlers, FileThreads& threads,
                                          int most_in_flight);
  ~FileRing();
  FileRing(const FileRing&) = delete;
  FileRing& operator=(const FileRing&) = delete;

  // Whether the ring answers this as the system call does: regular files and block devices, plain
  // arguments. Any thread; does not block.
  static bool suits(const FileRequest& request);

  // Takes an operation whose request suits(). 0, or ECANCELED after refuse(), or the error with
  // which it shall end early.
  int post(FileOperation* operation);

  // Of an operation that shall end early. True: it waited here, and is the caller's now. One in the
  // ring the kernel is asked to cancel.
  bool interrupt(FileOperation* operation);

  // From now on nothing is taken; what has not entered the ring is aborted.
  void refuse();

  // After refuse(): waits for what is in the ring, then ends the thread.
  void stop();

 private:
  // The room for submissions, and so the most in one batch.
  static constexpr unsigned kBatch = 256;
  // From so many bytes on copying is left to threads of the kernel.
  static constexpr size_t kAsyncBytes = size_t{256} * 1024;
  static constexpr long kRetryNs = 1'000'000;
  static constexpr unsigned kMostCancels = 64;

  FileRing(HandlerPool& handlers, FileThreads& threads) : handlers_(handlers), threads_(threads) {}
  // 0, or the errno.
  int open(int most_in_flight);
  bool supports_all() const;

  void thread_main();
  // Moves operations from waiting_ into the ring, as many as fit. What the thread does next:
  enum class Next {
    kSubmit,  // submit, and look for more
    kWait,    // submit, and wait for a completion
    kEnd
  };
  Next fill();
  Next next_after(bool wakeable) WF_REQUIRES(mutex_);
  // Stopping, and what was in the ring has left it.
  bool has_ended() const WF_REQUIRES(mutex_);
  void prepare(FileOperation* operation);
  void prepare_cancel(FileOperation* operation);
  void prepare_wake();
  void submit(bool wait);
  void reap();
  // Of completions: their operations are not in the ring any more.
  void leave(struct io_uring_cqe* const* completions, unsigned count);
  void complete(FileOperation* operation, int result, RunnableList& done);

  HandlerPool& handlers_;
  FileThreads& threads_;
  UniqueFd wake_fd_;
  unsigned most_in_flight_ = 0;
  Thread thread_;

  Mutex mutex_;
  FileQueue waiting_ WF_GUARDED_BY(mutex_);
  FileQueue to_cancel_ WF_GUARDED_BY(mutex_);
  bool asleep_ WF_GUARDED_BY(mutex_) = false;
  bool idle_ WF_GUARDED_BY(mutex_) = false;  // asleep, and could have taken more
  bool refusing_ WF_GUARDED_BY(mutex_) = false;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;

  // The thread only, once it has started.
  struct io_uring ring_ = {};
  bool ring_open_ = false;
  unsigned in_flight_ = 0;
  unsigned cancels_in_flight_ = 0;  // its address marks their completions
  bool wake_armed_ = false;
  uint64_t wake_count_ = 0;
};

}  // namespace workflow

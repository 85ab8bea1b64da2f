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
// Thread-safe. One thread of its own fills the ring, waits for completions and posts the finished
// operations. The threads that start operations cannot do this: the kernel ties each operation to
// the thread that submitted it, cancels the operation when that thread ends, and interrupts that
// thread's waits with the completion. Nor can pollers, because their timers must not wait while
// data is copied.
//
// The ring gets only operations for which it behaves exactly as the system call (suits()).
//
// Invariants:
// 1. An operation taken is finished or aborted, once, and then posted to the handler threads,
//    unless withdraw() gives it back.
// 2. At most most_in_flight_ operations, kMaxCancels requests to cancel one, and the wake-up, are
//    in the ring. The completion queue has room for all of them, so it never overflows. The others
//    wait in waiting_ and to_cancel_, first in first out.
// 3. While asleep_ is true the thread waits, or is about to, and only a completion or wake_fd_ will
//    wake it. A thread that changes asleep_ to false writes to wake_fd_. post() does so only if the
//    ring has room (idle_).
// 4. Once refuse() has returned no operation enters the ring.
// 5. An answer that the system call would not give (the kernel could not do it without waiting, or
//    cancelled it) is no result: FileThreads does the operation again, unless it was withdrawn.
// 6. An operation that is withdrawn after it has begun ends when the kernel has answered, and so
//    has given up its buffer: with the kernel's result if that is whole, otherwise with
//    end_reason().
class FileRing {
 public:
  // Returns null with errno if the kernel has no io_uring, forbids it, or has an older one whose
  // results may differ from the system calls'; or if descriptors, memory or threads have run out.
  static std::unique_ptr<FileRing> create(HandlerPool& handlers, FileThreads& threads,
                                          int most_in_flight);
  ~FileRing();
  FileRing(const FileRing&) = delete;
  FileRing& operator=(const FileRing&) = delete;

  // Whether the ring gives the same result as the system call. That is so for regular files and
  // block devices with plain arguments. Any thread; does not block.
  static bool suits(const FileRequest& request);

  // Takes an operation whose request suits(). Returns 0, or why it was not taken: ECANCELED after
  // refuse(), or its end_reason().
  int post(FileOperation* operation);

  // See FileIo::withdraw(). If the operation is in the ring, the kernel is asked to cancel it.
  bool withdraw(FileOperation* operation);

  // From now on no operation is taken. Operations that have not entered the ring are aborted.
  void refuse();

  // To be called after refuse(). Waits for the operations in the ring, and then ends the thread.
  void stop();

 private:
  // The size of the submission queue, and so of the largest batch.
  static constexpr unsigned kBatch = 256;
  // From this size on the copying is left to threads of the kernel.
  static constexpr size_t kAsyncBytes = size_t{256} * 1024;
  static constexpr long kRetryNs = 1'000'000;
  static constexpr unsigned kMaxCancels = 64;

  FileRing(HandlerPool& handlers, FileThreads& threads) : handlers_(handlers), threads_(threads) {}
  // Returns 0 or an errno.
  int open(int most_in_flight);
  bool supports_all() const;

  void thread_main();
  // Moves as many operations from waiting_ into the ring as fit. Returns what the thread does next:
  enum class Next {
    kSubmit,  // submit, and look for more
    kWait,    // submit, and wait for a completion
    kEnd
  };
  Next fill();
  Next next_after(bool wakeable) WF_REQUIRES(mutex_);
  // Whether the ring is stopping and all operations have left it.
  bool has_ended() const WF_REQUIRES(mutex_);
  void prepare(FileOperation* operation);
  void prepare_cancel(FileOperation* operation);
  void prepare_wake();
  void submit(bool wait);
  void reap();
  // Marks the operations of these completions as being no longer in the ring.
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
  bool idle_ WF_GUARDED_BY(mutex_) = false;  // asleep, with room for more in the ring
  bool refusing_ WF_GUARDED_BY(mutex_) = false;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;

  // Used by thread_ only, once it has started.
  struct io_uring ring_ = {};
  bool ring_open_ = false;
  unsigned in_flight_ = 0;
  unsigned cancels_in_flight_ = 0;  // its address identifies their completions
  bool wake_armed_ = false;
  uint64_t wake_count_ = 0;
};

}  // namespace workflow

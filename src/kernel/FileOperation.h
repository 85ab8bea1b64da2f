#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "kernel/FileQueue.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class FileThreads;

// What to do with a file: the arguments of one system call.
struct FileRequest {
  enum class Kind : uint8_t {
    kRead,         // pread(2)
    kWrite,        // pwrite(2)
    kReadVector,   // preadv(2)
    kWriteVector,  // pwritev(2)
    kSync,         // fsync(2)
    kDataSync      // fdatasync(2)
  };

  Kind kind = Kind::kRead;
  int fd = -1;
  const char* path = nullptr;  // if not null, this file is opened for the call, and `fd` is ignored
  void* buffer = nullptr;      // kWrite and kWriteVector only read it, or what `vector` points to
  size_t size = 0;
  const struct iovec* vector = nullptr;
  int vector_count = 0;
  off_t offset = 0;

  // The most bytes that the call may transfer.
  size_t bytes() const;

  bool reads() const { return kind == Kind::kRead || kind == Kind::kReadVector; }
  bool writes() const { return kind == Kind::kWrite || kind == Kind::kWriteVector; }

  // Makes the system calls on the calling thread, and may block as they do. Returns what the call
  // returned, or the negated errno. A call that fails with EINTR is repeated.
  //
  // For a read, a path is opened read-only. For a write it is opened write-only, and created (0644)
  // if it does not exist; it is never truncated. It is closed again afterwards. Opening does not
  // wait for the other side of a FIFO, nor for a terminal's carrier, and makes no terminal the
  // controlling one. It does wait for another process's lease.
  long perform() const;
};

// A FileRequest that was or will be submitted, and the node for the queues in which it waits. Its
// owner keeps it alive until finished() or aborted(), of which exactly one is called, once, after
// FileIo has taken it; or until FileIo::withdraw() has given it back.
//
// Not thread-safe: it has one owner at a time, such as the queue that it is in.
class FileOperation : public Runnable, public FileQueueNode {
 public:
  virtual FileRequest request() const = 0;

  // Called when the request has ended. `result` is what the system call returned, or the negated
  // errno; if the ring cancelled the request, the negated end_reason(). Called on any of the
  // library's threads, with no lock held. Items that are added to `done` are posted to the handler
  // threads, which may then free the operation.
  virtual void finished(long result, RunnableList& done) = 0;

  // Called instead of finished() if the library stops before the request has begun.
  virtual void aborted(RunnableList& done) = 0;

  // Not 0 if the operation must not begin any more: the errno value with which it ends instead.
  // Each place where the operation can wait looks at this, under its own lock, before it takes the
  // operation. When it becomes non-zero, FileIo::withdraw() is called once.
  virtual int end_reason() const { return 0; }

 protected:
  FileOperation() = default;
  ~FileOperation() override = default;

 private:
  friend class FileRing;
  friend class FileThreads;

  // The state of the operation in the ring, or in the threads.
  enum class Place : uint8_t {
    kElsewhere,
    kWaiting,  // in the queue of operations that are to begin
    kBegun,
    kToCancel  // begun, and in the queue of operations that are to be cancelled
  };

  // Called on a thread of threads_.
  void run_queued() final;

  FileThreads* threads_ = nullptr;
  Place in_ring_ = Place::kElsewhere;     // guarded by the ring's lock
  Place in_threads_ = Place::kElsewhere;  // guarded by the threads' lock
};

}  // namespace workflow

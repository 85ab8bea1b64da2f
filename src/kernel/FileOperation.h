#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernel/FileQueue.h"
#include "workflow/Runnable.h"

namespace workflow {

class FileThreads;

// What shall be done with a file: the arguments of one system call.
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
  const char* path = nullptr;  // if not null, this file is opened for it, and `fd` means nothing
  void* buffer = nullptr;      // kWrite and kWriteVector only read from what is given
  size_t size = 0;
  const struct iovec* vector = nullptr;
  int vector_count = 0;
  off_t offset = 0;

  // The most bytes that it may transfer.
  size_t bytes() const;

  bool reads() const { return kind == Kind::kRead || kind == Kind::kReadVector; }
  bool writes() const { return kind == Kind::kWrite || kind == Kind::kWriteVector; }

  // Makes the calls here and now, and may block as they do. What the call returned, or the negated
  // errno. Interrupted calls are made again.
  //
  // A path is opened read-only, or write-only and created (0644) for writing, never truncated, and
  // closed again. Opening does not wait for the other side of a FIFO, nor for a terminal's carrier,
  // and makes no terminal the controlling one. It does wait for another process's lease.
  long perform() const;
};

// A FileRequest on its way, and the node of the queues in which it waits. Its owner keeps it alive
// until finished() or aborted(), of which exactly one is called, once, after FileIo has taken it;
// or until FileIo::interrupt() has given it back.
//
// Not thread-safe: it has one owner at a time, as the queue it is in.
class FileOperation : public Runnable, public FileQueueNode {
 public:
  virtual FileRequest request() const = 0;

  // The request has ended: what the system call returned, or the negated errno; if the ring
  // cancelled the request, the negated error of the interruption. Called on any of the library's
  // threads, with no lock held. The handlers get what is added to `done`, and may free the
  // operation once they have it.
  virtual void finished(long result, RunnableList& done) = 0;

  // The same for a request that was not begun, as the library stops.
  virtual void aborted(RunnableList& done) = 0;

  // By who then asks FileRing or FileThreads to interrupt it. See FileIo::interrupt().
  void end_early(int error);
  // Not 0: it shall end early, with this error. Looked at under the lock of each place it comes to.
  int ending() const { return ending_.load(std::memory_order_acquire); }

 protected:
  FileOperation() = default;
  ~FileOperation() override = default;

 private:
  friend class FileRing;
  friend class FileThreads;

  // Where it stands with one of those who carry operations out.
  enum class Place : uint8_t {
    kElsewhere,
    kWaiting,  // in the queue of what is to begin
    kBegun,
    kToCancel  // begun, and in the queue of what is to be cancelled
  };

  // On a thread of threads_.
  void take_turn() final;

  FileThreads* threads_ = nullptr;
  Place in_ring_ = Place::kElsewhere;     // guarded by the ring's lock
  Place in_threads_ = Place::kElsewhere;  // guarded by the threads' lock
  std::atomic<int> ending_{0};
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <memory>

#include "kernel/FileOperation.h"
#include "kernel/FileRing.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "util/Mutex.h"

namespace workflow {

// What carries out file operations.
enum class FileBackend {
  kChoose,  // as the environment says (FileIo::kVariable), else the ring if the kernel has it
  kRing,    // io_uring, and threads for operations for which its results differ from the system
            // calls'
  kThreads  // plain system calls on threads
};

// The file operations of a runtime. The first operation chooses the backend. Each operation is
// given to the ring or to the threads, whichever suits it.
//
// Thread-safe. The operations of the ring, and those of the threads, each begin in the order in
// which they were submitted. They end in any order.
//
// Invariants:
// 1. An operation taken is finished or aborted, once, and then posted to the handler threads,
//    unless withdraw() gives it back.
// 2. Once refuse() has returned no operation begins. Operations that have begun end before stop()
//    returns.
class FileIo {
 public:
  // The environment variable that decides in case of kChoose. Its values are "io_uring" and
  // "threads".
  static constexpr const char* kVariable = "WORKFLOW_FILE_IO";

  struct Options {
    int max_events = 4096;  // the most operations in progress; others wait in memory
    FileBackend backend = FileBackend::kChoose;
  };

  FileIo(HandlerPool& handlers, const Options& options);
  ~FileIo();
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // Returns 0, or why the operation was not taken: ECANCELED after refuse(), EAGAIN without
  // threads, or its end_reason().
  int submit(FileOperation* operation);

  // Chooses the backend, if that was not done yet. To be called before an operation that may be
  // withdrawn is submitted, because withdraw() reads which backend there is.
  void choose();
  // Called once when the operation's end_reason() has become non-zero, before the operation has
  // ended. Returns true if the operation was in a queue and had not begun; the caller owns it now.
  // Otherwise submit() is still to take it, and refuses it, or FileIo finishes or aborts it. An
  // operation that the ring has begun is cancelled there; one that a thread has begun ends when its
  // system calls return.
  bool withdraw(FileOperation* operation);

  // Aborts the operations that have not begun. After this no operation begins.
  void refuse();

  // To be called after refuse(). Waits for the operations that have begun, and then ends the
  // threads.
  void stop();

  // kRing or kThreads. Chooses the backend if it is not chosen yet.
  FileBackend backend();

 private:
  HandlerPool& handlers_;
  const Options options_;
  FileThreads threads_;
  Mutex mutex_;
  // Set under mutex_; then ring_ no longer changes. The store releases and loads without mutex_
  // acquire, so whoever reads true may use ring_.
  std::atomic<bool> chosen_{false};
  std::unique_ptr<FileRing> ring_;
  bool refusing_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

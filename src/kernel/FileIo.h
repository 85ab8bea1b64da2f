#pragma once

#include <atomic>
#include <memory>

#include "kernel/FileOperation.h"
#include "kernel/FileRing.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "util/Mutex.h"

namespace workflow {

// Who carries out file operations.
enum class FileBackend {
  kChoose,  // the environment (FileIo::kVariable), else the ring where the kernel offers it
  kRing,    // io_uring, and threads for what it does otherwise than the system calls
  kThreads  // plain system calls on threads
};

// The file operations of a runtime: chooses a backend with the first one, and gives each operation
// to whom it suits.
//
// Thread-safe. Operations begin in the order they were submitted, apart from those that another
// kind of backend carries out; they end in any order.
//
// Invariants:
// 1. An operation taken is finished or aborted, once, and then posted to the handlers, unless
//    interrupt() gives it back.
// 2. Once refuse() has returned no operation begins. What has begun ends before stop() returns.
class FileIo {
 public:
  // The environment variable that decides for kChoose: "io_uring" or "threads".
  static constexpr const char* kVariable = "WORKFLOW_FILE_IO";

  struct Options {
    int max_events = 4096;  // operations at a time; more wait in memory
    FileBackend backend = FileBackend::kChoose;
  };

  FileIo(HandlerPool& handlers, const Options& options);
  ~FileIo();
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // 0, or why the operation was not taken: ECANCELED after refuse(), EAGAIN without threads, or the
  // error of its interruption.
  int submit(FileOperation* operation);

  // Before the submission of an operation that may be interrupted.
  void choose();
  // Asks the operation to end early, with this error: at most once, before it has ended. The caller
  // may hold a lock. True: the operation had not begun, and the caller owns it now. False: submit()
  // refuses it, or FileIo finishes or aborts it. An operation that the ring has begun is cancelled
  // there; one that a thread has begun ends when its system calls return.
  bool interrupt(FileOperation* operation, int error);

  // What is not begun now is aborted, and nothing begins any more.
  void refuse();

  // After refuse(): waits for what has begun; then there are no threads of it.
  void stop();

  // kRing or kThreads; chooses if nobody has yet.
  FileBackend backend();

 private:
  HandlerPool& handlers_;
  const Options options_;
  FileThreads threads_;
  Mutex mutex_;
  std::atomic<bool> chosen_{false};  // set under mutex_; then ring_ no longer changes
  std::unique_ptr<FileRing> ring_;
  bool refusing_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

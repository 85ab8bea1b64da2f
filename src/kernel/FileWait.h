#pragma once

#include "util/UniqueFd.h"

namespace workflow {

class FileOperation;
class FileThreads;

// How a thread of FileThreads waits for a file or device without using the operation's buffer, so
// that an interruption can end the wait. Of one operation, on that thread's stack.
class FileWait {
 public:
  enum class Result {
    kOver,         // what was waited for may have come
    kInterrupted,  // the operation shall end early, with error()
    kCannot        // no descriptor for it, or a simulation: whoever must wait blocks
  };
  static constexpr int kForEver = -1;

  FileWait(FileThreads& threads, FileOperation& operation)
      : threads_(threads), operation_(operation) {}
  FileWait(const FileWait&) = delete;
  FileWait& operator=(const FileWait&) = delete;

  // Until poll(2) tells one of `events` of `fd` (negative: of nothing), or the time has passed.
  Result wait(int fd, short events, int ms);
  int error() const;

 private:
  FileThreads& threads_;
  FileOperation& operation_;
  UniqueFd wake_fd_;  // made by the first wait
};

}  // namespace workflow

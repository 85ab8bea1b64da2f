#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

// The arguments of a file task. They may be changed until the task is started. The caller owns the
// memory to which they point and the descriptor, and keeps both until the callback. If the task was
// created with a path, `fd` is -1: the task opens and closes the file itself.
struct FileIOArgs {
  int fd;
  void *buf;  // a write task only reads it
  size_t count;
  off_t offset;
};

struct FileVIOArgs {
  int fd;
  const struct iovec *iov;
  int iovcnt;
  off_t offset;
};

struct FileSyncArgs {
  int fd;
};

// One operation on a file. It is done by io_uring or on other threads, so that no callback, timer
// or caller waits for a disk.
//
// It ends as the system call of its name would end at that time, unless the scope around the task
// (WFScope.h) or the library ends first:
//   SUCCESS    get_retval() is the number of bytes (fewer than requested at the end of the file, on
//              a full disk, ...), or 0 for fsync and fdatasync.
//   SYS_ERROR  get_retval() is -1, and get_error() is the errno of the system call, EAGAIN if there
//              are no threads for the operation, or the error of the scope. docs/scopes.md says
//              when a scope can still end an operation that has begun.
//   ABORTED    get_retval() is -1: the library stopped before the operation began. An operation
//              that has begun ends in its own way, and the process waits for it when it exits.
// A write past RLIMIT_FSIZE does not raise its usual signal: it ends with EFBIG.
//
// Tasks that run at the same time are executed in any order. Where order matters, such as for a
// write before its fsync, put them into a series.
template <class ARGS>
class WFFileTask : public workflow::TaskWithCallback<WFFileTask<ARGS>> {
 public:
  ARGS *get_args() { return &args_; }
  const ARGS *get_args() const { return &args_; }

  // Returns -1 unless the task has succeeded.
  long get_retval() const { return retval_; }

 protected:
  WFFileTask(const ARGS &args, std::function<void(WFFileTask<ARGS> *)> &&callback)
      : WFFileTask::TaskWithCallback(std::move(callback)), args_(args) {}
  ~WFFileTask() override = default;

  ARGS args_;
  long retval_ = -1;
};

using WFFileIOTask = WFFileTask<FileIOArgs>;
using WFFileVIOTask = WFFileTask<FileVIOArgs>;
using WFFileSyncTask = WFFileTask<FileSyncArgs>;

#pragma once

#include <cstddef>
#include <memory>

namespace workflow {

class LibraryExecutors;
class ComputePool;
class ComputeQueue;
class OwnedPool;
struct ComputePlace;

}  // namespace workflow

// A queue of computations. The user owns the queue. Its computations begin in the order in which
// they were dispatched. A queue is used with one Executor at a time: while one of its computations
// has yet to begin, a computation that is dispatched to another executor ends as WFT_STATE_ABORTED.
// The queues of WFGlobal::get_exec_queue() work with the library's own executor only; on a user's
// executor their computations end as WFT_STATE_ABORTED.
class ExecQueue {
 public:
  ExecQueue();
  ~ExecQueue();
  ExecQueue(const ExecQueue &) = delete;
  ExecQueue &operator=(const ExecQueue &) = delete;

  // init() returns 0. A queue is usable from init() to deinit(), and must be empty at deinit().
  int init();
  void deinit();

 private:
  friend class workflow::LibraryExecutors;
  friend struct workflow::ComputePlace;

  std::shared_ptr<workflow::ComputeQueue> own_;
  workflow::ComputeQueue *queue_ = nullptr;
};

// Threads that the user owns, for computations. The queues of an executor take turns, one
// computation each.
//
// Thread-safe, except init() and deinit(). When the process exits, an executor is emptied as if by
// deinit(), after the library has stopped.
class Executor {
 public:
  Executor();
  // Calls deinit().
  ~Executor();
  Executor(const Executor &) = delete;
  Executor &operator=(const Executor &) = delete;

  // Starts `nthreads` threads, at least one. Returns 0, or -1 with errno: EINVAL for no threads,
  // EAGAIN if the system refuses them, EALREADY if the executor has threads already, ECANCELED if
  // the library has stopped.
  int init(size_t nthreads);

  // Ends computations that have not begun as WFT_STATE_ABORTED, waits for those that run and for
  // all their callbacks, and ends the threads. If it is called on one of these threads, it does not
  // wait: another thread does the rest. Tasks started later end as WFT_STATE_ABORTED until init()
  // is called again.
  void deinit();

  // Adds one thread, or removes one as soon as one is idle. Returns 0, or -1 with errno: EINVAL
  // before init() or for the last thread, EAGAIN if the system refuses, ECANCELED after deinit() or
  // if the library has stopped.
  int increase_thread();
  int decrease_thread();

 private:
  friend class workflow::LibraryExecutors;
  friend struct workflow::ComputePlace;

  std::shared_ptr<workflow::OwnedPool> own_;
  workflow::ComputePool *pool_ = nullptr;  // after deinit(): a pool that refuses computations
  bool ended_ = false;                     // deinit() was called
};

#pragma once

#include <cstddef>
#include <memory>

namespace workflow {

class ComputeFaces;
class ComputePool;
class ComputeQueue;
class OwnedPool;
struct ComputePlace;

}  // namespace workflow

// A queue of computations of the user's own: they begin in the order in which they were started. It
// is used with one Executor at a time: what is started with another while something is in it ends
// as WFT_STATE_ABORTED. So do tasks of a queue of the library on an executor of the user's.
class ExecQueue {
 public:
  ExecQueue();
  ~ExecQueue();
  ExecQueue(const ExecQueue &) = delete;
  ExecQueue &operator=(const ExecQueue &) = delete;

  // 0. A queue is usable from init() to deinit(), when nothing may be in it any more.
  int init();
  void deinit();

 private:
  friend class Executor;
  friend class workflow::ComputeFaces;
  friend struct workflow::ComputePlace;

  std::shared_ptr<workflow::ComputeQueue> own_;
  workflow::ComputeQueue *queue_ = nullptr;
};

// Threads of the user's own for computations. Its queues take turns, one computation each.
//
// Thread-safe, but for init() and deinit(). When the process exits, it is emptied as if by
// deinit(), after the library has stopped.
class Executor {
 public:
  Executor();
  // As deinit().
  ~Executor();
  Executor(const Executor &) = delete;
  Executor &operator=(const Executor &) = delete;

  // Starts the threads, at least one: 0, or -1 with errno: EINVAL for none, EAGAIN when the system
  // refuses, EALREADY when it has been done, ECANCELED when the library has stopped.
  int init(size_t nthreads);

  // Computations not begun end as WFT_STATE_ABORTED, those running are waited for, and all of their
  // callbacks; then the threads end. Called on one of these threads it does not wait: the rest is
  // done by another. Tasks started later end as WFT_STATE_ABORTED, until init() is called again.
  void deinit();

  // One thread more, or one less as soon as one has nothing to do. 0, or -1 with errno: EINVAL
  // without init() or for the last thread, EAGAIN when the system refuses.
  int increase_thread();
  int decrease_thread();

 private:
  friend class workflow::ComputeFaces;
  friend struct workflow::ComputePlace;

  std::shared_ptr<workflow::OwnedPool> own_;
  workflow::ComputePool *pool_ = nullptr;  // after deinit() one that refuses
  bool ended_ = false;                     // deinit() was called
};

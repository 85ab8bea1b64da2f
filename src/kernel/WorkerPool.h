#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/Runnable.h"

namespace workflow {

// Threads that run Runnables which a derived class keeps in order.
//
// Thread-safe. Posting never allocates, never blocks on work, never fails.
//
// Wake-ups: at most one worker is being woken at any time. It takes an item first and then, if
// there is more to do, wakes the next one. So a burst wakes no more threads than it needs, and a
// stream of posts costs one wake-up per nap of the workers, not one per post.
//
// Lending: a worker that is about to block says so (BlockingScope); while it blocks another thread
// stands in, so that a pool of one thread still makes progress. With grow_when_starved the pool
// also grows when work waits and nothing was taken for kStarvedNs, which covers callbacks that
// block without telling. Threads above the configured number end after kSpareNs without work.
//
// Invariants:
// 1. waking_ implies a worker has been notified and has not yet run since.
// 2. Work waits while a worker is idle only if waking_, or a worker is on its way to take it.
// 3. After stop() has returned no worker runs, and what is posted later runs in its poster.
class WorkerPool {
 public:
  struct Options {
    const char* name = "worker";
    int threads = 1;
    bool grow_when_starved = false;
    int max_threads = 1024;  // of a pool that grows, not counting those that told they block
  };
  static constexpr int64_t kStarvedNs = 10'000'000;
  static constexpr int64_t kSpareNs = 5'000'000'000;

  explicit WorkerPool(const Options& options);
  virtual ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Starts the threads. False when not even one could be started.
  bool start();

  // Runs everything posted so far and everything that posts in turn, then ends the threads. On a
  // worker of this pool it ends all others; that one must not return to the pool, nor may the pool
  // be destroyed then.
  void stop();

  // The calling worker of this pool will not come back: it ends the process. stop() does not wait
  // for it, and the pool must not be destroyed.
  void lose_caller();
  bool has_lost_worker() const;

  // Returns at a moment at which nothing is queued and every worker is idle, or blocked in a
  // BlockingScope; a worker of this pool calls it inside one. Returns how many items were ever
  // taken and how many blocks have ended: while that stays the same the pool stays quiet.
  uint64_t wait_quiet();

  // One thread more, from now on; one less, when it has nothing to do. 0, or -1 with errno: EINVAL
  // for the last thread, EAGAIN when the system refuses, ECANCELED after stop().
  int increase_threads();
  int decrease_threads();

  // As many as it keeps: without those that stand in for others.
  int configured_threads() const;

  // True when nothing is queued and no worker is running an item.
  bool idle() const;

  // Threads now: more than configured while some block, or did lately.
  int thread_count() const;

  // How many items were ever taken. With idle(), tells whether anything happened in between.
  uint64_t taken() const;

  // Around a wait on a worker of this pool; see BlockingScope.
  void begin_blocking();
  void end_blocking();

  // Joins the threads that have ended.
  void join_retired();

 protected:
  // Both with mutex_ held. next() is called only if has_work().
  virtual bool has_work() const WF_REQUIRES(mutex_) = 0;
  virtual Runnable* next() WF_REQUIRES(mutex_) = 0;

  // After work was added or taken: releases mutex_ and wakes a thread if one is needed.
  void unlock_and_wake() WF_RELEASE(mutex_);

  bool terminated() const WF_REQUIRES(mutex_) { return terminated_; }

  mutable Mutex mutex_;

 private:
  void worker_main(std::list<Thread>::iterator self);
  void supervise();
  // Whom to notify, after unlocking, so that waiting work gets a thread.
  struct Wake {
    bool worker = false;
    bool supervisor = false;
  };
  Wake claim_wake() WF_REQUIRES(mutex_);
  void notify(Wake wake);
  bool spawn() WF_REQUIRES(mutex_);
  bool surplus() const WF_REQUIRES(mutex_);
  // Whether the calling worker, which has nothing to do, is one that leaves.
  bool leaves() WF_REQUIRES(mutex_);
  int most_threads() const WF_REQUIRES(mutex_);
  bool finished() const WF_REQUIRES(mutex_);
  bool quiet() const WF_REQUIRES(mutex_) { return !has_work() && idle_ + blocked_ == live_; }
  // False when the worker should end.
  bool wait_for_work() WF_REQUIRES(mutex_);
  static void join_all(std::list<Thread>& threads);

  const Options options_;
  CondVar work_;   // workers wait here
  CondVar watch_;  // the supervisor waits here
  CondVar ended_;  // stop() waits here
  CondVar quiet_;  // wait_quiet() waits here
  std::list<Thread> threads_ WF_GUARDED_BY(mutex_);
  std::list<Thread> retired_ WF_GUARDED_BY(mutex_);  // ended or about to; to be joined
  Thread supervisor_;
  int wanted_ WF_GUARDED_BY(mutex_);
  int live_ WF_GUARDED_BY(mutex_) = 0;
  int idle_ WF_GUARDED_BY(mutex_) = 0;
  int blocked_ WF_GUARDED_BY(mutex_) = 0;
  int lost_ WF_GUARDED_BY(mutex_) = 0;  // 1 once stop() was called on a worker
  uint64_t taken_ WF_GUARDED_BY(mutex_) = 0;
  uint64_t unblocked_ WF_GUARDED_BY(mutex_) = 0;  // how many blocks have ended
  int leaving_ WF_GUARDED_BY(mutex_) = 0;         // surplus workers that shall not wait kSpareNs
  bool waking_ WF_GUARDED_BY(mutex_) = false;
  bool watched_ WF_GUARDED_BY(mutex_) = false;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
  bool terminated_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

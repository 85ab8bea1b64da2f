#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// Threads that run Runnables. A derived class keeps the queue of them and decides their order.
//
// Thread-safe. Until the pool has stopped, posting never allocates, and never waits for an item to
// run. It fails only if the
// derived class refuses the item.
//
// Wake-ups: at most one worker is being woken at any time. That worker first takes an item and
// then, if more items wait, wakes the next worker. So a burst wakes no more threads than it needs,
// and a stream of posts costs a wake-up only when workers had gone to sleep, not one per post.
//
// Lending: a worker that is about to block announces it (BlockingScope). While it blocks another
// thread works in its place, so that a pool of one thread still makes progress. With
// grow_when_starved the pool also grows when work waits and no worker took an item for kStarvedNs.
// This covers callbacks that block without announcing it. Threads above the configured number end
// after kSpareNs without work.
//
// Invariants:
// 1. While waking_ is true, a worker was notified or is about to be, and no worker has woken since.
// 2. If work waits while a worker is idle, then waking_ is true, or another worker is about to take
//    an item.
// 3. After stop() has returned no worker runs, except for one that has called stop() or
//    abandon_caller(). Items that are posted later run in the thread that
//    posts them, or are refused, as the derived class says.
class WorkerPool {
 public:
  struct Options {
    const char* name = "worker";
    int threads = 1;
    bool grow_when_starved = false;
    int max_threads = 1024;  // with grow_when_starved; threads in a BlockingScope do not count
  };
  static constexpr int64_t kStarvedNs = 10'000'000;
  static constexpr int64_t kSpareNs = 5'000'000'000;

  explicit WorkerPool(const Options& options);
  virtual ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Starts the threads. Returns false if not even one could be started.
  bool start();

  // Runs everything that was posted so far, and everything that those items post, then ends the
  // threads. If a worker of this pool calls it, it ends all other workers; the caller must then
  // never return to the pool, and the pool must not be destroyed.
  void stop();

  // To be called by a worker of this pool that will not return to the pool, because it ends the
  // process. stop() does not wait for this worker, and the pool must not be destroyed.
  void abandon_caller();
  bool has_lost_worker() const;

  // Waits for a moment at which nothing is queued and every worker is idle or blocked in a
  // BlockingScope. A worker of this pool must call it inside a BlockingScope. Returns how many
  // items were ever taken plus how many blocking waits have ended: if two calls return the same
  // number, the pool was quiet all the time between them.
  uint64_t wait_quiet();

  // Increase or decrease the configured number of threads by one. When it decreases, a thread ends
  // once it has nothing to do. Return 0, or -1 with errno: EINVAL for the last thread, EAGAIN if
  // the system refuses a thread, ECANCELED after stop().
  int increase_threads();
  int decrease_threads();

  // The configured number of threads, without those that work in the place of blocked ones.
  int configured_threads() const;

  // True when nothing is queued and every worker is idle or blocked in a BlockingScope.
  bool idle() const;

  // The number of threads that exist now. It exceeds the configured number while threads block, and
  // for some time after that.
  int thread_count() const;

  // How many items were ever taken.
  uint64_t taken() const;

  // To be called by a worker of this pool before and after a wait; see BlockingScope.
  void begin_blocking();
  void end_blocking();

  // Joins the threads that have ended.
  void join_retired();

 protected:
  // Both are called with mutex_ held, next() only if has_work().
  virtual bool has_work() const WF_REQUIRES(mutex_) = 0;
  virtual Runnable* next() WF_REQUIRES(mutex_) = 0;

  // To be called after work was added or taken. Releases mutex_, and wakes a thread if one is
  // needed.
  void unlock_and_wake() WF_RELEASE(mutex_);

  bool terminated() const WF_REQUIRES(mutex_) { return terminated_; }

  mutable Mutex mutex_;

 private:
  void worker_main(std::list<Thread>::iterator self);
  void supervise();
  // Which threads to notify, after unlocking, so that waiting work gets a thread.
  struct Wake {
    bool worker = false;
    bool supervisor = false;
  };
  Wake claim_wake() WF_REQUIRES(mutex_);
  void notify(Wake wake);
  bool spawn() WF_REQUIRES(mutex_);
  bool surplus() const WF_REQUIRES(mutex_);
  // Whether the calling worker, which has nothing to do, must end because the number of threads was
  // decreased.
  bool leaves() WF_REQUIRES(mutex_);
  int most_threads() const WF_REQUIRES(mutex_);
  bool finished() const WF_REQUIRES(mutex_);
  bool quiet() const WF_REQUIRES(mutex_) { return !has_work() && idle_ + blocked_ == live_; }
  // Returns false when the worker should end.
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
  int lost_ WF_GUARDED_BY(mutex_) = 0;  // 1 once a worker has called stop() or abandon_caller()
  uint64_t taken_ WF_GUARDED_BY(mutex_) = 0;
  uint64_t unblocked_ WF_GUARDED_BY(mutex_) = 0;  // how many blocking waits have ended
  int leaving_ WF_GUARDED_BY(mutex_) = 0;         // surplus workers that end without waiting for
                                                  // kSpareNs
  bool waking_ WF_GUARDED_BY(mutex_) = false;
  bool watched_ WF_GUARDED_BY(mutex_) = false;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
  bool terminated_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

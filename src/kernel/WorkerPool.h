#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include "kernel/PoolSupervisor.h"
#include "kernel/SpareCount.h"
#include "kernel/WorkPace.h"
#include "kernel/WorkQueue.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// Threads that run Runnables. A derived class keeps the queue of them and decides their order.
//
// Thread-safe. Until the pool has stopped, posting never allocates, and never waits for an item to
// run. It fails only if the derived class refuses the item.
//
// Shares: of the items that wait, a worker takes as many as it expects to run in
// WorkPace::kShareNs, but at least one, and keeps them in a queue of its own. It runs these without
// a lock. If another worker has several items, and they are worth it, a worker that has nothing to
// do takes half of them. If a worker still has items of the same share when the supervisor looks
// again, these are given to other workers. So no item waits longer than two looks behind one that
// blocks, unless as many workers as are configured are busy. While more workers are awake than are
// configured, as after a wait that was announced, they keep nothing and take one item at a time:
// with one configured thread an item is overtaken at most by one for each other thread that is
// awake. With in_order this is so as soon as more than one is awake, and only one that is alone
// keeps items.
//
// Wake-ups: at most one worker is being woken at any time. That worker first takes its share and
// then, if more items wait, wakes the next worker, provided that the items are worth a thread: if
// one worker is awake and will take them within microseconds, no other is woken. A worker that has
// run the same share from one look to the next is stalled, and nothing is left to it. No more
// workers are woken than are configured, and a worker that finds more of them at work than that
// sleeps at the end of its share. With in_order very short items are not worth a second thread
// however many wait, because the mutex would go back and forth for each. A worker then leaves them
// to another one that is awake. If the last worker that was woken found several items, one that
// runs out of items naps before it sleeps, unless naps have not paid: it looks again after some 100
// µs without being woken.
//
// The supervisor is a thread that looks after the workers when PoolSupervisor says so: every
// kLookNs while a worker keeps items to itself, or work is left to a worker although another one is
// idle, and then until kQuietLooks looks in a row find that no worker took an item. While all are
// busy and work waits, it looks when it is time for the pool to grow. Otherwise it sleeps. If its
// thread could not be started, nobody looks: then the pool counts all items as long, so each is
// taken alone and is worth a thread, and it grows only when a worker announces that it blocks.
//
// Lending: a worker that is about to block announces it (BlockingScope). While it blocks another
// thread works in its place, so that a pool of one thread still makes progress. With
// grow_when_starved the pool also grows when work waits and no worker took an item for kStarvedNs.
// This covers callbacks that block without announcing it: as many workers are written off as it
// takes, and another thread works until they have finished their shares.
//
// Spare threads: blocked and written-off workers aside, those beyond the configured number are
// spare. So many workers sleep, even while the pool has much to do, and work again when others
// block. Those that are spare for long end, as SpareCount says. A thread that ends joins the one
// that has ended before it, and stop() joins the last. What a thread still does while it ends, such
// as destroying the thread_local objects of callbacks, therefore holds up nobody who works.
//
// Invariants:
// 1. While waking_ is true, a worker was notified or is about to be, and no worker has woken since.
//    Any worker that wakes may be the one that was notified, so each of them, a napper too, ends
//    it.
// 2. While mutex_ is free, work that waits is attended to. That means one of these: (a) a worker is
//    being woken, or naps; (b) no idle worker may work (may_wake_one() is false), and the
//    supervisor watches or the pool cannot grow; (c) one may, but another is awake, the work is not
//    worth two, and the supervisor looks; (d) the thread that has posted the work reads true from
//    unattended_, and will bring about (a), (b) or (c); (e) a worker has posted it as the last
//    action of its item, or in post_more(), and looks for work next.
// 3. After stop() has returned no worker runs, except for one that has called stop() or
//    abandon_caller(). Items that are posted later run in the thread that posts them, or are
//    refused, as the derived class says.
// 4. A derived class may let threads post without mutex_. They first make waiting() positive, by an
//    operation that is seq_cst, and then call attend(). While mutex_ is free, unattended_ is true
//    unless posted work would be attended to as invariant 2 says. Each thread that sets it looks at
//    waiting() once more afterwards. ComputePool does it in another way: a thread that cannot leave
//    its item to others takes mutex_ before its post returns.
// 5. A worker that is idle, blocked or lost has no item in its own queue.
// 6. No more workers go on from one share to the next than are configured. A worker that is blocked
//    or written off does not count.
// 7. If all spare workers sleep, at least as many sleepers as are spare look after kSpareNs whether
//    they have to leave.
class WorkerPool {
 public:
  struct Options {
    const char* name = "worker";
    int threads = 1;
    bool grow_when_starved = false;
    int max_threads = 1024;   // with grow_when_starved; threads in a BlockingScope do not count
    bool one_by_one = false;  // a worker takes one item at a time
    bool in_order = false;    // items begin in the order in which next() returns them
  };
  // May have more work once everything that was posted has run.
  class Source {
   public:
    // Posts work to the pool and returns true, or returns false. A worker that found nothing to do
    // calls this, without a lock, if all others are idle or blocked. Until it has returned, that
    // worker counts as busy, and items that others post may wait for it. So it should be short.
    virtual bool post_more() = 0;

   protected:
    ~Source() = default;
  };
  static constexpr int64_t kStarvedNs = PoolSupervisor::kStarvedNs;
  static constexpr int64_t kLookNs = PoolSupervisor::kLookNs;
  static constexpr int64_t kSpareNs = SpareCount::kSpareNs;

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

  // What wait_quiet() returns, if it need not wait. A worker of this pool that calls this does not
  // count as busy.
  std::optional<uint64_t> quiet_count() const;

  // Sets who is asked for more work, or null. A call of the former source may still go on
  // afterwards, so the source must live as long as the pool.
  void set_source(Source* source);

  // Increase or decrease the configured number of threads by one. When it decreases, a thread ends
  // at the end of its share, or, if others block then, as a spare one. Return 0, or -1 with errno:
  // EINVAL for the last thread, EAGAIN if the system refuses a thread, ECANCELED after stop().
  int increase_threads();
  int decrease_threads();

  // The configured number of threads, without those that work in the place of blocked ones.
  int configured_threads() const;

  // True when nothing is queued and every worker is idle or blocked in a BlockingScope.
  bool idle() const;

  // The number of threads that exist now. It exceeds the configured number while workers are
  // blocked or written off, and for kSpareNs or twice that afterwards.
  int thread_count() const;

  // How many items were ever taken.
  uint64_t taken() const;

  // How often the supervisor has looked after the workers, and whether it is going to look again.
  uint64_t looks() const;
  bool is_watched() const;

  // To be called before and after a wait of a worker of this pool; see BlockingScope. `own_queue`
  // is the worker's. begin_blocking() must be called by the worker itself; any thread may call
  // end_blocking().
  void begin_blocking(WorkQueue* own_queue);
  void end_blocking(WorkQueue* own_queue);

 protected:
  // All of these are called with mutex_ held. How many items wait; some that were posted without
  // mutex_ may be left out, but it is 0 only if none waits whose post has returned.
  virtual size_t waiting() const WF_REQUIRES(mutex_) = 0;
  // Moves items that were posted without mutex_ to where waiting() counts them all.
  virtual void gather() WF_REQUIRES(mutex_) {}
  // When the worker that takes an item begins it: at once, or after others, which it has taken for
  // itself as well. Meanwhile other workers of the pool may take it back.
  enum class Begins { kNow, kLater };
  // Returns the next item. With kLater, may return null: the next item must not be kept. Requires
  // that waiting() is not 0.
  virtual Runnable* next(Begins begins) WF_REQUIRES(mutex_) = 0;
  // Makes posts without mutex_ fail from now on. Returns false if items wait that were posted so;
  // then posts do not fail.
  virtual bool close() WF_REQUIRES(mutex_) { return true; }

  // To be called after work was added or taken. Releases mutex_, and wakes a thread if one is
  // needed.
  void unlock_and_wake() WF_RELEASE(mutex_);

  // To be called after work was added without mutex_ (invariant 4).
  void attend() {
    if (unattended_.load(std::memory_order_seq_cst)) [[unlikely]] {
      attend_locked();
    }
  }

  bool terminated() const WF_REQUIRES(mutex_) { return terminated_; }

  mutable Mutex mutex_;

 private:
  // Its queue has what it has taken for itself. The other members are guarded by mutex_.
  struct Worker final : WorkQueue {
    Thread thread;
    uint64_t shares = 0;       // how often it has taken a share
    uint64_t seen_shares = 0;  // the same at the last look of the supervisor
    bool running = false;      // a share
    bool blocked = false;      // in a BlockingScope
    bool stalled = false;      // at least one look has found it running the same share as before
    bool written_off = false;  // stalled, and does not count: another one may work in its place
    bool lost = false;         // written off for ever, but for waits that it announces
  };
  using Workers = std::list<Worker>;
  using Watch = PoolSupervisor::Watch;

  void worker_main(Workers::iterator self);
  // Takes the share of the calling worker: returns the first item, and puts the rest into its
  // queue. Null if there is nothing to do.
  Runnable* take_share(Worker& worker) WF_REQUIRES(mutex_);
  Runnable* take_next(Begins begins) WF_REQUIRES(mutex_);
  // Whether workers take one item at a time now, and keep none.
  bool takes_one() const WF_REQUIRES(mutex_);
  // Whether the calling worker, which is awake, should sleep even if work waits.
  bool leaves_work_to_others() const WF_REQUIRES(mutex_);
  // Moves half of the items of another worker, if they are worth it, to returned_.
  void steal() WF_REQUIRES(mutex_);
  // Takes the items of a worker that have not begun back to returned_, in front of later ones.
  void return_items(Worker& worker) WF_REQUIRES(mutex_);
  // Runs `item` and the others of the share. Returns how many.
  static size_t run_share(Worker& worker, Runnable* item);
  void supervise();
  // A look of the supervisor.
  void look() WF_REQUIRES(mutex_);
  // For each worker that has run the same share since the last look: moves the items in its queue
  // to returned_, and marks it as stalled unless it is blocked.
  void return_stuck_items() WF_REQUIRES(mutex_);
  // How many more workers the supervisor would let work.
  int room() const WF_REQUIRES(mutex_) {
    return supervised_ ? std::max(most_threads() - (live_ - idle_ - blocked_), 0) : 0;
  }
  // Lets one more worker work: writes off workers that run a share until fewer work than are
  // configured, and starts a thread if none is idle. Returns false if that is not possible.
  bool grow() WF_REQUIRES(mutex_);
  // Whether another worker should be woken for that many items, although one is awake.
  bool worth_a_thread(size_t items) const WF_REQUIRES(mutex_) {
    return !supervised_ || pace_.worth_a_thread(items);
  }
  void set_stalled(Worker& worker, bool stalled) WF_REQUIRES(mutex_);
  void write_off(Worker& worker) WF_REQUIRES(mutex_);
  // The worker is neither stalled nor written off any more.
  void goes_on(Worker& worker) WF_REQUIRES(mutex_);
  bool is_blocked(WorkQueue* own_queue) const;
  static Worker& worker_of(WorkQueue* own_queue) { return *static_cast<Worker*>(own_queue); }
  // Which threads to notify, after unlocking, so that waiting work gets a thread.
  struct Wake {
    bool worker = false;
    bool supervisor = false;
  };
  // To be called before mutex_ is released, if something has changed on which invariant 2 depends.
  Wake claim_wake() WF_REQUIRES(mutex_);
  void notify(Wake wake);
  void attend_locked();
  bool work_waits() const WF_REQUIRES(mutex_) { return !returned_.empty() || waiting() > 0; }
  size_t work_waiting() const WF_REQUIRES(mutex_) { return returned_.size() + waiting(); }
  // The workers that are neither idle, nor blocked, nor written off.
  int working() const WF_REQUIRES(mutex_) { return live_ - idle_ - blocked_ - written_off_; }
  // Whether some worker is idle that may work.
  bool may_wake_one() const WF_REQUIRES(mutex_) { return idle_ > 0 && working() < wanted_; }
  // The workers that will soon look for work without being woken.
  int awake() const WF_REQUIRES(mutex_) { return live_ - idle_ - blocked_ - stalled_; }
  // Whether items that are posted now are attended to without a notification (invariant 2).
  bool attended() const WF_REQUIRES(mutex_);
  bool spawn() WF_REQUIRES(mutex_);
  // How many workers there are beyond those that are configured, blocked or written off. Negative
  // if threads could not be started.
  int surplus() const WF_REQUIRES(mutex_) { return live_ - blocked_ - written_off_ - wanted_; }
  int most_threads() const WF_REQUIRES(mutex_);
  // Whether the calling worker must end because the pool stops and has nothing more to do.
  bool finished() WF_REQUIRES(mutex_);
  // With 1 for `callers`: whether it would be quiet if the calling worker were idle.
  bool quiet(int callers = 0) const WF_REQUIRES(mutex_) {
    return !work_waits() && idle_ + blocked_ + callers == live_;
  }
  // Asks the source, if the calling worker is the last one with something to do. Returns whether
  // the worker has to look for work again. Releases mutex_ meanwhile.
  bool source_has_more() WF_REQUIRES(mutex_);
  // Returns false when the worker should end.
  bool wait_for_work() WF_REQUIRES(mutex_);
  // Sleeps until there may be work, or it is time to count the spare workers again.
  void sleep() WF_REQUIRES(mutex_);
  void nap() WF_REQUIRES(mutex_);
  static void join_all(Workers& workers);

  const Options options_;
  CondVar work_;   // workers wait here
  CondVar watch_;  // the supervisor waits here
  CondVar ended_;  // stop() waits here
  CondVar quiet_;  // wait_quiet() waits here
  Workers workers_ WF_GUARDED_BY(mutex_);
  Workers retired_ WF_GUARDED_BY(mutex_);  // ended or about to: one at most, to be joined
  Thread supervisor_thread_;
  int wanted_ WF_GUARDED_BY(mutex_);
  int live_ WF_GUARDED_BY(mutex_) = 0;
  int idle_ WF_GUARDED_BY(mutex_) = 0;
  int blocked_ WF_GUARDED_BY(mutex_) = 0;
  int stalled_ WF_GUARDED_BY(mutex_) = 0;      // none of these is idle or blocked
  int written_off_ WF_GUARDED_BY(mutex_) = 0;  // all of these are stalled
  int lost_ WF_GUARDED_BY(mutex_) = 0;  // 1 once a worker has called stop() or abandon_caller()
  uint64_t taken_ WF_GUARDED_BY(mutex_) = 0;
  uint64_t unblocked_ WF_GUARDED_BY(mutex_) = 0;  // how many blocking waits have ended
  SpareCount spare_ WF_GUARDED_BY(mutex_);
  Source* source_ WF_GUARDED_BY(mutex_) = nullptr;
  WorkPace pace_ WF_GUARDED_BY(mutex_);
  RunnableList returned_ WF_GUARDED_BY(mutex_);    // items that a worker took; they come first
  uint64_t shares_ WF_GUARDED_BY(mutex_) = 0;      // how often a worker took items
  bool supervised_ WF_GUARDED_BY(mutex_) = false;  // once the supervisor has started
  bool kept_ WF_GUARDED_BY(mutex_) = false;        // a worker may have items in its own queue
  bool waking_ WF_GUARDED_BY(mutex_) = false;
  bool napping_ WF_GUARDED_BY(mutex_) = false;  // one of the idle workers takes a nap
  PoolSupervisor supervisor_ WF_GUARDED_BY(mutex_);
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
  bool terminated_ WF_GUARDED_BY(mutex_) = false;

  // Changed under mutex_ only. attend() reads it, so no other word of this class is in its line.
  // Seq_cst, for invariant 4: a thread that posts changes waiting() and then reads this word, and a
  // worker sets this word and then reads waiting(). In the single order of these four operations
  // one of the two reads comes after both writes.
  alignas(64) std::atomic<bool> unattended_{false};
};

}  // namespace workflow

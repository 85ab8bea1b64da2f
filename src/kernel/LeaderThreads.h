#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <list>

#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class HandlerPool;
class StallWatch;

// The threads that may lead a poller. One of them, the leader, runs the poller's loop. It is the
// one thread that may touch what belongs to "the poller's thread". The others were leaders before
// and are still in a callback, or have been started to replace the leader.
//
// In each round the leader waits in the multiplexer once, takes what is ready, and delivers what
// has finished. A leader that runs what its round has finished, instead of handing it to the
// handler threads, saves two thread switches for each round. While it runs callbacks the leader is
// called absent: it touches nothing of the poller. Since a callback may take long, any other thread
// may have an absent leader replaced. The replaced thread notices this when its callbacks have
// returned, and ends.
//
// Part of its Poller, which it knows only as a loop to run. Any thread may call everything, except
// for what only the leader may call.
//
// Invariants:
// 1. word_ is even while the leader leads and odd while it is absent. It only grows, and by two
//    from one item to the next, so an odd value identifies the run of one item.
// 2. The thread that changes word_ from an odd value to the next even one leads from then on.
// 3. The items that an absent leader has still to run are in rest_. The watch posts them to the
//    handler threads before it has the leader replaced, and so does the thread that replaces it.
// 4. A thread is in threads_ until it ends, and then in ended_, which has one thread at most. The
//    thread that ends next joins it, or join_all(). So nobody who works waits for the destructors
//    of a callback's thread_local objects.
class LeaderThreads {
 public:
  // `lead` is the poller's loop. Each thread that leads runs it once. It returns when the poller
  // ends, or when deliver() has returned false. If `watch` is not null and there are several
  // handler threads, the leader itself runs what a round has finished if rounds follow each other
  // closely or the round has finished several items (see kCloseRoundsNs). Otherwise it is posted to
  // the handler threads. Only a poller that follows the system's clock may have a watch.
  LeaderThreads(HandlerPool& handlers, StallWatch* watch, std::function<void()> lead);
  LeaderThreads(const LeaderThreads&) = delete;
  LeaderThreads& operator=(const LeaderThreads&) = delete;

  // Starts the first leader. Returns false with errno if there is no thread for it.
  bool start();

  // Called once everything is posted to the handler threads. Returns when the threads have ended
  // that were replaced in a callback, except for the caller if it is one of them.
  void wait_for_replaced(bool caller_is_one);
  // Returns when the poller has ended and all threads have, except for the caller if it is one of
  // them.
  void join_all(bool caller_is_one);

  // Leader only, at the end of a round. Runs what the round has finished, or posts it to the
  // handler threads. Everything is posted if the poller is `stopping`. Leaves the list empty.
  // Returns false if the caller no longer leads.
  bool deliver(RunnableList& finished, bool stopping);

  // Starts a thread that leads instead of the leader, if the leader is running callbacks. What the
  // leader has still to run does not wait for that thread.
  void replace_leader();

  // To be called before a wait in a callback that a leader runs; see BlockingScope. Starts a thread
  // that leads instead of the caller, unless the caller has been replaced already. Posts nothing
  // itself, because the caller may hold locks: the new thread posts what the caller has still to
  // run.
  void begin_blocking();

  // An odd number that identifies the item that the absent leader runs; 0 while the leader leads.
  uint64_t callback_epoch() const;
  // When the leader began the item for which callback_epoch() has returned a number, or a later
  // one. On the clock of monotonic_ns().
  int64_t item_begin_ns() const { return item_begin_ns_.load(std::memory_order_relaxed); }

  // The processor time that the leader has used, and whether it sleeps in the kernel. A leader that
  // runs or waits for a processor does not sleep. Valid also while the leader is absent.
  int64_t cpu_ns() const;
  bool sleeps() const;

 private:
  // If a round finishes something within kCloseRoundsNs after the last one that did, or finishes at
  // least kBusyBatch items, the leader runs them itself, and posts to the handler threads what is
  // left when its turn is over (see LeaderTurn). After a leader had to be replaced everything is
  // posted to the handler threads for a while: first for kMinPostAllNs, and twice as long each time
  // (up to kMaxPostAllNs) if it happens again within kReplacedAgainNs.
  static constexpr int64_t kCloseRoundsNs = 1'000'000;
  static constexpr size_t kBusyBatch = 4;
  static constexpr int64_t kMinPostAllNs = 10'000'000;
  static constexpr int64_t kMaxPostAllNs = 1'000'000'000;
  static constexpr int64_t kReplacedAgainNs = 2'000'000'000;

  // Starts the first leader if `callback_epoch` is 0, otherwise a substitute, which replaces the
  // leader if that still runs the item `callback_epoch`. Each item has at most one substitute.
  bool start_thread(uint64_t callback_epoch) WF_REQUIRES(threads_mutex_);
  void start_substitute(uint64_t callback_epoch) WF_EXCLUDES(threads_mutex_);
  void thread_main(std::list<Thread>::iterator self, uint64_t callback_epoch);
  static void join(std::list<Thread>& threads);
  // Makes the calling thread the leader if the leader still runs that item, and posts what the
  // absent leader has not run. Returns false otherwise.
  bool take_place(uint64_t callback_epoch);
  // Makes cpu_ns() and sleeps() tell about the calling thread.
  void measure_caller();
  // Posts what the leader has still to run to the handler threads, if it still runs that item.
  void post_rest(uint64_t callback_epoch);
  void note_replacement();
  // Runs the items, and posts the items that are left after its turn to the handler threads.
  // `now_ns` is the present monotonic time. Returns false if the caller has been replaced
  // meanwhile.
  bool run_callbacks(RunnableList& items, int64_t now_ns);
  // The next item, which begins now; null if the leader has none left or has been replaced.
  Runnable* next(uint64_t& callback_epoch, int64_t now_ns);

  // Constant.
  HandlerPool& handlers_;
  StallWatch* const watch_;
  const std::function<void()> lead_;
  const int64_t turn_ns_;  // the length of a turn; later changes of the affinity do not change it

  // The leader stores each odd value with release, and the thread that replaces it acquires. So
  // that thread sees all that the leader has done. The first odd value of a turn, and the load in
  // callback_epoch(), are seq_cst for the reason given at StallWatch::awake_. The other loads are
  // relaxed: the leader has stored the even value itself, and it reads an odd one under
  // rest_mutex_, which the thread that replaces it holds too. The exchange that ends a turn needs
  // no order.
  std::atomic<uint64_t> word_{0};
  // Relaxed. The leader stores it before each odd value, and other threads load it after they have
  // acquired one in callback_epoch(). So it belongs to that item or to a later one.
  std::atomic<int64_t> item_begin_ns_{0};
  // Relaxed. A leader stores both before its first odd value. Other threads use them only after
  // they have acquired an odd value in callback_epoch(). So they see those of that leader, or of a
  // later one.
  std::atomic<pid_t> thread_id_{0};
  std::atomic<clockid_t> cpu_clock_{CLOCK_THREAD_CPUTIME_ID};

  Mutex rest_mutex_;
  RunnableList rest_ WF_GUARDED_BY(rest_mutex_);

  Mutex threads_mutex_;
  CondVar threads_changed_;
  std::list<Thread> threads_ WF_GUARDED_BY(threads_mutex_);
  std::list<Thread> ended_ WF_GUARDED_BY(threads_mutex_);   // the last that has ended
  uint64_t substituted_ WF_GUARDED_BY(threads_mutex_) = 0;  // the last item with a substitute

  // Used by the leader only.
  int64_t last_round_ns_ = 0;
  int64_t replaced_ns_ = 0;
  int64_t post_all_ns_ = 0;  // for how long after replaced_ns_ everything is posted
};

}  // namespace workflow

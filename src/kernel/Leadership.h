#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <vector>

#include "kernel/HandlerPool.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class LeaderWatch;

// Decides which thread leads a poller. The leader is the one thread that may touch what belongs to
// "the poller's thread".
//
// A leader that runs what its round has finished, instead of handing it to the handlers, saves two
// thread switches for each round. While it runs callbacks the leader is called absent ("away"): it
// touches nothing of the poller. Since a callback may take long, any other thread may replace an
// absent leader. The replaced thread notices this when its callbacks have returned, and ends.
//
// Invariants:
// 1. word_ is even while the leader leads and odd while it is absent. It only grows, and it grows
//    with each item run, so an odd value identifies the run of one item.
// 2. The thread that changes word_ from an odd value to the next even one leads from then on.
// 3. The items that an absent leader has still to run are in rest_. The thread that replaces the
//    leader takes them too.
class Leadership {
 public:
  // To be called by a thread when it begins to lead.
  void attach();

  // Leader only. Runs the items of the batch until the monotonic time `until_ns`, and posts the
  // items that are left then to the handlers. Returns false if the caller has been replaced
  // meanwhile.
  bool run_callbacks(RunnableList& batch, HandlerPool& handlers, LeaderWatch& watch,
                     int64_t until_ns);

  // Any thread. Returns true if the leader was absent: then the caller leads now, and must post
  // `rest`, the items that the old leader has not run, to the handlers.
  bool take_place(RunnableList& rest);

  // An odd number that identifies the item that the absent leader runs; 0 while the leader leads.
  uint64_t callback_epoch() const;

  // The processor time that the leader has used, and whether it sleeps in the kernel. A leader that
  // runs or waits for a processor does not sleep. Valid also while the leader is absent.
  int64_t cpu_ns() const;
  bool sleeps() const;

 private:
  Runnable* next(uint64_t& callback_epoch);

  std::atomic<uint64_t> word_{0};
  std::atomic<pid_t> thread_id_{0};
  std::atomic<clockid_t> cpu_clock_{CLOCK_THREAD_CPUTIME_ID};
  Mutex mutex_;
  RunnableList rest_ WF_GUARDED_BY(mutex_);
};

// A thread that watches for absent leaders. A leader is replaced if a single item keeps it longer
// than a tick, and it sleeps or has used as much processor time. A leader that only waits for a
// processor is not replaced: on a busy machine another thread would only wait beside it. The watch
// sleeps while no leader becomes absent.
class LeaderWatch {
 public:
  static constexpr int64_t kTickNs = 1'000'000;

  LeaderWatch() = default;
  LeaderWatch(const LeaderWatch&) = delete;
  LeaderWatch& operator=(const LeaderWatch&) = delete;

  // To be called before start(). `replace` must start a thread that replaces the leader.
  void add(const Leadership* leadership, std::function<void()> replace);

  bool start();
  void stop();

  // To be called by a leader that has just become absent.
  void leader_runs_callbacks() {
    if (!awake_.load(std::memory_order_seq_cst)) {
      wake();
    }
  }

 private:
  // After more ticks than this without an absent leader the watch goes to sleep.
  static constexpr int kQuietTicks = 16;

  struct Post {
    const Leadership* leadership;
    std::function<void()> replace;
    uint64_t seen = 0;   // callback_epoch() at the last tick
    int64_t cpu_ns = 0;  // the leader's, when `seen` was first seen
  };

  void wake();
  void run();
  // Checks all leaders once. True when one was absent.
  bool look();

  std::vector<Post> posts_;  // constant after start(), except `seen` and `cpu_ns`, which only
                             // thread_ uses
  Thread thread_;
  std::atomic<bool> awake_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

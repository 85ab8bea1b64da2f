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
#include "workflow/Runnable.h"

namespace workflow {

class LeaderWatch;

// Who leads a poller: the one thread that may touch what belongs to "the poller's thread".
//
// A leader that runs what its round has finished, instead of handing it to the handlers, saves two
// thread switches for each round. While it does so it is away: it touches nothing of the poller,
// and a callback may take its time, so anybody may take its place. The one who was replaced finds
// out when it comes back, and ends.
//
// Invariants:
// 1. word_ is even while the leader leads and odd while it is away. It only grows, and grows with
//    each item run, so that an odd value names one stay away for one item.
// 2. Whoever changes word_ from an odd value to the next even one leads from then on.
// 3. What an absent leader has left to run is in rest_; who takes its place takes that too.
class Leadership {
 public:
  // By a thread that begins to lead.
  void attach();

  // Leader only. Runs the batch until `until_ns`, and hands over to the handlers what is left then.
  // False when the caller has been replaced meanwhile.
  bool run_away(RunnableList& batch, HandlerPool& handlers, LeaderWatch& watch, int64_t until_ns);

  // Anybody. True when the leader was away: the caller leads now, and hands over `rest`.
  bool take_place(RunnableList& rest);

  // Names the item that the leader is away for; 0 while it leads.
  uint64_t absence() const;

  // Of the thread that leads or is away: the processor time it has used, and whether it sleeps in
  // the kernel rather than runs or waits for a processor.
  int64_t cpu_ns() const;
  bool sleeps() const;

 private:
  Runnable* next(uint64_t& absence);

  std::atomic<uint64_t> word_{0};
  std::atomic<pid_t> thread_id_{0};
  std::atomic<clockid_t> cpu_clock_{CLOCK_THREAD_CPUTIME_ID};
  Mutex mutex_;
  RunnableList rest_ WF_GUARDED_BY(mutex_);
};

// Looks after absent leaders: one that is away for a single item for longer than a tick, and sleeps
// or has computed for as long, is replaced. One that merely waits for a processor is not: on a busy
// machine another thread would only wait beside it. The watch sleeps while no leader goes away.
class LeaderWatch {
 public:
  static constexpr int64_t kTickNs = 1'000'000;

  LeaderWatch() = default;
  LeaderWatch(const LeaderWatch&) = delete;
  LeaderWatch& operator=(const LeaderWatch&) = delete;

  // Before start(). `replace` sees to it that somebody takes the leader's place.
  void add(const Leadership* leadership, std::function<void()> replace);

  bool start();
  void stop();

  // By a leader that has just gone away.
  void leader_away() {
    if (!awake_.load(std::memory_order_seq_cst)) {
      wake();
    }
  }

 private:
  // So many ticks without an absence, and the watch goes to sleep.
  static constexpr int kQuietTicks = 16;

  struct Post {
    const Leadership* leadership;
    std::function<void()> replace;
    uint64_t seen = 0;   // the absence at the last tick
    int64_t cpu_ns = 0;  // of the leader when the absence was first seen
  };

  void wake();
  void run();
  // True when a leader was away.
  bool look();

  std::vector<Post> posts_;  // constant after start(), but for `seen`, which is the thread's
  Thread thread_;
  std::atomic<bool> awake_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

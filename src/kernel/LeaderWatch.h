#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernel/LeaderStall.h"
#include "util/Mutex.h"
#include "util/Thread.h"

namespace workflow {

class LeaderThreads;

// A thread that watches for absent leaders, and replaces those that an item holds up (LeaderStall).
// It looks at all of them twice in a millisecond, and once more in between when one of them has to
// be judged. It sleeps while no leader becomes absent.
//
// A runtime has one for all of its pollers. It must be stopped before their threads are destroyed.
// Any thread may call leader_runs_callbacks(); one thread at a time may call the rest.
class LeaderWatch {
 public:
  LeaderWatch() = default;
  LeaderWatch(const LeaderWatch&) = delete;
  LeaderWatch& operator=(const LeaderWatch&) = delete;

  // Watches the leaders of one more poller. To be called before start().
  void add(LeaderThreads* threads);

  bool start();
  void stop();

  // To be called by a leader that has just become absent.
  void leader_runs_callbacks() {
    if (!awake_.load(std::memory_order_seq_cst)) {
      wake();
    }
  }

 private:
  // After more looks than this without an absent leader the watch goes to sleep.
  static constexpr int kQuietLooks = 16;

  struct Post {
    LeaderThreads* threads;
    LeaderStall stall;
  };

  void wake();
  void run();
  // Checks all leaders once. True when one was absent. Sets when to look again.
  bool look(int64_t& next_look_ns);

  std::vector<Post> posts_;  // constant after start(), except `stall`, which only thread_ uses
  Thread thread_;
  // False: a leader that becomes absent must wake the watch. Seq_cst, because a leader makes its
  // LeaderThreads::word_ odd and then reads this word, and run() clears this word and then looks at
  // each leader's. In the single order of these four operations one of the two reads comes after
  // both writes, so no absent leader is overlooked. The other accesses need no order of their own:
  // mutex_ orders wake() and run().
  std::atomic<bool> awake_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

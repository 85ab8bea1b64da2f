#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "util/Mutex.h"
#include "util/Thread.h"

namespace workflow {

class LeaderThreads;

// A thread that watches for absent leaders. It looks at all of them every kLookNs. A leader is
// replaced if two looks find it in the same item, and if it sleeps or has used kLookNs of processor
// time in between. A leader that only waits for a processor is not replaced: on a busy machine
// another thread would only wait beside it. The watch sleeps while no leader becomes absent.
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
  static constexpr int64_t kLookNs = 1'000'000;
  // After more looks than this without an absent leader the watch goes to sleep.
  static constexpr int kQuietLooks = 16;

  struct Post {
    LeaderThreads* threads;
    uint64_t seen = 0;   // callback_epoch() at the last look
    int64_t cpu_ns = 0;  // the leader's, when `seen` was first seen
  };

  void wake();
  void run();
  // Checks all leaders once. True when one was absent.
  bool look();

  std::vector<Post> posts_;  // constant after start(), except `seen` and `cpu_ns`, which only
                             // thread_ uses
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

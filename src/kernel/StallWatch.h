#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernel/LeaderStall.h"
#include "kernel/PendingWork.h"
#include "util/Mutex.h"
#include "util/Thread.h"

namespace workflow {

class LeaderThreads;

// A thread that looks for user code which holds up what other threads could do.
//
// It replaces absent leaders that an item holds up (LeaderStall). It looks at all leaders twice in
// a millisecond, and once more in between when one of them has to be judged. While there is exposed
// work (PendingWork), it looks every kWorkLookNs. When two looks have found a thread in the same
// piece, it gives away the pieces behind that one if the thread sleeps, or was busy between the
// looks. The first look comes up to half a millisecond after the piece has begun, so the pieces are
// given away 0.3 to 0.8 ms after that. It sleeps while no leader is absent and no work is exposed.
//
// A runtime has one, with a thread only where it follows the system's clock. It must be stopped
// before the threads of the pollers are destroyed. Any thread may call begin_to_watch() and
// exposed(); one thread at a time may call the rest.
class StallWatch {
 public:
  StallWatch() = default;
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Watches the leaders of one more poller. To be called before start().
  void add(LeaderThreads* threads);

  bool start();
  void stop();

  // The exposed work of all threads of the runtime.
  ExposedWork& exposed() { return exposed_; }

  // To be called by a leader that has just become absent, and by a thread each time that it has
  // exposed work, which is then in the list exposed().
  void begin_to_watch() {
    if (!awake_.load(std::memory_order_seq_cst)) {
      wake();
    }
  }

 private:
  // The watch goes to sleep after more than this many looks in a row that found nothing to watch.
  static constexpr int kQuietLooks = 16;
  static constexpr int64_t kWorkLookNs = 300'000;

  struct Post {
    LeaderThreads* threads;
    LeaderStall stall;
  };

  void wake();
  void run();
  // Looks once at all leaders and at exposed work. True when there was something to watch. Sets
  // when to look again.
  bool look(int64_t& next_look_ns);

  std::vector<Post> posts_;  // constant after start(), except `stall`, which only thread_ uses
  ExposedWork exposed_;
  Thread thread_;
  // False: a leader that becomes absent, or a thread that exposes work, must wake the watch.
  // Seq_cst, because a leader makes its LeaderThreads::word_ odd, a thread makes its
  // PendingWork::state_ kExposed, and then each reads this word; and run() clears this word and
  // then looks at all of theirs. In the single order of these four operations one of the two reads
  // comes after both writes, so neither absent leaders nor exposed work are overlooked. The look
  // sees only work that is listed, which it is before it is exposed, under the mutex of exposed_.
  // If it is listed after the look, that mutex makes its thread read what run() has stored here
  // before that look, or something later. The other accesses need no order of their own: wake() and
  // the wait in run() hold mutex_.
  std::atomic<bool> awake_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow

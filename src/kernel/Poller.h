#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernel/HandlerPool.h"
#include "kernel/Intake.h"
#include "kernel/LeaderThreads.h"
#include "kernel/Multiplexer.h"
#include "kernel/PollerTimers.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// The owner of a descriptor. The poller calls it when something happens to the descriptor.
class IoHandler {
 public:
  // `events` are those of epoll_ctl(2). Called on the poller's thread with no lock held. Items that
  // are added to `finished` are run, or posted to the handler threads, after the round.
  virtual void on_events(uint32_t events, RunnableList& finished) = 0;

  // Called on the poller's thread once no event for this object can be in flight any more, after
  // Poller::retire(). May delete this.
  virtual void on_retired() = 0;

 protected:
  ~IoHandler() = default;

 private:
  friend class Poller;
  IoHandler* next_retired_ = nullptr;  // used by the leader only
};

// The loop that waits for many timers, descriptors and posted items, and the objects that it
// consists of: PollerTimers has the timers, LeaderThreads has the threads, and the Multiplexer
// waits. One thread at a time, the leader, runs the loop. It is meant by "the poller's thread".
//
// A round of the loop handles the events of descriptors, then the timers that are due, then posted
// items, then the descriptors that were retired. In the end it runs what it has finished, or posts
// it to the handler threads.
//
// The runtime owns its pollers. Any thread may call everything, except for what only the poller's
// thread may call.
//
// Invariants:
// 1. No event is reported to an IoHandler after on_retired(), which is called when all events of
//    the round have been handled. Between retire() and on_retired(), on_events() may still be
//    called for an event of the same round.
// 2. Every posted item runs, in the order of the posts, the last of them in the last round. That
//    round closes the intake before it runs them, and from then on nothing is posted.
// 3. rounds_made_ <= rounds_asked_. If they are equal while the intake is empty, nothing is posted
//    or being handled: a round adds itself to rounds_asked_ before it empties the intake.
class Poller {
 public:
  // For `watch` see LeaderThreads.
  Poller(Clock& clock, HandlerPool& handlers, StallWatch* watch = nullptr);
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // False with errno when descriptors or threads have run out.
  bool start();

  // To be called after timers().wait_until_ended(). Returns when all callbacks have returned that
  // were running on threads of this poller, except for the caller's.
  void wait_for_callbacks();

  // Stops the timers, and ends the poller's threads after everything that was posted has run. What
  // other threads post meanwhile runs or is refused. If a callback on a thread of this poller calls
  // it, it ends all threads but that one, which must not return to the poller.
  void stop();

  PollerTimers& timers() { return timers_; }
  // The handler threads to which the poller posts what its rounds have finished.
  HandlerPool& handlers() const { return handlers_; }
  Clock& clock() const { return clock_; }

  // Registers `fd` for `events` (EPOLLET included if wanted). 0, or -1 with errno.
  int add(int fd, uint32_t events, IoHandler* handler);

  // Replaces the events of a descriptor that was added. Events that have happened already are
  // reported (again, if they were reported before), edge-triggered or not. 0, or -1 with errno.
  int modify(int fd, uint32_t events, IoHandler* handler);

  // Removes `fd`, whose IoHandler will be added again. 0, or -1 with errno.
  int remove(int fd);

  // Removes `fd`, and calls handler->on_retired() once the events of this round have been handled.
  // Poller's thread only; once per IoHandler. Close the descriptor after this call.
  void retire(int fd, IoHandler* handler);

  // Runs `item` on the poller's thread, after the items posted before. Returns false, and does not
  // take the item, when the poller has stopped. Takes no lock, and makes a system call only if the
  // poller is not being woken already.
  bool post(Runnable* item);

  // This and the next three calls are for the thread that moves a manual clock.
  // Whether any descriptor is registered, so that the poller's thread must look for events.
  bool has_descriptors() const { return descriptors_.load(std::memory_order_relaxed) > 0; }
  // Requests a round of the poller's thread, and returns its number; 0 if the poller has stopped.
  uint64_t ask_for_round();
  // Returns when that round, or a later one, is over. Then the items that were posted before the
  // request were handled, and what the round has finished was run or posted. It may have looked at
  // descriptors and timers before the request. To be sure of those that were ready or due then,
  // make a second request after this returns, and wait for it.
  void wait_for_round(uint64_t round);
  // Whether no timer is due at the clocks' present time, and no timer that was due, or posted item,
  // is still to be handled.
  bool settled() const;

 private:
  static constexpr int kMaxEvents = 256;
  // How long posted items run before descriptors and timers are looked at. Posted work may be long,
  // such as the next pieces of many large replies.
  static constexpr int64_t kMaxPostedNs = 1'000'000;

  // The leader's loop. Returns when the poller closes or another thread leads.
  void lead();
  // The multiplexer was woken. Returns true if this is the last round.
  bool handle_wake_up();
  // Runs the posted items. Those for which this round has no time run in the next. `last`: this is
  // the last round, so it closes the intake and runs every item.
  void run_posted(bool last);
  void finish_retired();
  void end_round();

  // Constant from start() on.
  Clock& clock_;
  HandlerPool& handlers_;
  std::unique_ptr<Multiplexer> multiplexer_;

  // With locks of their own.
  PollerTimers timers_;
  LeaderThreads threads_;

  // Relaxed: it publishes nothing. The thread that moves a manual clock reads it after the pools
  // were quiet, and their locks order what callbacks have added before.
  std::atomic<int> descriptors_{0};

  // Any thread pushes. Only the leader calls the functions that one thread at a time may call.
  Intake intake_;

  mutable Mutex rounds_mutex_;
  bool stopped_ WF_GUARDED_BY(rounds_mutex_) = false;  // by stop(): the next wake-up is the last
  // The highest number of a round that was asked for, or has begun because the poller was woken.
  uint64_t rounds_asked_ WF_GUARDED_BY(rounds_mutex_) = 0;
  uint64_t rounds_made_ WF_GUARDED_BY(rounds_mutex_) = 0;  // rounds up to this number are over
  CondVar round_made_;

  // Used by the leader only.
  bool stopping_ = false;
  uint64_t round_ = 0;   // the number of this round; 0: it was not woken, or leaves posted items
  RunnableList posted_;  // left by the last round; older than what is in the intake
  RunnableList finished_;
  IoHandler* retired_ = nullptr;  // a list linked through next_retired_
  // How many descriptors were retired in this round. descriptors_ includes them until it is over,
  // so that a manual clock does not move before what they have finished is posted.
  int removed_descriptors_ = 0;
};

}  // namespace workflow

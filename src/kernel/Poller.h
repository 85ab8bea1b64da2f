#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "kernel/HandlerPool.h"
#include "kernel/Leadership.h"
#include "kernel/Multiplexer.h"
#include "kernel/ThreadContext.h"
#include "kernel/TimerDue.h"
#include "kernel/TimerQueue.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class Poller;

// A timer as the poller sees it. Its owner keeps it alive until it completes. Exactly one of
// start_timer(), cancel_timer() and left_queue() hands out the right to complete it.
class TimerNode : public TimerQueueNode {
 public:
  // When the timer is to leave the queue. Valid before the start, or if the timer is refused.
  TimerDue due() const { return due_.load(std::memory_order_relaxed); }

  // The clock that its deadlines refer to. Constant.
  ClockId clock() const { return clock_; }

  // The node has left the queue because its deadline passed, or because the poller stops. Called
  // with no lock held; the calling thread owns the completion. That is the poller's thread, except
  // for nodes that start_timer() has queued: then it may also be the thread that moves a manual
  // clock, or the node's starter when the start answers kDue. Items that are added to `finished`
  // are posted to the handlers. The node may be destroyed as soon as it is in that list.
  virtual void left_queue(bool stopped, RunnableList& finished) = 0;

 protected:
  // `restarts`: after the node has left the queue it will be started again, with restart_timer().
  explicit TimerNode(const ClockedDue& when = {TimerDue::after(0)}, bool restarts = false)
      : restarts_(restarts), periodic_(restarts), clock_(when.clock), due_(when.due) {}
  ~TimerNode() = default;

  // Whether the node was created with `restarts`.
  bool is_periodic() const { return periodic_; }

  // To be called before the start. Changes due() to `to` if it still equals `from`, that is, if no
  // other thread has moved the timer.
  void change_due(TimerDue from, TimerDue to) {
    due_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }

  // The deadline that has passed. Valid from a left_queue() call with `stopped` false until the
  // next restart.
  int64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend class Poller;
  // The small members come first because they fit behind the index of TimerQueueNode.
  // Set by both start and cancel: the first to exchange it to true decides (rule 3 below).
  std::atomic<bool> flag_{false};
  // Guarded by the poller's mutex: what has ended the node. If the node was not queued then, its
  // coming start, or restart, is refused.
  enum class Mark : uint8_t { kNone, kCancelled, kScopeEnded };
  Mark mark_ = Mark::kNone;
  bool restarts_;  // guarded by the poller's mutex: periodic, and nothing has removed it for good
  const bool periodic_ : 1;
  const ClockId clock_ : 7;  // selects the queue
  // Changed by both start and move: start exchanges it to started(), after setting poller_ (rule
  // 10).
  std::atomic<TimerDue> due_;
  // Guarded by the poller's mutex while the node is queued. The queue may hold an earlier deadline
  // if the node was moved to a later one since.
  int64_t deadline_ns_ = 0;
  Poller* poller_ = nullptr;  // set by start, before flag_
};

// The owner of a descriptor. The poller calls it when something happens to the descriptor.
class IoHandler {
 public:
  // `events` are those of epoll_ctl(2). Called on the poller's thread with no lock held. Items that
  // are added to `finished` are run, or posted to the handlers, after the round.
  virtual void on_events(uint32_t events, RunnableList& finished) = 0;

  // Called on the poller's thread once no event for the handler can be in flight any more, after
  // Poller::retire(). May delete the handler.
  virtual void on_retired() = 0;

 protected:
  ~IoHandler() = default;

 private:
  friend class Poller;
  IoHandler* next_retired_ = nullptr;  // used by the leader only
};

// One thread that waits for many timers and descriptors.
//
// A queue for each clock holds the timers of that clock, with deadlines in its own time. The
// multiplexer is armed with a monotonic time: for each queue, the poller converts the time that the
// queue's clock has left until its earliest deadline. This conversion stays right until a clock is
// set or the system is suspended. The multiplexer watches for that from the first timer of another
// clock on, and then makes the poller compute the time again, in O(1) whatever the number of
// timers. Whether a timer is due is decided by its own clock, so no timer expires early.
//
// Rules of the timers (the numbers are those of docs/timer-protocol.md; the poller's mutex is P in
// the models):
// 1. A node is in at most one queue. It is `removed` (TimerQueueNode::queued() is false, guarded by
//    the poller's mutex) once it has left the queue, whichever thread removed it. The thread that
//    removes a node owns its completion.
// 2. `stopped` is set under the poller's mutex before the queue is drained. Once it is set nothing
//    is inserted, and a start answers kStopped.
// 3. Start and cancel both call flag_.exchange(true). Start does so while it holds the poller's
//    mutex, and inserts the node only if it came first. After releasing the mutex it never touches
//    the node again. A canceller that came second takes the mutex and erases the node if it is
//    still queued; then the canceller owns the completion.
// 5. A canceller that finds the node removed never touches it again, except to mark it (rule 13).
// 9. A scope that has ended does not use flag_. It calls end_for_scope(), which marks the node
//    under the poller's mutex, unless it is marked already. If the node is queued, it is removed,
//    and the caller owns the completion. A start or restart that comes later finds the mark and
//    answers kScopeEnded. The caller holds no lock. It keeps the node alive by its registration in
//    the scope (kernel/CancelScope.h).
// 10. Start and move both change due_. Before the start, a move stores the new time there. Start
//    exchanges due_ while it holds the poller's mutex. A move that comes later takes the mutex and
//    moves the node if it is still queued.
// 13. A node that restarts leaves the queue each time when it is due, and belongs to its tick then.
//    restart_timer() puts it back under the poller's mutex. A thread that wants to end the node in
//    between marks it under that mutex, as a scope does. The first thread to mark the node, or to
//    take it out of the queue, has ended it. The restart finds the mark and refuses, and its caller
//    owns the completion.
// 18. A node that is due when it is started or restarted need not be queued. The start decides this
//    under the poller's mutex, after every check that may refuse the node. Such a node counts as
//    popped: it is removed, and its starter owns the completion.
// (Rules 4, 6 and 7 concern names: see NameRegistry. Rule 8: unnamed timers use none of these.
// Rules 15 to 17 are in docs/scopes.md.)
//
// The poller's mutex is a leaf of the lock order. While it is held nothing is posted, freed or
// logged, and nothing but the multiplexer is called.
class Poller {
 public:
  // If `watch` is not null and there are several handlers, the poller's thread itself runs what its
  // rounds have finished while they follow each other closely. Otherwise everything is posted to
  // the handlers.
  Poller(Clock& clock, HandlerPool& handlers, LeaderWatch* watch = nullptr);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // False with errno when descriptors or threads have run out.
  bool start();

  // Timers started from now on answer kStopped.
  void refuse_timers();

  // As refuse_timers(), and also ends every timer (left_queue() with `stopped`). Returns at once.
  // Descriptors are still served.
  void stop_timers();

  // To be called after stop_timers(). Returns when all timers have ended and were posted to the
  // handlers.
  void wait_for_timers();

  // To be called after wait_for_timers(), when the leader no longer runs callbacks itself. Returns
  // when no former leader is in a callback, except those that block in a BlockingScope. A former
  // leader may call this itself, inside a BlockingScope. Returns how many blocking waits have
  // ended: while this number stays the same the poller stays quiet.
  uint64_t wait_quiet();

  // As stop_timers(), and also ends the poller's thread, after everything that was posted to it has
  // run. If a callback on a thread of this poller calls it, it ends all threads but that one, which
  // must not return to the poller.
  void stop();

  // Starts a thread that leads instead of the leader, if the leader is running callbacks. Any
  // thread.
  void replace_leader();

  // To be called before and after a wait in a callback that a leader runs; see BlockingScope.
  void begin_blocking();
  void end_blocking();

  // Joins the threads that led before and have ended.
  void join_ended();

  enum class Start {
    kQueued,      // the poller owns the node now
    kDue,         // only with IfDue::kReport: the node is due already, so it is not queued (rule
                  // 18); the caller owns the completion and goes on with left_queue()
    kCancelled,   // a canceller came first; the caller owns the completion
    kScopeEnded,  // end_for_scope() came first; the caller owns the completion
    kStopped,     // the poller has stopped; the caller owns the completion
    kNoMemory,    // the completion is the caller's
    // errno says why: EMFILE, ENFILE, ENOMEM, when the first timer of another than the monotonic
    // clock needs a descriptor; the completion is the caller's
    kNoClock
  };
  // What happens to a node that is due when it is started: kQueue queues it, kReport answers kDue.
  // A caller that holds locks, or cannot call left_queue() at once, uses kQueue.
  enum class IfDue { kQueue, kReport };
  // Any thread, once per node. The node does not leave the queue before its clock shows the time of
  // due(), unless something ends or moves it. A node with kNever leaves it only in this way.
  Start start_timer(TimerNode* node, IfDue if_due = IfDue::kQueue);
  // To be called before the start of a node that enters a scope, before it enters.
  void expect(TimerNode* node) { node->poller_ = this; }
  // As above, with a delay that was not known when the node was created.
  Start start_timer(TimerNode* node, int64_t delay_ns) {
    node->due_.store(TimerDue::after(delay_ns), std::memory_order_relaxed);
    return start_timer(node);
  }

  // Puts a node that restarts, and has left the queue, back into it. May be called once after each
  // left_queue() with `stopped` false, by the thread that owns the node since then. If the node is
  // not queued, the caller still owns it: after kDue it goes on as after left_queue(), otherwise it
  // completes the node.
  static Start restart_timer(TimerNode* node, int64_t deadline_ns, IfDue if_due);

  enum class Cancel {
    kBeforeStart,    // the coming start will answer kCancelled
    kBeforeRestart,  // the coming restart will answer kCancelled
    kTaken,          // the node was removed from the queue; the caller owns the completion
    kTooLate         // the node has left the queue already, or another thread has ended it; do not
                     // touch it again
  };
  // Cancels the node. Any thread; at most once per node. The caller must know that the node is
  // alive.
  static Cancel cancel_timer(TimerNode* node);

  // Cancels a node that was started. May be called any number of times. The caller must know that
  // the node is alive.
  static Cancel end_timer(TimerNode* node);
  // Whether somebody has ended a node that was started: not whether its time has come, or the
  // poller has stopped.
  static bool is_ended(const TimerNode* node);

  // Called instead of start_timer(). Returns false if a cancel came first, which then has answered
  // kBeforeStart. Cancels that come later answer kTooLate.
  static bool close_unstarted(TimerNode* node) {
    node->poller_ = nullptr;
    return !node->flag_.exchange(true, std::memory_order_acq_rel);
  }

  enum class Move {
    kMoved,
    kInTick,  // the node has left the queue and will restart; nothing has ended it yet
    kTooLate  // the node is cancelled, refused, or has left the queue for good
  };
  // Replaces the node's deadline by `due`, on the node's clock. A delay counts from now, or from
  // the start if the node is not started yet. Any thread that knows the node to be alive, any
  // number of times.
  static Move move_timer(TimerNode* node, TimerDue due);

  // Returns how long it will be until the node leaves the queue, or 0 if that time has passed. If
  // the node is not started, returns the time as if it were started now, by `clock`. Returns -1 if
  // the node is cancelled, refused, or has left the queue. Any thread that knows the node to be
  // alive.
  static int64_t remaining_ns(const TimerNode* node, Clock& clock);

  static bool is_started(const TimerNode* node) {
    return node->due_.load(std::memory_order_acquire).is_started();
  }

  // Ends the node because its scope has ended. The caller must know that the node is alive, and
  // that expect() was called. At most once per node. Returns true if the node was removed from the
  // queue; the caller owns the completion then. Otherwise another thread is about to end the node:
  // if it was not started yet, the coming start, or restart, will answer kScopeEnded.
  static bool end_for_scope(TimerNode* node);

  // Sets the node's deadline to `deadline_ns`, and inserts or moves the node. Only for nodes of the
  // monotonic clock that no other component cancels (timeouts of descriptors). Any thread that
  // keeps the owner alive. Returns false if the node is now not queued, because the poller has
  // stopped or memory has run out.
  bool schedule(TimerNode* node, int64_t deadline_ns);
  // Removes such a node if it is queued. When this returns on the poller's thread, no other thread
  // is handling the node.
  void unschedule(TimerNode* node);

  // Any thread. Registers `fd` for `events` (EPOLLET included if wanted). 0, or -1 with errno.
  int add(int fd, uint32_t events, IoHandler* handler);

  // Any thread. Replaces the events of a descriptor that was added. Events that have happened
  // already are reported (again, if they were reported before), edge-triggered or not. 0, or -1
  // with errno.
  int modify(int fd, uint32_t events, IoHandler* handler);

  // Any thread. Removes `fd`, whose handler will be added again. 0, or -1 with errno.
  int remove(int fd);

  // Removes `fd`, and calls handler->on_retired() once the events of this round have been handled.
  // Poller's thread only; once per handler. Close the descriptor after this call.
  void retire(int fd, IoHandler* handler);

  // Runs `item` on the poller's thread, after the items posted before. Returns false, and does not
  // take the item, when the poller has stopped.
  bool post(Runnable* item);

  // Posts finished tasks to the handlers, and empties the list.
  void hand_over(RunnableList& finished) { handlers_.post(finished); }

  // This and the next three calls are for the thread that moves a manual clock, which is not a
  // thread of the library. Ends the nodes that are due, as the poller's thread would. Leaves those
  // of schedule() to the poller's thread, which alone may end them.
  void expire_for_clock(RunnableList& finished);
  // Whether any descriptor is registered, so that the poller's thread must look for events.
  bool has_descriptors() const { return descriptors_.load(std::memory_order_relaxed) > 0; }
  // Requests a round of the poller's thread, and returns its number; 0 if the poller has stopped.
  uint64_t ask_for_round();
  // Returns when that round, or a later one, is over. The round handles the events that had
  // arrived, the timers that were due and the items that were posted before it was requested. What
  // it has finished was run or posted to the handlers.
  void wait_for_round(uint64_t round);

  bool on_own_thread() const { return ThreadContext::current().poller == this; }

  // Whether no timer is due at the clocks' present time, and no popped node or posted item is still
  // to be handled.
  bool settled() const;

  // Returns the monotonic time at which the first timer becomes due, provided that no clock is set
  // before then; kNever when there is no timer.
  int64_t earliest_ns();

  // Makes the poller read the clock again. For clocks that are moved by hand.
  void wake() { multiplexer_->wake(); }
  Clock& clock() const { return clock_; }

  size_t timer_count() const;

 private:
  // The most nodes that leave the queue in one hold of the lock, so that no thread waits long for
  // it.
  static constexpr int kMaxPopped = 256;
  // While timers expire at intervals shorter than kDenseNs, rounds are spaced out, by up to
  // kMaxSpacingNs. At half a million expiries per second, one wake-up per expiry would cost more
  // than all other work for it.
  static constexpr int64_t kDenseNs = 6'000;
  static constexpr int64_t kMinSpacingNs = 8'000;
  static constexpr int64_t kMaxSpacingNs = 400'000;
  static constexpr int kMaxEvents = 256;
  // How long posted items run before descriptors and timers are looked at. Posted work may be long,
  // such as the next pieces of many large replies.
  static constexpr int64_t kMaxPostedNs = 1'000'000;
  // If a round follows the last one within kCloseRoundsNs, or has at least kBusyBatch items to run,
  // the leader runs them itself, and posts to the handlers what is left after kMaxCallbacksNs.
  // After a leader had to be replaced everything is posted to the handlers for a while: first for
  // kMinHandOverNs, and twice as long each time (up to kMaxHandOverNs) if it happens again within
  // kReplacedAgainNs.
  static constexpr int64_t kCloseRoundsNs = 1'000'000;
  static constexpr size_t kBusyBatch = 4;
  static constexpr int64_t kMaxCallbacksNs = 500'000;
  static constexpr int64_t kMinHandOverNs = 10'000'000;
  static constexpr int64_t kMaxHandOverNs = 1'000'000'000;
  static constexpr int64_t kReplacedAgainNs = 2'000'000'000;

  bool start_thread(bool as_substitute) WF_REQUIRES(threads_mutex_);
  void start_substitute() WF_REQUIRES(threads_mutex_);
  void thread_main(std::list<Thread>::iterator self, bool as_substitute);
  // The leader's loop. Returns when the poller closes or another thread leads.
  void lead();
  // Runs what the round has finished, or posts it to the handlers. False when the caller no longer
  // leads.
  bool deliver();
  bool may_run_finished(int64_t now_ns);
  void note_replacement();
  // Ends one batch of the timers that are due.
  void expire();
  // Ends all timers, after stop_timers().
  void drain();
  // Which thread ends nodes: the leader, the leader when it ends all timers, or the thread that
  // moves the clock.
  enum class Ender { kLeader, kStop, kClock };
  // Removes up to kMaxPopped nodes that are due (any nodes, for kStop) from the queues and ends
  // them. Returns how many it has ended.
  int end_due(Ender ender, RunnableList& finished);
  // Moves the due nodes of one queue to due[count..kMaxPopped), where `looked` is how many nodes of
  // other queues were looked at. Returns that number plus the nodes that this call has looked at.
  int take_due(TimerQueue& queue, int64_t now_ns, Ender ender, TimerNode** due, int* count,
               int looked) WF_REQUIRES(mutex_);
  TimerQueue& queue_of(const TimerNode* node) WF_REQUIRES(mutex_) {
    return queues_[static_cast<size_t>(node->clock_)];
  }
  // The monotonic time at which `clock` will show `deadline_ns`, if `clock` is not set before. The
  // result is never too late, but may be some nanoseconds too early.
  int64_t monotonic_of(ClockId clock, int64_t deadline_ns) const;
  // The same for the earliest deadline of all queues.
  int64_t earliest_monotonic_ns() const WF_REQUIRES(mutex_);
  // Queues the node, or refuses it. If `due`, answers kDue instead of queueing it.
  Start queue_or_refuse(TimerNode* node, int64_t deadline_ns, bool due) WF_REQUIRES(mutex_);
  void insert(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Removes the node from its queue. Memory that the queue no longer needs is freed later, on the
  // poller's thread, because the caller may hold locks.
  void erase(TimerNode* node) WF_REQUIRES(mutex_);
  void return_memory();
  void move(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Moves the node in the queue to its deadline, if that is later than the queue says. Returns
  // whether it was.
  bool settle(TimerNode* node) WF_REQUIRES(mutex_);
  void arm(int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Arms the multiplexer for the timers that are left after others were removed. The leader calls
  // it after it has handled what is due, since the system call takes as long as a short callback.
  void rearm() WF_REQUIRES(mutex_);
  void space_rounds(int64_t now_ns, int due) WF_REQUIRES(mutex_);
  // Runs the posted items. Those for which this round has no time run in the next. `all`: runs
  // every item, because this is the last round.
  void run_posted(bool all);
  void finish_retired();

  Clock& clock_;
  HandlerPool& handlers_;
  std::unique_ptr<Multiplexer> multiplexer_;
  LeaderWatch* const watch_;
  Leadership leadership_;

  mutable Mutex mutex_;                               // P
  TimerQueue queues_[kClocks] WF_GUARDED_BY(mutex_);  // by ClockId
  size_t first_queue_ WF_GUARDED_BY(mutex_) = 0;      // which queue is looked at first
  int64_t armed_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t spacing_ns_ WF_GUARDED_BY(mutex_) = 0;
  int64_t last_expiry_ns_ WF_GUARDED_BY(mutex_) = 0;
  int64_t next_round_ns_ WF_GUARDED_BY(mutex_) = 0;  // no round is armed for earlier
  bool stopped_ WF_GUARDED_BY(mutex_) = false;
  bool draining_ WF_GUARDED_BY(mutex_) = false;
  bool drained_ WF_GUARDED_BY(mutex_) = false;
  CondVar drained_changed_;
  bool unarmed_ WF_GUARDED_BY(mutex_) = false;         // see rearm()
  bool returns_memory_ WF_GUARDED_BY(mutex_) = false;  // a queue has surplus; the poller was woken
                                                       // to free it
  bool leaving_ WF_GUARDED_BY(mutex_) = false;         // nodes were popped and not yet handed over

  mutable Mutex inbox_mutex_;
  RunnableList inbox_ WF_GUARDED_BY(inbox_mutex_);
  bool inbox_closed_ WF_GUARDED_BY(inbox_mutex_) = false;
  uint64_t rounds_asked_ WF_GUARDED_BY(inbox_mutex_) = 0;  // posting an item requests one too
  uint64_t rounds_made_ WF_GUARDED_BY(inbox_mutex_) = 0;   // rounds up to this number are over
  CondVar round_made_;
  std::atomic<int> descriptors_{0};

  Mutex threads_mutex_;
  CondVar threads_changed_;
  std::list<Thread> threads_ WF_GUARDED_BY(threads_mutex_);
  std::list<Thread> ended_ WF_GUARDED_BY(threads_mutex_);  // have ended or are about to; to be
                                                           // joined
  size_t blocked_ WF_GUARDED_BY(threads_mutex_) = 0;       // of threads_
  uint64_t unblocked_ WF_GUARDED_BY(threads_mutex_) = 0;   // how many blocking waits have ended

  // Used by the leader only.
  bool stopping_ = false;
  uint64_t round_ = 0;  // rounds_asked_ when this round took the posted items; 0: nothing new
  int64_t last_round_ns_ = 0;
  int64_t replaced_ns_ = 0;
  int64_t hand_over_ns_ = 0;  // for how long after replaced_ns_ everything is posted
  RunnableList finished_;
  IoHandler* retired_ = nullptr;  // a list linked through next_retired_
};

}  // namespace workflow

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/Multiplexer.h"
#include "kernel/TimerDue.h"
#include "kernel/TimerNode.h"
#include "kernel/TimerQueue.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class HandlerPool;

// The timers of one poller: how they start, move, end and expire.
//
// A queue for each clock holds the timers of that clock, with deadlines in its own time. The
// multiplexer is armed with one monotonic time. For each queue, the time left until its earliest
// deadline, by the queue's clock, is added to the present monotonic time, and the earliest result
// counts. It stays right until a clock is set or the system is suspended. The multiplexer watches
// for that from the first timer of another clock on, and then makes the poller compute the time
// again, in O(1) whatever the number of timers. Whether a timer is due is decided by its own clock,
// so no timer expires early.
//
// Part of its Poller, which it does not know. It owns no node. Any thread may call everything,
// except for what only the leader may call. The static functions find the node's poller by
// themselves.
//
// mutex_ is a leaf of the lock order. While it is held nothing is posted, freed or logged, and
// nothing but the clock and the multiplexer is called.
//
// Invariants. The numbers are those of the rules in docs/timer-protocol.md. The rules that are
// missing here are kept by other classes.
// 1. A node is in at most one queue. It is `removed` (TimerQueueNode::queued() is false, guarded by
//    mutex_) once it has left the queue, whichever thread removed it. The thread that removes a
//    node owns its completion, or its tick if the node restarts (13).
// 2. `stopped` is set under mutex_ before the queues are drained. Once it is set nothing is
//    inserted, and the start of a node that nobody has ended before answers kStopped.
// 3. Start and cancel both call flag_.exchange(true). Start does so while it holds mutex_, and
//    inserts the node only if it came first. After releasing mutex_ it never touches a node that it
//    has inserted. A canceller that came second takes mutex_ and erases the node if it is still
//    queued; then the canceller owns the completion.
// 5. A canceller that finds the node removed may mark it in that same hold of mutex_ (13). The node
//    may be freed from then on, unless the caller keeps it alive.
// 9. A scope that has ended does not use flag_. It calls end_for_scope(), which marks the node
//    under mutex_, unless it is marked already. If the node is queued, it is removed, and the
//    caller owns the completion. A start or restart that comes later finds the mark and answers
//    kScopeEnded, or kCancelled if a canceller had marked the node before, or comes before the
//    start. The caller holds no lock. It keeps the node alive by its registration in the scope
//    (kernel/CancelScope.h).
// 10. Start and move both change due_. Before the start, a move stores the new time there. Start
//    exchanges due_ while it holds mutex_. A move that comes later takes mutex_ and changes the
//    deadline if the node is still queued. The queue learns of a later deadline only when the node
//    is its head (settle).
// 13. A node that restarts leaves the queue each time when it is due, and belongs to its tick then.
//    restart() puts it back under mutex_. A thread that wants to end the node in between marks it
//    under mutex_, as a scope does. The first thread that marks the node, or takes it out of the
//    queue for another reason than that it is due, has ended it. The restart finds the mark and
//    refuses, and its caller owns the completion.
// 18. A node that is due when it is started or restarted need not be queued. The start decides this
//    under mutex_, after every check that may refuse the node. Such a node counts as expired: it is
//    removed, and its starter owns the completion.
class PollerTimers {
 public:
  explicit PollerTimers(Clock& clock) : clock_(clock) {}
  PollerTimers(const PollerTimers&) = delete;
  PollerTimers& operator=(const PollerTimers&) = delete;

  // To be called once, before any timer is started. `multiplexer` must outlive this.
  void attach(Multiplexer& multiplexer) { multiplexer_ = &multiplexer; }

  enum class Start {
    kQueued,      // another thread may end and free the node at any time
    kDue,         // only with IfDue::kReport: the node is due already, so it is not queued (rule
                  // 18); the caller owns the completion, usually by calling left_queue()
    kCancelled,   // a canceller came first; the caller owns the completion
    kScopeEnded,  // end_for_scope() came first; the caller owns the completion
    kStopped,     // the poller has stopped; the caller owns the completion
    kNoMemory,    // the caller owns the completion
    // the first timer of a clock other than the monotonic one needs a descriptor, and cannot have
    // it; errno says why (EMFILE, ENFILE, ENOMEM, ENOSPC); the caller owns the completion
    kNoClock
  };
  // What happens to a node that is due when it is started: kQueue queues it, kReport answers kDue.
  // A caller that cannot complete the node itself, by left_queue() or in another way, uses kQueue.
  enum class IfDue { kQueue, kReport };
  // Once per node. The node does not leave the queue before its clock shows the time of due(),
  // unless something ends or moves it. A node with kNever leaves it only in this way.
  Start start(TimerNode* node, IfDue if_due = IfDue::kQueue);
  // As above, with a delay that was not known when the node was created.
  Start start(TimerNode* node, int64_t delay_ns) {
    node->due_.store(TimerDue::after(delay_ns), std::memory_order_relaxed);
    return start(node);
  }
  // Call this before the node enters a scope, so that the scope finds its poller.
  void expect(TimerNode* node) { node->timers_ = this; }

  // Called instead of start(). Returns false if a cancel came first, which then has answered
  // kBeforeStart. Cancels that come later answer kTooLate.
  static bool close_unstarted(TimerNode* node) {
    node->timers_ = nullptr;
    return !node->flag_.exchange(true, std::memory_order_acq_rel);
  }

  // Puts a node that restarts, and has left the queue, back into it. May be called once after each
  // left_queue() with `stopped` false, by the thread that owns the node since then. If the node is
  // not queued, the caller still owns it: after kDue it goes on as after left_queue(), otherwise it
  // completes the node.
  static Start restart(TimerNode* node, int64_t deadline_ns, IfDue if_due);

  enum class Cancel {
    kBeforeStart,    // the coming start will answer kCancelled
    kBeforeRestart,  // the coming restart will answer kCancelled
    kTaken,          // the node was removed from the queue; the caller owns the completion
    kTooLate         // the node has left the queue already, or another thread has ended it; the
                     // node may be freed from now on, unless the caller keeps it alive
  };
  // Cancels the node. At most once before the start; after it, does what end() does. The caller
  // must know that the node is alive.
  static Cancel cancel(TimerNode* node);

  // Cancels a node that was started. May be called any number of times. The caller must know that
  // the node is alive.
  static Cancel end(TimerNode* node);
  // Whether somebody has ended a node that was started: not whether its time has come, or the
  // poller has stopped.
  static bool is_ended(const TimerNode* node);

  // Ends the node because its scope has ended. The caller must know that the node is alive, and
  // that expect() was called. At most once per node. Returns true if the node was removed from the
  // queue; the caller owns the completion then. Otherwise another thread completes the node: the
  // coming start or restart (with kCancelled if a canceller had marked the node before, or comes
  // before the start; otherwise with kScopeEnded), or the thread that has removed it.
  static bool end_for_scope(TimerNode* node);

  enum class Move {
    kMoved,
    kInTick,  // nothing was changed: the node has left the queue, will restart, and is not ended
    kTooLate  // the node is cancelled, refused, or has left the queue for good
  };
  // Replaces the node's deadline by `due`, on the node's clock. A delay counts from now, or from
  // the start if the node is not started yet. Any thread that knows the node to be alive, any
  // number of times.
  static Move move(TimerNode* node, TimerDue due);

  // Returns how long it will be until the node leaves the queue: 0 if that time has passed, kNever
  // if it has no deadline. If the node is not started, returns the time as if it were started now,
  // by `clock`. Returns -1 if the node is cancelled, refused, or has left the queue. Any thread
  // that knows the node to be alive.
  static int64_t remaining_ns(const TimerNode* node, Clock& clock);

  static bool is_started(const TimerNode* node) {
    return node->due_.load(std::memory_order_acquire).is_started();
  }

  // Sets the node's deadline to `deadline_ns`, and inserts or moves the node. Only for nodes of the
  // monotonic clock that no other component cancels (timeouts of descriptors). Any thread that
  // keeps the owner alive. Returns false if the node is now not queued, because the poller has
  // stopped or memory has run out.
  bool schedule(TimerNode* node, int64_t deadline_ns);
  // Removes such a node if it is queued. When this returns on the leader, no other thread is
  // handling the node, but left_queue() may still be called in this round.
  void unschedule(TimerNode* node);

  // From now on a start answers kStopped.
  void refuse();
  bool refuses() const;
  // As refuse(), and also makes the leader empty the queues. Returns at once.
  void stop();
  // To be called after stop(). Returns when the queues are empty, and what their nodes have
  // finished was posted to the handlers.
  void wait_until_ended();

  // Which thread ends nodes: the leader, the leader in end_all(), or the thread that moves a manual
  // clock, which is not a thread of the library. kClock does not take the nodes of schedule(),
  // which only the leader may end.
  enum class Ender { kLeader, kStop, kClock };
  // Removes up to kMaxPopped nodes that are due (any nodes, for kStop) from the queues, then calls
  // their left_queue() without mutex_. Returns how many. After 0, nodes may still be due, except
  // for kStop.
  int end_due(Ender ender, RunnableList& finished);

  // Leader only: whether stop() was called.
  bool stopping() const;
  // Leader only, when stop() was called. Ends all timers, and posts what they finish.
  void end_all(HandlerPool& handlers);
  // Leader only. Frees some of the memory that the queues no longer need.
  void return_memory();
  // Leader only. Called after what end_due() has finished was run or posted. Arms the multiplexer
  // for the timers that are left: end_due() does not, because the callbacks come first.
  void end_round();

  // True if no timer is due now, and the leader has finished the last round in which it has removed
  // timers. May be false although no timer is due, if the earliest one was moved to a later time
  // (10).
  bool settled() const;
  // Returns the monotonic time at which the first timer becomes due, provided that no clock is set
  // before then; kNever when there is no timer.
  int64_t earliest_ns();
  // How many timers are queued.
  size_t size() const;

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

  // Removes the due nodes of one queue, appends them to due[*count..kMaxPopped), and advances
  // *count. `looked` is how many nodes were looked at in this hold of mutex_ already. Returns that
  // number plus the nodes that this call has looked at.
  int take_due(TimerQueue& queue, int64_t now_ns, Ender ender, TimerNode** due, int* count,
               int looked) WF_REQUIRES(mutex_);
  TimerQueue& queue_of(const TimerNode* node) WF_REQUIRES(mutex_) {
    return queues_[static_cast<size_t>(node->clock_)];
  }
  // The monotonic time at which `clock` will show `deadline_ns`, if `clock` is not set before. The
  // result is never too late, but may be some nanoseconds too early.
  int64_t monotonic_of(ClockId clock, int64_t deadline_ns) const;
  // The monotonic time at which the earliest deadline of all queues will be due.
  int64_t earliest_monotonic_ns() const WF_REQUIRES(mutex_);
  // Queues the node, or refuses it. If `due`, answers kDue instead of queueing it.
  Start queue_or_refuse(TimerNode* node, int64_t deadline_ns, bool due) WF_REQUIRES(mutex_);
  void insert(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Removes the node from its queue. Memory that the queue no longer needs is freed later, by
  // the leader or by the thread that moves a manual clock, because the caller may hold locks.
  void erase(TimerNode* node) WF_REQUIRES(mutex_);
  void move_queued(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // If the node was moved to a later deadline (rule 10), moves it in the queue to its place.
  // Returns whether it was.
  bool settle(TimerNode* node) WF_REQUIRES(mutex_);
  void arm(int64_t deadline_ns) WF_REQUIRES(mutex_);
  void space_rounds(int64_t now_ns, int due) WF_REQUIRES(mutex_);

  // Constant from attach() on.
  Clock& clock_;
  Multiplexer* multiplexer_ = nullptr;

  mutable Mutex mutex_;
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
  bool unarmed_ WF_GUARDED_BY(mutex_) = false;         // end_round() has to arm the multiplexer
  bool returns_memory_ WF_GUARDED_BY(mutex_) = false;  // a queue has surplus; the poller was woken
                                                       // to free it
  bool leaving_ WF_GUARDED_BY(mutex_) = false;         // the leader has removed nodes in this round
};

}  // namespace workflow

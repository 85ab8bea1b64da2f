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
// Terms. The leader is the thread that runs the poller's loop now, and a round is one pass of the
// loop (kernel/Poller.h). To complete a node (kernel/TimerNode.h) is to do what its end calls for:
// a timer task stores its outcome and is posted. A periodic node leaves the queue for each tick,
// and restart() puts it back. To mark a node is to set its mark_, because of which a coming start
// or restart refuses it. A marked node is ended.
//
// Each clock has a queue, with deadlines on that clock. The multiplexer, however, waits until one
// time on the monotonic clock. So the time left in each queue is added to the present monotonic
// time, and the earliest of the sums is armed. When a clock is set or the system was suspended, any
// sum but the monotonic clock's may be wrong. The multiplexer watches for this from the first timer
// of another clock on. It then wakes the leader, which computes the sums again, in O(1) whatever
// the number of timers. A node expires only when its own clock shows its deadline, so never too
// early.
//
// Part of its Poller, to which it has no pointer. It owns no node. A function may be called on any
// thread unless its comment names one. The static functions are for callers that do not know the
// node's poller. They find it in the node.
//
// mutex_ is a leaf of the lock order. While it is held nothing is posted, freed or logged, and only
// the queues, the clock and the multiplexer are called. So functions that neither wait nor call
// left_queue() may be called with any lock held that is not a leaf itself.
//
// Invariants. The numbers are those of the rules in docs/timer-protocol.md. The rules that are
// missing here are kept by other classes.
// 1. A node is in at most one queue, which is guarded by mutex_. It is `removed` once it has left
//    the queue, whichever thread removed it. That thread owns its completion, or its tick if the
//    node is periodic and was due (13).
// 2. stopped_ is set under mutex_ before the queues are emptied. Once it is set nothing is
//    inserted, and a start or restart answers kStopped, unless a canceller or scope came first.
// 3. Start and cancel both call flag_.exchange(true). The one that reads false came first. Start
//    does so while it holds mutex_. If it came first, it inserts the node in that critical section,
//    unless it refuses the node or reports that it is due (18). After releasing mutex_ it never
//    touches a node that it has inserted. If the canceller came first, the start answers
//    kCancelled. A canceller that came second takes mutex_. If the node is queued, the canceller
//    removes it and owns the completion.
// 5. If a canceller finds the node removed, it may touch the node only until it releases mutex_.
//    The node may be freed from then on, unless the caller keeps it alive.
// 9. A scope that has ended does not use flag_. It calls end_for_scope(), which marks the node
//    under mutex_, unless it is marked already. If the node is queued, the scope removes it and
//    owns the completion. A start or restart that comes later finds the mark and refuses the node.
//    It answers kCancelled if a canceller has set the mark or has come before the start (3),
//    otherwise kScopeEnded. The scope holds no lock. The node is not freed during the call, because
//    it is registered in the scope (kernel/CancelScope.h).
// 10. Start and move both change due_, which holds the delay or deadline until the start. A move
//    before the start stores the new time there. Start exchanges due_ for started() while it holds
//    mutex_. A move that reads started() takes mutex_ and changes deadline_ns_ if the node is
//    queued. The queue may then know an earlier deadline than the node. It is corrected only when
//    the node comes to the head of the queue (settle).
// 13. A periodic node that is due leaves the queue and belongs to its tick, until restart() puts it
//    back under mutex_. Meanwhile a canceller or scope sets the mark under mutex_, unless it is
//    set, and so ends the node. The restart finds the mark and refuses, and the caller of
//    restart() owns the completion.
// 18. A node that is due when it is started or restarted need not be queued. With IfDue::kReport
//    the answer is kDue, unless one of the checks under mutex_ refuses the node. Such a node counts
//    as removed because it was due. The caller owns its completion, or its tick.
class PollerTimers {
 public:
  explicit PollerTimers(Clock& clock) : clock_(clock) {}
  PollerTimers(const PollerTimers&) = delete;
  PollerTimers& operator=(const PollerTimers&) = delete;

  // To be called once, before any timer is started. `multiplexer` must outlive this.
  void attach(Multiplexer& multiplexer) { multiplexer_ = &multiplexer; }

  enum class Start {
    kQueued,      // another thread may end and free the node at any time
    kDue,         // only with IfDue::kReport: the node is due, so it is not queued (rule 18); the
                  // caller owns the completion or tick, and may call left_queue() for it
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
  // Called once per node, by its owner. The node stays queued until its clock shows the time of
  // due(), unless it is ended or moved, or the poller stops. The time kNever never comes.
  Start start(TimerNode* node, IfDue if_due = IfDue::kQueue);
  // Starts the node with kQueue, and with this delay instead of due(). Only for nodes that no other
  // thread can move before the start.
  Start start(TimerNode* node, int64_t delay_ns) {
    node->due_.store(TimerDue::after(delay_ns), std::memory_order_relaxed);
    return start(node);
  }
  // To be called before the node enters a scope, so that end_for_scope() finds the poller even if
  // it comes before the start.
  void expect(TimerNode* node) { node->timers_ = this; }

  // Called instead of start(), if the node is not in a scope. The caller owns the completion in any
  // case. Returns false if a cancel came first; that cancel has answered kBeforeStart. Cancels that
  // come later answer kTooLate.
  static bool close_unstarted(TimerNode* node) {
    node->timers_ = nullptr;
    return !node->flag_.exchange(true, std::memory_order_acq_rel);
  }

  // Puts a periodic node back into the queue. Called once for each tick, by its owner. After
  // kQueued the caller no longer owns the node. After kDue it owns the next tick. After any other
  // answer it owns the completion.
  static Start restart(TimerNode* node, int64_t deadline_ns, IfDue if_due);

  enum class Cancel {
    kBeforeStart,    // the coming start will answer kCancelled
    kBeforeRestart,  // the coming restart will answer kCancelled
    kTaken,          // the node was removed from the queue; the caller owns the completion
    kTooLate         // the node was removed for good, was closed instead of started, or was ended
                     // before; from now on it may be freed, unless the caller keeps it alive
  };
  // Cancels the node. Before the start it may be called only once. After the start it does what
  // end() does. The caller must know that the node is alive.
  static Cancel cancel(TimerNode* node);

  // Cancels a node that was started. May be called any number of times. The caller must know that
  // the node is alive.
  static Cancel end(TimerNode* node);
  // Whether a started node is marked, that is, a canceller or scope has ended it. False if it was
  // removed only because it was due or because the poller stops.
  static bool is_ended(const TimerNode* node);

  // Ends the node because its scope has ended (rule 9). Called at most once per node. The caller
  // must know that the node is alive, and that expect() was called. Returns true if this call has
  // removed the node from the queue; then the caller owns the completion. Otherwise the thread that
  // has removed the node owns it, or the one that is about to start or restart the node.
  static bool end_for_scope(TimerNode* node);

  enum class Move {
    kMoved,
    kInTick,  // nothing was changed: the node is periodic, in its tick, and not ended
    kTooLate  // the node is cancelled, refused, closed, or gone from the queue for good
  };
  // Replaces the node's deadline by `due`, on the node's clock. A delay counts from now, or from
  // the start if the node is not started yet. May be called any number of times. The caller must
  // know that the node is alive.
  static Move move(TimerNode* node, TimerDue due);

  // Returns how long it is until the node is due: 0 if it is due, kNever if it has no deadline. If
  // the node is not started, returns what that would be if it were started now; it has no poller
  // yet, so `clock` tells the time. Returns -1 if the node is cancelled, refused, closed, or has
  // left the queue. The caller must know that the node is alive.
  static int64_t remaining_ns(const TimerNode* node, Clock& clock);

  static bool is_started(const TimerNode* node) {
    return node->due_.load(std::memory_order_acquire).is_started();
  }

  // Sets the node's deadline to `deadline_ns`, and inserts or moves the node. Only for nodes of the
  // monotonic clock that are never started or cancelled by the functions above, such as timeouts of
  // connections. They may be scheduled again and again. The caller keeps the node alive. Returns
  // false if the node is now not queued, because the poller has stopped or memory has run out.
  bool schedule(TimerNode* node, int64_t deadline_ns);
  // Removes such a node if it is queued. When this returns on the leader, no other thread is in the
  // node's left_queue(). But if the leader is just ending a batch of nodes (end_due), this node may
  // be in the batch, and its left_queue() may still come. When this returns on another thread, the
  // leader may be in left_queue().
  void unschedule(TimerNode* node);

  // From now on a start or restart answers kStopped (rule 2), and schedule() returns false.
  void refuse();
  bool refuses() const;
  // As refuse(), and also makes the leader empty the queues. Returns at once.
  void stop();
  // To be called after stop(), but not by the leader. Returns when the leader has emptied the
  // queues, and has posted to the handler threads what left_queue() has added to `finished`.
  void wait_until_ended();

  // Which thread removes nodes: the leader (kLeader), the leader in end_all() (kStop), or the
  // thread that moves a manual clock (kClock), perhaps a handler thread. A call with kClock stops
  // in a queue at the first node of schedule(), because only the leader may end that.
  enum class Ender { kLeader, kStop, kClock };
  // Removes up to kMaxPopped nodes that are due (any nodes, for kStop) from the queues, then calls
  // their left_queue() without mutex_, which adds to `finished` what is to be posted. Returns how
  // many nodes were removed. After 0 for kStop the queues are empty. After 0 for the others nodes
  // may still be due: those looked at were only moved (settle), or kClock met a node of schedule().
  int end_due(Ender ender, RunnableList& finished);

  // Leader only: whether stop() was called.
  bool stopping() const;
  // Leader only, when stop() was called. Removes all nodes, and posts what they add to `finished`.
  void end_all(HandlerPool& handlers);
  // Leader only. Frees some of the memory that the queues no longer need.
  void return_memory();
  // Leader only, at the end of a round, when the items in `finished` were run or posted. Arms the
  // multiplexer for the timers that are left. end_due() does not, because the system call would
  // delay the callbacks.
  void end_round();

  // True if no timer is due now, and the leader is not in a round in which it has removed timers.
  // May be false although no timer is due, if the queue still knows an earlier deadline (rule 10).
  bool settled() const;
  // Returns the monotonic time at which the first timer becomes due, provided that no clock is set
  // before then; kNever when there is no timer.
  int64_t earliest_ns();
  // How many timers are queued.
  size_t size() const;

 private:
  // The most nodes that leave the queue in one critical section, so that no thread waits long for
  // it.
  static constexpr int kMaxPopped = 256;
  // While timers expire at average intervals shorter than kDenseNs, rounds are spaced out: first by
  // kMinSpacingNs, then by twice as much each time, up to kMaxSpacingNs. At half a million expiries
  // per second, one wake-up per expiry would cost more than all other work for that expiry.
  static constexpr int64_t kDenseNs = 6'000;
  static constexpr int64_t kMinSpacingNs = 8'000;
  static constexpr int64_t kMaxSpacingNs = 400'000;

  // Removes the due nodes of one queue, appends them to due[*count..kMaxPopped), and advances
  // *count. At most kMaxPopped nodes are looked at in one critical section, of which `looked` were
  // before this call. Returns `looked` plus the nodes that this call has looked at.
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
  // Refuses the node, or queues it, or if `due` is true answers kDue instead of queueing it.
  Start queue_or_refuse(TimerNode* node, int64_t deadline_ns, bool due) WF_REQUIRES(mutex_);
  void insert(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Removes the node from its queue. Memory that the queue no longer needs is freed later, by
  // the leader or by the thread that moves a manual clock, because the caller may hold locks.
  void erase(TimerNode* node) WF_REQUIRES(mutex_);
  void return_surplus_of(const TimerQueue& queue) WF_REQUIRES(mutex_);
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
  int64_t next_round_ns_ WF_GUARDED_BY(mutex_) = 0;  // no round is armed before this
  bool stopped_ WF_GUARDED_BY(mutex_) = false;
  bool draining_ WF_GUARDED_BY(mutex_) = false;  // stop() was called
  bool drained_ WF_GUARDED_BY(mutex_) = false;   // end_all() is done
  CondVar drained_changed_;
  bool unarmed_ WF_GUARDED_BY(mutex_) = false;         // end_round() arms: armed_ns_ was reset
  bool returns_memory_ WF_GUARDED_BY(mutex_) = false;  // a queue has surplus; the poller was woken
                                                       // to free it
  bool leaving_ WF_GUARDED_BY(mutex_) = false;         // the leader has removed nodes in this round
};

}  // namespace workflow

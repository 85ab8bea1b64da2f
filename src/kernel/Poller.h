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
#include "workflow/Runnable.h"

namespace workflow {

class Poller;

// A timer as the poller sees it. Its owner keeps it alive until its completion, which exactly one
// of start_timer, cancel_timer and left_queue hands out.
class TimerNode : public TimerQueueNode {
 public:
  // When it is to leave the queue. Before the start, or of one that is refused.
  TimerDue due() const { return due_.load(std::memory_order_relaxed); }

  // The clock that its deadlines refer to. Constant.
  ClockId clock() const { return clock_; }

  // The node has left the queue because its deadline passed, or because the poller stops. Called
  // with no lock held; the caller owns the completion. That is the poller's thread, or, for nodes
  // that start_timer() has queued, the thread that moves a manual clock, or the node's starter when
  // the start answers kDue. What is added to `finished` is handed to the handlers; the node may be
  // gone as soon as it is in that list.
  virtual void left_queue(bool stopped, RunnableList& finished) = 0;

 protected:
  // `restarts`: while it is not in the queue it will be started again (restart_timer).
  explicit TimerNode(const ClockedDue& when = {TimerDue::after(0)}, bool restarts = false)
      : restarts_(restarts), periodic_(restarts), clock_(when.clock), due_(when.due) {}
  ~TimerNode() = default;

  // Whether it was made to restart.
  bool is_periodic() const { return periodic_; }

  // Before the start: another time, if nobody has moved it from that one.
  void change_due(TimerDue from, TimerDue to) {
    due_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }

  // The deadline that has passed: from a left_queue() that was not stopped until the next restart.
  int64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend class Poller;
  // The small ones first: they fit behind the index of TimerQueueNode.
  // Start and cancel meet here: the first to exchange it to true decides (rule 3 below).
  std::atomic<bool> flag_{false};
  // Guarded by P: who has ended it, or found it not queued, so that a start, or restart, to come is
  // refused.
  enum class Mark : uint8_t { kNone, kCancelled, kInterrupted };
  Mark mark_ = Mark::kNone;
  bool restarts_;  // guarded by P: it is not queued, or will be again
  const bool periodic_ : 1;
  const ClockId clock_ : 7;  // in whose queue it is
  // Start and move meet here: start exchanges it to started(), with poller_ set (rule 10).
  std::atomic<TimerDue> due_;
  // Guarded by P while it is queued. The queue may know an earlier one: it was put off since.
  int64_t deadline_ns_ = 0;
  Poller* poller_ = nullptr;  // set before flag_ by start
};

// A descriptor's owner, told what happened to it.
class IoHandler {
 public:
  // `events` as in epoll_ctl(2). On the poller's thread, no lock held. What is added to `finished`
  // is handed to the handlers after the round.
  virtual void on_events(uint32_t events, RunnableList& finished) = 0;

  // Called on the poller's thread once no event for the handler can be in flight any more, after
  // Poller::retire(). May delete the handler.
  virtual void on_retired() = 0;

 protected:
  ~IoHandler() = default;

 private:
  friend class Poller;
  IoHandler* next_retired_ = nullptr;  // of the leader
};

// One thread that sleeps for many: timers and descriptors.
//
// A queue for each clock holds the timers of that clock, with deadlines in its own time. What is
// armed is monotonic: the earliest deadline of each queue is worth the time that its clock has left
// until then, which changes only when a clock is set or the system was suspended. Then the
// multiplexer, which watches for it since the first timer of another clock, has the poller look
// anew: O(1), however many timers there are. Whether a timer is due its own clock says, so none is
// ever early.
//
// Rules of the timers (the numbers are those of docs/timer-protocol.md; P is mutex_):
// 1. A node is in at most one queue. It is `removed` (TimerQueueNode::queued() is false, guarded by
//    P) once it left the queue, whoever took it out. Who takes it out owns its completion.
// 2. `stopped` is set under P before the queue is drained. Once set nothing is inserted, and a
// start
//    answers kStopped.
// 3. Start and cancel meet in flag_.exchange(true). Start does it holding P and inserts only if it
//    came first; after releasing P it never touches the node again. A canceller that came second
//    takes P and erases the node if it is still queued: then it owns the completion.
// 5. A canceller that finds the node removed never touches it again, but to mark it (13).
// 9. An interrupter has no part in flag_: holding P it takes the node out, or, when it is not in
//    the queue, marks it, so that a start that comes after refuses. A canceller finds a refused
//    node removed.
// 10. Start and move meet in due_: before the start a move changes it; start exchanges it
//    holding P, and a move that comes after takes P and moves the node if it is still queued.
// 13. A node that restarts leaves the queue when its time has come without an end. Until
//    restart_timer() puts it back, under P, who wants to end it marks it, as an interrupter does;
//    the first to mark it, or to take it out of the queue, has ended it. The restart then refuses,
//    and the completion is the restarter's.
// 18. A node that is due when it is started, or restarted, need not be queued. The start decides
//    that under P, after all that may refuse it. Such a node counts as popped: it is removed, and
//    its starter owns the completion.
// (4, 6, 7 concern names: NameRegistry. 8: unnamed timers use none of it.)
//
// P is a leaf: nothing is called, posted, freed or logged while it is held, but the arming of the
// multiplexer.
class Poller {
 public:
  // With a `watch`, and several handlers, rounds that follow each other closely run what they
  // finished on the poller's thread; without, everything goes to the handlers.
  Poller(Clock& clock, HandlerPool& handlers, LeaderWatch* watch = nullptr);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // False with errno when descriptors or threads have run out.
  bool start();

  // Timers started from now on answer kStopped.
  void refuse_timers();

  // Also ends every timer (left_queue with stopped). Returns at once; descriptors are still served.
  void stop_timers();

  // After stop_timers(): returns when the ends of all timers are with the handlers.
  void wait_for_timers();

  // After wait_for_timers(), when the leader does not go away any more: returns when no thread that
  // led before is in a callback, but those that block in a BlockingScope. Such a thread calls it
  // inside one. Returns how many of them have ended their wait: while that stays the same the
  // poller stays quiet.
  uint64_t wait_quiet();

  // Also ends the thread, after all that was posted to it has run. From a callback that this
  // poller's thread runs, it ends all but that thread, which must not go back to its work.
  void stop();

  // Sees to it that another thread leads when the leader runs callbacks and does not come back
  // soon. Any thread.
  void replace_leader();

  // Around a wait in a callback that a leader runs; see BlockingScope.
  void begin_blocking();
  void end_blocking();

  // Joins the threads that led before and have ended.
  void join_ended();

  enum class Start {
    kQueued,       // the poller owns the node now
    kDue,          // only with IfDue::kTell: its time has come already, so it is not queued (18);
                   // the completion is the caller's, who goes on with left_queue()
    kCancelled,    // a canceller came first; the completion is the caller's
    kInterrupted,  // an interrupter came first; the completion is the caller's
    kStopped,      // the poller has stopped; the completion is the caller's
    kNoMemory,     // the completion is the caller's
    // errno says why: EMFILE, ENFILE, ENOMEM, when the first timer of another than the monotonic
    // clock needs a descriptor; the completion is the caller's
    kNoClock
  };
  // What becomes of a node that is due when it is started. A caller that holds locks, or cannot go
  // on with left_queue() there and then, has it queued.
  enum class IfDue { kQueue, kTell };
  // Any thread, once per node. The node leaves the queue when it is due() at the earliest, by its
  // clock; kNever only by cancel or stop.
  Start start_timer(TimerNode* node, IfDue if_due = IfDue::kQueue);
  // Before it, of a node that others may interrupt from now on.
  void expect(TimerNode* node) { node->poller_ = this; }
  // The same with a delay that is not known before.
  Start start_timer(TimerNode* node, int64_t delay_ns) {
    node->due_.store(TimerDue::after(delay_ns), std::memory_order_relaxed);
    return start_timer(node);
  }

  // Puts a node that restarts, and has left the queue, back into it. Once per left_queue() that was
  // not stopped, by who owns it since. If the node is not queued, it remains his: he goes on with
  // its completion, or after kDue as after left_queue().
  static Start restart_timer(TimerNode* node, int64_t deadline_ns, IfDue if_due);

  enum class Cancel {
    kBeforeStart,    // the coming start will answer kCancelled
    kBeforeRestart,  // so will the coming restart
    kTaken,          // taken out of the queue; the completion is the caller's
    kTooLate         // it has left the queue already, or another came first; do not touch it again
  };
  // Any thread; at most once per node, which the caller knows to be alive.
  static Cancel cancel_timer(TimerNode* node);

  // The same of a node that was started, by who knows it to be alive. Any number of times.
  static Cancel end_timer(TimerNode* node);
  // Whether somebody has ended a node that was started: not whether its time has come, or the
  // poller has stopped.
  static bool is_ended(const TimerNode* node);

  // Instead of start_timer(): false when a canceller has found it not started. Whoever cancels it
  // later comes too late.
  static bool close_unstarted(TimerNode* node) {
    node->poller_ = nullptr;
    return !node->flag_.exchange(true, std::memory_order_acq_rel);
  }

  enum class Move {
    kMoved,
    kInTick,  // it has left the queue and will restart: nobody has ended it yet
    kTooLate  // it is cancelled, refused, or has left the queue for good
  };
  // Any thread that knows the node to be alive, as often as it likes: the node leaves the queue
  // when `due` says, by its clock, a delay counted from now (or from its start, if that is to
  // come), instead of when it would have.
  static Move move_timer(TimerNode* node, TimerDue due);

  // The same threads: how long until it leaves the queue, 0 if that is overdue; if it is not
  // started, how long if that were now by `clock`; -1 if it is cancelled or has left the queue.
  static int64_t remaining_ns(const TimerNode* node, Clock& clock);

  static bool is_started(const TimerNode* node) {
    return node->due_.load(std::memory_order_acquire).is_started();
  }

  // For one more canceller: who knows the node to be alive, and expected by a poller. True: taken
  // out of the queue; the completion is the caller's. Otherwise it is somebody else's, who is on
  // the way to it: a start to come answers kInterrupted. Once per node.
  static bool interrupt_timer(TimerNode* node);

  // For nodes of the monotonic clock that are never cancelled by others (timeouts of descriptors):
  // puts the node's deadline at `deadline_ns`, inserting or moving it. Any thread that keeps the
  // owner alive. False when the node is not queued now: after stop, or without memory.
  bool schedule(TimerNode* node, int64_t deadline_ns);
  // Takes such a node out if it is queued. On the poller's thread nothing of it is in flight then.
  void unschedule(TimerNode* node);

  // Any thread. Registers `fd` for `events` (EPOLLET included if wanted). 0, or -1 with errno.
  int add(int fd, uint32_t events, IoHandler* handler);

  // Any thread; of one that was added: other events from now on. What has happened already is
  // reported (anew, if it was), edge-triggered or not. 0, or -1 with errno.
  int modify(int fd, uint32_t events, IoHandler* handler);

  // Any thread; for a handler that will be added again. 0, or -1 with errno.
  int remove(int fd);

  // Takes `fd` out and calls handler->on_retired() once events of this round are through.
  // Poller's thread only; once per handler. Close the descriptor after it.
  void retire(int fd, IoHandler* handler);

  // Runs `item` on the poller's thread, after what was posted before. False, and not taken, when
  // the poller has stopped.
  bool post(Runnable* item);

  // Hands finished tasks to the handlers; empties the list.
  void hand_over(RunnableList& finished) { handlers_.post(finished); }

  // For the thread that moves a manual clock, which is not the library's, as the next three: ends
  // what is due as the poller's thread would, which is woken for what only it may end.
  void expire_for_clock(RunnableList& finished);
  // Whether anything may arrive that the poller's thread has to look for.
  bool has_descriptors() const { return descriptors_.load(std::memory_order_relaxed) > 0; }
  // Has the poller's thread make a round, and returns its number; 0 if the poller has stopped.
  uint64_t ask_for_round();
  // Returns when that round is over, or a later one: with what had arrived on descriptors, was due
  // or was posted before it was asked for, and with what this has finished with the handlers.
  void wait_for_round(uint64_t round);

  bool on_own_thread() const { return ThreadContext::current().poller == this; }

  // Whether nothing is due at the clocks' present time, and nothing popped or posted is on its way.
  bool settled() const;

  // When the clock shows the monotonic time that is returned, and none was set meanwhile, the first
  // timer is due; kNever when there is none.
  int64_t earliest_ns();

  // Lets the poller look at the clock again: for clocks that are moved by hand.
  void wake() { multiplexer_->wake(); }
  Clock& clock() const { return clock_; }

  size_t timer_count() const;

 private:
  // So many nodes at most leave the queue per lock hold: a flood starves nobody.
  static constexpr int kMaxPopped = 256;
  // While timers expire more often than each kDenseNs, rounds are spaced out, up to kMaxSpacingNs:
  // at half a million expiries a second a wake-up for each would cost more than all else about it.
  static constexpr int64_t kDenseNs = 6'000;
  static constexpr int64_t kMinSpacingNs = 8'000;
  static constexpr int64_t kMaxSpacingNs = 400'000;
  static constexpr int kMaxEvents = 256;
  // What was posted runs for so long before descriptors and timers have a turn: it may be much,
  // such as the next piece of many large replies.
  static constexpr int64_t kMaxPostedNs = 1'000'000;
  // Rounds closer than this to each other, or with so much to run, run what they finished, and hand
  // over what is left after so long. After a leader had to be replaced everything is handed over
  // for a while, which doubles if it happens again within kReplacedAgainNs.
  static constexpr int64_t kCloseRoundsNs = 1'000'000;
  static constexpr size_t kBusyBatch = 4;
  static constexpr int64_t kMaxAwayNs = 500'000;
  static constexpr int64_t kMinHandOverNs = 10'000'000;
  static constexpr int64_t kMaxHandOverNs = 1'000'000'000;
  static constexpr int64_t kReplacedAgainNs = 2'000'000'000;

  bool start_thread(bool as_substitute) WF_REQUIRES(threads_mutex_);
  void start_substitute() WF_REQUIRES(threads_mutex_);
  void thread_main(std::list<Thread>::iterator self, bool as_substitute);
  // The leader's loop; returns when the poller closes or somebody else leads.
  void lead();
  // Runs or hands over what the round has finished. False when the caller leads no more.
  bool deliver();
  bool may_run_finished(int64_t now_ns);
  void note_replacement();
  // One batch of what is due.
  void expire();
  // Everything, after stop_timers().
  void drain();
  // Who ends nodes: the leader, the same when all timers end, or the thread that moves the clock.
  enum class Ender { kLeader, kStop, kClock };
  // Takes up to kMaxPopped nodes that are due, or any of a stop, out of the queues and ends them;
  // how many.
  int end_due(Ender ender, RunnableList& finished);
  // Adds those of one queue to due[count..kMaxPopped); how many nodes it has looked at.
  int take_due(TimerQueue& queue, int64_t now_ns, Ender ender, TimerNode** due, int* count,
               int looked) WF_REQUIRES(mutex_);
  TimerQueue& queue_of(const TimerNode* node) WF_REQUIRES(mutex_) {
    return queues_[static_cast<size_t>(node->clock_)];
  }
  // The monotonic time at which `clock` shows `deadline_ns` if it is not set meanwhile; never
  // later, perhaps some nanoseconds earlier.
  int64_t monotonic_of(ClockId clock, int64_t deadline_ns) const;
  // The same of the earliest deadline of all queues.
  int64_t earliest_monotonic_ns() const WF_REQUIRES(mutex_);
  // Queues the node, or refuses it; one that is `due` is not queued but told to be kDue.
  Start put_in(TimerNode* node, int64_t deadline_ns, bool due) WF_REQUIRES(mutex_);
  void insert(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Takes the node out of its queue. Memory that the queue then does not need is freed later, on
  // the poller's thread, because the caller may hold locks.
  void erase(TimerNode* node) WF_REQUIRES(mutex_);
  void return_memory();
  void move(TimerNode* node, int64_t deadline_ns) WF_REQUIRES(mutex_);
  // Puts the node where it was put off to, if it is to leave later than the queue says.
  bool settle(TimerNode* node) WF_REQUIRES(mutex_);
  void arm(int64_t deadline_ns) WF_REQUIRES(mutex_);
  // After timers have left the queues: for those that are left. By the leader, when it has seen to
  // what is due, since the system call takes as long as a short callback.
  void arm_again() WF_REQUIRES(mutex_);
  void space_out(int64_t now_ns, int due) WF_REQUIRES(mutex_);
  // What was posted; what there is no time for in this round, in the next. `all`: the last round.
  void run_posted(bool all);
  void finish_retired();

  Clock& clock_;
  HandlerPool& handlers_;
  std::unique_ptr<Multiplexer> multiplexer_;
  LeaderWatch* const watch_;
  Leadership leadership_;

  mutable Mutex mutex_;                               // P
  TimerQueue queues_[kClocks] WF_GUARDED_BY(mutex_);  // by ClockId
  size_t first_queue_ WF_GUARDED_BY(mutex_) = 0;      // whose timers expire first
  int64_t armed_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t spacing_ns_ WF_GUARDED_BY(mutex_) = 0;
  int64_t last_expiry_ns_ WF_GUARDED_BY(mutex_) = 0;
  int64_t next_round_ns_ WF_GUARDED_BY(mutex_) = 0;  // no round is armed for earlier
  bool stopped_ WF_GUARDED_BY(mutex_) = false;
  bool draining_ WF_GUARDED_BY(mutex_) = false;
  bool drained_ WF_GUARDED_BY(mutex_) = false;
  CondVar drained_changed_;
  bool unarmed_ WF_GUARDED_BY(mutex_) = false;         // see arm_again()
  bool returns_memory_ WF_GUARDED_BY(mutex_) = false;  // of a queue; the poller is woken for it
  bool leaving_ WF_GUARDED_BY(mutex_) = false;         // nodes were popped and not yet handed over

  mutable Mutex inbox_mutex_;
  RunnableList inbox_ WF_GUARDED_BY(inbox_mutex_);
  bool inbox_closed_ WF_GUARDED_BY(inbox_mutex_) = false;
  uint64_t rounds_asked_ WF_GUARDED_BY(inbox_mutex_) = 0;  // by each item that is posted, too
  uint64_t rounds_made_ WF_GUARDED_BY(inbox_mutex_) = 0;   // those asked for by then are over
  CondVar round_made_;
  std::atomic<int> descriptors_{0};

  Mutex threads_mutex_;
  CondVar threads_changed_;
  std::list<Thread> threads_ WF_GUARDED_BY(threads_mutex_);
  std::list<Thread> ended_ WF_GUARDED_BY(threads_mutex_);  // or about to; to be joined
  size_t blocked_ WF_GUARDED_BY(threads_mutex_) = 0;       // of threads_
  uint64_t unblocked_ WF_GUARDED_BY(threads_mutex_) = 0;   // how many blocks have ended

  // The leader only.
  bool stopping_ = false;
  uint64_t round_ = 0;  // what was asked for by the time it was looked at
  int64_t last_round_ns_ = 0;
  int64_t replaced_ns_ = 0;
  int64_t hand_over_ns_ = 0;  // how long after replaced_ns_
  RunnableList finished_;
  IoHandler* retired_ = nullptr;  // linked through them
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "kernel/LendingCondition.h"
#include "kernel/Runtime.h"
#include "store/StoreAlarms.h"
#include "store/StoreBackend.h"
#include "store/StoreCall.h"
#include "store/StoreCounters.h"
#include "store/StoreGroup.h"
#include "store/StoreRun.h"
#include "store/StoreRuns.h"
#include "store/StoreSettlement.h"
#include "store/StoreTimes.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// What is behind a WFTimerStore: a thread with a backend, and the queue of what it is to ask the
// store for. A turn of the thread takes a group from the queue, with what the process itself needs
// (claims, extensions of leases, a look), has the backend carry it out, and leaves the answers to
// StoreSettlement. StoreAlarms says when the process needs something, and StoreRuns what.
//
// 1. The backend is used by the thread of the engine only. A group has what has come by the time it
//    begins, up to 1,024 calls and as many ends of runs. Then the thread waits for callers that
//    come again after an answer, at most for a quarter of the time that the group took, but not for
//    a caller that is alone. Without that wait half of the callers would always meet a transaction
//    that has just begun, and groups be half as large.
// 2. Each call that is submitted is answered exactly once, unless its task has ended before.
// 3. The store is asked once for the finish of a run whose lease was not lost, unless there is no
//    memory for the request. It is asked again only if the store has failed or memory has run out,
//    the lease is not over and the engine does not stop.
// 4. User code never runs on the thread of the engine. mutex_ is not held while a scope is
//    cancelled, an answer is delivered or the backend is called, except for now_us().
// 5. When memory runs out, what was asked for ends with ENOMEM, in doubt if the store may have seen
//    it, and the timers that were claimed run again after their leases. The thread tries again
//    after a pause, and sets the alarms that could not be set. Once the engine stops it makes no
//    pause: without memory all that is left ends with ENOMEM.
// 6. But for these pauses and that of rule 1, the thread waits without a time limit. While the
//    library stops no alarm rings, so it wakes up by itself to extend its leases, and to open a
//    store again that has failed. If such a store is asked for something then, it is tried at once.
// 7. When the store has not taken the end of a run because its lease was lost, the handler is told
//    once (on_lost), after the series of the run has ended. close() waits for that as for a run.
// 8. A store that has failed is opened again, at once and then with pauses that grow. If that
//    fails, all calls that wait end with its error. The pauses begin anew when all that the store
//    is used for works again. Until then the calls that wait and what the engine itself asks for
//    are in groups of their own and take turns, whether these work or not. So neither fails because
//    of the other, and calls that keep coming hold up no timer.
// 9. When a claim finds that the store is damaged (EILSEQ), no timer starts, and new ones would not
//    either. Then no call is carried out until a claim finds no damage, or none can be made. Calls
//    that wait end with the error of each such claim that had no call in its group.
//
// Thread-safe. Lock order: StoreAlarms::set_mutex_, mutex_, and then that of StoreAlarms,
// StoreRuns, StoreCall or StoreRun.
class StoreEngine final : public Service,
                          public StoreRunOwner,
                          private StoreAlarms::Listener,
                          public std::enable_shared_from_this<StoreEngine> {
 public:
  // `times` is what the backend adds to.
  StoreEngine(std::unique_ptr<StoreBackend> backend, std::shared_ptr<const StoreTimes> times,
              const WFStoreOptions& options, uint64_t session);
  ~StoreEngine() override;

  // Starts the thread. Returns 0, or an errno value after which the store is closed.
  int start();

  // See WFTimerStore.
  bool close(int64_t limit_ns);
  // Closes the store, which is being destroyed. The engine is never freed if a run of the store
  // destroys it, nor in a child of fork(2): the child does not have its thread, and what processes
  // share belongs to the parent.
  void close_or_abandon();
  int handle(const std::string& kind, const WFTimerStore::Handler& handler,
             const WFStoreHandlerOptions& options);
  WFTimerStoreStats stats() const;

  WFStoreRequestId next_id();

  // Sends a request. Returns 0 or an errno value: ESHUTDOWN, EAGAIN, ECHILD, ENOMEM. In this case
  // the call is not submitted. If `chosen_id` is not null, it and the request get the next id: then
  // the numbers of such requests are in the order in which the store sees them.
  int submit(const std::shared_ptr<StoreCall>& call, WFStoreRequestId* chosen_id);
  // The task has ended for another reason. Returns whether the store may have seen the request.
  bool withdraw(StoreCall& call);

  // Another process may have changed something. Any thread.
  void changed();

  // StoreRunOwner
  int64_t now_us() override { return backend_->now_us(); }
  void run_ended(const std::shared_ptr<StoreRun>& run, bool completed) override;
  void run_left_out(const std::shared_ptr<StoreRun>& run, FinishRequest::How how,
                    std::string_view reason) override;
  void report_lost(const std::shared_ptr<StoreRun>& run) override;
  void lost_reported() override;

  // Service
  void refuse_new_work() override;
  bool finish_work() override;
  void runtime_stopped() override {}

 private:
  void on_due(const StoreAlarms::Due& due) override;

  // The thread.
  void run();
  void wait_for_work() WF_REQUIRES(mutex_);
  // Asks for what alarms would ask for if the library did not stop.
  void replace_alarms() WF_REQUIRES(mutex_);
  bool has_work() const WF_REQUIRES(mutex_);
  bool must_reopen() const WF_REQUIRES(mutex_);
  // Whether there is something to ask for that no call and no run has asked for.
  bool asks_itself() const WF_REQUIRES(mutex_);
  // Both return false if memory has run out.
  bool take_group(std::unique_ptr<StoreGroup>& group) WF_REQUIRES(mutex_);
  bool run_turn(bool tries_to_reopen, StoreGroup* group);
  void fill(StoreGroup& group) WF_REQUIRES(mutex_);
  bool stops();
  // After a failure that would repeat itself at once. Ends early when the engine stops.
  void pause() WF_REQUIRES(mutex_);
  // Waits a moment for callers that come again after an answer.
  void gather() WF_REQUIRES(mutex_);
  size_t queued() const WF_REQUIRES(mutex_) { return calls_.size() + finishes_.size(); }
  // Lets the thread look at what has come, unless it does so anyway.
  void wake_for_queue() WF_REQUIRES(mutex_);

  // What a turn does, with mutex_ not held.
  void carry_out(StoreGroup& group);
  // What of a group that was settled must be asked for again.
  void ask_again(StoreGroup& group);
  // After a group that ran out of memory: its calls end, its finishes are asked for again.
  void give_back(StoreGroup& group);
  void retry_later(StoreFinish&& finish);
  // Something has failed that must not: the store is opened again, at once or after a pause.
  void note_failure() WF_REQUIRES(mutex_);
  void reopen();
  // Ends all calls, and if the engine stops, the finishes, too.
  void fail_all(int error, const std::string& message);
  void fail_calls(int error, const std::string& message);
  // Rule 9.
  void look_for_damage(const StoreGroup& group);

  // The series of the run has ended, or there was none. `finish` makes the request that follows; if
  // it has no memory, the timer runs again when the lease has ended. Returns false if there is none
  // because the lease was lost.
  template <class FINISH>
  bool end_run(const std::shared_ptr<StoreRun>& run, const FINISH& finish) WF_REQUIRES(mutex_);
  // What is to be posted, when mutex_ is not held, to tell the handler; null if nothing is.
  Runnable* lost_report(const std::shared_ptr<StoreRun>& run) WF_REQUIRES(mutex_);
  void post(Runnable* report) WF_EXCLUDES(mutex_);

  bool stop(int64_t limit_ns);
  // Whether the calling thread runs a handler of this store, a callback of its series, on_missed or
  // on_lost.
  bool is_in_run() const;

  Runtime& runtime_;
  const std::unique_ptr<StoreBackend> backend_;
  const std::shared_ptr<const StoreTimes> times_;
  const WFStoreOptions options_;
  const uint64_t session_;
  const bool looks_each_time_;  // because no alarm rings once a second
  // Relaxed: it publishes nothing. Each id only has to get another number.
  std::atomic<uint64_t> next_number_{1};
  StoreCounters counters_;
  StoreRuns runs_;
  StoreAlarms alarms_;
  StoreSettlement settlement_;
  Thread thread_;
  // Of an engine that was abandoned: it owns itself, and is in a list, for leak checkers.
  std::shared_ptr<StoreEngine> self_;
  StoreEngine* other_abandoned_ = nullptr;
  static inline std::atomic<StoreEngine*> abandoned_{nullptr};

  Mutex mutex_;
  CondVar work_;               // for the thread
  LendingCondition progress_;  // for close()
  std::deque<std::shared_ptr<StoreCall>> calls_ WF_GUARDED_BY(mutex_);
  std::deque<StoreFinish> finishes_ WF_GUARDED_BY(mutex_);
  uint64_t random_ WF_GUARDED_BY(mutex_);
  size_t reports_ WF_GUARDED_BY(mutex_) = 0;  // of lost runs that handlers are being told

  // What the thread is asked to do.
  bool claim_ WF_GUARDED_BY(mutex_) = false;
  bool extend_ WF_GUARDED_BY(mutex_) = false;
  bool look_ WF_GUARDED_BY(mutex_) = false;
  bool stop_ WF_GUARDED_BY(mutex_) = false;
  bool stopped_ WF_GUARDED_BY(mutex_) = false;
  bool closed_ WF_GUARDED_BY(mutex_) = false;  // takes no more requests
  // The library stops, and when the thread then wakes up next to do what alarms would do.
  bool library_stops_ WF_GUARDED_BY(mutex_) = false;
  int64_t next_alarm_ns_ WF_GUARDED_BY(mutex_) = 0;
  bool busy_ WF_GUARDED_BY(mutex_) = false;   // the thread carries out a group
  uint64_t turns_ WF_GUARDED_BY(mutex_) = 0;  // in which it has done so
  // The store has failed. The thread opens it again when reopen_ is set. The delay is the pause
  // before that, after a first try at once; it is 0 while everything works.
  bool failed_ WF_GUARDED_BY(mutex_) = false;
  bool reopen_ WF_GUARDED_BY(mutex_) = false;
  int64_t reopen_delay_us_ WF_GUARDED_BY(mutex_) = 0;
  // Rule 8: whether calls have had their turn since the engine itself has, and whether the store
  // has failed in the last group of calls alone.
  bool calls_had_turn_ WF_GUARDED_BY(mutex_) = false;
  bool calls_failed_ WF_GUARDED_BY(mutex_) = false;
  // See rule 9.
  bool damaged_ WF_GUARDED_BY(mutex_) = false;

  // The length of the queue at which every caller answered by the last group has come again, and
  // how long that group took. The next `gather_pause_` groups do not wait for such callers.
  size_t expected_ WF_GUARDED_BY(mutex_) = 0;
  int64_t group_ns_ WF_GUARDED_BY(mutex_) = 0;
  unsigned gather_pause_ WF_GUARDED_BY(mutex_) = 0;
  bool gathers_ WF_GUARDED_BY(mutex_) = false;  // the thread waits until that has come
};

}  // namespace workflow

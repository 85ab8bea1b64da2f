#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/LendingCondition.h"
#include "kernel/Runtime.h"
#include "store/StoreAlarm.h"
#include "store/StoreBackend.h"
#include "store/StoreCounters.h"
#include "store/StoreRun.h"
#include "store/StoreRuns.h"
#include "util/Mutex.h"
#include "util/Thread.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

class StoreTask;

// A thread that waits for the answer to one request. Lives on its stack.
class StoreWaiter {
 public:
  // Called once. The waiter may be gone when this returns.
  void answer(WFStoreResult&& result);
  WFStoreResult wait();

 private:
  // Created first: a thread of the library that waits is to be lent.
  LendingCondition::Waiter waiter_{{"a call of WFTimerStore", nullptr, nullptr}};
  Mutex mutex_;
  LendingCondition answered_;
  bool has_answer_ WF_GUARDED_BY(mutex_) = false;
  WFStoreResult result_ WF_GUARDED_BY(mutex_);
};

// A request of a user on its way to the store and back.
struct StoreCall {
  StoreRequest request;  // the engine's own from submit() to the end of the call
  // Guarded by the mutex of the engine. The task that waits for the answer, or null if it has ended
  // for another reason. While it is not null the task is alive.
  StoreTask* task = nullptr;
  // In place of the task: the thread that waits. It stays until it has its answer.
  StoreWaiter* waiter = nullptr;
  // Guarded by the mutex of the engine. Whether the store may have seen the request.
  bool taken = false;
  // The answer of a request that nobody can answer for want of memory. For whoever ends the call.
  std::vector<WFStoreAnswer> in_doubt = std::vector<WFStoreAnswer>(1);
};

// What is behind a WFTimerStore: a thread that carries out the requests of users, takes the timers
// that are due, and looks after the leases of the runs of this process.
//
// 1. The backend is used by the thread of the engine only. All that has come by the time it begins
//    a group is carried out as one. Only after a group with several answers it waits, at most for a
//    quarter of the time that this group took, for those who come again after an answer. Otherwise
//    half of them would always meet a transaction that has just begun, and groups be half as large.
// 2. Each call that is submitted is answered exactly once, unless its task has ended before.
// 3. The finish of a run is asked for exactly once, and again only if the store has failed and the
//    lease is not over.
// 4. User code never runs on the thread of the engine, and the mutex is never held when a scope is
//    cancelled or the backend is called, except for its time.
// 5. When memory runs out, what was asked for ends with ENOMEM, in doubt if the store may have seen
//    it, and the timers that were claimed run again after their leases. The thread tries again
//    after a pause, and sets the alarms that could not be set. Once the engine stops it makes no
//    pause: without memory all that is left ends with ENOMEM.
// 6. But for these pauses, the thread waits without a time limit. A library timer (wake_alarm_)
//    wakes it for what is due by the clock of the store, and look_alarm_ once a second in case that
//    a hint of another process was lost. So a simulation and a manual clock drive it.
//
// Thread-safe. Lock order: the mutex of the engine comes before that of a StoreRun.
class StoreEngine final : public Service, public std::enable_shared_from_this<StoreEngine> {
 public:
  StoreEngine(std::unique_ptr<StoreBackend> backend, const WFStoreOptions& options,
              uint64_t session);
  ~StoreEngine();

  // Starts the thread. Returns 0 or an errno value.
  int start();
  // In place of start(), or after it has failed.
  void discard() { backend_->close(); }

  // See WFTimerStore.
  bool close(int64_t limit_ns);
  // After close(), when the store is destroyed. In a child of fork(2) the engine is never freed:
  // the child does not have its thread, and what processes share belongs to the parent.
  void abandon_in_child() {
    if (runtime_.belongs_to_parent_process()) {
      self_ = shared_from_this();
    }
  }
  int handle(const std::string& kind, const WFTimerStore::Handler& handler,
             const WFStoreHandlerOptions& options);
  WFTimerStoreStats stats() const { return counters_.snapshot(); }
  int64_t now_us() { return backend_->now_us(); }

  WFStoreRequestId next_id();

  // Sends a request. Returns 0 or an errno value: ESHUTDOWN, EAGAIN, ECHILD. In this case the call
  // is not submitted.
  int submit(const std::shared_ptr<StoreCall>& call);
  // The task has ended for another reason. Returns whether the store may have seen the request.
  bool withdraw(StoreCall& call);

  // Called once for each run, when its series has ended. `completed` is false if the series was
  // cancelled before its end.
  void run_ended(const std::shared_ptr<StoreRun>& run, bool completed);

  // Another process may have changed something. Any thread.
  void changed();

  // Service
  void refuse_new_work() override;
  bool finish_work() override;
  void runtime_stopped() override {}

 private:
  struct Group;

  class MissedReport;

  struct Finish {
    StoreRequest request;
    std::shared_ptr<StoreRun> run;
    bool settled = false;  // the store has accepted or refused it
  };

  // The thread.
  void run();
  bool has_work() const WF_REQUIRES(mutex_);
  // Both return false if memory has run out.
  bool take_group(std::unique_ptr<Group>& group) WF_REQUIRES(mutex_);
  bool take_turn(bool tries_to_reopen, Group* group);
  void fill(Group& group) WF_REQUIRES(mutex_);
  bool stops();
  // After a failure that would repeat itself at once. Ends early when the engine stops.
  void pause() WF_REQUIRES(mutex_);
  void carry_out(Group& group);
  void settle(Group& group);
  // Waits a moment for those who come again after an answer.
  void gather() WF_REQUIRES(mutex_);
  size_t queued() const WF_REQUIRES(mutex_) { return calls_.size() + finishes_.size(); }
  // Lets the thread look at what has come, unless it does so anyway.
  void wake_for_queue() WF_REQUIRES(mutex_);
  void settle_calls(Group& group);
  void settle_finishes(Group& group);
  void settle_extend(Group& group);
  void settle_claim(Group& group);
  void settle_look(Group& group);
  void begin_run(ClaimRequest::Claimed& claimed);
  // After a group that ran out of memory: its calls end, its finishes are asked for again.
  void give_back(Group& group);
  void call_handler(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info, int64_t late_us);
  void report_missed(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info);
  void end_without_run(const std::shared_ptr<StoreRun>& run, FinishRequest::How how,
                       std::string_view reason);
  void retry_later(Finish&& finish);
  // Something has failed that must not: the store is opened again, at once or after a pause.
  void note_failure() WF_REQUIRES(mutex_);
  void reopen();
  // Tells all runs that their leases were lost.
  void lose_leases();
  void fail_all(int error, const std::string& message);

  void answer(const std::shared_ptr<StoreCall>& call);
  // What an answer to a user's request means for this process.
  void note_answer(const StoreRequest& request);
  void tell_cancelled(const WFStoreAnswer& answer);
  // Tells handlers that their runs should stop.
  void notify(const std::vector<StoreRuns::Notice>& notices);
  // The series of the run has ended, or there was none. `finish` makes the request that follows; if
  // it has no memory, the timer runs again when the lease has ended.
  template <class FINISH>
  void end_run(const std::shared_ptr<StoreRun>& run, const FINISH& finish) WF_REQUIRES(mutex_);

  // Timers.
  void arm();
  void check_times();
  // Called when wake_alarm_ has expired.
  void wake();
  void start_to_look();
  // An alarm could not be set: the thread sets it after a pause.
  void alarm_lost();
  void look_alarm_lost();
  void due_at(int64_t us) WF_REQUIRES(mutex_);
  bool takes_timers() const WF_REQUIRES(mutex_) { return !refuses_ && runs_.handles_any(); }
  void look_around();
  void try_to_reopen();
  // A function that calls `what` unless the engine is gone.
  std::function<void()> when_alive(void (StoreEngine::*what)());
  bool stop(int64_t limit_ns);
  // Whether the calling thread runs a handler of this store, or a callback of its series.
  bool is_in_run() const;

  Runtime& runtime_;
  const std::unique_ptr<StoreBackend> backend_;
  const WFStoreOptions options_;
  const uint64_t session_;
  const bool looks_each_time_;  // because there is no look_alarm_
  StoreCounters counters_;
  Thread thread_;
  std::shared_ptr<StoreEngine> self_;  // set by abandon_in_child()

  Mutex mutex_;
  CondVar work_;               // for the thread
  LendingCondition progress_;  // for close()
  std::atomic<uint64_t> next_number_{1};
  std::deque<std::shared_ptr<StoreCall>> calls_ WF_GUARDED_BY(mutex_);
  std::deque<Finish> finishes_ WF_GUARDED_BY(mutex_);
  StoreRuns runs_ WF_GUARDED_BY(mutex_);
  uint64_t random_ WF_GUARDED_BY(mutex_);

  // What the thread is asked to do.
  bool claim_ WF_GUARDED_BY(mutex_) = false;
  bool extend_ WF_GUARDED_BY(mutex_) = false;
  bool look_ WF_GUARDED_BY(mutex_) = false;
  bool rearm_ WF_GUARDED_BY(mutex_) = false;
  bool relook_ WF_GUARDED_BY(mutex_) = false;      // together with rearm_: look_alarm_ is to be set
  bool alarm_lost_ WF_GUARDED_BY(mutex_) = false;  // and no pause was made yet
  bool stop_ WF_GUARDED_BY(mutex_) = false;
  bool stopped_ WF_GUARDED_BY(mutex_) = false;
  bool refuses_ WF_GUARDED_BY(mutex_) = false;  // takes no more timers
  bool closed_ WF_GUARDED_BY(mutex_) = false;   // takes no more requests
  bool busy_ WF_GUARDED_BY(mutex_) = false;     // the thread carries out a group
  // The store has failed. The thread opens it again when reopen_ is set. The delay is the pause
  // before that, after a first try at once; it is 0 while everything works.
  bool failed_ WF_GUARDED_BY(mutex_) = false;
  bool reopen_ WF_GUARDED_BY(mutex_) = false;
  bool waits_to_reopen_ WF_GUARDED_BY(mutex_) = false;  // reopen_alarm_ is to be set
  int64_t reopen_delay_us_ WF_GUARDED_BY(mutex_) = 0;

  // How much will have come when everybody who got an answer from the last group has come again,
  // and how long that group took. The next `gather_pause_` groups do not wait for them.
  size_t expected_ WF_GUARDED_BY(mutex_) = 0;
  int64_t group_ns_ WF_GUARDED_BY(mutex_) = 0;
  unsigned gather_pause_ WF_GUARDED_BY(mutex_) = 0;
  bool gathers_ WF_GUARDED_BY(mutex_) = false;  // the thread waits until that has come

  // By the clock of the store; it may be too early.
  int64_t next_claim_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  // When hints of other processes made this one look at its leases last, and will again.
  int64_t last_hint_extend_us_ WF_GUARDED_BY(mutex_) = 0;
  int64_t hint_extend_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  int64_t last_seen_us_ WF_GUARDED_BY(mutex_) = 0;

  // Held while the next time is looked up and wake_alarm_ is set to it, before mutex_: otherwise a
  // thread that has looked earlier might set it later.
  Mutex arm_mutex_;
  StoreAlarm wake_alarm_;
  StoreAlarm look_alarm_;
  StoreAlarm reopen_alarm_;
};

}  // namespace workflow

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "store/StoreRequest.h"
#include "util/Mutex.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

class Runtime;
class StoreRun;

// What a run needs of the engine that has begun it. Lives until its runs have ended. Thread-safe.
// One of run_ended() and run_left_out() is called once for each run.
class StoreRunOwner {
 public:
  virtual ~StoreRunOwner() = default;

  // The present time of the store in microseconds.
  virtual int64_t now_us() = 0;
  // The series of the run has ended. `completed` is false if it was cancelled before its end.
  virtual void run_ended(const std::shared_ptr<StoreRun>& run, bool completed) = 0;
  // Its handler was not called.
  virtual void run_left_out(const std::shared_ptr<StoreRun>& run, FinishRequest::How how,
                            std::string_view reason) = 0;
  // The store has not taken the end of the run because its lease was lost: the handler is told.
  // The caller holds no lock.
  virtual void report_lost(const std::shared_ptr<StoreRun>& run) = 0;
  // The handler was told.
  virtual void lost_reported() = 0;

  // While it lives, the calling thread calls a function of a handler that belongs to no series:
  // the function must not wait for its own end, and may end the process.
  class Report {
   public:
    explicit Report(const StoreRunOwner& owner) { current_ = &owner; }
    ~Report() { current_ = nullptr; }
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    static bool is_of(const StoreRunOwner& owner) { return current_ == &owner; }

   private:
    static constinit thread_local const StoreRunOwner* current_;
  };
};

// A handler of users, with what it was registered with. Constant.
struct StoreHandler {
  std::string kind;
  WFTimerStore::Handler handler;
  WFStoreHandlerOptions options;
};

// What a handler has asked for.
struct RunOutcome {
  enum What { kDefault, kAcknowledge, kRetry, kBackOff, kGiveUp };
  What what = kDefault;
  int64_t delay_us = 0;  // kRetry
  std::string reason;    // kGiveUp
};

// A run of a stored timer as the engine and the task of the run share it. Thread-safe.
class StoreRun {
 public:
  StoreRun(const ClaimRequest::Claimed& claimed, std::shared_ptr<StoreHandler> its_handler,
           const WFScope& its_scope, int64_t its_date_us)
      : id(claimed.run),
        repeat(claimed.spec.repeat),
        due_us(claimed.due_us),
        date_us(its_date_us),
        wake_us(claimed.wake_us),
        attempts(claimed.attempts),
        handler(std::move(its_handler)),
        scope(its_scope),
        lease_end_us(claimed.lease_end_us) {}

  const RunId id;
  const std::string repeat;
  const int64_t due_us;   // as it is stored
  const int64_t date_us;  // the date that the run is for, which may be later if it recurs
  const int64_t wake_us;  // since when it could be claimed
  const unsigned attempts;
  const std::shared_ptr<StoreHandler> handler;
  const WFScope scope;

  // Both publish nothing but themselves, so acquire and release are to spare. lease_end_us is
  // changed under the mutex of StoreRuns; a thread that reads it without that mutex may see the end
  // before the last extension. The scope, which is cancelled afterwards, publishes `cancelled`.
  std::atomic<int64_t> lease_end_us;
  std::atomic<bool> cancelled{false};
  // Whether its handler was told that the lease is about to be lost. Guarded by the mutex of
  // StoreRuns.
  bool warned = false;
  // Whether it was overdue when it was claimed. Guarded by the mutex of StoreRuns.
  bool overdue = false;
  // Whether its series has ended. Guarded by the mutex of StoreRuns.
  bool ended = false;

  // Tells the handler and what its series waits for that the run should stop: ECANCELED or ESTALE.
  void tell(int reason, Runtime& runtime);

  // For on_lost of the handler, if it has one: set before run_ended(), and read after it. Null if
  // there is no memory.
  std::unique_ptr<const WFStoreInfo> info;
  // What calls on_lost of the handler on the thread that runs it, and then the owner. Null if there
  // is nothing to call, or no memory.
  static Runnable* new_lost_report(std::shared_ptr<StoreRunOwner> owner,
                                   std::shared_ptr<StoreRun> run);

  void set_outcome(RunOutcome outcome) {
    MutexLock lock(mutex_);
    outcome_ = std::move(outcome);
  }

  // How its series has ended.
  struct End {
    bool completed;  // false: the series was cancelled before its end
    bool stopping;   // the library stops: what waited in the series did not do what it should have
  };
  // What the store is asked for when the series has ended. `random` spreads retries.
  FinishRequest finish(const End& end, int64_t now_us, uint64_t random);
  // What the store is asked for if the handler is not called.
  FinishRequest finish_without_run(FinishRequest::How how, const std::string& reason) const;

  // Why a run fails that has had too many attempts.
  static constexpr char kAttemptsUsedUp[] = "its attempts are used up";

 private:
  class LostReport;

  FinishRequest retry(int64_t at_us, bool counts) const;
  int64_t retry_delay_us(uint64_t random) const;

  Mutex mutex_;
  RunOutcome outcome_ WF_GUARDED_BY(mutex_);
};

// The task of a run: the last one of its series. Its first one calls the handler.
class StoredTimerTask final : public WFStoredTimer {
 public:
  // `info.due` is the date that the run is for.
  StoredTimerTask(std::shared_ptr<StoreRunOwner> owner, std::shared_ptr<StoreRun> run,
                  WFStoreInfo&& info, int64_t lateness_us);

  // Makes the series. Returns what a handler thread must run. Throws std::bad_alloc.
  Runnable* begin();

  std::chrono::microseconds lease_left() const override;
  bool cancelled() const override { return run_->cancelled.load(std::memory_order_acquire); }
  WFScope scope() const override { return run_->scope; }
  void retry_after(Duration delay) override;
  void retry() override { run_->set_outcome({RunOutcome::kBackOff, 0, {}}); }
  void give_up(const std::string& reason) override;
  void acknowledge() override { run_->set_outcome({RunOutcome::kAcknowledge, 0, {}}); }

  void dispatch() override;

 private:
  class Series;

  class Processor final : public SubTask {
   public:
    explicit Processor(StoredTimerTask& task) : task_(task) {}
    void run_queued() override { series_of(this)->start(); }
    void dispatch() override;

   private:
    SubTask* done() override { return series_of(this)->pop(); }
    StoredTimerTask& task_;
  };

  ~StoredTimerTask() override;
  SubTask* done() override { return end_and_next(); }
  void end(bool completed);

  const std::shared_ptr<StoreRunOwner> owner_;
  const std::shared_ptr<StoreRun> run_;
  Processor processor_;
  bool ended_ = false;
};

}  // namespace workflow

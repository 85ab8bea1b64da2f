#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workflow/WFCron.h"
#include "workflow/WFScope.h"
#include "workflow/WFTimer.h"
#include "workflow/WFTimerDue.h"
#include "workflow/WFTimerStats.h"
#include "workflow/Workflow.h"
#include "workflow/detail/Duration.h"
#include "workflow/detail/WaitingTask.h"

// Durable timers: named timers that survive the process, and that several processes share. They are
// kept in a store, such as a file of SQLite. Any process that has the store open may cancel or move
// a timer by its name, and a process that handles the kind of the timer runs it when it is due.
// docs/store.md explains what is promised. This header belongs to the library workflow::store.
//
//   WFTimerStore *store = WFTimerStore::open("sqlite:/var/lib/app/timers.db");
//   store->handle("remind", [](WFStoredTimer *timer) { send_mail(timer->payload()); });
//   store->schedule({"remind/42", std::chrono::hours(24), "remind", "a payload"});
//
// A store runs each timer that is not cancelled at least once, and never before it is due by the
// clock of the store. A timer may run more than once: a process may die in the middle of a run.

namespace workflow {
class StoreEngine;
class StoreOpener;
}  // namespace workflow

// What a store has decided about one timer.
enum class WFStoreVerdict {
  // There was no timer to decide about: for example a schedule that stored its timer beside others,
  // or a request that was refused.
  kNone,
  // The timer waited. If `attempts` is not 0, it waited for a retry: that many runs have begun, and
  // the last of them asked for the retry. After a cancel no run follows. After a reschedule it runs
  // at the new time.
  kWon,
  // Cancel: a run is under way, and it goes on. The process that runs the timer learns of the
  // cancel (its scope ends), and neither a retry nor a further date follows.
  kRunning,
  // Reschedule or replace: a run is under way. One successor is stored, which is blocked until the
  // running timer has ended or failed: its retries come first. It is also stored if the running
  // timer was cancelled: that one is not retried, and its successor recurs if it did.
  kAfterRun,
  // As kWon, but the last of `attempts` runs lost its lease before the store learnt of its end.
  // That run may have had its effect in part.
  kWonAfter,
  // There is no such timer any more: it has ended as `outcome` says, at `when`. After a replace the
  // new timer is stored.
  kDone,
  // The store knows no such timer, and would remember if it had ended since `when`. After a replace
  // the new timer is stored.
  kUnknown,
  // No answer came from the store. Ask again with the request id to find out what it has decided.
  kInDoubt,
};

// How a timer has ended.
enum class WFStoreOutcome {
  kNone,       // it has not
  kDone,       // its run was acknowledged
  kCancelled,  // a cancel ended it, or another timer has replaced it
  kMissed,     // its run would have begun later than `skip_if_later` allows, and was left out
  kFailed,     // its handler gave up, or its attempts were used up: it is among the failed ones
};

// Identifies one request to a store, so that its answer can be asked for again. Two requests of the
// same id are one request: the second gets the answer of the first, as long as the store remembers
// it (WFStoreOptions::remembered).
struct WFStoreRequestId {
  uint64_t session = 0;
  uint64_t number = 0;
  friend bool operator==(const WFStoreRequestId &a, const WFStoreRequestId &b) {
    return a.session == b.session && a.number == b.number;
  }
  friend bool operator!=(const WFStoreRequestId &a, const WFStoreRequestId &b) { return !(a == b); }
};

// What a store says about one timer.
struct WFStoreAnswer {
  WFStoreVerdict verdict = WFStoreVerdict::kNone;
  uint64_t timer = 0;  // the number of the timer in its store, or 0
  // kRunning and kAfterRun: the process that runs the timer, and for how long its lease lasts.
  std::string owner;
  uint64_t fence = 0;
  std::chrono::microseconds lease_left{};
  // How many runs of the timer have begun. A new date, retry_failed(), and a reschedule after a
  // lost lease set this back to 0. In a Redis it is 0 for a timer that has ended.
  unsigned attempts = 0;
  // kDone: how the timer has ended.
  WFStoreOutcome outcome = WFStoreOutcome::kNone;
  // kDone: when it has ended. kUnknown: since when the store remembers.
  std::chrono::system_clock::time_point when;
};

// What the effect of a request survives.
struct WFStoreReceipt {
  enum Level {
    kUnknown,      // the store did not say
    kMemory,       // memory: the closing of this store while another of that name is open. Redis:
                   // the death of this process, but not of the server
    kEverySecond,  // the death of the server, except for its last second or two (Redis, everysec)
    kFsync,        // the loss of power on the server (Redis, always)
    kFile,         // the loss of power: the file was synced
    kReplicas,     // the loss of the server: `replicas` others have it in their memory
  };
  Level level = kUnknown;
  int replicas = 0;

  // "file", "memory", "everysec", "fsync", "replicas(2)" or "unknown".
  std::string to_string() const;
};

// When a timer of a store is due, and how it recurs. It converts from delays and dates as
// WFTimerDue does, and from a WFCron:
//
//   std::chrono::minutes(30)                         30 minutes after the request to store it
//   std::chrono::system_clock::from_time_t(t)        at that date
//   *WFCron::parse("0 2 * * *", "Europe/Berlin")     at each of those dates
//   WFStoreDue::every(std::chrono::hours(1))         every hour, first in an hour
//
// Delays and recurrences count from the dispatch of the request's task, not from its creation. A
// task in a series is dispatched when the one before it has ended.
//
// Times are kept in microseconds, rounded up. For negative delays see docs/limits.md.
class WFStoreDue {
 public:
  template <class REP, class PERIOD>
  WFStoreDue(const std::chrono::duration<REP, PERIOD> &delay) : due_(delay) {}
  template <class CLOCK, class DURATION>
  WFStoreDue(const std::chrono::time_point<CLOCK, DURATION> &date) : due_(date) {}
  WFStoreDue(const WFTimerDue &due) : due_(due) {}
  // Recurs at the dates of the expression.
  WFStoreDue(const WFCron &cron) : due_(std::chrono::nanoseconds(0)), cron_(cron) {}

  // Recurs at multiples of the period from the first time. Unless it is given, that is one period
  // after the dispatch of the request. A request with a period below one millisecond ends with
  // EINVAL.
  static WFStoreDue every(workflow::Duration period);
  static WFStoreDue every(workflow::Duration period, const WFTimerDue &first);

  const WFTimerDue &due() const { return due_; }
  const std::optional<WFCron> &cron() const { return cron_; }
  // In nanoseconds; 0 if there is no period.
  int64_t period_ns() const { return period_ns_; }

 private:
  WFTimerDue due_;
  std::optional<WFCron> cron_;
  int64_t period_ns_ = 0;
};

// A timer to be stored.
struct WFStoreTimer {
  // At most 1 KiB of any bytes. Timers are found by it.
  std::string name;
  WFStoreDue due = std::chrono::seconds(0);
  // Which handler runs it: see WFTimerStore::handle(). 1 to 255 bytes.
  std::string kind;
  // At most 64 KiB of any bytes, for the handler.
  std::string payload = {};
  // What happens to the timers of that name. The policies are those of WFTimer.h, except that a
  // timer that runs cannot be replaced: the new one then waits until it has ended or failed.
  WFTimerPolicy policy = WF_TIMER_APPEND;
  // A run that would begin later than this after its time is left out, and counted as missed. A
  // recurring timer goes on with its next date. Negative: no run is left out.
  workflow::Duration skip_if_later = std::chrono::nanoseconds(-1);
  // Recurring timers, when several dates have passed: true runs the timer once for each of them,
  // false once for the latest.
  bool every_missed_date = false;
  // If this is not set, the library chooses an id.
  std::optional<WFStoreRequestId> request = std::nullopt;
};

// The stage of a timer in its store.
enum class WFStoreStage {
  kWaiting,  // also a timer that is due and that no process has taken yet
  kRunning,  // a process has a lease of it
  kBlocked,  // it waits until the timer that it follows has ended or failed, after its retries
  kFailed,   // it is kept for WFTimerStore::create_retry_failed_task()
};

// A timer of a store, as it was at one moment.
struct WFStoreInfo {
  // Its number. Numbers grow in the order in which timers are stored. In a Redis with several
  // shards that holds only among timers of the same name.
  uint64_t timer = 0;
  std::string name;
  std::string kind;
  std::string payload;
  std::chrono::system_clock::time_point due;  // time_point::max(): never
  WFStoreStage stage = WFStoreStage::kWaiting;
  unsigned attempts = 0;
  std::string owner;   // kRunning
  std::string reason;  // kFailed: what the handler said
};

// What a request to a store has led to.
struct WFStoreResult {
  // As WFStoreTask::get_state() and get_error().
  int state = 0;
  int error = 0;
  // If it failed: why, in one line.
  std::string message;

  // Cancel and reschedule: one answer for each timer that was found, in the order in which they
  // were stored; a single one, kDone or kUnknown, if none was found. Schedule with
  // WF_TIMER_REPLACE: the same for the timers that it replaces or follows. In doubt: a single one,
  // kInDoubt. Otherwise none.
  std::vector<WFStoreAnswer> answers;
  // Schedule: the number of the new timer; 0 if none was stored.
  uint64_t timer = 0;
  WFStoreReceipt receipt;
  WFStoreRequestId request;

  // Count, retry_failed and remove_failed.
  uint64_t count = 0;
  // List.
  std::vector<WFStoreInfo> timers;
  // List: what to give to the next query to go on; empty at the end.
  std::string cursor;

  // Whether the store has said that the request was carried out. If it has not, and verdict() is
  // kInDoubt, it may have been carried out all the same.
  bool ok() const { return state == 0; }
  // The first answer's verdict; kNone if there is no answer.
  WFStoreVerdict verdict() const;
};

// A request to a store. It ends when the store has answered. What it has done then survives what
// `receipt` of the result names:
//   SUCCESS    it was carried out; result() has the verdicts
//   SYS_ERROR  EEXIST      schedule: WF_TIMER_KEEP, and another timer has the name
//              EINVAL      a wrong argument: result().message names it
//              EMSGSIZE    a name, kind or payload is too long
//              E2BIG       in a Redis: it would take more than 20,000 timers of a name, and has
//                          taken none; say `max`
//              ENOSPC      the disk or the memory of the server is full; a schedule has stored
//                          nothing
//              EAGAIN      the queue of the store is full (WFStoreOptions::max_queued)
//              ESHUTDOWN   the store is closed
//              any errno   of the file or the server, or of the scope around the task (WFScope.h)
//   ABORTED    the library stops
// If the store was at work on the request when the task ended early, or its answer was lost, then
// the verdict is kInDoubt.
class WFStoreTask : public workflow::TaskWithCallback<WFStoreTask, workflow::WaitingTask> {
 public:
  // For the callback.
  const WFStoreResult &result() const { return result_; }
  const std::vector<WFStoreAnswer> &verdicts() const { return result_.answers; }
  // Returns the id of the request, with which create_ask_task() asks for its answer later. May be
  // called before the start and in the callback, but not while the task may be under way. Unless
  // the user gave an id, the first call chooses it, or else the dispatch does. From then on the
  // request counts among those that the store remembers: start the task before the process has made
  // as many further requests as WFStoreOptions::remembered says. A count and a list have no id:
  // both numbers are 0.
  virtual const WFStoreRequestId &request_id() const = 0;

 protected:
  using TaskWithCallback::TaskWithCallback;
  ~WFStoreTask() override = default;

  WFStoreResult result_;
};

// A run of a stored timer, for its handler. The handler is called in a series of its own, and may
// push tasks to it (series_of(timer)). The run is acknowledged when the series has ended: then the
// timer is done, unless the handler has asked for something else. The series runs in a scope, which
// ends when the run should stop: with ECANCELED when the timer is cancelled, and with ESTALE
// shortly before the lease is lost.
//
// The object is valid until its series has ended. Its functions may be called from any thread until
// then.
class WFStoredTimer : public workflow::TaskBase<> {
 public:
  const std::string &name() const { return info_.name; }
  const std::string &kind() const { return info_.kind; }
  const std::string &payload() const { return info_.payload; }
  // The number of the timer in its store.
  uint64_t timer() const { return info_.timer; }
  // The time at which it was due. A recurring timer: the date that this run is for.
  std::chrono::system_clock::time_point due() const { return info_.due; }
  // 1 for the first run.
  unsigned attempt() const { return info_.attempts; }
  // How much later than due() the run began, by the clock of the store.
  std::chrono::microseconds lateness() const { return lateness_; }
  // Grows with each run and each move of any timer of the store; in a Redis with several shards, of
  // any timer of the same name. Pass it to whatever the run changes, so that an earlier run that
  // was wrongly taken for dead can be refused there.
  uint64_t fence() const { return fence_; }

  // For how long no other process takes the timer. While the series runs the lease is extended by
  // itself, so this becomes short only if the store does not answer.
  virtual std::chrono::microseconds lease_left() const = 0;
  // Whether the timer was cancelled while it ran.
  virtual bool cancelled() const = 0;
  // The scope of the series.
  virtual WFScope scope() const = 0;

  // These calls say what happens when the series has ended, in place of the acknowledgement. The
  // last call counts.
  //
  // Another run begins after that delay (negative: see docs/limits.md). If the attempts are used
  // up, the timer moves to the failed ones instead.
  virtual void retry_after(workflow::Duration delay) = 0;
  // The same after a delay that grows with each attempt (WFStoreHandlerOptions).
  virtual void retry() = 0;
  // The timer moves to the failed ones. A recurring timer goes on with its next date besides.
  virtual void give_up(const std::string &reason) = 0;
  // The run is acknowledged after all.
  virtual void acknowledge() = 0;

 protected:
  WFStoredTimer() = default;
  ~WFStoredTimer() override = default;

  WFStoreInfo info_;
  std::chrono::microseconds lateness_{};
  uint64_t fence_ = 0;
};

// How a kind of timers is handled.
struct WFStoreHandlerOptions {
  // How many runs of this kind this process has at a time.
  size_t max_running = 64;
  // After so many runs without an acknowledgement a timer fails; 0 means never. A run whose process
  // dies counts.
  unsigned max_attempts = 20;
  // WFStoredTimer::retry() waits this long after the first run, twice as long after each further
  // one, at most `max_retry_delay`, and up to a quarter less at random.
  workflow::Duration retry_delay = std::chrono::seconds(1);
  workflow::Duration max_retry_delay = std::chrono::hours(1);
  // Called on a thread of the library for each run that was left out because it was too late.
  std::function<void(const WFStoreInfo &)> on_missed;
  // Called on a thread of the library, once, for each run whose end the store has not taken because
  // its lease was lost: whatever the handler has asked for, an acknowledgement, a retry or a
  // failure, had no effect, and another run begins or has begun, if nobody has cancelled the timer.
  // It comes after the series of the run has ended. `fence` is that of the run. close() waits for
  // it as for a handler. It is not called if it is not known whether the store has taken the end
  // (WFTimerStoreStats::in_doubt), if memory has run out, or after close().
  std::function<void(const WFStoreInfo &, uint64_t fence)> on_lost;
};

// The properties of an open store.
struct WFStoreOptions {
  // How long a worker that died keeps its timers, 1 s to 1 day. The leases of living ones are
  // extended after a third of this time.
  workflow::Duration lease = std::chrono::seconds(30);
  // The name of this process in answers and lists; empty: host name and process id.
  std::string owner;
  // How many ended timers the store remembers, and how many requests of each process: 0 to 1
  // million.
  size_t remembered = 10000;
  // How many requests may wait for the store; more end with EAGAIN.
  size_t max_queued = 1000000;
  // How many overdue timers of each kind may begin in a second. Overdue means: due for longer than
  // a second. Timers that are due now go before them.
  size_t catch_up_rate = 5000;
  // Creates a store where there is none.
  bool create = true;
};

// What a store counts. A snapshot; the numbers are not from one instant.
struct WFTimerStoreStats {
  // Of the whole store, when this process last looked, which it does once a second. The numbers are
  // exact, except in a file that processes share: there at most 1,000,000 due timers and as many
  // failed ones are counted. If there are more than 100,000 of both together, all numbers but
  // `stored` are renewed less often, so that counting takes at most 2 % of the time.
  uint64_t stored = 0;         // timers, failed ones included
  uint64_t failed_timers = 0;  // timers that wait for retry_failed() or remove_failed()
  uint64_t due = 0;            // due, and taken by no process; all kinds, also lost leases
  uint64_t overdue = 0;        // those among them that have been due for longer than a second
  uint64_t unhandled = 0;      // overdue ones whose kind has no handler in this process
  uint64_t leased = 0;         // timers that any process runs: their leases are not over

  uint64_t running = 0;  // runs of this process whose series has not ended, also after a lost lease

  // By this process since it opened the store. A timer that it took without calling its handler is
  // not among those that have begun, and is among those that were missed, failed or lost.
  uint64_t scheduled = 0;
  uint64_t cancelled = 0;
  uint64_t rescheduled = 0;
  uint64_t begun = 0;  // calls of handlers
  uint64_t acknowledged = 0;
  uint64_t retried = 0;
  uint64_t failed = 0;
  uint64_t missed = 0;
  uint64_t lost = 0;      // runs whose lease was lost before they had ended
  uint64_t in_doubt = 0;  // runs of which it is not known whether the store has taken their end
  uint64_t errors = 0;    // failures of the store itself

  // How late first runs began.
  WFTimerStats::Lateness lateness;
  // How long the store took for each group of requests that it has carried out together, with the
  // wait for other processes.
  WFTimerStats::Lateness group;
  // How long the commits of a file took, each with its sync if it has one. With one owner, a commit
  // has a sync only if the answer to a request waits for it. A Redis and a store in memory have no
  // commits.
  WFTimerStats::Lateness commit;
  // A Redis: how long it took from sending a script until the reply was there. There is one such
  // time for each shard that has a part in a group. Other stores have none.
  WFTimerStats::Lateness round_trip;
  // How long requests of users took, from their submission to their answer.
  WFTimerStats::Lateness request;
};

// An open store. All functions may be called from any thread, and may throw std::bad_alloc where
// they create a task or return a result.
//
// Each kind of request has two forms. create_..._task() returns a task, which the caller starts or
// puts into a series; its callback may be null. The form without a task, such as schedule(), blocks
// the calling thread until the store has answered. No scope ends that wait. If the thread belongs
// to the library, another one works in its place meanwhile.
//
// The threads of a store end with the library, at the latest. A store that a process has opened
// does not work in a child of fork(2): its tasks end with ECHILD there.
class WFTimerStore {
 public:
  using Handler = std::function<void(WFStoredTimer *)>;
  using Callback = std::function<void(WFStoreTask *)>;

  // Opens the store that the URL names, and creates it where there is none. The caller owns the
  // store and deletes it. Tasks that are started later end with ESHUTDOWN.
  //   sqlite:/var/lib/app/timers.db     a file; processes of one machine may share it
  //   sqlite:FILE?layout=owned          the same for one process, with all timers in memory: faster
  //   redis://host:6379/0?namespace=app&shards=16
  //                                     in a Redis, for many machines; also rediss://,
  //                                     redis+unix:///path, redis+sentinel://host,host/master
  //                                     and redis+cluster://host,host
  //   memory:NAME                       in the memory of this process, for tests; all stores of
  //                                     that name are one while any of them is open
  // Returns null, with errno, if it cannot be opened; *message then says why in one line: EINVAL (a
  // wrong URL or option, a store of the other layout, or a Cluster that lacks slots), EBUSY
  // (another process owns it), EACCES, ENOENT, EMLINK (a file of several names), ENOTSUP (a network
  // file system, a newer layout, or a Redis that is too old or of another kind), EILSEQ (no store,
  // or a damaged one), or whatever the system says. Blocks while the file is read or the server
  // answers.
  static WFTimerStore *open(const std::string &url, const WFStoreOptions &options,
                            std::string *message = nullptr);
  static WFTimerStore *open(const std::string &url, std::string *message = nullptr) {
    return open(url, WFStoreOptions(), message);
  }

  // Closes the store as close(0) does: it waits for no run, but carries out the requests that are
  // under way, which takes as long as the store needs. A handler of this store, on_missed and
  // on_lost must not destroy it: it is not closed then, and goes on until the process ends.
  ~WFTimerStore();
  WFTimerStore(const WFTimerStore &) = delete;
  WFTimerStore &operator=(const WFTimerStore &) = delete;

  // Takes no more timers, waits until the handlers that run have ended, but not longer than `limit`
  // (negative: for as long as they take), and then closes the store. Requests that are under way
  // are carried out. Returns false if handlers still run: what they do is not acknowledged, and
  // their timers run again when their leases end. If close() is called again meanwhile, that call
  // also waits for the handlers, within a limit of its own. The store closes as soon as one of
  // these calls has stopped waiting for them. A handler of this store, on_missed and on_lost would
  // wait for themselves: in them it returns false with errno EDEADLK and has no effect.
  bool close(workflow::Duration limit = std::chrono::seconds(30));

  // From now on this process runs the timers of that kind. `handler` must not be null, and is
  // called on threads of the library, several at a time. A timer whose kind no process handles
  // waits (see WFTimerStoreStats::unhandled). A second call for a kind replaces its handler.
  // Returns 0, or -1 with errno: EINVAL, EMSGSIZE, ESHUTDOWN, ECHILD.
  int handle(const std::string &kind, const Handler &handler,
             const WFStoreHandlerOptions &options = {});

  // Stores a timer.
  WFStoreTask *create_schedule_task(const WFStoreTimer &timer, Callback callback);
  WFStoreResult schedule(const WFStoreTimer &timer);

  // Cancels the timers of that name, oldest first and at most `max` of them. Failed ones stay.
  WFStoreTask *create_cancel_task(const std::string &name, size_t max, Callback callback);
  WFStoreTask *create_cancel_task(const std::string &name, Callback callback) {
    return create_cancel_task(name, SIZE_MAX, std::move(callback));
  }
  WFStoreResult cancel(const std::string &name, size_t max = SIZE_MAX);

  // Moves the timers of that name, oldest first and at most `max` of them. A `due` that recurs
  // replaces the recurrence of the timer; one that does not moves the next date only.
  WFStoreTask *create_reschedule_task(const std::string &name, const WFStoreDue &due, size_t max,
                                      Callback callback);
  WFStoreTask *create_reschedule_task(const std::string &name, const WFStoreDue &due,
                                      Callback callback) {
    return create_reschedule_task(name, due, SIZE_MAX, std::move(callback));
  }
  WFStoreResult reschedule(const std::string &name, const WFStoreDue &due, size_t max = SIZE_MAX);

  // Counts the timers whose names begin with `prefix`, failed ones included. O(their number).
  WFStoreTask *create_count_task(const std::string &prefix, Callback callback);
  WFStoreResult count(const std::string &prefix);

  // Lists timers whose names begin with `prefix`, in the order of their names and then of their
  // numbers: at most `max` of them, and at most 10,000, after the place that `cursor` names. The
  // list stops earlier when its timers have some 16 MB, or in a Redis 16 MB from each shard. As
  // long as there are more timers, the answer has a cursor.
  WFStoreTask *create_list_task(const std::string &prefix, const std::string &cursor, size_t max,
                                Callback callback);
  WFStoreResult list(const std::string &prefix, const std::string &cursor = {}, size_t max = 1000);

  // List only timers that have failed.
  WFStoreTask *create_list_failed_task(const std::string &prefix, const std::string &cursor,
                                       size_t max, Callback callback);
  WFStoreResult list_failed(const std::string &prefix, const std::string &cursor = {},
                            size_t max = 1000);
  // Makes the failed timers of that name due now, with no attempts so far. In a Redis this and
  // remove_failed() take the oldest 20,000: ask again until the count is 0.
  WFStoreTask *create_retry_failed_task(const std::string &name, Callback callback);
  WFStoreResult retry_failed(const std::string &name);
  // Forgets the failed timers of that name.
  WFStoreTask *create_remove_failed_task(const std::string &name, Callback callback);
  WFStoreResult remove_failed(const std::string &name);

  // Asks for the answer to an earlier request. The verdict is kUnknown if the store has not carried
  // it out, and never will: the id is used up then, so a request that is still on its way ends with
  // ECANCELED. ENODATA: the store does not remember requests from so long ago.
  WFStoreTask *create_ask_task(const WFStoreRequestId &request, Callback callback);
  WFStoreResult ask(const WFStoreRequestId &request);

  WFTimerStoreStats stats() const;
  // The counters in the text format of Prometheus 0.0.4, with the label store="`name`".
  std::string to_prometheus(const std::string &name,
                            const std::string &prefix = "workflow_store") const;
  // The same for several stores, by their names, in one text. A page must have each metric in one
  // place, so the texts of two stores cannot simply be put one behind the other.
  static std::string to_prometheus(
      const std::vector<std::pair<std::string, const WFTimerStore *>> &stores,
      const std::string &prefix = "workflow_store");

  // The time by the clock of the store, as this process knows it.
  std::chrono::system_clock::time_point now() const;

 private:
  friend class workflow::StoreOpener;
  explicit WFTimerStore(std::shared_ptr<workflow::StoreEngine> engine);

  std::shared_ptr<workflow::StoreEngine> engine_;
};

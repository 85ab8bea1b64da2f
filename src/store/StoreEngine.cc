#include "store/StoreEngine.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/DeadlineScope.h"
#include "kernel/ThreadContext.h"
#include "store/StoreTime.h"
#include "util/Time.h"

namespace workflow {

namespace {

// How many requests one group has at most: a group is one transaction, and others wait for its end.
constexpr size_t kGroup = 1024;
// How long the thread waits when memory has run out, or an alarm could not be set.
constexpr int64_t kPauseNs = 10 * kNsPerMs;
constexpr int64_t kFirstReopenUs = 50'000;
// For how long the thread waits for callers to come again. A shorter wait would be no gain: to
// sleep and to be woken takes as long.
constexpr int64_t kShortestGatherNs = 20'000;
constexpr int64_t kLongestGatherNs = 2 * kNsPerMs;
// So many groups begin at once after nobody has come again.
constexpr unsigned kGatherPause = 32;

}  // namespace

StoreEngine::StoreEngine(std::unique_ptr<StoreBackend> backend,
                         std::shared_ptr<const StoreTimes> times, const WFStoreOptions& options,
                         uint64_t session)
    : runtime_(Runtime::current()),
      backend_(std::move(backend)),
      times_(std::move(times)),
      options_(options),
      session_(session),
      looks_each_time_(!runtime_.clock().is_system_clock()),
      runs_((options.lease.positive_ns() + 999) / 1000, options.catch_up_rate, options.owner),
      alarms_(runtime_, *backend_, runs_, *this),
      settlement_(runtime_, *backend_, runs_, alarms_, counters_, options.owner),
      random_(session) {}

StoreEngine::~StoreEngine() = default;

int StoreEngine::start() {
  alarms_.belong_to(weak_from_this());
  const auto body = ThreadContext::in_same_runtime([this] { run(); });
  if (!thread_.start("wf-store", body)) {
    backend_->close();
    return EAGAIN;
  }
  // From this call on, the runtime may stop the store on another thread.
  if (!runtime_.add_service(this)) {
    stop(kNever);
    return ESHUTDOWN;
  }
  alarms_.start_to_look();
  return 0;
}

WFTimerStoreStats StoreEngine::stats() const {
  WFTimerStoreStats stats = counters_.snapshot();
  stats.running = runs_.live();
  stats.commit = times_->commit.snapshot();
  stats.round_trip = times_->round_trip.snapshot();
  return stats;
}

WFStoreRequestId StoreEngine::next_id() {
  return {session_, next_number_.fetch_add(1, std::memory_order_relaxed)};
}

int StoreEngine::handle(const std::string& kind, const WFTimerStore::Handler& handler,
                        const WFStoreHandlerOptions& options) {
  if (runtime_.belongs_to_parent_process()) return ECHILD;
  std::shared_ptr<StoreHandler> replaced;
  MutexLock lock(mutex_);
  if (closed_) return ESHUTDOWN;
  replaced = runs_.handle(kind, handler, options, backend_->now_us());
  claim_ = true;
  work_.notify_one();
  return 0;
}

int StoreEngine::submit(const std::shared_ptr<StoreCall>& call, WFStoreRequestId* chosen_id) {
  if (runtime_.belongs_to_parent_process()) return ECHILD;
  call->submitted_ns = monotonic_now_ns();
  MutexLock lock(mutex_);
  if (closed_) return ESHUTDOWN;
  if (calls_.size() >= options_.max_queued) return EAGAIN;
  if (chosen_id) {
    *chosen_id = next_id();
    call->request.id = *chosen_id;
  }
  try {
    calls_.push_back(call);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  wake_for_queue();
  return 0;
}

void StoreEngine::wake_for_queue() {
  if (!busy_ || (gathers_ && queued() >= expected_)) {
    work_.notify_one();
  }
}

bool StoreEngine::withdraw(StoreCall& call) {
  return !runtime_.belongs_to_parent_process() && call.withdraw();
}

void StoreEngine::changed() {
  const bool extend = runs_.any_known() && alarms_.take_hint();
  on_due({.claim = true, .extend = extend, .look = false, .reopen = false});
}

void StoreEngine::on_due(const StoreAlarms::Due& due) {
  MutexLock lock(mutex_);
  claim_ = claim_ || due.claim;
  extend_ = extend_ || due.extend;
  look_ = look_ || due.look;
  reopen_ = reopen_ || (due.reopen && failed_);
  work_.notify_one();
}

// The ends of runs

void StoreEngine::run_left_out(const std::shared_ptr<StoreRun>& run, FinishRequest::How how,
                               std::string_view reason) {
  MutexLock lock(mutex_);
  end_run(run, [&] { return run->finish_without_run(how, std::string(reason)); });
}

void StoreEngine::run_ended(const std::shared_ptr<StoreRun>& run, bool completed) {
  Runnable* report = nullptr;
  {
    MutexLock lock(mutex_);
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const uint64_t random = random_ >> 33;
    const bool is_told = end_run(run, [&] {
      return run->finish({completed, runtime_.stopping()}, backend_->now_us(), random);
    });
    if (!is_told) {
      report = lost_report(run);
    }
  }
  post(report);
}

void StoreEngine::report_lost(const std::shared_ptr<StoreRun>& run) {
  Runnable* report = nullptr;
  {
    MutexLock lock(mutex_);
    report = lost_report(run);
  }
  post(report);
}

Runnable* StoreEngine::lost_report(const std::shared_ptr<StoreRun>& run) {
  Runnable* const report = stop_ ? nullptr : StoreRun::new_lost_report(shared_from_this(), run);
  reports_ += report ? 1 : 0;
  return report;
}

void StoreEngine::post(Runnable* report) {
  if (report) {
    runtime_.handlers().post(report);
  }
}

void StoreEngine::lost_reported() {
  MutexLock lock(mutex_);
  reports_--;
  progress_.notify_all();
}

template <class FINISH>
bool StoreEngine::end_run(const std::shared_ptr<StoreRun>& run, const FINISH& finish) {
  const bool has_lease = runs_.end(*run);
  if (has_lease && !stopped_) {
    try {
      StoreFinish last;
      last.run = run;
      last.request.what = finish();
      finishes_.push_back(std::move(last));
    } catch (const std::bad_alloc&) {
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
      runs_.forget(*run);
    }
  }
  claim_ = true;
  wake_for_queue();
  progress_.notify_all();
  return has_lease;
}

// The thread

void StoreEngine::run() {
  MutexLock lock(mutex_);
  for (;;) {
    replace_alarms();
    while (!has_work()) {
      if (stop_) return;
      wait_for_work();
      replace_alarms();
    }
    busy_ = true;
    const bool tries_to_reopen = must_reopen();
    std::unique_ptr<StoreGroup> group;
    bool had_memory = failed_ || take_group(group);
    lock.unlock();
    had_memory = had_memory && run_turn(tries_to_reopen, group.get());
    if (!had_memory && group) {
      give_back(*group);
    }
    group.reset();
    if (!had_memory && stops()) {
      fail_all(ENOMEM, {});  // nothing is asked for any more, and close() must end
    }
    lock.lock();
    if (!had_memory) {
      pause();
      claim_ = extend_ = look_ = true;
      alarms_.set_all_again();
      reopen_ = reopen_ || failed_;
    } else if (alarms_.lost_an_alarm()) {
      pause();
    }
    gather();
    busy_ = false;
    turns_++;
    progress_.notify_all();
  }
}

bool StoreEngine::run_turn(bool tries_to_reopen, StoreGroup* group) {
  try {
    if (tries_to_reopen) {
      reopen();
    } else if (group) {
      carry_out(*group);
    }
    // Also while the store has failed: handlers are told before their leases are lost.
    alarms_.set();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool StoreEngine::stops() {
  MutexLock lock(mutex_);
  return stop_;
}

void StoreEngine::pause() {
  const int64_t deadline_ns = monotonic_now_ns() + kPauseNs;
  while (!stop_ && work_.wait_until(mutex_, deadline_ns)) {
  }
}

void StoreEngine::gather() {
  const size_t expected = std::exchange(expected_, 0);
  const int64_t longest_ns = std::min(group_ns_ / 4, kLongestGatherNs);
  if (expected < 2 || longest_ns < kShortestGatherNs) return;
  if (gather_pause_ > 0) {
    gather_pause_--;
    return;
  }
  const int64_t deadline_ns = monotonic_now_ns() + longest_ns;
  expected_ = expected;
  gathers_ = true;
  while (queued() < expected && !runs_.refuses() && !failed_) {
    if (!work_.wait_until(mutex_, deadline_ns)) break;
  }
  gathers_ = false;
  expected_ = 0;
  if (queued() < expected / 2) {
    gather_pause_ = kGatherPause;
  }
}

void StoreEngine::wait_for_work() {
  if (library_stops_) {
    work_.wait_until(mutex_, next_alarm_ns_);
  } else {
    work_.wait(mutex_);
  }
}

void StoreEngine::replace_alarms() {
  if (!library_stops_) return;
  const int64_t now_ns = monotonic_now_ns();
  if (now_ns < next_alarm_ns_) return;
  next_alarm_ns_ = now_ns + std::min(options_.lease.positive_ns() / 3, kNsPerSec);
  extend_ = true;
  reopen_ = failed_;
}

bool StoreEngine::must_reopen() const {
  return failed_ && (reopen_ || stop_ || (library_stops_ && !calls_.empty()));
}

bool StoreEngine::has_work() const {
  const bool waiting = !calls_.empty() || !finishes_.empty();
  if (stop_) {
    return waiting;  // what is asked for is carried out, but nothing else
  }
  if (failed_) return must_reopen() || alarms_.must_set();
  return waiting || alarms_.must_set() || asks_itself();
}

bool StoreEngine::asks_itself() const {
  return look_ || (extend_ && runs_.any_known()) || (claim_ && runs_.takes_timers());
}

void StoreEngine::note_failure() {
  if (failed_) return;
  failed_ = true;
  // At once for the first time. Opening may succeed again and again although nothing works.
  reopen_ = reopen_delay_us_ == 0;
  const bool waits = !reopen_;
  reopen_delay_us_ = std::clamp(reopen_delay_us_ * 2, kFirstReopenUs, kUsPerSec);
  if (waits) {
    alarms_.reopen_after(reopen_delay_us_);
  }
}

bool StoreEngine::take_group(std::unique_ptr<StoreGroup>& group) {
  try {
    group = std::make_unique<StoreGroup>();
    fill(*group);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void StoreEngine::fill(StoreGroup& group) {
  while (!finishes_.empty() && group.finishes.size() < kGroup) {
    group.finishes.push_back(std::move(finishes_.front()));
    finishes_.pop_front();
  }
  // See rule 8.
  const bool take_turns = reopen_delay_us_ > 0;
  const bool skips_calls = take_turns && std::exchange(calls_had_turn_, false) && asks_itself();
  while (!skips_calls && !damaged_ && !calls_.empty() && group.calls.size() < kGroup) {
    group.calls.push_back(std::move(calls_.front()));
    calls_.pop_front();
    if (!group.calls.back()->take()) {
      group.calls.pop_back();  // nobody waits for it any more
    }
  }
  if (take_turns && !group.calls.empty()) {
    calls_had_turn_ = true;
    return;
  }
  if (std::exchange(extend_, false) && runs_.any_known()) {
    group.extend.emplace().what = runs_.extend(group.extended);
  }
  // A run that has ended may have freed a place, or a timer that was blocked.
  if ((claim_ || !group.finishes.empty()) && runs_.takes_timers()) {
    claim_ = false;
    ClaimRequest claim = runs_.claim(backend_->now_us());
    if (!claim.kinds.empty()) {
      group.claim.emplace().what = std::move(claim);
    }
  }
  damaged_ = damaged_ && group.claim;  // without a claim nobody would be told anything
  if (std::exchange(look_, false) || (looks_each_time_ && !group.calls.empty())) {
    LookRequest look;
    look.overdue_us = StoreRuns::kFreshUs;
    look.handled = runs_.handled();
    group.look.emplace().what = std::move(look);
  }
}

void StoreEngine::carry_out(StoreGroup& group) {
  const std::vector<StoreRequest*> requests = group.requests();
  if (requests.empty()) return;
  const int64_t began_ns = monotonic_now_ns();
  group.has_begun = true;
  const bool works = backend_->execute(requests);
  const int64_t group_ns = monotonic_now_ns() - began_ns;
  counters_.group.add(group_ns);
  if (!works) {
    counters_.errors.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    note_failure();
  }
  {
    MutexLock lock(mutex_);
    group_ns_ = group_ns;
    expected_ = queued() + group.calls.size();
    if (group.claim) {
      expected_ += std::get<ClaimRequest>(group.claim->what).claimed.size();
    }
  }
  settlement_.settle(group, shared_from_this());
  ask_again(group);
}

void StoreEngine::ask_again(StoreGroup& group) {
  for (StoreFinish& finish : group.finishes) {
    if (!finish.settled) {
      retry_later(std::move(finish));
    }
  }
  look_for_damage(group);
  MutexLock lock(mutex_);
  if (group.extend && group.extend->failure.error != 0) {
    note_failure();
    extend_ = true;
  }
  if (group.claim && group.claim->failure.error != 0) {
    note_failure();
    claim_ = true;
  }
  const bool asks_for_more = group.claim || group.extend || !group.finishes.empty();
  if (!asks_for_more && !group.calls.empty()) {
    calls_failed_ = failed_;
  }
  if (!failed_ && !calls_failed_ &&
      (asks_for_more || (!runs_.takes_timers() && !runs_.any_known()))) {
    reopen_delay_us_ = 0;  // all that it is used for works again
  }
}

void StoreEngine::look_for_damage(const StoreGroup& group) {
  if (!group.claim) return;
  const StoreFailure& failure = group.claim->failure;
  {
    MutexLock lock(mutex_);
    damaged_ = failure.error == EILSEQ;
  }
  // A call of the same group may be what has failed. The next claim has none beside it.
  if (failure.error == EILSEQ && group.calls.empty()) {
    fail_calls(failure.error, failure.message);
  }
}

void StoreEngine::retry_later(StoreFinish&& finish) {
  Runnable* report = nullptr;
  {
    MutexLock lock(mutex_);
    note_failure();
    finish.in_doubt = finish.in_doubt || finish.request.failure.in_doubt;
    if (!stop_ && finish.run->lease_end_us.load(std::memory_order_acquire) > backend_->now_us()) {
      finish.request.failure = {};
      finishes_.push_back(std::move(finish));
      return;
    }
    // Whoever takes the timer next runs it again, unless the store has taken the end after all.
    StoreCounters::Count& counter = finish.in_doubt ? counters_.in_doubt : counters_.lost;
    counter.fetch_add(1, std::memory_order_relaxed);
    runs_.forget(*finish.run);
    finish.settled = true;
    if (!finish.in_doubt) {
      report = lost_report(finish.run);
    }
  }
  post(report);
}

void StoreEngine::give_back(StoreGroup& group) {
  for (const std::shared_ptr<StoreCall>& call : group.calls) {
    if (call->request.failure.error == 0) {
      call->request.failure = {ENOMEM, {}, group.has_begun};
    }
    settlement_.answer(*call);
  }
  for (StoreFinish& finish : group.finishes) {
    if (finish.run && !finish.settled) {
      finish.in_doubt = finish.in_doubt || group.has_begun;
      try {
        retry_later(std::move(finish));
      } catch (const std::bad_alloc&) {
        // The timer runs again when its lease has ended.
        MutexLock lock(mutex_);
        runs_.forget(*finish.run);
      }
    }
  }
  MutexLock lock(mutex_);
  note_failure();
  claim_ = extend_ = true;
}

void StoreEngine::reopen() {
  {
    MutexLock lock(mutex_);
    reopen_ = false;
  }
  std::string message;
  const int error = backend_->reopen(&message);
  if (error != 0) {
    counters_.errors.fetch_add(1, std::memory_order_relaxed);
    if (backend_->leases_are_lost()) {
      settlement_.lose_leases();
    }
    fail_all(error, message);
  }
  MutexLock lock(mutex_);
  failed_ = false;
  claim_ = extend_ = true;
  alarms_.leases_have_changed();
  if (error != 0) {
    note_failure();
  }
}

void StoreEngine::fail_calls(int error, const std::string& message) {
  size_t left = SIZE_MAX;
  for (;;) {
    std::shared_ptr<StoreCall> call;
    {
      MutexLock lock(mutex_);
      // Whoever asks again at once is answered next time: this thread has leases to look after.
      left = std::min(left, calls_.size());
      if (left-- == 0) break;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    call->request.failure.error = error;
    try {
      call->request.failure.message = message;
    } catch (const std::bad_alloc&) {
      // The error has to do.
    }
    settlement_.answer(*call);
  }
}

void StoreEngine::fail_all(int error, const std::string& message) {
  fail_calls(error, message);
  for (;;) {
    StoreFinish dropped;  // freed without the mutex: the handler in it is the user's
    MutexLock lock(mutex_);
    if (!stop_ || finishes_.empty()) break;
    dropped = std::move(finishes_.front());
    finishes_.pop_front();
    runs_.forget(*dropped.run);
  }
}

// The end

bool StoreEngine::close(int64_t limit_ns) {
  if (runtime_.belongs_to_parent_process()) return true;
  if (is_in_run()) {
    errno = EDEADLK;
    return false;
  }
  const bool ended = stop(limit_ns);
  runtime_.remove_service(this);
  return ended;
}

void StoreEngine::close_or_abandon() {
  if (runtime_.belongs_to_parent_process() || is_in_run()) {
    self_ = shared_from_this();
    other_abandoned_ = abandoned_.load(std::memory_order_relaxed);
    // Nobody reads the list.
    while (!abandoned_.compare_exchange_weak(other_abandoned_, this, std::memory_order_relaxed)) {
    }
  } else {
    close(0);
  }
}

bool StoreEngine::is_in_run() const {
  if (Report::is_of(*this)) return true;
  const DeadlineScope* const scope = SeriesScope::get(WFScope::current());
  return scope && scope->belongs_to(static_cast<const StoreRunOwner*>(this));
}

bool StoreEngine::stop(int64_t limit_ns) {
  // A handler, or a report to it, that ends the process never returns.
  const size_t own = is_in_run() ? 1 : 0;
  const int64_t deadline_ns =
      limit_ns == kNever ? kNever : saturating_add(monotonic_now_ns(), limit_ns);
  LendingCondition::Waiter waiter({"WFTimerStore::close()", nullptr, nullptr});
  MutexLock lock(mutex_);
  runs_.refuse();
  // A claim that is under way may still begin runs, and these may ask for more. After that nothing
  // more is accepted, however many ask, so what is left comes to an end. Until then handlers are
  // still told of leases that were lost.
  const uint64_t last_claim = turns_ + (busy_ ? 1 : 0);
  const auto may_begin_runs = [&]() WF_REQUIRES(mutex_) {
    return !stopped_ && !failed_ && turns_ < last_claim;
  };
  while (runs_.live() + reports_ > own || may_begin_runs()) {
    if (!progress_.wait_until(mutex_, waiter, deadline_ns)) break;
  }
  closed_ = true;
  const auto thread_has_to_do = [this]() WF_REQUIRES(mutex_) {
    return !stopped_ && (busy_ || !finishes_.empty() || !calls_.empty());
  };
  while (runs_.live() + reports_ > own || (thread_has_to_do() && !failed_)) {
    if (!progress_.wait_until(mutex_, waiter, deadline_ns)) break;
  }
  if (std::exchange(stop_, true)) {
    while (!stopped_) {
      progress_.wait(mutex_, waiter);
    }
    return runs_.live() == 0 && reports_ == 0;
  }
  work_.notify_one();
  lock.unlock();
  thread_.join();
  alarms_.close();
  try {
    backend_->close();
  } catch (const std::bad_alloc&) {
    // Others wait for the end, and the destructor frees what is left.
  }
  lock.lock();
  stopped_ = true;
  progress_.notify_all();
  return runs_.live() == 0 && reports_ == 0;  // with those that the last group has begun
}

void StoreEngine::refuse_new_work() {
  runs_.refuse();
  MutexLock lock(mutex_);
  library_stops_ = true;
  work_.notify_one();
}

bool StoreEngine::finish_work() {
  stop(kNever);
  return false;
}

}  // namespace workflow

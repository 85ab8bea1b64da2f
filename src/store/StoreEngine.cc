#include "store/StoreEngine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/DeadlineScope.h"
#include "kernel/ThreadContext.h"
#include "store/StoreRepeat.h"
#include "store/StoreTask.h"
#include "store/StoreTime.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

constexpr int64_t kUsPerMs = 1'000;
// How many requests one group has at most: a group is one transaction, and others wait for its end.
constexpr size_t kGroup = 1024;
// How long overdue timers wait that the rate has held back.
constexpr int64_t kCatchUpPauseUs = 20 * kUsPerMs;
// How often a hint of another process makes this one look at its leases, at most.
constexpr int64_t kHintPauseUs = 100 * kUsPerMs;
// How long the thread waits when memory has run out, or an alarm could not be set.
constexpr int64_t kPauseNs = 10 * kNsPerMs;
constexpr int64_t kLongestSleepUs = 86'400 * kUsPerSec;
constexpr int64_t kFirstReopenUs = 50 * kUsPerMs;
// For how long the thread waits for callers to come again. A shorter wait would be no gain: to
// sleep and to be woken takes as long.
constexpr int64_t kShortestGatherNs = 20'000;
constexpr int64_t kLongestGatherNs = 2 * kNsPerMs;
// So many groups begin at once after nobody has come again.
constexpr unsigned kGatherPause = 32;

int64_t monotonic_now_ns() {
  VirtualScheduler* scheduler = VirtualScheduler::current();
  return scheduler ? scheduler->now_ns() : monotonic_ns();
}

}  // namespace

void StoreWaiter::answer(WFStoreResult&& result) {
  MutexLock lock(mutex_);
  result_ = std::move(result);
  has_answer_ = true;
  answered_.notify_all();
}

WFStoreResult StoreWaiter::wait() {
  MutexLock lock(mutex_);
  while (!has_answer_) {
    answered_.wait(mutex_, waiter_);
  }
  return std::move(result_);
}

// What the thread carries out at a time. The requests are in this order.
struct StoreEngine::Group {
  std::vector<Finish> finishes;
  std::optional<StoreRequest> extend;
  std::vector<std::shared_ptr<StoreRun>> extended;  // the runs of `extend`
  std::vector<std::shared_ptr<StoreCall>> calls;
  std::optional<StoreRequest> claim;
  std::optional<StoreRequest> look;
  bool has_begun = false;  // the store may have seen the requests
};

StoreEngine::StoreEngine(std::unique_ptr<StoreBackend> backend, const WFStoreOptions& options,
                         uint64_t session)
    : runtime_(Runtime::current()),
      backend_(std::move(backend)),
      options_(options),
      session_(session),
      looks_each_time_(!runtime_.clock().is_system_clock()),
      runs_((options.lease.positive_ns() + 999) / 1000, options.catch_up_rate, options.owner),
      random_(session) {}

StoreEngine::~StoreEngine() = default;

int StoreEngine::start() {
  if (!runtime_.add_service(this)) {
    return ESHUTDOWN;
  }
  const auto body = ThreadContext::in_same_runtime([this] { run(); });
  if (!thread_.start("wf-store", body)) {
    runtime_.remove_service(this);
    return EAGAIN;
  }
  try {
    start_to_look();
  } catch (const std::bad_alloc&) {
    look_alarm_lost();
  }
  return 0;
}

WFStoreRequestId StoreEngine::next_id() {
  return {session_, next_number_.fetch_add(1, std::memory_order_relaxed)};
}

int StoreEngine::handle(const std::string& kind, const WFTimerStore::Handler& handler,
                        const WFStoreHandlerOptions& options) {
  if (runtime_.belongs_to_parent_process()) {
    return ECHILD;
  }
  std::shared_ptr<StoreHandler> replaced;
  MutexLock lock(mutex_);
  if (closed_) {
    return ESHUTDOWN;
  }
  replaced = runs_.handle(kind, handler, options, backend_->now_us());
  claim_ = true;
  work_.notify_one();
  return 0;
}

int StoreEngine::submit(const std::shared_ptr<StoreCall>& call) {
  if (runtime_.belongs_to_parent_process()) {
    return ECHILD;
  }
  MutexLock lock(mutex_);
  if (closed_) {
    return ESHUTDOWN;
  }
  if (calls_.size() >= options_.max_queued) {
    return EAGAIN;
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
  if (runtime_.belongs_to_parent_process()) {
    return false;
  }
  MutexLock lock(mutex_);
  call.task = nullptr;
  return call.taken;
}

void StoreEngine::changed() {
  MutexLock lock(mutex_);
  claim_ = true;
  const int64_t now_us = backend_->now_us();
  const int64_t extend_us = saturating_add(last_hint_extend_us_, kHintPauseUs);
  if (runs_.any_known() && now_us >= extend_us) {
    last_hint_extend_us_ = now_us;
    extend_ = true;
  } else if (runs_.any_known()) {
    hint_extend_us_ = extend_us;
    rearm_ = true;
  }
  work_.notify_one();
}

// The thread

void StoreEngine::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!has_work()) {
      if (stop_) {
        return;
      }
      work_.wait(mutex_);
    }
    busy_ = true;
    const bool tries_to_reopen = failed_ && (reopen_ || stop_);
    std::unique_ptr<Group> group;
    bool had_memory = failed_ || take_group(group);
    lock.unlock();
    had_memory = had_memory && take_turn(tries_to_reopen, group.get());
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
      claim_ = extend_ = rearm_ = look_ = relook_ = true;
      reopen_ = reopen_ || failed_;
    } else if (std::exchange(alarm_lost_, false)) {
      pause();
    }
    gather();
    busy_ = false;
    progress_.notify_all();
  }
}

bool StoreEngine::take_turn(bool tries_to_reopen, Group* group) {
  try {
    if (tries_to_reopen) {
      reopen();
    } else if (group) {
      carry_out(*group);
    }
    arm();  // also while the store has failed: handlers are told before their leases are lost
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
  if (expected < 2 || longest_ns < kShortestGatherNs) {
    return;
  }
  if (gather_pause_ > 0) {
    gather_pause_--;
    return;
  }
  const int64_t deadline_ns = monotonic_now_ns() + longest_ns;
  expected_ = expected;
  gathers_ = true;
  while (queued() < expected && !refuses_ && !failed_) {
    if (!work_.wait_until(mutex_, deadline_ns)) {
      break;
    }
  }
  gathers_ = false;
  expected_ = 0;
  if (queued() < expected / 2) {
    gather_pause_ = kGatherPause;
  }
}

bool StoreEngine::has_work() const {
  const bool waiting = !calls_.empty() || !finishes_.empty();
  if (stop_) {
    return waiting;  // what is asked for is carried out, but nothing else
  }
  if (failed_) {
    return reopen_ || rearm_;
  }
  return waiting || rearm_ || look_ || (extend_ && runs_.any_known()) || (claim_ && takes_timers());
}

void StoreEngine::note_failure() {
  if (!failed_) {
    failed_ = rearm_ = true;
    // At once for the first time. Opening may succeed again and again although nothing works.
    reopen_ = reopen_delay_us_ == 0;
    waits_to_reopen_ = !reopen_;
    reopen_delay_us_ = std::clamp(reopen_delay_us_ * 2, kFirstReopenUs, kUsPerSec);
  }
}

bool StoreEngine::take_group(std::unique_ptr<Group>& group) {
  try {
    group = std::make_unique<Group>();
    fill(*group);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void StoreEngine::fill(Group& group) {
  while (!finishes_.empty() && group.finishes.size() < kGroup) {
    group.finishes.push_back(std::move(finishes_.front()));
    finishes_.pop_front();
  }
  while (!calls_.empty() && group.calls.size() < kGroup) {
    if (calls_.front()->task || calls_.front()->waiter) {
      group.calls.push_back(std::move(calls_.front()));
      group.calls.back()->taken = true;
    }
    calls_.pop_front();
  }
  // After a failure the requests of users come first and alone: what the thread itself asks for may
  // be what fails.
  if (reopen_delay_us_ > 0 && !group.calls.empty()) {
    return;
  }
  if (std::exchange(extend_, false) && runs_.any_known()) {
    group.extend.emplace().what = runs_.extend(group.extended);
  }
  // A run that has ended may have freed a place, or a timer that was blocked.
  if ((claim_ || !group.finishes.empty()) && takes_timers()) {
    claim_ = false;
    ClaimRequest claim = runs_.claim(backend_->now_us());
    if (!claim.kinds.empty()) {
      group.claim.emplace().what = std::move(claim);
    }
  }
  if (std::exchange(look_, false) || (looks_each_time_ && !group.calls.empty())) {
    LookRequest look;
    look.overdue_us = StoreRuns::kFreshUs;
    look.handled = runs_.handled();
    group.look.emplace().what = std::move(look);
  }
}

void StoreEngine::carry_out(Group& group) {
  std::vector<StoreRequest*> requests;
  for (Finish& finish : group.finishes) {
    requests.push_back(&finish.request);
  }
  if (group.extend) {
    requests.push_back(&*group.extend);
  }
  for (const std::shared_ptr<StoreCall>& call : group.calls) {
    requests.push_back(&call->request);
  }
  if (group.claim) {
    requests.push_back(&*group.claim);
  }
  if (group.look) {
    requests.push_back(&*group.look);
  }
  if (requests.empty()) {
    return;
  }
  const int64_t began_ns = monotonic_now_ns();
  group.has_begun = true;
  const bool works = backend_->execute(requests);
  const int64_t group_ns = monotonic_now_ns() - began_ns;
  counters_.commit.add(group_ns);
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
  settle(group);
}

void StoreEngine::settle(Group& group) {
  settle_finishes(group);
  settle_extend(group);
  settle_calls(group);
  settle_claim(group);
  settle_look(group);
  MutexLock lock(mutex_);
  const bool asks_for_more = group.claim || group.extend || !group.finishes.empty();
  if (!failed_ && (asks_for_more || (!takes_timers() && !runs_.any_known()))) {
    reopen_delay_us_ = 0;  // all that it is used for works again
  }
}

void StoreEngine::settle_calls(Group& group) {
  for (const std::shared_ptr<StoreCall>& call : group.calls) {
    answer(call);
  }
}

void StoreEngine::answer(const std::shared_ptr<StoreCall>& call) {
  const bool was_answered = call->request.failure.error == 0;
  const bool may_be_done = was_answered || call->request.failure.in_doubt;
  bool is_in_doubt = false;
  WFStoreResult result;
  try {
    if (was_answered) {
      note_answer(call->request);
    }
    result = StoreTask::result_of(call->request, backend_->receipt());
  } catch (const std::bad_alloc&) {
    result = {};
    result.state = WFT_STATE_SYS_ERROR;
    result.error = ENOMEM;
    is_in_doubt = may_be_done && StoreTask::can_be_in_doubt(call->request);
  }
  StoreTask* task = nullptr;
  StoreWaiter* waiter = nullptr;
  {
    MutexLock lock(mutex_);
    waiter = std::exchange(call->waiter, nullptr);
    task = std::exchange(call->task, nullptr);
    if (task && !task->take_answer()) {
      task = nullptr;
    }
  }
  if (is_in_doubt && (waiter || task)) {
    result.answers = std::move(call->in_doubt);
    result.answers[0].verdict = WFStoreVerdict::kInDoubt;
  }
  if (waiter) {
    waiter->answer(std::move(result));
  } else if (task) {
    task->finish(std::move(result));
  }
}

void StoreEngine::note_answer(const StoreRequest& request) {
  const auto count_won = [](const std::vector<WFStoreAnswer>& answers) {
    return static_cast<uint64_t>(
        std::count_if(answers.begin(), answers.end(), [](const WFStoreAnswer& answer) {
          return answer.verdict == WFStoreVerdict::kWon ||
                 answer.verdict == WFStoreVerdict::kRunning ||
                 answer.verdict == WFStoreVerdict::kAfterRun ||
                 answer.verdict == WFStoreVerdict::kWonAfter;
        }));
  };
  if (const auto* schedule = std::get_if<ScheduleRequest>(&request.what)) {
    counters_.scheduled.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    if (runs_.handles(schedule->spec.kind)) {
      due_at(schedule->due_us);
    }
  } else if (const auto* cancel = std::get_if<CancelRequest>(&request.what)) {
    counters_.cancelled.fetch_add(count_won(cancel->answers), std::memory_order_relaxed);
    for (const WFStoreAnswer& one : cancel->answers) {
      if (one.verdict == WFStoreVerdict::kRunning) {
        tell_cancelled(one);
      }
    }
  } else if (const auto* reschedule = std::get_if<RescheduleRequest>(&request.what)) {
    counters_.rescheduled.fetch_add(count_won(reschedule->answers), std::memory_order_relaxed);
    MutexLock lock(mutex_);
    due_at(reschedule->due_us);
  } else if (std::holds_alternative<FailedRequest>(request.what)) {
    MutexLock lock(mutex_);
    claim_ = true;
  }
}

void StoreEngine::tell_cancelled(const WFStoreAnswer& answer) {
  std::shared_ptr<StoreRun> run;
  {
    MutexLock lock(mutex_);
    run = runs_.find({answer.timer, answer.fence});
  }
  if (run) {
    notify({{std::move(run), ECANCELED}});
  }
}

void StoreEngine::notify(const std::vector<StoreRuns::Notice>& notices) {
  for (const StoreRuns::Notice& notice : notices) {
    if (notice.reason == ECANCELED) {
      notice.run->cancelled.store(true, std::memory_order_release);
    }
    // Not at once: functions of a std::stop_callback are user code.
    if (Runnable* const later = SeriesScope::get(notice.run->scope)->cancel_later(notice.reason)) {
      runtime_.handlers().post(later);
    }
  }
}

void StoreEngine::settle_finishes(Group& group) {
  for (Finish& finish : group.finishes) {
    const auto& request = std::get<FinishRequest>(finish.request.what);
    if (finish.request.failure.error != 0) {
      retry_later(std::move(finish));
      continue;
    }
    if (!request.accepted) {
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
    } else {
      StoreCounters::Count* counter = nullptr;
      switch (request.how) {
        case FinishRequest::How::kDone:
          counter = &counters_.acknowledged;
          break;
        case FinishRequest::How::kMissed:
          counter = &counters_.missed;
          break;
        case FinishRequest::How::kRetry:
          counter = &counters_.retried;
          break;
        case FinishRequest::How::kFailed:
          counter = &counters_.failed;
          break;
      }
      counter->fetch_add(1, std::memory_order_relaxed);
      MutexLock lock(mutex_);
      due_at(request.next_us);
    }
    MutexLock lock(mutex_);
    runs_.forget(*finish.run);
    finish.request.failure = {};
    finish.settled = true;
  }
}

void StoreEngine::retry_later(Finish&& finish) {
  MutexLock lock(mutex_);
  note_failure();
  if (stop_ || finish.run->lease_end_us.load(std::memory_order_acquire) <= backend_->now_us()) {
    // Whoever takes the timer next runs it again.
    counters_.lost.fetch_add(1, std::memory_order_relaxed);
    runs_.forget(*finish.run);
    return;
  }
  finish.request.failure = {};
  finishes_.push_back(std::move(finish));
}

void StoreEngine::settle_extend(Group& group) {
  if (!group.extend) {
    return;
  }
  std::vector<StoreRuns::Notice> notices;
  {
    MutexLock lock(mutex_);
    if (group.extend->failure.error != 0) {
      note_failure();
      extend_ = true;
      return;
    }
    const auto& extend = std::get<ExtendRequest>(group.extend->what);
    notices = runs_.extended(group.extended, extend.extended);
    rearm_ = true;
  }
  for (const StoreRuns::Notice& notice : notices) {
    counters_.lost.fetch_add(notice.reason == ESTALE, std::memory_order_relaxed);
  }
  notify(notices);
}

void StoreEngine::settle_claim(Group& group) {
  if (!group.claim) {
    return;
  }
  auto& claim = std::get<ClaimRequest>(group.claim->what);
  {
    MutexLock lock(mutex_);
    if (group.claim->failure.error != 0) {
      note_failure();
      claim_ = true;
      return;
    }
    next_claim_us_ = claim.next_us;
    if (claim.more) {
      due_at(saturating_add(backend_->now_us(), kCatchUpPauseUs));
    }
    rearm_ = true;
  }
  for (ClaimRequest::Claimed& claimed : claim.claimed) {
    if (claimed.lease_end_us <= backend_->now_us()) {
      // Somebody else may have it, or takes it: so late has the answer come.
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    try {
      begin_run(claimed);
    } catch (const std::bad_alloc&) {
      // It is taken again when its lease has ended.
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void StoreEngine::begin_run(ClaimRequest::Claimed& claimed) {
  const int64_t now_us = backend_->now_us();
  std::shared_ptr<StoreHandler> handler;
  {
    MutexLock lock(mutex_);
    handler = runs_.handler_of(claimed.spec.kind);
  }
  const auto repeat = StoreRepeat::parse(claimed.spec.repeat);
  const int64_t date_us = repeat ? repeat->date_to_run_us(claimed.due_us, now_us) : claimed.due_us;
  const int64_t late_us = std::max<int64_t>(now_us - date_us, 0);
  const WFScope scope(new DeadlineScope(this));
  const auto run = std::make_shared<StoreRun>(claimed, handler, scope, date_us);
  WFStoreInfo info;
  info.timer = claimed.run.timer;
  info.name = std::move(claimed.spec.name);
  info.kind = std::move(claimed.spec.kind);
  info.payload = std::move(claimed.spec.payload);
  info.stage = WFStoreStage::kRunning;
  info.attempts = claimed.attempts;
  info.owner = options_.owner;
  info.due = time_of_us(date_us);
  {
    MutexLock lock(mutex_);
    runs_.begin(run, now_us);
    rearm_ = true;
    counters_.running.store(runs_.live(), std::memory_order_relaxed);
  }

  const unsigned max_attempts = handler->options.max_attempts;
  if (claimed.spec.skip_after_us >= 0 && late_us > claimed.spec.skip_after_us &&
      claimed.attempts == 1) {
    report_missed(run, std::move(info));
  } else if (max_attempts > 0 && claimed.attempts > max_attempts) {
    end_without_run(run, FinishRequest::How::kFailed, StoreRun::kAttemptsUsedUp);
  } else {
    call_handler(run, std::move(info), late_us);
  }
}

void StoreEngine::call_handler(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info,
                               int64_t late_us) {
  StoredTimerTask* task = nullptr;
  Runnable* first = nullptr;
  try {
    task = new StoredTimerTask(shared_from_this(), run, std::move(info), late_us);
    first = task->begin();
  } catch (const std::bad_alloc&) {
    if (task) {
      task->dismiss();  // ends the run: it is tried again
      return;
    }
    MutexLock lock(mutex_);
    runs_.end(*run);
    runs_.forget(*run);
    throw;
  }
  counters_.begun.fetch_add(1, std::memory_order_relaxed);
  if (run->attempts == 1) {
    counters_.lateness.add(late_us * 1000);
  }
  runtime_.handlers().post(first);
}

void StoreEngine::give_back(Group& group) {
  for (const std::shared_ptr<StoreCall>& call : group.calls) {
    if (call->request.failure.error == 0) {
      call->request.failure = {ENOMEM, {}, group.has_begun};
    }
    answer(call);
  }
  for (Finish& finish : group.finishes) {
    if (finish.run && !finish.settled) {
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

// Calls a function of the user on a handler, and then ends the run.
class StoreEngine::MissedReport final : public Runnable {
 public:
  MissedReport(std::shared_ptr<StoreEngine> engine, std::shared_ptr<StoreRun> run,
               WFStoreInfo&& info)
      : engine_(std::move(engine)), run_(std::move(run)), info_(std::move(info)) {}
  void run_queued() override {
    run_->handler->options.on_missed(info_);
    engine_->end_without_run(run_, FinishRequest::How::kMissed, {});
    delete this;
  }

 private:
  const std::shared_ptr<StoreEngine> engine_;
  const std::shared_ptr<StoreRun> run_;
  const WFStoreInfo info_;
};

void StoreEngine::report_missed(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info) {
  MissedReport* report = nullptr;
  if (run->handler->options.on_missed) {
    report = new (std::nothrow) MissedReport(shared_from_this(), run, std::move(info));
  }
  if (report) {
    runtime_.handlers().post(report);
  } else {
    end_without_run(run, FinishRequest::How::kMissed, {});
  }
}

void StoreEngine::end_without_run(const std::shared_ptr<StoreRun>& run, FinishRequest::How how,
                                  std::string_view reason) {
  MutexLock lock(mutex_);
  end_run(run, [&] { return run->finish_without_run(how, std::string(reason)); });
}

void StoreEngine::run_ended(const std::shared_ptr<StoreRun>& run, bool completed) {
  MutexLock lock(mutex_);
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  const uint64_t random = random_ >> 33;
  end_run(run, [&] {
    return run->finish({completed, runtime_.stopping()}, backend_->now_us(), random);
  });
}

template <class FINISH>
void StoreEngine::end_run(const std::shared_ptr<StoreRun>& run, const FINISH& finish) {
  if (runs_.end(*run) && !stopped_) {
    try {
      Finish last;
      last.run = run;
      last.request.what = finish();
      finishes_.push_back(std::move(last));
    } catch (const std::bad_alloc&) {
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
      runs_.forget(*run);
    }
  }
  counters_.running.store(runs_.live(), std::memory_order_relaxed);
  claim_ = true;
  wake_for_queue();
  progress_.notify_all();
}

void StoreEngine::settle_look(Group& group) {
  if (group.look && group.look->failure.error == 0) {
    const auto& look = std::get<LookRequest>(group.look->what);
    counters_.stored.store(look.stored, std::memory_order_relaxed);
    counters_.overdue.store(look.overdue, std::memory_order_relaxed);
    counters_.unhandled.store(look.unhandled, std::memory_order_relaxed);
  }
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
      lose_leases();
    }
    fail_all(error, message);
  }
  MutexLock lock(mutex_);
  failed_ = false;
  claim_ = extend_ = rearm_ = true;
  if (error != 0) {
    note_failure();
  }
}

void StoreEngine::lose_leases() {
  std::vector<StoreRuns::Notice> notices;
  {
    MutexLock lock(mutex_);
    notices = runs_.lose_all();
  }
  counters_.lost.fetch_add(notices.size(), std::memory_order_relaxed);
  notify(notices);
}

void StoreEngine::fail_all(int error, const std::string& message) {
  for (;;) {
    std::shared_ptr<StoreCall> call;
    {
      MutexLock lock(mutex_);
      if (calls_.empty()) {
        break;
      }
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    call->request.failure.error = error;
    try {
      call->request.failure.message = message;
    } catch (const std::bad_alloc&) {
      // The error has to do.
    }
    answer(call);
  }
  for (;;) {
    Finish dropped;  // freed without the mutex: the handler in it is the user's
    MutexLock lock(mutex_);
    if (!stop_ || finishes_.empty()) {
      break;
    }
    dropped = std::move(finishes_.front());
    finishes_.pop_front();
    runs_.forget(*dropped.run);
  }
}

// Times

void StoreEngine::due_at(int64_t us) {
  if (us < next_claim_us_) {
    next_claim_us_ = us;
    rearm_ = true;
  }
}

void StoreEngine::check_times() {
  std::vector<StoreRuns::Notice> notices;
  {
    MutexLock lock(mutex_);
    const int64_t now_us = backend_->now_us();
    if (now_us < last_seen_us_) {
      // The clock was set back, and with it goes what was to be done at certain times.
      last_hint_extend_us_ = 0;
      extend_ = true;
    }
    last_seen_us_ = now_us;
    if (now_us >= next_claim_us_) {
      claim_ = true;
      next_claim_us_ = kNeverUs;
    }
    if (now_us >= hint_extend_us_) {
      hint_extend_us_ = kNeverUs;
      last_hint_extend_us_ = now_us;
      extend_ = true;
    }
    extend_ = runs_.must_extend(now_us) || extend_;
    notices = runs_.about_to_be_lost(now_us);
    rearm_ = true;
    work_.notify_one();
  }
  notify(notices);
}

void StoreEngine::arm() {
  MutexLock arming(arm_mutex_);
  int64_t next_us = kNeverUs;
  int64_t reopen_us = 0;
  bool relook = false;
  {
    MutexLock lock(mutex_);
    if (!rearm_) {
      return;
    }
    rearm_ = false;
    relook = std::exchange(relook_, false);
    reopen_us = std::exchange(waits_to_reopen_, false) ? reopen_delay_us_ : 0;
    next_us = std::min(runs_.next_us(), hint_extend_us_);
    if (takes_timers()) {
      next_us = std::min(next_us, next_claim_us_);
    }
  }
  if (reopen_us > 0) {
    reopen_alarm_.set(std::chrono::microseconds(reopen_us), when_alive(&StoreEngine::try_to_reopen),
                      when_alive(&StoreEngine::alarm_lost));
  }
  if (relook) {
    start_to_look();
  }
  const int64_t now_us = backend_->now_us();
  if (next_us <= now_us) {
    check_times();
    // What is due now is carried out without a timer, and this arms the timer again after it.
    return;
  }
  if (next_us != kNeverUs) {
    // The clock of the store may differ from that of this machine.
    const int64_t delay_us = std::min(next_us - now_us, kLongestSleepUs);
    const auto date = WFTimer::wall_now() + std::chrono::microseconds(delay_us);
    wake_alarm_.set(date, when_alive(&StoreEngine::wake), when_alive(&StoreEngine::alarm_lost));
  }
}

void StoreEngine::start_to_look() {
  // In a simulation time moves only if nothing else can happen, and no hint is lost. A manual clock
  // would stop at each second.
  if (!runtime_.clock().is_system_clock()) {
    return;
  }
  look_alarm_.set(std::chrono::seconds(1), when_alive(&StoreEngine::look_around),
                  when_alive(&StoreEngine::look_alarm_lost));
}

void StoreEngine::alarm_lost() {
  MutexLock lock(mutex_);
  alarm_lost_ = rearm_ = true;
  waits_to_reopen_ = waits_to_reopen_ || failed_;
  work_.notify_one();
}

void StoreEngine::look_alarm_lost() {
  MutexLock lock(mutex_);
  alarm_lost_ = rearm_ = relook_ = true;
  work_.notify_one();
}

void StoreEngine::wake() {
  try {
    check_times();
    arm();  // here, too, because the thread may be busy for long with the store
  } catch (const std::bad_alloc&) {
    alarm_lost();
  }
}

void StoreEngine::look_around() {
  {
    MutexLock lock(mutex_);
    claim_ = look_ = true;
    reopen_ = reopen_ || failed_;
  }
  wake();
  try {
    start_to_look();
  } catch (const std::bad_alloc&) {
    look_alarm_lost();
  }
}

void StoreEngine::try_to_reopen() {
  MutexLock lock(mutex_);
  reopen_ = true;
  work_.notify_one();
}

std::function<void()> StoreEngine::when_alive(void (StoreEngine::*what)()) {
  return [weak = weak_from_this(), what] {
    if (const std::shared_ptr<StoreEngine> engine = weak.lock()) {
      (engine.get()->*what)();
    }
  };
}

// The end

bool StoreEngine::close(int64_t limit_ns) {
  if (runtime_.belongs_to_parent_process()) {
    return true;
  }
  if (is_in_run()) {
    errno = EDEADLK;
    return false;
  }
  const bool ended = stop(limit_ns);
  runtime_.remove_service(this);
  return ended;
}

bool StoreEngine::is_in_run() const {
  const DeadlineScope* const scope = SeriesScope::get(WFScope::current());
  return scope && scope->belongs_to(this);
}

bool StoreEngine::stop(int64_t limit_ns) {
  // A handler that ends the process never returns.
  const size_t own = is_in_run() ? 1 : 0;
  const int64_t deadline_ns =
      limit_ns == kNever ? kNever : saturating_add(monotonic_now_ns(), limit_ns);
  LendingCondition::Waiter waiter({"WFTimerStore::close()", nullptr, nullptr});
  MutexLock lock(mutex_);
  refuses_ = true;
  const auto thread_has_to_do = [this]() WF_REQUIRES(mutex_) {
    return !stopped_ && (busy_ || !finishes_.empty() || !calls_.empty());
  };
  while (runs_.live() > own || thread_has_to_do()) {
    if (failed_ && runs_.live() <= own) {
      break;  // the thread answers what is left
    }
    if (!progress_.wait_until(mutex_, waiter, deadline_ns)) {
      break;
    }
  }
  closed_ = true;
  if (std::exchange(stop_, true)) {
    while (!stopped_) {
      progress_.wait(mutex_, waiter);
    }
    return runs_.live() == 0;
  }
  work_.notify_one();
  lock.unlock();
  thread_.join();
  for (StoreAlarm* const alarm : {&wake_alarm_, &look_alarm_, &reopen_alarm_}) {
    alarm->close();
  }
  try {
    backend_->close();
  } catch (const std::bad_alloc&) {
    // Others wait for the end, and the destructor frees what is left.
  }
  lock.lock();
  stopped_ = true;
  progress_.notify_all();
  return runs_.live() == 0;  // with those that the last group has begun
}

void StoreEngine::refuse_new_work() {
  MutexLock lock(mutex_);
  refuses_ = true;
}

bool StoreEngine::finish_work() {
  stop(kNever);
  return false;
}

}  // namespace workflow

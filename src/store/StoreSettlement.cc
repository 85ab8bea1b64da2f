#include "store/StoreSettlement.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "kernel/DeadlineScope.h"
#include "store/StoreRepeat.h"
#include "store/StoreTask.h"
#include "store/StoreTime.h"
#include "util/Time.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

// How long overdue timers wait that the rate has held back.
constexpr int64_t kCatchUpPauseUs = 20'000;
// How long the next claim waits if the limits would have allowed this one to take more.
constexpr int64_t kAgainPauseUs = 1'000;

uint64_t count_won(const std::vector<WFStoreAnswer>& answers) {
  return static_cast<uint64_t>(
      std::count_if(answers.begin(), answers.end(), [](const WFStoreAnswer& answer) {
        return answer.verdict == WFStoreVerdict::kWon ||
               answer.verdict == WFStoreVerdict::kRunning ||
               answer.verdict == WFStoreVerdict::kAfterRun ||
               answer.verdict == WFStoreVerdict::kWonAfter;
      }));
}

}  // namespace

// Calls a function of the user on a handler, and then ends the run.
class StoreSettlement::MissedReport final : public Runnable {
 public:
  MissedReport(std::shared_ptr<StoreRunOwner> owner, std::shared_ptr<StoreRun> run,
               WFStoreInfo&& info)
      : owner_(std::move(owner)), run_(std::move(run)), info_(std::move(info)) {}
  void run_queued() override {
    {
      const StoreRunOwner::Report report(*owner_);
      run_->handler->options.on_missed(info_);
    }
    owner_->run_left_out(run_, FinishRequest::How::kMissed, {});
    delete this;
  }

 private:
  const std::shared_ptr<StoreRunOwner> owner_;
  const std::shared_ptr<StoreRun> run_;
  const WFStoreInfo info_;
};

// What is to be posted to the handlers. Its end posts what is left.
class StoreSettlement::Posts {
 public:
  explicit Posts(Runtime& runtime) : runtime_(runtime) {}
  ~Posts() { runtime_.handlers().post(waiting_); }
  Posts(const Posts&) = delete;
  Posts& operator=(const Posts&) = delete;

  void add(Runnable* item) {
    waiting_.push_back(item);
    post_if_many();
  }
  void add(StoreCall& call, WFStoreResult&& result, bool in_doubt) {
    call.answer(std::move(result), in_doubt, waiting_);
    post_if_many();
  }

 private:
  void post_if_many() {
    if (waiting_.size() >= kPosts) {
      runtime_.handlers().post(waiting_);
    }
  }

  Runtime& runtime_;
  RunnableList waiting_;
};

void StoreSettlement::settle(StoreGroup& group, const std::shared_ptr<StoreRunOwner>& owner) {
  Posts posts(runtime_);
  settle_finishes(group, *owner);
  settle_extend(group);
  for (const std::shared_ptr<StoreCall>& call : group.calls) {
    answer(*call, posts);
  }
  settle_claim(group, owner, posts);
  settle_look(group);
}

void StoreSettlement::answer(StoreCall& call) {
  Posts posts(runtime_);
  answer(call, posts);
}

void StoreSettlement::answer(StoreCall& call, Posts& posts) {
  counters_.request.add(monotonic_now_ns() - call.submitted_ns);
  const bool was_answered = call.request.failure.error == 0;
  const bool may_be_done = was_answered || call.request.failure.in_doubt;
  bool is_in_doubt = false;
  WFStoreResult result;
  try {
    if (was_answered) {
      note_answer(call.request);
    }
    result = StoreTask::result_of(call.request, backend_.receipt());
  } catch (const std::bad_alloc&) {
    result = {};
    result.state = WFT_STATE_SYS_ERROR;
    result.error = ENOMEM;
    is_in_doubt = may_be_done && StoreTask::can_be_in_doubt(call.request);
  }
  posts.add(call, std::move(result), is_in_doubt);
}

void StoreSettlement::note_answer(const StoreRequest& request) {
  if (const auto* schedule = std::get_if<ScheduleRequest>(&request.what)) {
    counters_.scheduled.fetch_add(1, std::memory_order_relaxed);
    if (runs_.handles(schedule->spec.kind)) {
      alarms_.due_at(schedule->due_us);
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
    alarms_.due_at(reschedule->due_us);
  } else if (std::holds_alternative<FailedRequest>(request.what)) {
    alarms_.due_at(backend_.now_us());
  }
}

void StoreSettlement::tell_cancelled(const WFStoreAnswer& answer) {
  if (const std::shared_ptr<StoreRun> run = runs_.find({answer.timer, answer.fence})) {
    StoreRuns::tell({{run, ECANCELED}}, runtime_);
  }
}

StoreCounters::Count& StoreSettlement::counter_of(FinishRequest::How how) {
  switch (how) {
    case FinishRequest::How::kMissed:
      return counters_.missed;
    case FinishRequest::How::kRetry:
      return counters_.retried;
    case FinishRequest::How::kFailed:
      return counters_.failed;
    case FinishRequest::How::kDone:
      break;
  }
  return counters_.acknowledged;
}

void StoreSettlement::settle_finishes(StoreGroup& group, StoreRunOwner& owner) {
  for (StoreFinish& finish : group.finishes) {
    if (finish.request.failure.error != 0) continue;
    const auto& request = std::get<FinishRequest>(finish.request.what);
    StoreCounters::Count& counter = request.accepted  ? counter_of(request.how)
                                    : finish.in_doubt ? counters_.in_doubt
                                                      : counters_.lost;
    counter.fetch_add(1, std::memory_order_relaxed);
    if (request.accepted) {
      alarms_.due_at(request.next_us);
    }
    runs_.forget(*finish.run);
    finish.settled = true;
    if (!request.accepted && !finish.in_doubt) {
      owner.report_lost(finish.run);
    }
  }
}

void StoreSettlement::settle_extend(const StoreGroup& group) {
  if (!group.extend || group.extend->failure.error != 0) return;
  const auto& extend = std::get<ExtendRequest>(group.extend->what);
  const std::vector<StoreRuns::Notice> notices = runs_.extended(group.extended, extend.extended);
  alarms_.leases_have_changed();
  for (const StoreRuns::Notice& notice : notices) {
    counters_.lost.fetch_add(notice.reason == ESTALE, std::memory_order_relaxed);
  }
  StoreRuns::tell(notices, runtime_);
}

void StoreSettlement::lose_leases() {
  const std::vector<StoreRuns::Notice> notices = runs_.lose_all();
  counters_.lost.fetch_add(notices.size(), std::memory_order_relaxed);
  StoreRuns::tell(notices, runtime_);
}

void StoreSettlement::settle_claim(StoreGroup& group, const std::shared_ptr<StoreRunOwner>& owner,
                                   Posts& posts) {
  if (!group.claim || group.claim->failure.error != 0) return;
  auto& claim = std::get<ClaimRequest>(group.claim->what);
  alarms_.next_claim_is(claim.next_us);
  if (claim.again) {
    alarms_.due_at(saturating_add(backend_.now_us(), kAgainPauseUs));
  } else if (claim.more && runs_.left_places()) {
    alarms_.due_at(saturating_add(backend_.now_us(), kCatchUpPauseUs));
  }
  for (ClaimRequest::Claimed& claimed : claim.claimed) {
    if (claimed.lease_end_us <= backend_.now_us()) {
      // Somebody else may have it, or takes it: so late has the answer come.
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    try {
      // Its leases begin with a claim.
      begin_run(claimed, claimed.lease_end_us - claim.lease_us, owner, posts);
    } catch (const std::bad_alloc&) {
      // It is taken again when its lease has ended.
      counters_.lost.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void StoreSettlement::begin_run(ClaimRequest::Claimed& claimed, int64_t claimed_us,
                                const std::shared_ptr<StoreRunOwner>& owner, Posts& posts) {
  const int64_t now_us = backend_.now_us();
  const std::shared_ptr<StoreHandler> handler = runs_.handler_of(claimed.spec.kind);
  const auto repeat = StoreRepeat::parse(claimed.spec.repeat);
  // now_us may be a little ahead of the clock of the store, by which no run is early.
  const int64_t date_us =
      repeat ? repeat->date_to_run_us(claimed.due_us, claimed_us) : claimed.due_us;
  const int64_t late_us = std::max<int64_t>(now_us - date_us, 0);
  const WFScope scope(Ref<DeadlineScope>::adopt(new DeadlineScope(owner.get())));
  const auto run = std::make_shared<StoreRun>(claimed, handler, scope, date_us);
  WFStoreInfo info;
  info.timer = claimed.run.timer;
  info.name = std::move(claimed.spec.name);
  info.kind = std::move(claimed.spec.kind);
  info.payload = std::move(claimed.spec.payload);
  info.stage = WFStoreStage::kRunning;
  info.attempts = claimed.attempts;
  info.owner = owner_name_;
  info.due = time_of_us(date_us);
  runs_.begin(run);
  alarms_.leases_have_changed();

  const unsigned max_attempts = handler->options.max_attempts;
  if (claimed.spec.skip_after_us >= 0 && late_us > claimed.spec.skip_after_us &&
      claimed.attempts == 1) {
    report_missed(run, std::move(info), owner, posts);
  } else if (max_attempts > 0 && claimed.attempts > max_attempts) {
    owner->run_left_out(run, FinishRequest::How::kFailed, StoreRun::kAttemptsUsedUp);
  } else {
    call_handler(run, std::move(info), late_us, owner, posts);
  }
}

void StoreSettlement::call_handler(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info,
                                   int64_t late_us, const std::shared_ptr<StoreRunOwner>& owner,
                                   Posts& posts) {
  StoredTimerTask* task = nullptr;
  Runnable* first = nullptr;
  try {
    task = new StoredTimerTask(owner, run, std::move(info), late_us);
    first = task->begin();
  } catch (const std::bad_alloc&) {
    if (task) {
      task->dismiss();  // ends the run: it is tried again
      return;
    }
    runs_.end(*run);
    runs_.forget(*run);
    throw;
  }
  counters_.begun.fetch_add(1, std::memory_order_relaxed);
  if (run->attempts == 1) {
    counters_.lateness.add(late_us * 1000);
  }
  posts.add(first);
}

void StoreSettlement::report_missed(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info,
                                    const std::shared_ptr<StoreRunOwner>& owner, Posts& posts) {
  MissedReport* report = nullptr;
  if (run->handler->options.on_missed) {
    report = new (std::nothrow) MissedReport(owner, run, std::move(info));
  }
  if (report) {
    posts.add(report);
  } else {
    owner->run_left_out(run, FinishRequest::How::kMissed, {});
  }
}

void StoreSettlement::settle_look(const StoreGroup& group) {
  if (group.look && group.look->failure.error == 0) {
    const auto& look = std::get<LookRequest>(group.look->what);
    counters_.stored.store(look.stored, std::memory_order_relaxed);
    counters_.due.store(look.due, std::memory_order_relaxed);
    counters_.overdue.store(look.overdue, std::memory_order_relaxed);
    counters_.unhandled.store(look.unhandled, std::memory_order_relaxed);
    counters_.leased.store(look.leased, std::memory_order_relaxed);
    counters_.failed_timers.store(look.failed_timers, std::memory_order_relaxed);
  }
}

}  // namespace workflow

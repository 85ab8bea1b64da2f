#include "store/SqliteTimers.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "store/StoreTime.h"

namespace workflow {

namespace {

// A bound above all names that begin with `prefix`: no name has so many bytes.
std::string end_of_prefix(const std::string& prefix) {
  return prefix + std::string(2048, '\xff');
}

int64_t limit_of(size_t max) {
  return static_cast<int64_t>(std::min(max, static_cast<size_t>(INT64_MAX)));
}

WFStoreStage stage_of(int64_t state, int64_t wake_us, int64_t now_us) {
  switch (state) {
    case SqliteSchema::kLeased:
      return wake_us > now_us ? WFStoreStage::kRunning : WFStoreStage::kWaiting;
    case SqliteSchema::kBlocked:
      return WFStoreStage::kBlocked;
    case SqliteSchema::kFailed:
      return WFStoreStage::kFailed;
    default:
      return WFStoreStage::kWaiting;
  }
}

// The earliest time of which now is `age_us` later.
int64_t earlier(int64_t now_us, int64_t age_us) {
  return now_us - std::min(now_us, age_us);
}

}  // namespace

std::vector<SqliteTimers::Found> SqliteTimers::find(const std::string& name,
                                                    SqliteSchema::State below, size_t max) {
  std::vector<Found> found;
  SqliteCursor row = find_.find(name, static_cast<int>(below), limit_of(max));
  while (row.next()) {
    found.push_back({row.unsigned_integer(0), static_cast<SqliteSchema::State>(row.integer(1)),
                     row.integer(2), row.unsigned_integer(3), row.text(4),
                     static_cast<unsigned>(row.integer(5))});
  }
  return found;
}

bool SqliteTimers::exists(const std::string& name) {
  SqliteCursor row = exists_.find(name);
  return row.next();
}

WFStoreAnswer SqliteTimers::answer(const Found& timer, WFStoreVerdict verdict,
                                   int64_t now_us) const {
  WFStoreAnswer answer;
  answer.verdict = verdict;
  answer.timer = timer.id;
  answer.attempts = timer.attempts;
  if (timer.running(now_us)) {
    answer.owner = timer.owner;
    answer.fence = timer.fence;
    answer.lease_left = std::chrono::microseconds(timer.wake_us - now_us);
  }
  return answer;
}

void SqliteTimers::carry_out(ScheduleRequest& request, StoreFailure& failure, int64_t now_us) {
  if (request.policy == WF_TIMER_KEEP && exists(request.spec.name)) {
    failure.error = EEXIST;
    failure.message = "another timer has the name";
    return;
  }
  uint64_t follows = 0;
  if (request.policy == WF_TIMER_REPLACE) {
    replace(request, request.answers, follows, now_us);
  }
  insert(request, follows, now_us);
  request.timer = static_cast<uint64_t>(meta_.timer);
}

// Sets `follows` to the timer that blocks the new one; 0: none does.
void SqliteTimers::replace(const ScheduleRequest& request, std::vector<WFStoreAnswer>& answers,
                           uint64_t& follows, int64_t now_us) {
  for (const Found& timer : find(request.spec.name, SqliteSchema::kFailed, SIZE_MAX)) {
    if (timer.running(now_us)) {
      answers.push_back(answer(timer, WFStoreVerdict::kAfterRun, now_us));
      follows = timer.id;
      continue;
    }
    if (timer.state != SqliteSchema::kBlocked) {
      answers.push_back(answer(
          timer,
          timer.state == SqliteSchema::kLeased ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon,
          now_us));
    }
    end(timer.id, request.spec.name, timer.attempts, WFStoreOutcome::kCancelled, now_us);
  }
  if (answers.empty()) {
    answers.push_back(ended_.answer(request.spec.name));
  }
}

void SqliteTimers::insert(const ScheduleRequest& request, uint64_t follows, int64_t now_us) {
  const StoredSpec& spec = request.spec;
  const int64_t kind = kinds_.add(spec.kind);
  const auto state = follows ? SqliteSchema::kBlocked : SqliteSchema::kWaiting;
  insert_.run(++meta_.timer, spec.name, kind, request.due_us, static_cast<int>(state),
              meta_.next_fence(), spec.skip_after_us, SqliteStatement::Optional{spec.repeat},
              follows, SqliteStatement::Optional{spec.payload});
  meta_.stored++;
  if (follows) {
    any_follow_ = true;
  } else {
    tell(request.due_us, now_us);
  }
}

void SqliteTimers::copy(uint64_t id, const RescheduleRequest* request, SqliteSchema::State state,
                        int64_t due_us) {
  const bool changes_repeat = request && request->changes_repeat;
  const std::string_view repeat = changes_repeat ? request->repeat : std::string_view();
  copy_.run(id, ++meta_.timer, due_us, static_cast<int>(state), meta_.next_fence(), changes_repeat,
            SqliteStatement::Optional{repeat});
  meta_.stored++;
  if (state == SqliteSchema::kBlocked) {
    any_follow_ = true;
  }
}

void SqliteTimers::carry_out(CancelRequest& request, int64_t now_us) {
  for (const Found& timer : find(request.name, SqliteSchema::kFailed, request.max)) {
    if (timer.running(now_us)) {
      request.answers.push_back(answer(timer, WFStoreVerdict::kRunning, now_us));
      mark_.run(timer.id);
      has_news_ = true;
      continue;
    }
    request.answers.push_back(answer(
        timer,
        timer.state == SqliteSchema::kLeased ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon,
        now_us));
    end(timer.id, request.name, timer.attempts, WFStoreOutcome::kCancelled, now_us);
  }
  if (request.answers.empty() && !exists(request.name)) {
    request.answers.push_back(ended_.answer(request.name));
  }
}

void SqliteTimers::carry_out(RescheduleRequest& request, int64_t now_us) {
  for (const Found& timer : find(request.name, SqliteSchema::kBlocked, request.max)) {
    if (timer.running(now_us)) {
      request.answers.push_back(answer(timer, WFStoreVerdict::kAfterRun, now_us));
      add_successor(timer, request);
      continue;
    }
    const bool lost = timer.state == SqliteSchema::kLeased;
    request.answers.push_back(
        answer(timer, lost ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon, now_us));
    move_.run(timer.id, request.due_us, meta_.next_fence(), lost ? 0U : timer.attempts,
              request.changes_repeat, SqliteStatement::Optional{request.repeat});
    tell(request.due_us, now_us);
  }
  if (request.answers.empty() && !exists(request.name)) {
    request.answers.push_back(ended_.answer(request.name));
  }
}

void SqliteTimers::add_successor(const Found& timer, const RescheduleRequest& request) {
  if (const Follower successor = follower(timer.id); successor.id != 0) {
    move_blocked_.run(successor.id, request.due_us, meta_.next_fence(), request.changes_repeat,
                      SqliteStatement::Optional{request.repeat});
  } else {
    copy(timer.id, &request, SqliteSchema::kBlocked, request.due_us);
  }
}

void SqliteTimers::end(uint64_t id, const std::string& name, unsigned attempts,
                       WFStoreOutcome outcome, int64_t now_us) {
  end_run(id, {name, attempts, false, true}, outcome, now_us);
}

void SqliteTimers::end_run(uint64_t id, const Run& run, WFStoreOutcome outcome, int64_t now_us) {
  remove_.run(id);
  meta_.stored--;
  ended_.add(run.name, id, run.attempts, outcome, now_us);
  if (run.blocks) {
    release(id, now_us);
  }
}

void SqliteTimers::release(uint64_t id, int64_t now_us) {
  const Follower successor = follower(id);
  if (successor.id == 0) return;
  release_.run(successor.id);
  tell(successor.due_us, now_us);
}

SqliteTimers::Follower SqliteTimers::follower(uint64_t id) {
  if (!any_follow_) {
    SqliteCursor row = any_follows_.find();
    any_follow_ = row.next();
  }
  if (!*any_follow_) return {};
  SqliteCursor row = follower_.find(id);
  return row.next() ? Follower{row.unsigned_integer(0), row.integer(1)} : Follower{};
}

bool SqliteTimers::find_run(const RunId& run, int64_t now_us, Run& found) {
  {
    SqliteCursor row = run_.find(run.timer);
    if (!row.next() || row.integer(0) != SqliteSchema::kLeased ||
        row.unsigned_integer(1) != run.fence || row.integer(2) <= now_us) {
      return false;
    }
    found.marked = row.integer(3) != 0;
    found.attempts = static_cast<unsigned>(row.integer(4));
    found.name = row.text(5);
  }
  found.blocks = follower(run.timer).id != 0;
  return true;
}

void SqliteTimers::carry_out(FinishRequest& request, int64_t now_us) {
  Run run;
  if (!find_run(request.run, now_us, run)) return;
  request.accepted = true;
  const uint64_t id = request.run.timer;
  if (request.how == FinishRequest::How::kFailed) {
    fail(request, run, now_us);
    return;
  }
  const bool retries = request.how == FinishRequest::How::kRetry;
  if (run.marked && retries) {
    end_run(id, run, WFStoreOutcome::kCancelled, now_us);
  } else if (retries) {
    retry_.run(id, request.next_us, meta_.next_fence());
    tell(request.next_us, now_us);
  } else if (request.next_us != kNeverUs && !run.marked && !run.blocks) {
    move_.run(id, request.next_us, meta_.next_fence(), 0U, false, SqliteStatement::Optional{});
    tell(request.next_us, now_us);
  } else {
    const bool missed = request.how == FinishRequest::How::kMissed;
    end_run(id, run, missed ? WFStoreOutcome::kMissed : WFStoreOutcome::kDone, now_us);
  }
}

void SqliteTimers::fail(const FinishRequest& request, const Run& run, int64_t now_us) {
  const uint64_t id = request.run.timer;
  if (request.next_us != kNeverUs && !run.marked && !run.blocks) {
    copy(id, nullptr, SqliteSchema::kWaiting, request.next_us);
    tell(request.next_us, now_us);
  }
  fail_.run(id, SqliteStatement::Optional{request.reason}, request.next_us != kNeverUs);
  ended_.add(run.name, id, run.attempts, WFStoreOutcome::kFailed, now_us);
  release(id, now_us);
}

void SqliteTimers::carry_out(ExtendRequest& request, int64_t now_us) {
  for (const RunId& id : request.runs) {
    ExtendRequest::Extended& extended = request.extended.emplace_back();
    SqliteCursor row = run_.find(id.timer);
    if (!row.next() || row.integer(0) != SqliteSchema::kLeased ||
        row.unsigned_integer(1) != id.fence || row.integer(2) <= now_us) {
      continue;
    }
    extended.live = true;
    extended.cancelled = row.integer(3) != 0;
    extended.lease_end_us = add_us(now_us, request.lease_us);
    extend_.run(id.timer, extended.lease_end_us);
  }
}

void SqliteTimers::carry_out(ClaimRequest& request, int64_t now_us) {
  end_marked(now_us);
  for (const ClaimRequest::Kind& kind : request.kinds) {
    claim(kind, request, now_us);
  }
}

// Whatever their kinds are: a process that handles only others may be the only one left.
void SqliteTimers::end_marked(int64_t now_us) {
  std::vector<std::pair<uint64_t, Run>> ended;
  {
    SqliteCursor row = marked_.find(now_us);
    while (row.next()) {
      ended.push_back({row.unsigned_integer(0),
                       {row.text(1), static_cast<unsigned>(row.integer(2)), true, false}});
    }
  }
  for (const auto& [id, run] : ended) {
    end(id, run.name, run.attempts, WFStoreOutcome::kCancelled, now_us);
  }
}

void SqliteTimers::claim(const ClaimRequest::Kind& kind, ClaimRequest& request, int64_t now_us) {
  const int64_t id = kinds_.find(kind.name);
  if (id == 0) return;
  const int64_t fresh_since_us = earlier(now_us, request.fresh_us);
  const size_t before = request.claimed.size();
  if (kind.max > 0) {
    SqliteCursor rows = fresh_.find(id, fresh_since_us, now_us, limit_of(kind.max));
    claim_rows(rows, kind.name, request);
  }
  const size_t left = kind.max - (request.claimed.size() - before);
  if (const size_t most = std::min(left, kind.max_overdue)) {
    SqliteCursor rows = overdue_.find(id, fresh_since_us, limit_of(most));
    claim_rows(rows, kind.name, request);
  }
  lease(request.claimed.begin() + static_cast<std::ptrdiff_t>(before), request, now_us);
  if (!request.more) {
    SqliteCursor row = due_.find(id, now_us);
    request.more = row.next();
  }
  SqliteCursor row = next_.find(id, now_us);
  if (row.next()) {
    request.next_us = std::min(request.next_us, row.integer(0));
  }
}

void SqliteTimers::claim_rows(SqliteCursor& rows, const std::string& kind, ClaimRequest& request) {
  while (rows.next()) {
    ClaimRequest::Claimed& claimed = request.claimed.emplace_back();
    claimed.run.timer = rows.unsigned_integer(0);
    claimed.spec.name = rows.text(1);
    claimed.spec.kind = kind;
    claimed.wake_us = rows.integer(2);
    claimed.due_us = rows.integer(3);
    claimed.attempts = static_cast<unsigned>(rows.integer(4)) + 1;
    claimed.spec.skip_after_us = rows.integer(5);
    claimed.spec.repeat = rows.text(6);
    claimed.spec.payload = rows.text(7);
  }
}

void SqliteTimers::lease(std::vector<ClaimRequest::Claimed>::iterator begin, ClaimRequest& request,
                         int64_t now_us) {
  const int64_t lease_end_us = add_us(now_us, request.lease_us);
  for (auto claimed = begin; claimed != request.claimed.end(); ++claimed) {
    claimed->run.fence = static_cast<uint64_t>(meta_.next_fence());
    claimed->lease_end_us = lease_end_us;
    lease_.run(claimed->run.timer, lease_end_us, claimed->run.fence, request.owner,
               claimed->attempts);
  }
}

void SqliteTimers::carry_out(CountRequest& request) {
  if (request.prefix.empty()) {
    request.count = static_cast<uint64_t>(meta_.stored);
    return;
  }
  const std::string end = end_of_prefix(request.prefix);
  SqliteCursor row = count_.find(request.prefix, end);
  if (row.next()) {
    request.count = row.unsigned_integer(0);
  }
}

void SqliteTimers::carry_out(ListRequest& request, int64_t now_us) {
  std::string begin = request.prefix;
  const bool goes_on = !request.after_name.empty() || request.after_timer != 0;
  if (goes_on && request.after_name.starts_with(request.prefix)) {
    SqliteCursor rows =
        (request.failed_only ? list_failed_name_ : list_name_)
            .find(request.after_name, request.after_timer, add_us(limit_of(request.max), 1));
    list(rows, request, now_us);
  }
  if (goes_on) {
    // The first name after it.
    begin = std::max(begin, request.after_name + '\0');
  }
  const std::string end = end_of_prefix(request.prefix);
  const size_t left = request.max - request.timers.size();
  if (!request.more) {
    SqliteCursor rows =
        (request.failed_only ? list_failed_ : list_).find(begin, end, add_us(limit_of(left), 1));
    list(rows, request, now_us);
  }
}

void SqliteTimers::list(SqliteCursor& rows, ListRequest& request, int64_t now_us) {
  while (rows.next()) {
    if (request.is_full()) {
      request.more = true;
      return;
    }
    WFStoreInfo info;
    info.timer = rows.unsigned_integer(0);
    info.name = rows.text(1);
    info.kind = kinds_.name(rows.integer(2));
    info.payload = rows.text(3);
    info.due = time_of_us(rows.integer(4));
    info.stage = stage_of(rows.integer(5), rows.integer(9), now_us);
    info.attempts = static_cast<unsigned>(rows.integer(6));
    if (info.stage == WFStoreStage::kRunning) {
      info.owner = rows.text(7);
    }
    info.reason = rows.text(8);
    request.add(std::move(info));
  }
}

void SqliteTimers::carry_out(FailedRequest& request, int64_t now_us) {
  std::vector<uint64_t> failed;
  {
    SqliteCursor row = failed_.find(request.name);
    while (row.next()) {
      failed.push_back(row.unsigned_integer(0));
    }
  }
  for (const uint64_t id : failed) {
    if (request.remove) {
      remove_.run(id);
      meta_.stored--;
    } else {
      move_.run(id, now_us, meta_.next_fence(), 0U, false, SqliteStatement::Optional{});
      tell(now_us, now_us);
    }
  }
  request.count = failed.size();
}

void SqliteTimers::carry_out(LookRequest& request, int64_t now_us) {
  request.stored = static_cast<uint64_t>(meta_.stored);
  {
    SqliteCursor row = count_failed_.find(LookRequest::kMaxCounted);
    request.failed_timers = row.next() ? row.unsigned_integer(0) : 0;
  }
  {
    SqliteCursor row = count_leased_.find(now_us);
    request.leased = row.next() ? row.unsigned_integer(0) : 0;
  }
  const int64_t before_us = earlier(now_us, request.overdue_us);
  const auto& handled = request.handled;
  for (int64_t kind = next_kind(0); kind != 0 && request.due < LookRequest::kMaxCounted;
       kind = next_kind(kind)) {
    const uint64_t overdue = count_due(kind, INT64_MIN, before_us, request);
    request.overdue += overdue;
    if (overdue > 0 &&
        std::find(handled.begin(), handled.end(), kinds_.name(kind)) == handled.end()) {
      request.unhandled += overdue;
    }
    count_due(kind, before_us, add_us(now_us, 1), request);
  }
}

uint64_t SqliteTimers::count_due(int64_t kind, int64_t from_us, int64_t before_us,
                                 LookRequest& request) {
  SqliteCursor row =
      count_due_.find(kind, from_us, before_us, LookRequest::kMaxCounted - request.due);
  const uint64_t count = row.next() ? row.unsigned_integer(0) : 0;
  request.due += count;
  return count;
}

int64_t SqliteTimers::next_kind(int64_t after) {
  SqliteCursor row = next_kind_.find(after);
  return row.next() ? row.integer(0) : 0;
}

void SqliteTimers::tell(int64_t due_us, int64_t now_us) {
  has_news_ = has_news_ || due_us <= add_us(now_us, kSoonUs);
}

}  // namespace workflow

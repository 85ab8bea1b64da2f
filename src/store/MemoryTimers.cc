#include "store/MemoryTimers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "store/MemoryRecord.h"

namespace workflow {

namespace {

constexpr int64_t kFirstUs = std::numeric_limits<int64_t>::min();
constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();

std::chrono::system_clock::time_point date(int64_t us) {
  using TimePoint = std::chrono::system_clock::time_point;
  constexpr int64_t kMaxUs =
      std::chrono::duration_cast<std::chrono::microseconds>(TimePoint::duration::max()).count();
  return us >= kMaxUs ? TimePoint::max() : TimePoint(std::chrono::microseconds(us));
}

}  // namespace

WFStoreStage MemoryTimers::stage(const Timer& timer) const {
  switch (timer.state) {
    case State::kBlocked:
      return WFStoreStage::kBlocked;
    case State::kFailed:
      return WFStoreStage::kFailed;
    default:
      return lease_is_live(timer) ? WFStoreStage::kRunning : WFStoreStage::kWaiting;
  }
}

WFStoreInfo MemoryTimers::info(const Timer& timer) const {
  WFStoreInfo info;
  info.timer = timer.number;
  info.name = timer.name;
  info.kind = timer.kind->name;
  info.payload = timer.payload;
  info.due = date(timer.due_us);
  info.stage = stage(timer);
  info.attempts = timer.attempts;
  if (info.stage == WFStoreStage::kRunning) {
    info.owner = *timer.owner;
  }
  info.reason = timer.reason_text();
  return info;
}

WFStoreAnswer MemoryTimers::answer(const Timer& timer, WFStoreVerdict verdict) const {
  WFStoreAnswer answer;
  answer.verdict = verdict;
  answer.timer = timer.number;
  answer.attempts = timer.attempts;
  if (verdict == WFStoreVerdict::kRunning || verdict == WFStoreVerdict::kAfterRun) {
    answer.owner = *timer.owner;
    answer.fence = timer.fence;
    answer.lease_left = std::chrono::microseconds(timer.wake_us - now_us_);
  }
  return answer;
}

WFStoreAnswer MemoryTimers::answer_won(const Timer& timer) const {
  return answer(timer,
                timer.state == State::kLeased ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon);
}

WFStoreAnswer MemoryTimers::answer_gone(const std::string& name) const {
  WFStoreAnswer answer;
  if (const MemoryEnded::Ended* ended = ended_.latest(name)) {
    answer.verdict = WFStoreVerdict::kDone;
    answer.timer = ended->timer;
    answer.attempts = ended->attempts;
    answer.outcome = ended->outcome;
    answer.when = date(ended->when_us);
  } else {
    answer.verdict = WFStoreVerdict::kUnknown;
    answer.when = date(ended_.since_us());
  }
  return answer;
}

MemoryTimers::Timer* MemoryTimers::find_run(const RunId& run) {
  const auto found = timers_.find(run.timer);
  if (found == timers_.end()) return nullptr;
  Timer& timer = found->second;
  return lease_is_live(timer) && timer.fence == run.fence ? &timer : nullptr;
}

template <class VISIT>
void MemoryTimers::for_each_of(const std::string& name, const VISIT& visit) {
  auto next = names_.lower_bound(Key(name, 0));
  while (next != names_.end() && (*next)->name == name) {
    Timer& timer = **next;
    ++next;
    if (timer.state != State::kFailed && !visit(timer)) return;
  }
}

void MemoryTimers::enqueue(Timer& timer) {
  timer.kind->insert(timer.wake_us, timer.number);
  if (timer.state == State::kLeased) {
    ++lease_ends_[timer.wake_us];
    ++leased_;
  }
  if (timer.marked) {
    marked_.insert({timer.wake_us, timer.number});
  }
}

void MemoryTimers::dequeue(Timer& timer) {
  if (timer.state == State::kWaiting || timer.state == State::kLeased) {
    timer.kind->erase(timer.wake_us, timer.number);
    if (timer.state == State::kLeased) {
      const auto same = lease_ends_.find(timer.wake_us);
      if (--same->second == 0) {
        lease_ends_.erase(same);
      }
      --leased_;
    }
    if (timer.marked) {
      marked_.erase({timer.wake_us, timer.number});
    }
  }
}

MemoryKind* MemoryTimers::kind_of(std::string_view name) {
  auto found = kinds_.find(name);
  if (found == kinds_.end()) {
    found = kinds_.try_emplace(std::string(name), std::string(name), now_us_).first;
  }
  return &found->second;
}

const MemoryKind* MemoryTimers::find_kind(std::string_view name) const {
  const auto found = kinds_.find(name);
  return found == kinds_.end() ? nullptr : &found->second;
}

const std::string* MemoryTimers::owner_of(std::string_view name) {
  auto found = owners_.find(name);
  if (found == owners_.end()) {
    found = owners_.emplace(name).first;
  }
  return &*found;
}

MemoryTimers::Timer& MemoryTimers::add(const StoredSpec& spec, int64_t due_us) {
  Timer& timer = timers_[++last_number_];
  timer.number = last_number_;
  timer.name = spec.name;
  timer.kind = kind_of(spec.kind);
  timer.payload = spec.payload;
  Timer::set(timer.repeat, spec.repeat);
  timer.skip_after_us = spec.skip_after_us;
  timer.due_us = due_us;
  names_.insert(&timer);
  note_whole(timer);
  return timer;
}

void MemoryTimers::wait_until(Timer& timer, int64_t wake_us) {
  dequeue(timer);
  if (timer.state == State::kFailed) {
    failed_.erase(&timer);
  }
  timer.state = State::kWaiting;
  timer.wake_us = wake_us;
  timer.fence = ++last_fence_;
  timer.marked = false;
  timer.owner = nullptr;
  if (timer.reason) {
    timer.reason.reset();
    note_whole(timer);
  }
  enqueue(timer);
  note_moved(timer);
  change_.earliest_us = std::min(change_.earliest_us, wake_us);
}

void MemoryTimers::block(Timer& timer, Timer& by) {
  timer.state = State::kBlocked;
  timer.blocked_by = by.number;
  timer.fence = ++last_fence_;
  by.blocks = timer.number;
  note_moved(timer);
}

void MemoryTimers::release_successor(Timer& timer) {
  if (timer.blocks == 0) return;
  Timer& successor = at(std::exchange(timer.blocks, 0));
  successor.blocked_by = 0;
  wait_until(successor, successor.due_us);
}

void MemoryTimers::end(Timer& timer, WFStoreOutcome outcome) {
  ended_.remember({timer.name, timer.number, timer.attempts, outcome, now_us_});
  release_successor(timer);
  remove(timer);
}

void MemoryTimers::fail(Timer& timer, const FinishRequest& request, bool recurs) {
  ended_.remember({timer.name, timer.number, timer.attempts, WFStoreOutcome::kFailed, now_us_});
  dequeue(timer);
  timer.state = State::kFailed;
  failed_.insert(&timer);
  timer.marked = false;
  timer.owner = nullptr;
  Timer::set(timer.reason, request.reason);
  note_whole(timer);
  release_successor(timer);
  if (recurs) {
    wait_until(add(timer.spec(), request.next_us), request.next_us);
  }
  if (request.next_us != kNeverUs) {
    timer.repeat.reset();
  }
}

void MemoryTimers::erase(Timer& timer) {
  if (journal_ != nullptr && timer.is_recorded()) {
    StoreBytes::put(journal_->begin(MemoryRecord::kErase), timer.number);
    journal_->end(nullptr);
  }
  remove(timer);
}

void MemoryTimers::remove(Timer& timer) {
  dequeue(timer);
  if (timer.state == State::kFailed) {
    failed_.erase(&timer);
  }
  if (timer.blocked_by != 0) {
    at(timer.blocked_by).blocks = 0;
  }
  if (journal_ != nullptr) {
    journal_->forget(timer);
  }
  names_.erase(&timer);
  timers_.erase(timer.number);
}

void MemoryTimers::carry_out(ScheduleRequest& request, StoreFailure& failure) {
  Timer* running = nullptr;
  if (request.policy == WF_TIMER_KEEP) {
    bool found = false;
    for_each_of(request.spec.name, [&found](const Timer&) {
      found = true;
      return false;
    });
    if (found) {
      failure = {EEXIST, "a timer of that name exists", false};
      return;
    }
  } else if (request.policy == WF_TIMER_REPLACE) {
    running = replace(request);
  }
  Timer& timer = add(request.spec, request.due_us);
  request.timer = timer.number;
  if (running != nullptr) {
    block(timer, *running);
  } else {
    wait_until(timer, request.due_us);
  }
}

MemoryTimers::Timer* MemoryTimers::replace(ScheduleRequest& request) {
  const std::string& name = request.spec.name;
  // Blocked ones end before what blocks them does, so that none of them is released.
  for_each_of(name, [this](Timer& timer) {
    if (timer.state == State::kBlocked) {
      end(timer, WFStoreOutcome::kCancelled);
    }
    return true;
  });
  Timer* running = nullptr;
  for_each_of(name, [this, &request, &running](Timer& timer) {
    if (lease_is_live(timer)) {
      request.answers.push_back(answer(timer, WFStoreVerdict::kAfterRun));
      running = &timer;
    } else {
      request.answers.push_back(answer_won(timer));
      end(timer, WFStoreOutcome::kCancelled);
    }
    return true;
  });
  if (request.answers.empty()) {
    request.answers.push_back(answer_gone(name));
  }
  return running;
}

void MemoryTimers::carry_out(CancelRequest& request) {
  for_each_of(request.name, [this, &request](Timer& timer) {
    if (request.answers.size() >= request.max) return false;
    if (!lease_is_live(timer)) {
      request.answers.push_back(answer_won(timer));
      end(timer, WFStoreOutcome::kCancelled);
      return true;
    }
    request.answers.push_back(answer(timer, WFStoreVerdict::kRunning));
    dequeue(timer);
    timer.marked = true;
    enqueue(timer);
    note_moved(timer);
    change_.marked = true;
    return true;
  });
  if (request.answers.empty() && request.max > 0) {
    request.answers.push_back(answer_gone(request.name));
  }
}

void MemoryTimers::carry_out(RescheduleRequest& request) {
  for_each_of(request.name, [this, &request](Timer& timer) {
    if (request.answers.size() >= request.max) return false;
    if (timer.state == State::kBlocked) return true;
    if (lease_is_live(timer)) {
      request.answers.push_back(answer(timer, WFStoreVerdict::kAfterRun));
      move_successor(timer, request);
      return true;
    }
    request.answers.push_back(answer_won(timer));
    if (timer.state == State::kLeased) {
      timer.attempts = 0;
    }
    if (request.changes_repeat) {
      Timer::set(timer.repeat, request.repeat);
      note_whole(timer);
    }
    timer.due_us = request.due_us;
    wait_until(timer, request.due_us);
    return true;
  });
  if (request.answers.empty() && request.max > 0) {
    request.answers.push_back(answer_gone(request.name));
  }
}

void MemoryTimers::move_successor(Timer& running, const RescheduleRequest& request) {
  if (running.blocks == 0) {
    block(add(running.spec(), request.due_us), running);
  }
  Timer& successor = at(running.blocks);
  if (request.changes_repeat) {
    Timer::set(successor.repeat, request.repeat);
    note_whole(successor);
  }
  successor.due_us = request.due_us;
  successor.fence = ++last_fence_;
  note_moved(successor);
}

void MemoryTimers::carry_out(ClaimRequest& request) {
  end_cancelled();
  const int64_t fresh_from_us = now_us_ - request.fresh_us;
  for (const ClaimRequest::Kind& asked : request.kinds) {
    const MemoryKind* kind = find_kind(asked.name);
    if (kind == nullptr) continue;
    const size_t before = request.claimed.size();
    claim(request, *kind, fresh_from_us, now_us_, asked.max);
    const size_t left = asked.max - (request.claimed.size() - before);
    claim(request, *kind, kFirstUs, fresh_from_us - 1, std::min(left, asked.max_overdue));
  }
  for (const ClaimRequest::Kind& asked : request.kinds) {
    const MemoryKind* kind = find_kind(asked.name);
    if (kind == nullptr) continue;
    const Queue& queue = kind->queue();
    request.more = request.more || (!queue.empty() && queue.begin()->first <= now_us_);
    const auto next = queue.upper_bound({now_us_, kLastNumber});
    if (next != queue.end()) {
      request.next_us = std::min(request.next_us, next->first);
    }
  }
}

void MemoryTimers::end_cancelled() {
  while (!marked_.empty() && marked_.begin()->first <= now_us_) {
    end(at(marked_.begin()->second), WFStoreOutcome::kCancelled);
  }
}

void MemoryTimers::claim(ClaimRequest& request, const MemoryKind& kind, int64_t from_us,
                         int64_t to_us, size_t max) {
  std::vector<uint64_t> taken;
  auto next = kind.queue().lower_bound({from_us, 0});
  while (taken.size() < max && next != kind.queue().end() && next->first <= to_us) {
    taken.push_back(next->second);
    ++next;
  }
  for (const uint64_t number : taken) {
    Timer& timer = at(number);
    dequeue(timer);
    const int64_t claimable_us = timer.wake_us;
    timer.state = State::kLeased;
    timer.wake_us = now_us_ + request.lease_us;
    timer.fence = ++last_fence_;
    ++timer.attempts;
    timer.owner = owner_of(request.owner);
    enqueue(timer);
    note_moved(timer);
    request.claimed.push_back({timer.spec(),
                               {number, timer.fence},
                               timer.due_us,
                               timer.wake_us,
                               timer.attempts,
                               claimable_us});
  }
}

void MemoryTimers::carry_out(FinishRequest& request) {
  Timer* timer = find_run(request.run);
  if (timer == nullptr) return;
  request.accepted = true;
  const bool recurs = request.next_us != kNeverUs && !timer->marked && timer->blocks == 0;
  switch (request.how) {
    case FinishRequest::How::kRetry:
      if (timer->marked) {
        end(*timer, WFStoreOutcome::kCancelled);
      } else {
        wait_until(*timer, request.next_us);
      }
      return;
    case FinishRequest::How::kFailed:
      fail(*timer, request, recurs);
      return;
    case FinishRequest::How::kDone:
    case FinishRequest::How::kMissed:
      break;
  }
  if (recurs) {
    timer->due_us = request.next_us;
    timer->attempts = 0;
    wait_until(*timer, request.next_us);
  } else {
    end(*timer,
        request.how == FinishRequest::How::kDone ? WFStoreOutcome::kDone : WFStoreOutcome::kMissed);
  }
}

void MemoryTimers::carry_out(ExtendRequest& request) {
  for (const RunId& run : request.runs) {
    ExtendRequest::Extended extended;
    if (Timer* timer = find_run(run)) {
      dequeue(*timer);
      timer->wake_us = now_us_ + request.lease_us;
      enqueue(*timer);
      note_moved(*timer);
      extended = {true, timer->marked, timer->wake_us};
    }
    request.extended.push_back(extended);
  }
}

void MemoryTimers::carry_out(CountRequest& request) const {
  if (request.prefix.empty()) {
    request.count = timers_.size();
    return;
  }
  for (auto next = names_.lower_bound(Key(request.prefix, 0));
       next != names_.end() && (*next)->name.starts_with(request.prefix); ++next) {
    ++request.count;
  }
}

void MemoryTimers::carry_out(ListRequest& request) const {
  const Names& names = request.failed_only ? failed_ : names_;
  const bool from_prefix = request.prefix > request.after_name;
  auto next = from_prefix ? names.lower_bound(Key(request.prefix, 0))
                          : names.upper_bound(Key(request.after_name, request.after_timer));
  for (; next != names.end() && (*next)->name.starts_with(request.prefix); ++next) {
    if (request.is_full()) {
      request.more = true;
      return;
    }
    request.add(info(**next));
  }
}

void MemoryTimers::carry_out(FailedRequest& request) {
  auto next = failed_.lower_bound(Key(request.name, 0));
  while (next != failed_.end() && (*next)->name == request.name) {
    Timer& timer = **next;
    ++next;
    ++request.count;
    if (request.remove) {
      erase(timer);
    } else {
      timer.attempts = 0;
      timer.due_us = now_us_;
      wait_until(timer, now_us_);
    }
  }
}

void MemoryTimers::carry_out(LookRequest& request) {
  request.stored = timers_.size();
  request.failed_timers = failed_.size();
  request.leased = leased_;
  for (const auto& [end_us, count] : lease_ends_) {
    if (end_us > now_us_) break;
    request.leased -= count;
  }
  for (auto& [name, kind] : kinds_) {
    const bool handled =
        std::find(request.handled.begin(), request.handled.end(), name) != request.handled.end();
    const size_t overdue = kind.count_overdue(now_us_ - request.overdue_us - 1);
    request.due += kind.count_due(now_us_);
    request.overdue += overdue;
    request.unhandled += handled ? 0 : overdue;
  }
}

// The journal

void MemoryTimers::note(Timer& timer, Timer::Change change) {
  if (journal_ == nullptr) return;
  if (timer.change == Timer::Change::kNone) {
    changed_.push_back(timer.number);
  }
  timer.change = std::max(timer.change, change);
}

void MemoryTimers::write() {
  for (const uint64_t number : changed_) {
    const auto found = timers_.find(number);
    if (found == timers_.end()) continue;  // it has ended meanwhile
    Timer& timer = found->second;
    if (timer.change == Timer::Change::kWhole) {
      write_again(timer);
    } else if (timer.change == Timer::Change::kMoved) {
      std::string& out = journal_->begin(MemoryRecord::kMove);
      StoreBytes::put(out, number);
      MemoryTimerRecord::put_move(out, timer);
      journal_->end(nullptr);
    }
    timer.change = Timer::Change::kNone;
  }
  changed_.clear();
}

void MemoryTimers::write_again(MemoryTimer& timer) {
  std::string& out = journal_->begin(MemoryRecord::kTimer);
  StoreBytes::put(out, timer.number);
  MemoryTimerRecord::put_whole(out, timer);
  journal_->end(&timer);
}

MemoryTimers::Counters MemoryTimers::counters() const {
  return {last_number_, last_fence_, ended_.next_position(), ended_.since_us()};
}

bool MemoryTimers::read(char kind, StoreBytes::Reader& record) {
  const size_t size = record.left();
  if (kind == MemoryRecord::kEnded) {
    const MemoryEnded::Ended* const ended = ended_.read(record, size);
    if (ended == nullptr) return false;
    return ended->outcome == WFStoreOutcome::kFailed || read_erased(ended->timer);
  }
  const uint64_t number = record.number();
  MemoryTimerRecord::Names names;
  if (kind == MemoryRecord::kTimer) {
    Timer& timer = timers_[number];
    timer.number = number;
    if (number == 0 || !MemoryTimerRecord::read_whole(record, timer, names)) return false;
    timer.kind = kind_of(names.kind);
    timer.owner = owner_of(names.owner);
    journal_->place(timer, size - record.left());
    return true;
  }
  if (kind == MemoryRecord::kMove) {
    // The earlier record of such a timer was dropped, because a later one has everything.
    Timer later;
    const auto found = timers_.find(number);
    Timer& timer = found == timers_.end() ? later : found->second;
    if (!MemoryTimerRecord::read_move(record, timer, names)) return false;
    timer.owner = owner_of(names.owner);
    return true;
  }
  return kind == MemoryRecord::kErase && record.good() && read_erased(number);
}

bool MemoryTimers::read_erased(uint64_t number) {
  const auto found = timers_.find(number);
  if (found != timers_.end()) {
    journal_->forget(found->second);
    timers_.erase(found);
  }
  return true;
}

bool MemoryTimers::restore(const Counters& counters, uint64_t over_fence, int64_t over_us) {
  last_number_ = counters.last_number;
  last_fence_ = counters.last_fence;
  ended_.restore(counters.next_ended, counters.since_us);
  for (auto& [number, timer] : timers_) {
    if (number > last_number_ || timer.fence > last_fence_) return false;
    if (timer.state == State::kLeased && timer.fence <= over_fence && timer.wake_us > over_us) {
      timer.wake_us = over_us;
      note_moved(timer);
    }
    if (timer.state == State::kWaiting || timer.state == State::kLeased) {
      enqueue(timer);
    } else if (timer.state == State::kBlocked) {
      const auto by = timers_.find(timer.blocked_by);
      if (by == timers_.end() || by->second.blocks != 0) return false;
      by->second.blocks = number;
    } else {
      failed_.insert(&timer);
    }
    names_.insert(&timer);
  }
  return true;
}

}  // namespace workflow

#include "store/MemoryTimers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

namespace workflow {

namespace {

constexpr int64_t kFirstUs = std::numeric_limits<int64_t>::min();
constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxOverdueCounted = 10000;

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
  info.name = timer.spec.name;
  info.kind = timer.spec.kind;
  info.payload = timer.spec.payload;
  info.due = date(timer.due_us);
  info.stage = stage(timer);
  info.attempts = timer.attempts;
  if (info.stage == WFStoreStage::kRunning) {
    info.owner = timer.owner;
  }
  info.reason = timer.reason;
  return info;
}

WFStoreAnswer MemoryTimers::answer(const Timer& timer, WFStoreVerdict verdict) const {
  WFStoreAnswer answer;
  answer.verdict = verdict;
  answer.timer = timer.number;
  answer.attempts = timer.attempts;
  if (verdict == WFStoreVerdict::kRunning || verdict == WFStoreVerdict::kAfterRun) {
    answer.owner = timer.owner;
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
  auto next = names_.lower_bound({name, 0});
  while (next != names_.end() && next->first == name) {
    Timer& timer = at(next->second);
    ++next;
    if (timer.state != State::kFailed && !visit(timer)) return;
  }
}

void MemoryTimers::enqueue(Timer& timer) {
  queue_.insert({timer.spec.kind, timer.wake_us, timer.number});
  if (timer.marked) {
    marked_.insert({timer.wake_us, timer.number});
  }
}

void MemoryTimers::dequeue(Timer& timer) {
  if (timer.state == State::kWaiting || timer.state == State::kLeased) {
    queue_.erase({timer.spec.kind, timer.wake_us, timer.number});
    marked_.erase({timer.wake_us, timer.number});
  }
}

MemoryTimers::Timer& MemoryTimers::add(StoredSpec spec, int64_t due_us) {
  Timer& timer = timers_[++last_number_];
  timer.number = last_number_;
  timer.spec = std::move(spec);
  timer.due_us = due_us;
  names_.insert({timer.spec.name, timer.number});
  return timer;
}

void MemoryTimers::wait_until(Timer& timer, int64_t wake_us) {
  dequeue(timer);
  timer.state = State::kWaiting;
  timer.wake_us = wake_us;
  timer.fence = ++last_fence_;
  timer.marked = false;
  timer.owner.clear();
  timer.reason.clear();
  enqueue(timer);
  change_.earliest_us = std::min(change_.earliest_us, wake_us);
}

void MemoryTimers::block(Timer& timer, Timer& by) {
  timer.state = State::kBlocked;
  timer.blocked_by = by.number;
  timer.fence = ++last_fence_;
  by.blocks = timer.number;
}

void MemoryTimers::release_successor(Timer& timer) {
  if (timer.blocks == 0) return;
  Timer& successor = at(std::exchange(timer.blocks, 0));
  successor.blocked_by = 0;
  wait_until(successor, successor.due_us);
}

void MemoryTimers::end(Timer& timer, WFStoreOutcome outcome) {
  ended_.remember({timer.spec.name, timer.number, outcome, now_us_});
  release_successor(timer);
  erase(timer);
}

void MemoryTimers::fail(Timer& timer, const FinishRequest& request, bool recurs) {
  ended_.remember({timer.spec.name, timer.number, WFStoreOutcome::kFailed, now_us_});
  dequeue(timer);
  timer.state = State::kFailed;
  timer.marked = false;
  timer.owner.clear();
  timer.reason = request.reason;
  release_successor(timer);
  if (recurs) {
    StoredSpec spec = timer.spec;
    wait_until(add(std::move(spec), request.next_us), request.next_us);
  }
  if (request.next_us != kNeverUs) {
    timer.spec.repeat.clear();
  }
}

void MemoryTimers::erase(Timer& timer) {
  dequeue(timer);
  if (timer.blocked_by != 0) {
    at(timer.blocked_by).blocks = 0;
  }
  names_.erase({timer.spec.name, timer.number});
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
      timer.spec.repeat = request.repeat;
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
    StoredSpec spec = running.spec;
    block(add(std::move(spec), request.due_us), running);
  }
  Timer& successor = at(running.blocks);
  if (request.changes_repeat) {
    successor.spec.repeat = request.repeat;
  }
  successor.due_us = request.due_us;
  successor.fence = ++last_fence_;
}

void MemoryTimers::carry_out(ClaimRequest& request) {
  end_cancelled();
  const int64_t fresh_from_us = now_us_ - request.fresh_us;
  for (const ClaimRequest::Kind& kind : request.kinds) {
    const size_t before = request.claimed.size();
    claim(request, kind.name, fresh_from_us, now_us_, kind.max);
    const size_t left = kind.max - (request.claimed.size() - before);
    claim(request, kind.name, kFirstUs, fresh_from_us - 1, std::min(left, kind.max_overdue));
  }
  for (const ClaimRequest::Kind& kind : request.kinds) {
    const Wake now{kind.name, now_us_, kLastNumber};
    const auto first = queue_.lower_bound({kind.name, kFirstUs, 0});
    request.more = request.more || (first != queue_.end() && !(now < *first));
    const auto next = queue_.upper_bound(now);
    if (next != queue_.end() && next->kind == now.kind) {
      request.next_us = std::min(request.next_us, next->at_us);
    }
  }
}

void MemoryTimers::end_cancelled() {
  while (!marked_.empty() && marked_.begin()->first <= now_us_) {
    end(at(marked_.begin()->second), WFStoreOutcome::kCancelled);
  }
}

void MemoryTimers::claim(ClaimRequest& request, std::string_view kind, int64_t from_us,
                         int64_t to_us, size_t max) {
  std::vector<uint64_t> taken;
  auto next = queue_.lower_bound({kind, from_us, 0});
  while (taken.size() < max && next != queue_.end() && next->kind == kind && next->at_us <= to_us) {
    taken.push_back(next->number);
    ++next;
  }
  for (const uint64_t number : taken) {
    Timer& timer = at(number);
    dequeue(timer);
    timer.state = State::kLeased;
    timer.wake_us = now_us_ + request.lease_us;
    timer.fence = ++last_fence_;
    ++timer.attempts;
    timer.owner = request.owner;
    enqueue(timer);
    request.claimed.push_back(
        {timer.spec, {number, timer.fence}, timer.due_us, timer.wake_us, timer.attempts});
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
      extended = {true, timer->marked, timer->wake_us};
    }
    request.extended.push_back(extended);
  }
}

void MemoryTimers::carry_out(CountRequest& request) const {
  for (auto next = names_.lower_bound({request.prefix, 0});
       next != names_.end() && next->first.starts_with(request.prefix); ++next) {
    ++request.count;
  }
}

void MemoryTimers::carry_out(ListRequest& request) const {
  const bool from_prefix = request.prefix > request.after_name;
  auto next = from_prefix ? names_.lower_bound({request.prefix, 0})
                          : names_.upper_bound({request.after_name, request.after_timer});
  for (; next != names_.end() && next->first.starts_with(request.prefix); ++next) {
    const Timer& timer = at(next->second);
    if (request.failed_only && timer.state != State::kFailed) continue;
    if (request.timers.size() >= request.max) {
      request.more = true;
      return;
    }
    request.timers.push_back(info(timer));
  }
}

void MemoryTimers::carry_out(FailedRequest& request) {
  auto next = names_.lower_bound({request.name, 0});
  while (next != names_.end() && next->first == request.name) {
    Timer& timer = at(next->second);
    ++next;
    if (timer.state != State::kFailed) continue;
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

void MemoryTimers::carry_out(LookRequest& request) const {
  request.stored = timers_.size();
  const int64_t before_us = now_us_ - request.overdue_us;
  auto next = queue_.begin();
  while (next != queue_.end()) {
    const std::string_view kind = next->kind;
    const bool handled =
        std::find(request.handled.begin(), request.handled.end(), kind) != request.handled.end();
    for (; next != queue_.end() && next->kind == kind && next->at_us < before_us; ++next) {
      if (request.overdue == kMaxOverdueCounted) return;
      ++request.overdue;
      request.unhandled += handled ? 0 : 1;
    }
    next = queue_.upper_bound({kind, kNeverUs, kLastNumber});
  }
}

}  // namespace workflow

#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/StoreRequest.h"

namespace store_test {

// What a backend has to answer: the rules of store/StoreBackend.h written down in the plainest way.
// The timers are a vector, every question is a scan of it, and nothing is kept that can be found
// out. It shares no code with the backends.
//
// It counts timers and fences in its own way: callers compare only whether they are the same ones.
class BackendReference {
 public:
  struct Stages {
    size_t waiting = 0;
    size_t leased = 0;
    size_t blocked = 0;
    size_t failed = 0;
  };

  BackendReference(int64_t now_us, size_t remembered)
      : remembered_(remembered), opened_us_(now_us), now_us_(now_us) {}

  void set_now(int64_t now_us) { now_us_ = now_us; }

  void execute(workflow::StoreRequest& request) {
    request.failure = workflow::StoreFailure();
    const bool has_id = request.id.number != 0 && changes_something(request);
    if (has_id) {
      if (const Answered* earlier = find_answer(request.id)) {
        if (earlier->burnt) {
          request.failure.error = ECANCELED;
        } else {
          request = earlier->request;
        }
        return;
      }
    }
    std::visit([this, &request](auto& what) { carry_out(what, request.failure); }, request.what);
    release();
    if (has_id) {
      remember({request.id, false, request});
    }
  }

  // Another one owns the store: whoever had leases is gone.
  void end_leases() {
    for (Timer& timer : timers_) {
      if (timer.leased) {
        timer.at_us = std::min(timer.at_us, now_us_);
      }
    }
  }

  Stages stages() const {
    Stages stages;
    for (const Timer& timer : timers_) {
      ++(timer.failed       ? stages.failed
         : timer.after != 0 ? stages.blocked
         : timer.leased     ? stages.leased
                            : stages.waiting);
    }
    return stages;
  }

  // Times at which something about a timer changes: when it is due, or its lease ends.
  std::vector<int64_t> moments() const {
    std::vector<int64_t> moments;
    for (const Timer& timer : timers_) {
      if (!timer.failed && timer.at_us != workflow::kNeverUs) {
        moments.push_back(timer.at_us);
      }
    }
    return moments;
  }

  // Every timer that has ended since then is remembered. Others may have ended in the same
  // microsecond as the last one that was forgotten.
  int64_t remembers_since_us() const {
    return has_forgotten_ ? std::max(opened_us_, newest_forgotten_us_ + 1) : opened_us_;
  }

 private:
  struct Timer {
    uint64_t number = 0;
    workflow::StoredSpec spec;
    int64_t due_us = 0;
    int64_t at_us = 0;  // the end of the lease, or when it may be claimed
    uint64_t fence = 0;
    unsigned attempts = 0;
    bool leased = false;
    bool cancelled = false;
    bool failed = false;
    uint64_t after = 0;  // it waits for the end of that timer
    std::string owner;
    std::string reason;
  };

  struct Ended {
    std::string name;
    uint64_t number = 0;
    unsigned attempts = 0;
    WFStoreOutcome outcome = WFStoreOutcome::kNone;
    int64_t when_us = 0;
  };

  struct Answered {
    WFStoreRequestId id;
    bool burnt = false;
    workflow::StoreRequest request;
  };

  static bool changes_something(const workflow::StoreRequest& request) {
    return std::holds_alternative<workflow::ScheduleRequest>(request.what) ||
           std::holds_alternative<workflow::CancelRequest>(request.what) ||
           std::holds_alternative<workflow::RescheduleRequest>(request.what) ||
           std::holds_alternative<workflow::FailedRequest>(request.what);
  }

  bool live(const Timer& timer) const { return timer.leased && now_us_ < timer.at_us; }
  bool over(const Timer& timer) const { return timer.leased && now_us_ >= timer.at_us; }

  Timer* find(uint64_t number) {
    for (Timer& timer : timers_) {
      if (timer.number == number) return &timer;
    }
    return nullptr;
  }

  // The numbers of the timers of that name, oldest first.
  std::vector<uint64_t> named(const std::string& name, bool failed) const {
    std::vector<uint64_t> numbers;
    for (const Timer& timer : timers_) {
      if (timer.spec.name == name && timer.failed == failed) {
        numbers.push_back(timer.number);
      }
    }
    return numbers;
  }

  Timer* follower(uint64_t number) {
    for (Timer& timer : timers_) {
      if (timer.after == number) return &timer;
    }
    return nullptr;
  }

  // Frees the timers that follow one that has ended or failed.
  void release() {
    for (Timer& timer : timers_) {
      if (timer.after == 0) continue;
      const Timer* before = find(timer.after);
      if (before == nullptr || before->failed) {
        timer.after = 0;
      }
    }
  }

  void remove(uint64_t number) {
    timers_.erase(std::find_if(timers_.begin(), timers_.end(),
                               [number](const Timer& timer) { return timer.number == number; }));
  }

  void note_end(const Timer& timer, WFStoreOutcome outcome) {
    ended_.push_back({timer.spec.name, timer.number, timer.attempts, outcome, now_us_});
    while (ended_.size() > remembered_) {
      newest_forgotten_us_ =
          has_forgotten_ ? std::max(newest_forgotten_us_, ended_[0].when_us) : ended_[0].when_us;
      has_forgotten_ = true;
      ended_.erase(ended_.begin());
    }
  }

  void end(uint64_t number, WFStoreOutcome outcome) {
    note_end(*find(number), outcome);
    remove(number);
  }

  void make_wait(Timer& timer, int64_t at_us) {
    timer.leased = false;
    timer.cancelled = false;
    timer.owner.clear();
    timer.at_us = at_us;
    timer.fence = next_fence_++;
  }

  uint64_t store(const workflow::StoredSpec& spec, int64_t due_us, uint64_t after) {
    Timer timer;
    timer.number = next_number_++;
    timer.spec = spec;
    timer.due_us = due_us;
    timer.after = after;
    make_wait(timer, due_us);
    timers_.push_back(timer);
    return timer.number;
  }

  static std::chrono::system_clock::time_point date(int64_t us) {
    using std::chrono::system_clock;
    if (us > system_clock::duration::max().count() / 1000) return system_clock::time_point::max();
    return system_clock::time_point(std::chrono::microseconds(us));
  }

  WFStoreAnswer about(const Timer& timer, WFStoreVerdict verdict) const {
    WFStoreAnswer answer;
    answer.verdict = verdict;
    answer.timer = timer.number;
    answer.attempts = timer.attempts;
    if (live(timer)) {
      answer.owner = timer.owner;
      answer.fence = timer.fence;
      answer.lease_left = std::chrono::microseconds(timer.at_us - now_us_);
    }
    return answer;
  }

  WFStoreAnswer about_none(const std::string& name) const {
    WFStoreAnswer answer;
    answer.verdict = WFStoreVerdict::kUnknown;
    answer.when = date(remembers_since_us());
    for (const Ended& ended : ended_) {
      if (ended.name == name) {
        answer.verdict = WFStoreVerdict::kDone;
        answer.timer = ended.number;
        answer.attempts = ended.attempts;
        answer.outcome = ended.outcome;
        answer.when = date(ended.when_us);
      }
    }
    return answer;
  }

  void carry_out(workflow::ScheduleRequest& request, workflow::StoreFailure& failure) {
    const std::vector<uint64_t> others = named(request.spec.name, false);
    uint64_t after = 0;
    if (request.policy == WF_TIMER_KEEP && !others.empty()) {
      failure.error = EEXIST;
      return;
    }
    if (request.policy == WF_TIMER_REPLACE) {
      for (const uint64_t number : others) {
        const Timer& other = *find(number);
        if (live(other)) {
          request.answers.push_back(about(other, WFStoreVerdict::kAfterRun));
          after = number;
          continue;
        }
        if (other.after == 0) {
          request.answers.push_back(
              about(other, over(other) ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon));
        }
        end(number, WFStoreOutcome::kCancelled);
      }
      if (request.answers.empty()) {
        request.answers.push_back(about_none(request.spec.name));
      }
    }
    request.timer = store(request.spec, request.due_us, after);
  }

  void carry_out(workflow::CancelRequest& request, workflow::StoreFailure&) {
    for (const uint64_t number : named(request.name, false)) {
      if (request.answers.size() == request.max) return;
      Timer& timer = *find(number);
      if (live(timer)) {
        timer.cancelled = true;
        request.answers.push_back(about(timer, WFStoreVerdict::kRunning));
      } else {
        request.answers.push_back(
            about(timer, over(timer) ? WFStoreVerdict::kWonAfter : WFStoreVerdict::kWon));
        end(number, WFStoreOutcome::kCancelled);
      }
    }
    if (request.answers.empty()) {
      request.answers.push_back(about_none(request.name));
    }
  }

  void carry_out(workflow::RescheduleRequest& request, workflow::StoreFailure&) {
    for (const uint64_t number : named(request.name, false)) {
      if (request.answers.size() == request.max) return;
      Timer* timer = find(number);
      if (timer->after != 0) continue;
      if (live(*timer)) {
        request.answers.push_back(about(*timer, WFStoreVerdict::kAfterRun));
        timer = follower(number);
        if (timer == nullptr) {
          const workflow::StoredSpec spec = find(number)->spec;
          timer = find(store(spec, request.due_us, number));
        }
      } else if (over(*timer)) {
        request.answers.push_back(about(*timer, WFStoreVerdict::kWonAfter));
        timer->attempts = 0;
      } else {
        request.answers.push_back(about(*timer, WFStoreVerdict::kWon));
      }
      make_wait(*timer, request.due_us);
      timer->due_us = request.due_us;
      if (request.changes_repeat) {
        timer->spec.repeat = request.repeat;
      }
    }
    if (request.answers.empty()) {
      request.answers.push_back(about_none(request.name));
    }
  }

  void carry_out(workflow::ClaimRequest& request, workflow::StoreFailure&) {
    end_cancelled();
    release();
    for (const workflow::ClaimRequest::Kind& kind : request.kinds) {
      const int64_t fresh_from_us = now_us_ - request.fresh_us;
      const size_t most = request.claimed.size() + kind.max;
      for (size_t i = 0; i < kind.max; ++i) {
        claim_earliest(request, kind.name, fresh_from_us, now_us_);
      }
      for (size_t i = 0; i < kind.max_overdue && request.claimed.size() < most; ++i) {
        claim_earliest(request, kind.name, 0, fresh_from_us - 1);
      }
    }
    for (const Timer& timer : timers_) {
      if (timer.failed || timer.after != 0 || !claims_kind(request, timer.spec.kind)) continue;
      if (timer.at_us <= now_us_) {
        request.more = true;
      } else {
        request.next_us = std::min(request.next_us, timer.at_us);
      }
    }
  }

  // Ends the cancelled timers whose leases are over, in the order of their leases. The order
  // matters for which of them are remembered.
  void end_cancelled() {
    std::vector<std::pair<int64_t, uint64_t>> cancelled;
    for (const Timer& timer : timers_) {
      if (over(timer) && timer.cancelled) {
        cancelled.emplace_back(timer.at_us, timer.number);
      }
    }
    std::sort(cancelled.begin(), cancelled.end());
    for (const auto& [at_us, number] : cancelled) {
      end(number, WFStoreOutcome::kCancelled);
    }
  }

  static bool claims_kind(const workflow::ClaimRequest& request, const std::string& kind) {
    return std::any_of(request.kinds.begin(), request.kinds.end(),
                       [&kind](const auto& claimed) { return claimed.name == kind; });
  }

  void claim_earliest(workflow::ClaimRequest& request, const std::string& kind, int64_t from_us,
                      int64_t to_us) {
    Timer* earliest = nullptr;
    for (Timer& timer : timers_) {
      if (timer.failed || timer.after != 0 || live(timer) || timer.spec.kind != kind ||
          timer.at_us < from_us || timer.at_us > to_us) {
        continue;
      }
      if (earliest == nullptr || timer.at_us < earliest->at_us) {
        earliest = &timer;
      }
    }
    if (earliest == nullptr) return;
    earliest->leased = true;
    earliest->at_us = now_us_ + request.lease_us;
    earliest->fence = next_fence_++;
    earliest->attempts += 1;
    earliest->owner = request.owner;
    workflow::ClaimRequest::Claimed claimed;
    claimed.spec = earliest->spec;
    claimed.run = {earliest->number, earliest->fence};
    claimed.due_us = earliest->due_us;
    claimed.lease_end_us = earliest->at_us;
    claimed.attempts = earliest->attempts;
    request.claimed.push_back(claimed);
  }

  Timer* find_run(const workflow::RunId& run) {
    Timer* timer = find(run.timer);
    const bool found = timer != nullptr && live(*timer) && timer->fence == run.fence;
    return found ? timer : nullptr;
  }

  void carry_out(workflow::FinishRequest& request, workflow::StoreFailure&) {
    using How = workflow::FinishRequest::How;
    Timer* timer = find_run(request.run);
    if (timer == nullptr) return;
    request.accepted = true;
    const uint64_t number = timer->number;
    if (request.how == How::kRetry) {
      if (timer->cancelled) {
        end(number, WFStoreOutcome::kCancelled);
      } else {
        make_wait(*timer, request.next_us);
      }
      return;
    }
    const bool goes_on =
        request.next_us != workflow::kNeverUs && !timer->cancelled && follower(number) == nullptr;
    if (request.how == How::kFailed) {
      note_end(*timer, WFStoreOutcome::kFailed);
      const workflow::StoredSpec spec = timer->spec;
      make_wait(*timer, timer->due_us);
      timer->failed = true;
      timer->reason = request.reason;
      if (request.next_us != workflow::kNeverUs) {
        timer->spec.repeat.clear();
      }
      if (goes_on) {
        store(spec, request.next_us, 0);
      }
    } else if (goes_on) {
      make_wait(*timer, request.next_us);
      timer->due_us = request.next_us;
      timer->attempts = 0;
    } else {
      end(number, request.how == How::kDone ? WFStoreOutcome::kDone : WFStoreOutcome::kMissed);
    }
  }

  void carry_out(workflow::ExtendRequest& request, workflow::StoreFailure&) {
    for (const workflow::RunId& run : request.runs) {
      workflow::ExtendRequest::Extended extended;
      if (Timer* timer = find_run(run)) {
        timer->at_us = now_us_ + request.lease_us;
        extended.live = true;
        extended.cancelled = timer->cancelled;
        extended.lease_end_us = timer->at_us;
      }
      request.extended.push_back(extended);
    }
  }

  void carry_out(workflow::CountRequest& request, workflow::StoreFailure&) {
    for (const Timer& timer : timers_) {
      request.count += timer.spec.name.starts_with(request.prefix) ? 1 : 0;
    }
  }

  void carry_out(workflow::ListRequest& request, workflow::StoreFailure&) {
    std::vector<std::pair<std::string, uint64_t>> places;
    const std::pair after(request.after_name, request.after_timer);
    for (const Timer& timer : timers_) {
      const std::pair place(timer.spec.name, timer.number);
      if (place > after && place.first.starts_with(request.prefix) &&
          (timer.failed || !request.failed_only)) {
        places.push_back(place);
      }
    }
    std::sort(places.begin(), places.end());
    request.more = places.size() > request.max;
    places.resize(std::min(places.size(), request.max));
    for (const auto& [name, number] : places) {
      const Timer& timer = *find(number);
      WFStoreInfo info;
      info.timer = number;
      info.name = name;
      info.kind = timer.spec.kind;
      info.payload = timer.spec.payload;
      info.due = date(timer.due_us);
      info.stage = timer.failed       ? WFStoreStage::kFailed
                   : timer.after != 0 ? WFStoreStage::kBlocked
                   : live(timer)      ? WFStoreStage::kRunning
                                      : WFStoreStage::kWaiting;
      info.attempts = timer.attempts;
      info.owner = live(timer) ? timer.owner : "";
      info.reason = timer.reason;
      request.timers.push_back(info);
    }
  }

  void carry_out(workflow::FailedRequest& request, workflow::StoreFailure&) {
    for (const uint64_t number : named(request.name, true)) {
      ++request.count;
      if (request.remove) {
        remove(number);
        continue;
      }
      Timer& timer = *find(number);
      timer.failed = false;
      timer.reason.clear();
      timer.attempts = 0;
      timer.due_us = now_us_;
      make_wait(timer, now_us_);
    }
  }

  void carry_out(workflow::LookRequest& request, workflow::StoreFailure&) {
    request.stored = timers_.size();
    for (const Timer& timer : timers_) {
      request.failed_timers += timer.failed ? 1 : 0;
      if (timer.failed || timer.after != 0) continue;
      const bool due = timer.at_us <= now_us_;
      request.due += due ? 1 : 0;
      request.leased += timer.leased && !due ? 1 : 0;
      if (timer.at_us >= now_us_ - request.overdue_us) continue;
      ++request.overdue;
      const bool handled = std::find(request.handled.begin(), request.handled.end(),
                                     timer.spec.kind) != request.handled.end();
      request.unhandled += handled ? 0 : 1;
    }
  }

  void carry_out(workflow::AskRequest& request, workflow::StoreFailure& failure) {
    request.result.request = request.asked;
    if (const Answered* answered = find_answer(request.asked)) {
      if (answered->burnt) return;
      request.found = true;
      request.result.error = answered->request.failure.error;
      request.result.state = request.result.error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR;
      copy_result(answered->request, request.result);
      return;
    }
    const auto forgotten = newest_forgotten_id_.find(request.asked.session);
    if (remembered_ == 0 ||
        (forgotten != newest_forgotten_id_.end() && forgotten->second >= request.asked.number)) {
      failure.error = ENODATA;
      return;
    }
    remember({request.asked, true, {}});
  }

  static void copy_result(const workflow::StoreRequest& request, WFStoreResult& result) {
    if (const auto* schedule = std::get_if<workflow::ScheduleRequest>(&request.what)) {
      result.answers = schedule->answers;
      result.timer = schedule->timer;
    } else if (const auto* cancel = std::get_if<workflow::CancelRequest>(&request.what)) {
      result.answers = cancel->answers;
    } else if (const auto* move = std::get_if<workflow::RescheduleRequest>(&request.what)) {
      result.answers = move->answers;
    } else if (const auto* failed = std::get_if<workflow::FailedRequest>(&request.what)) {
      result.count = failed->count;
    }
  }

  const Answered* find_answer(const WFStoreRequestId& id) const {
    for (const Answered& answered : answered_) {
      if (answered.id == id) return &answered;
    }
    return nullptr;
  }

  void remember(const Answered& answered) {
    answered_.push_back(answered);
    const uint64_t session = answered.id.session;
    const auto of_session = [session](const Answered& other) {
      return other.id.session == session;
    };
    const auto known = std::count_if(answered_.begin(), answered_.end(), of_session);
    if (static_cast<size_t>(known) <= remembered_) return;
    const auto oldest = std::find_if(answered_.begin(), answered_.end(), of_session);
    uint64_t& newest = newest_forgotten_id_[session];
    newest = std::max(newest, oldest->id.number);
    answered_.erase(oldest);
  }

  const size_t remembered_;
  const int64_t opened_us_;
  int64_t now_us_;
  std::vector<Timer> timers_;  // in the order of their numbers
  std::vector<Ended> ended_;
  bool has_forgotten_ = false;
  int64_t newest_forgotten_us_ = 0;
  std::vector<Answered> answered_;
  std::map<uint64_t, uint64_t> newest_forgotten_id_;  // by session
  uint64_t next_number_ = 1;
  uint64_t next_fence_ = 1;
};

}  // namespace store_test

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/StoreBackend.h"
#include "store/StoreTime.h"
#include "support/TestSeed.h"
#include "util/UniqueFd.h"

namespace store_test {

// Asks a store for everything that there is to ask, at random and about 100 names, and writes down
// what it asked and what the answers were: see History.h. Most of what all workers ask at a time is
// about the same few names.
class HistoryWorker {
 public:
  struct Plan {
    std::string name;  // of the worker
    std::string file;  // where it writes
    uint64_t seed = 0;
    uint64_t number = 0;  // of the worker, which is also its session
    int64_t operations = 0;
    bool has_parts = false;           // whether the store has several shards
    std::function<int64_t()> now_us;  // the clock of the store
  };

  static constexpr uint64_t kNames = 100;
  // So many runs a worker remembers.
  static constexpr size_t kRuns = 50;

  HistoryWorker(workflow::StoreBackend& backend, Plan plan)
      : backend_(backend),
        plan_(std::move(plan)),
        random_(plan_.seed, plan_.number),
        out_(::open(plan_.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}

  void run() {
    while (static_cast<int64_t>(number_) < plan_.operations) {
      std::vector<workflow::StoreRequest> requests(random_.one_in(5) ? 1 + random_.below(3) : 1);
      std::vector<workflow::StoreRequest*> pointers;
      std::string called;
      const uint64_t first = number_ + 1;
      std::vector<std::string> names;
      for (workflow::StoreRequest& request : requests) {
        names.push_back(random_name());
        const std::string text = make(request, names.back());
        called += "? " + plan_.name + ' ' + std::to_string(++number_) + ' ' +
                  std::to_string(plan_.now_us()) + ' ' + text + '\n';
        pointers.push_back(&request);
      }
      write(called);
      const bool works = backend_.execute(pointers);
      if (!works) {
        reopen();
      }
      for (size_t i = 0; i < requests.size(); i++) {
        settle(requests[i], names[i], first + i);
      }
    }
  }

 private:
  struct Run {
    std::string name;
    workflow::RunId id;
  };

  static std::string text_of(int64_t us) {
    return us == workflow::kNeverUs ? "never" : std::to_string(us);
  }

  // One write(2) for each answer, so that a worker that is killed has said all of it or nothing.
  void write(const std::string& text) const {
    if (::write(out_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      ::_exit(3);
    }
  }

  void reopen() {
    std::string message;
    while (backend_.reopen(&message) != 0) {
      ::usleep(1000);  // the server refuses for a while
    }
  }

  std::string random_name() {
    constexpr uint64_t kHot = 4;
    // Each moment has its own, which come back soon enough for leases to be over then.
    const uint64_t moment = static_cast<uint64_t>(plan_.now_us()) / 50'000;
    const uint64_t name =
        random_.one_in(10) ? random_.below(kNames) : (moment * kHot + random_.below(kHot)) % kNames;
    return "name" + std::to_string(100 + name);
  }

  int64_t random_due() {
    switch (random_.below(6)) {
      case 0:
        return plan_.now_us() + random_.between(1000, 20'000);
      case 1:
        return plan_.now_us() + 3'600'000'000;
      case 2:
        return random_.one_in(4) ? workflow::kNeverUs : plan_.now_us();
      default:
        return plan_.now_us() - random_.between(0, 2'000'000);
    }
  }
  int64_t random_lease() { return random_.one_in(2) ? 60'000'000 : random_.between(1, 30'000); }
  size_t random_max() { return random_.one_in(3) ? 1 : 1000; }

  // Fills the request in. Returns it as text.
  std::string make(workflow::StoreRequest& request, const std::string& name) {
    const uint64_t kind = random_.below(20);
    const bool has_id = kind < 11;
    if (has_id) {
      request.id = {plan_.number, number_ + 1};
    }
    if (kind < 5) return make_schedule(request, name);
    if (kind < 7) {
      workflow::CancelRequest cancel;
      cancel.name = name;
      cancel.max = random_max();
      request.what = cancel;
      return "cancel " + name + " max=" + std::to_string(cancel.max);
    }
    if (kind < 10) {
      workflow::RescheduleRequest move;
      move.name = name;
      move.max = random_max();
      move.due_us = random_due();
      request.what = move;
      return "reschedule " + name + " max=" + std::to_string(move.max) +
             " due=" + text_of(move.due_us);
    }
    if (kind == 10) {
      workflow::FailedRequest failed;
      failed.name = name;
      failed.remove = random_.one_in(2);
      request.what = failed;
      return (failed.remove ? "remove_failed " : "retry_failed ") + name;
    }
    if (kind < 15) return make_claim(request, name);
    if (kind < 18 && !runs_.empty()) {
      const Run run = random_run(name);
      return random_.one_in(5) ? make_extend(request, run) : make_finish(request, run);
    }
    return make_read(request, name);
  }

  std::string make_schedule(workflow::StoreRequest& request, const std::string& name) {
    static const char* const policies[] = {"append", "replace", "keep"};
    static const WFTimerPolicy values[] = {WF_TIMER_APPEND, WF_TIMER_REPLACE, WF_TIMER_KEEP};
    const uint64_t policy = random_.below(3);
    workflow::ScheduleRequest schedule;
    schedule.spec = {name, name, "payload", "", -1};
    schedule.due_us = random_due();
    schedule.policy = values[policy];
    request.what = schedule;
    return "schedule " + name + " policy=" + policies[policy] + " due=" + text_of(schedule.due_us);
  }

  // A kind has the name of its timers, so that a claim concerns one name.
  std::string make_claim(workflow::StoreRequest& request, const std::string& name) {
    workflow::ClaimRequest claim;
    claim.kinds = {{name, 100, 100}};
    claim.owner = plan_.name;
    claim.lease_us = random_lease();
    claim.fresh_us = 1'000'000;
    request.what = claim;
    return "claim " + name + " lease=" + std::to_string(claim.lease_us) +
           " parts=" + (plan_.has_parts ? "1" : "0");
  }

  // One of the last runs of that name, or else the last one. Often another worker has it by now.
  Run random_run(const std::string& name) {
    std::vector<Run> same;
    for (const Run& run : runs_) {
      if (run.name == name) {
        same.push_back(run);
      }
    }
    return same.empty() ? runs_.back() : same[random_.below(same.size())];
  }

  std::string make_finish(workflow::StoreRequest& request, const Run& run) {
    using How = workflow::FinishRequest::How;
    static const char* const hows[] = {"done", "missed", "retry", "failed"};
    static const How values[] = {How::kDone, How::kMissed, How::kRetry, How::kFailed};
    const uint64_t how = random_.below(4);
    workflow::FinishRequest finish;
    finish.run = run.id;
    finish.how = values[how];
    finish.reason = "reason";
    if (how == 2 || (how < 2 && random_.one_in(3))) {
      finish.next_us = random_due();
    }
    request.what = finish;
    return "finish " + run.name + " timer=" + std::to_string(run.id.timer) +
           " fence=" + std::to_string(run.id.fence) + " how=" + hows[how] +
           " next=" + text_of(finish.next_us);
  }

  std::string make_extend(workflow::StoreRequest& request, const Run& run) {
    workflow::ExtendRequest extend;
    extend.runs = {run.id};
    extend.lease_us = random_lease();
    request.what = extend;
    return "extend " + run.name + " timer=" + std::to_string(run.id.timer) +
           " fence=" + std::to_string(run.id.fence) + " lease=" + std::to_string(extend.lease_us);
  }

  std::string make_read(workflow::StoreRequest& request, const std::string& name) {
    if (random_.one_in(3)) {
      request.what = workflow::CountRequest{name, 0};
      return "count " + name;
    }
    workflow::ListRequest list;
    list.prefix = name;
    list.max = 1000;
    request.what = list;
    return "list " + name;
  }

  // Finds out what has become of a request that is in doubt, if it has an id.
  void ask(workflow::StoreRequest& request) {
    if (request.id.number == 0) return;
    for (;;) {
      workflow::StoreRequest question;
      workflow::AskRequest what;
      what.asked = request.id;
      question.what = what;
      workflow::StoreRequest* const list[] = {&question};
      if (!backend_.execute(list) || question.failure.error != 0) {
        reopen();
        continue;
      }
      const auto& told = std::get<workflow::AskRequest>(question.what);
      request.failure = {told.found ? told.result.error : ECANCELED, "", false};
      std::visit(
          [&told](auto& asked) {
            using What = std::decay_t<decltype(asked)>;
            if constexpr (std::is_same_v<What, workflow::ScheduleRequest>) {
              asked.timer = told.result.timer;
              asked.answers = told.result.answers;
            } else if constexpr (std::is_same_v<What, workflow::CancelRequest> ||
                                 std::is_same_v<What, workflow::RescheduleRequest>) {
              asked.answers = told.result.answers;
            } else if constexpr (std::is_same_v<What, workflow::FailedRequest>) {
              asked.count = told.result.count;
            }
          },
          request.what);
      return;
    }
  }

  void settle(workflow::StoreRequest& request, const std::string& name, uint64_t number) {
    if (request.failure.in_doubt) {
      ask(request);
    }
    std::string result;
    if (request.failure.error == 0) {
      result = "ok " + std::visit([&](auto& what) { return answer(what, name); }, request.what);
    } else {
      result = request.failure.in_doubt          ? "doubt"
               : request.failure.error == EEXIST ? "exists"
                                                 : "refused";
    }
    write("! " + plan_.name + ' ' + std::to_string(number) + ' ' + std::to_string(plan_.now_us()) +
          ' ' + result + '\n');
  }

  static std::string answers(const std::vector<WFStoreAnswer>& answers) {
    std::string text = "answers=";
    for (const WFStoreAnswer& answer : answers) {
      const std::string timer = ':' + std::to_string(answer.timer);
      const std::string attempts = ':' + std::to_string(answer.attempts);
      const std::string fence = ':' + std::to_string(answer.fence);
      switch (answer.verdict) {
        case WFStoreVerdict::kWon:
          text += "won" + timer + attempts;
          break;
        case WFStoreVerdict::kWonAfter:
          text += "won_after" + timer + attempts;
          break;
        case WFStoreVerdict::kRunning:
          text += "running" + timer + attempts + fence;
          break;
        case WFStoreVerdict::kAfterRun:
          text += "after_run" + timer + attempts + fence;
          break;
        case WFStoreVerdict::kDone:
          text += "done" + timer + ':' + outcome(answer.outcome);
          break;
        case WFStoreVerdict::kUnknown:
          text += "unknown";
          break;
        default:
          text += "wrong";
      }
      text += ',';
    }
    return text;
  }

  static const char* outcome(WFStoreOutcome outcome) {
    switch (outcome) {
      case WFStoreOutcome::kDone:
        return "done";
      case WFStoreOutcome::kCancelled:
        return "cancelled";
      case WFStoreOutcome::kMissed:
        return "missed";
      case WFStoreOutcome::kFailed:
        return "failed";
      default:
        return "wrong";
    }
  }

  std::string answer(const workflow::ScheduleRequest& schedule, const std::string&) {
    return "timer=" + std::to_string(schedule.timer) + ' ' + answers(schedule.answers);
  }
  std::string answer(const workflow::CancelRequest& cancel, const std::string&) {
    return answers(cancel.answers);
  }
  std::string answer(const workflow::RescheduleRequest& move, const std::string&) {
    return answers(move.answers);
  }
  std::string answer(const workflow::ClaimRequest& claim, const std::string& name) {
    std::string text = "claimed=";
    for (const auto& claimed : claim.claimed) {
      text += std::to_string(claimed.run.timer) + ':' + std::to_string(claimed.run.fence) + ':' +
              std::to_string(claimed.attempts) + ':' + text_of(claimed.due_us) + ':' +
              text_of(claimed.lease_end_us) + ',';
      runs_.push_back({name, claimed.run});
      if (runs_.size() > kRuns) {
        runs_.pop_front();
      }
    }
    return text + " more=" + (claim.more ? "1" : "0");
  }
  std::string answer(const workflow::FinishRequest& finish, const std::string&) {
    return std::string("accepted=") + (finish.accepted ? "1" : "0");
  }
  std::string answer(const workflow::ExtendRequest& extend, const std::string&) {
    const auto& extended = extend.extended.at(0);
    return std::string("live=") + (extended.live ? "1" : "0") +
           " cancelled=" + (extended.cancelled ? "1" : "0") +
           " end=" + text_of(extended.lease_end_us);
  }
  std::string answer(const workflow::FailedRequest& failed, const std::string&) {
    return "count=" + std::to_string(failed.count);
  }
  std::string answer(const workflow::CountRequest& count, const std::string&) {
    return "count=" + std::to_string(count.count);
  }
  std::string answer(const workflow::ListRequest& list, const std::string&) {
    static const char* const stages[] = {"waiting", "running", "blocked", "failed"};
    std::string text = "timers=";
    for (const WFStoreInfo& info : list.timers) {
      text += std::to_string(info.timer) + ':' + stages[static_cast<size_t>(info.stage)] + ':' +
              std::to_string(info.attempts) + ':' + text_of(workflow::us_of_time(info.due)) + ',';
    }
    return text;
  }
  std::string answer(const workflow::AskRequest&, const std::string&) { return ""; }
  std::string answer(const workflow::LookRequest&, const std::string&) { return ""; }

  workflow::StoreBackend& backend_;
  const Plan plan_;
  test_support::TestRandom random_;
  const workflow::UniqueFd out_;
  uint64_t number_ = 0;
  std::deque<Run> runs_;  // the last ones that this worker has claimed
};

}  // namespace store_test

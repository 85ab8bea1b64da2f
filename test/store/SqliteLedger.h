#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "store/StoreTime.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"

namespace test_support {

// Does at random what users of a store do, and knows from the answers alone what must be in the
// store, what must not, and what may; and of each timer when it is due and how often it has run.
// Every timer has a name of its own.
class SqliteLedger {
 public:
  enum class State { kStored, kEnded, kUnknown };

  // `undoes_ends`: a loss of power may undo ends of runs until something else has been stored.
  explicit SqliteLedger(TestRandom& random, bool undoes_ends = false)
      : random_(random), undoes_ends_(undoes_ends) {}

  // Carries out a batch. Returns false if the store has failed.
  bool step(workflow::StoreBackend& backend) {
    std::vector<workflow::StoreRequest> requests;
    touched_ = fresh_ends_;  // the power may be lost before this step makes them last
    least_before_.clear();
    fence_before_ = fence_;
    const uint64_t size = 1 + random_.below(6);
    for (uint64_t i = 0; i < size; i++) {
      add(requests, backend.now_us());
    }
    std::vector<workflow::StoreRequest*> pointers;
    for (workflow::StoreRequest& request : requests) {
      pointers.push_back(&request);
    }
    const bool works = backend.execute(pointers);
    for (const workflow::StoreRequest& request : requests) {
      learn(request);
    }
    return works;
  }

  // The step that was under way may have been carried out or not.
  void doubt_last_step() {
    for (const std::string& name : touched_) {
      states_[name] = State::kUnknown;
    }
    for (const std::string& name : fresh_ends_) {
      states_[name] = State::kUnknown;
    }
    for (const auto& [name, attempts] : least_before_) {
      timers_[name].least_attempts = attempts;
    }
    fence_ = fence_before_;  // nobody was told of those of this step
  }

  // What is wrong with the store, in one line; empty: nothing.
  std::string check(workflow::StoreBackend& backend) const {
    workflow::ListRequest all;
    all.max = 100'000;
    workflow::StoreFailure failure;
    all = carry_out(backend, all, 0, 1, &failure);
    if (failure.error) return failure.message;
    if (!wrong_.empty()) return wrong_;
    std::set<std::string> present;
    for (const WFStoreInfo& info : all.timers) {
      if (states_.count(info.name) == 0) return info.name + " was never stored";
      if (std::string wrong =
              compare(info.name, workflow::us_of_time(info.due), info.payload, info.attempts);
          !wrong.empty()) {
        return wrong;
      }
      if (!present.insert(info.name).second) return info.name + " is there twice";
    }
    for (const auto& [name, state] : states_) {
      if (state == State::kStored && present.count(name) == 0) {
        return name + " was stored, and is missing";
      }
      if (state == State::kEnded && present.count(name) != 0) {
        return name + " has ended, and is there";
      }
    }
    return {};
  }

  // Runs all timers, when all are due and all leases have ended. What is wrong with these runs, in
  // one line; empty: nothing.
  std::string check_runs(workflow::StoreBackend& backend) const {
    const uint64_t count = carry_out(backend, workflow::CountRequest{}).count;
    uint64_t fence = fence_;
    uint64_t runs = 0;
    for (auto claimed = carry_out(backend, claim()); !claimed.claimed.empty();
         claimed = carry_out(backend, claim())) {
      for (const auto& each : claimed.claimed) {
        std::string wrong =
            compare(each.spec.name, each.due_us, each.spec.payload, each.attempts - 1);
        if (wrong.empty() && each.run.fence <= fence_) {
          wrong = each.spec.name + " has a fence that was there before";
        }
        if (!wrong.empty()) return wrong;
        fence = std::max(fence, each.run.fence);
        runs++;
      }
    }
    return runs == count ? "" : std::to_string(runs) + " of " + std::to_string(count) + " have run";
  }

  uint64_t stored() const { return stored_; }
  uint64_t ended() const { return ended_; }
  // How many requests ended with that error.
  uint64_t errors(int error) const {
    const auto found = errors_.find(error);
    return found == errors_.end() ? 0 : found->second;
  }
  // How many requests other than schedules ended with an error that leaves no doubt.
  uint64_t refused_ends() const { return refused_ends_; }

 private:
  struct Timer {
    int64_t due_us = 0;
    std::string payload;
    // How many runs the store must know of at least, and how many have begun.
    unsigned least_attempts = 0;
    unsigned attempts = 0;
  };

  // What is wrong with a timer of the store.
  std::string compare(const std::string& name, int64_t due_us, const std::string& payload,
                      unsigned attempts) const {
    const Timer& timer = timers_.at(name);
    if (due_us != timer.due_us) return name + " has another time";
    if (payload != timer.payload) return name + " has another payload";
    if (attempts < timer.least_attempts || attempts > timer.attempts + claims_in_doubt_) {
      return name + " has " + std::to_string(attempts) + " attempts, not " +
             std::to_string(timer.least_attempts) + " to " + std::to_string(timer.attempts);
    }
    return {};
  }

  void add(std::vector<workflow::StoreRequest>& requests, int64_t now_us) {
    const uint64_t number = ++number_;
    switch (random_.below(4)) {
      case 0:
        if (!waiting_.empty()) {
          const auto place = waiting_.begin() + random_index(waiting_.size());
          touched_.push_back(*place);
          requests.push_back(make_request(cancel(*place), number));
          waiting_.erase(place);
          return;
        }
        break;
      case 1:
        if (!runs_.empty()) {
          const auto place = runs_.begin() + random_index(runs_.size());
          touched_.push_back(place->spec.name);
          requests.push_back(make_request(finish(place->run)));
          names_of_runs_[place->run.fence] = place->spec.name;
          runs_.erase(place);
          return;
        }
        requests.push_back(make_request(claim(2)));
        return;
      default:
        break;
    }
    const std::string name = "timer " + std::to_string(number);
    touched_.push_back(name);
    // Only some are due, so that there are some to be cancelled.
    const bool is_due = random_.one_in(2);
    workflow::ScheduleRequest request =
        schedule(name, is_due ? now_us : now_us + 100'000 * kSecondUs);
    request.spec.payload.assign(random_.below(2000), 'p');
    states_[name] = State::kEnded;
    timers_[name] = {request.due_us, request.spec.payload, 0, 0};
    if (!is_due) {
      fresh_.insert(name);
    }
    requests.push_back(make_request(std::move(request), number));
  }

  std::ptrdiff_t random_index(size_t size) {
    return static_cast<std::ptrdiff_t>(random_.below(size));
  }

  void learn(const workflow::StoreRequest& request) {
    errors_[request.failure.error]++;
    const bool carried_out = request.failure.error == 0;
    if (carried_out && request.id.number != 0) {
      fresh_ends_.clear();
      for (const std::string& name : fresh_claims_) {
        set_least_attempts(name);
      }
      fresh_claims_.clear();
    }
    const bool in_doubt = request.failure.in_doubt;
    if (const auto* scheduled = std::get_if<workflow::ScheduleRequest>(&request.what)) {
      const std::string& name = scheduled->spec.name;
      states_[name] = carried_out ? State::kStored : in_doubt ? State::kUnknown : State::kEnded;
      stored_ += carried_out ? 1 : 0;
      if (carried_out && fresh_.count(name) != 0) {
        waiting_.push_back(name);
      }
      return;
    }
    refused_ends_ += !carried_out && !in_doubt ? 1 : 0;
    if (const auto* cancelled = std::get_if<workflow::CancelRequest>(&request.what)) {
      end(cancelled->name, carried_out, in_doubt);
    } else if (const auto* finished = std::get_if<workflow::FinishRequest>(&request.what)) {
      end(names_of_runs_[finished->run.fence], carried_out && finished->accepted, in_doubt);
      if (undoes_ends_) {
        fresh_ends_.push_back(names_of_runs_[finished->run.fence]);
      }
    } else if (const auto* claimed = std::get_if<workflow::ClaimRequest>(&request.what)) {
      if (carried_out) {
        runs_.insert(runs_.end(), claimed->claimed.begin(), claimed->claimed.end());
        begin_runs(*claimed);
      } else {
        claims_in_doubt_++;
      }
    }
  }

  void begin_runs(const workflow::ClaimRequest& request) {
    for (const auto& claimed : request.claimed) {
      const std::string& name = claimed.spec.name;
      std::string wrong = compare(name, claimed.due_us, claimed.spec.payload, claimed.attempts - 1);
      if (wrong.empty() && claimed.run.fence <= fence_) {
        wrong = name + " has a fence that was there before";
      }
      if (wrong_.empty()) {
        wrong_ = wrong;
      }
      fence_ = std::max(fence_, claimed.run.fence);
      timers_[name].attempts = claimed.attempts;
      if (undoes_ends_) {
        fresh_claims_.push_back(name);
      } else {
        set_least_attempts(name);
      }
    }
  }

  void set_least_attempts(const std::string& name) {
    Timer& timer = timers_[name];
    least_before_.emplace(name, timer.least_attempts);
    timer.least_attempts = timer.attempts;
  }

  void end(const std::string& name, bool carried_out, bool in_doubt) {
    if (carried_out) {
      states_[name] = State::kEnded;
      ended_++;
    } else if (in_doubt) {
      states_[name] = State::kUnknown;
    }
  }

  TestRandom& random_;
  const bool undoes_ends_;
  std::vector<std::string> fresh_ends_;
  std::vector<std::string> fresh_claims_;  // as fresh_ends_
  std::map<std::string, Timer> timers_;
  std::map<std::string, unsigned> least_before_;  // what this step has changed
  unsigned claims_in_doubt_ = 0;
  uint64_t fence_ = 0;  // the largest that was seen, and that before this step
  uint64_t fence_before_ = 0;
  std::string wrong_;  // what a claim has shown
  uint64_t number_ = 0;
  uint64_t stored_ = 0;
  uint64_t ended_ = 0;
  uint64_t refused_ends_ = 0;
  std::map<int, uint64_t> errors_;
  std::map<std::string, State> states_;
  std::set<std::string> fresh_;       // not due for long
  std::vector<std::string> waiting_;  // those of them that can be cancelled
  std::vector<workflow::ClaimRequest::Claimed> runs_;
  std::map<uint64_t, std::string> names_of_runs_;  // by fence
  std::vector<std::string> touched_;
};

}  // namespace test_support

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "store/LedgerNotes.h"

namespace store_test {

// What must hold where timers are stored for names that may have one, and of those that have failed
// and are retried. It is a part of KillLedger, and as that it includes nothing of the store.
class LedgerPolicies {
 public:
  using Timer = LedgerNotes::Timer;

  explicit LedgerPolicies(const LedgerNotes& notes) : notes_(notes) {
    found_ = replaced();
    for (const auto& [id, request] : notes.all_requests()) {
      for (const Answer& answer : request.answers()) {
        if (answer.has_found() && request.what != "reschedule") {
          found_.insert({request.name, answer.timer});
        }
      }
      const Timer timer(request.name, request.stored());
      if (timer.second != 0) {
        stored_.emplace(timer, &request);
      }
    }
  }

  // Timers that others have replaced, perhaps before they could begin.
  std::set<Timer> replaced() const {
    std::set<Timer> timers;
    std::map<Timer, uint64_t> last;  // what was stored last by a replace that has found the timer
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what != "replace") continue;
      for (const Answer& answer : request.answers()) {
        if (!answer.has_found()) continue;
        uint64_t& number = last[{request.name, answer.timer}];
        number = std::max(number, request.number());
        if (answer.is_won()) {
          timers.insert({request.name, answer.timer});
        }
      }
    }
    // No answer tells of those that waited for the end of a run. Whoever replaces one of them has
    // found that run, too.
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what != "replace") continue;
      for (const Answer& answer : request.answers()) {
        if (answer.verdict == "after_run" &&
            request.number() < last[{request.name, answer.timer}]) {
          timers.insert({request.name, request.number()});
        }
      }
    }
    return timers;
  }

  // The first thing that is wrong, as in KillLedger.
  std::string check() const {
    return LedgerNotes::first_wrong(
        *this,
        {&LedgerPolicies::a_name_is_kept_for_one, &LedgerPolicies::somebody_has_a_name_that_is_kept,
         &LedgerPolicies::names_are_free_in_the_end, &LedgerPolicies::a_successor_waits,
         &LedgerPolicies::what_is_retried_has_failed});
  }

 private:
  using Answer = LedgerNotes::Answer;
  using Request = LedgerNotes::Request;
  using Start = LedgerNotes::Start;

  static std::string text_of(const Timer& timer) { return LedgerNotes::text_of(timer); }
  bool may_be_gone(const Request& request) const {
    return notes_.may_be_undone(request) || notes_.may_be_lost(request);
  }

  // When a timer is kept, all earlier ones of its name are over: those that nobody has cancelled or
  // replaced have run, and do not run again.
  std::string a_name_is_kept_for_one() const {
    for (const auto& [timer, request] : stored_) {
      if (request->what != "keep" || may_be_gone(*request)) continue;
      for (auto each = stored_.lower_bound({timer.first, 0}); each->first < timer; ++each) {
        if (found_.count(each->first) != 0 || may_be_gone(*each->second)) continue;
        const auto& starts = notes_.starts_of(each->first);
        const bool has_run = std::any_of(
            starts.begin(), starts.end(),
            [kept = request](const Start& start) { return start.now_us <= kept->decided_us(); });
        const bool runs_later =
            std::any_of(starts.begin(), starts.end(), [this, kept = request](const Start& start) {
              return notes_.has_begun_after(start, *kept);
            });
        if (!has_run || runs_later) {
          return text_of(timer) + " was kept although there was " + text_of(each->first);
        }
      }
    }
    return {};
  }

  // A timer is refused for the sake of another one only.
  std::string somebody_has_a_name_that_is_kept() const {
    std::map<std::string, size_t> others;  // how many may have been stored
    for (const auto& [id, request] : notes_.all_requests()) {
      const bool may_be_stored = request.stored() != 0 || !request.is_answered();
      others[request.name] += request.stores() && may_be_stored ? 1 : 0;
    }
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what == "keep" && request.result == LedgerNotes::kExists &&
          others[request.name] == 0) {
        return request.name + " was refused, and nobody has the name";
      }
    }
    return {};
  }

  // The last process keeps a timer for each name, when nothing is left.
  std::string names_are_free_in_the_end() const {
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what == "keep" && notes_.is_last(request.process) && request.stored() == 0) {
        return request.name + " was not kept in the end: " + request.truth();
      }
    }
    return {};
  }

  // What replaces a timer that runs does not begin until each run of that one has ended or lost its
  // lease.
  std::string a_successor_waits() const {
    if (notes_.rules().undoes_runs) return {};
    for (const auto& [timer, request] : stored_) {
      if (may_be_gone(*request)) continue;
      const auto& runs = notes_.starts_of(timer);
      const auto by_time = [](const Start& a, const Start& b) { return a.now_us < b.now_us; };
      const auto first = std::min_element(runs.begin(), runs.end(), by_time);
      if (first == runs.end()) continue;
      for (const Answer& answer : request->answers()) {
        if (answer.verdict != "after_run") continue;
        for (const Start& start : notes_.starts_of({timer.first, answer.timer})) {
          if (start.left_us <= 0 ||
              notes_.events().is_forgotten(first->process, first->now_us, start.process)) {
            continue;
          }
          const bool has_ended = notes_.end_us(timer.first, start.fence) <= first->now_us ||
                                 notes_.may_have_lost_lease(start, *first);
          if (!has_ended || start.now_us > first->now_us) {
            return text_of(timer) + " has run before the end of " +
                   text_of({timer.first, answer.timer});
          }
        }
      }
    }
    return {};
  }

  // Each time that a run has given up, its timer is retried once at most.
  std::string what_is_retried_has_failed() const {
    const LedgerNotes::Rules& rules = notes_.rules();
    if (rules.undoes_runs || rules.undoes_other_receipts || notes_.events().has_losses()) return {};
    std::map<std::string, uint64_t> failed;
    for (const auto& [timer, starts] : notes_.all_starts()) {
      failed[timer.first] += static_cast<uint64_t>(
          std::count_if(starts.begin(), starts.end(), [](const Start& s) { return s.gives_up(); }));
    }
    std::map<std::string, uint64_t> retried;
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what != "retry_failed") continue;
      uint64_t& count = retried[request.name] += request.number();
      if (count > failed[request.name]) {
        return request.name + " was retried " + std::to_string(count) + " times, and has failed " +
               std::to_string(failed[request.name]);
      }
    }
    return {};
  }

  const LedgerNotes& notes_;
  std::map<Timer, const Request*> stored_;
  std::set<Timer> found_;  // by whatever ends timers
};

}  // namespace store_test

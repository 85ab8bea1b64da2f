#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/LedgerDates.h"
#include "store/LedgerNotes.h"
#include "store/LedgerPolicies.h"

namespace store_test {

// The judge of what processes have written down that used one store while there were faults: see
// LedgerNotes.h. Names that are scheduled, and not kept, replaced or series, are scheduled once. It
// includes nothing of the store.
class KillLedger : public LedgerNotes {
 public:
  explicit KillLedger(Rules rules) : LedgerNotes(std::move(rules)) {}

  // Requests without an answer.
  std::vector<Id> in_doubt() const {
    std::vector<Id> ids;
    for (const auto& [id, request] : all_requests()) {
      if (!request.is_answered()) {
        ids.push_back(id);
      }
    }
    return ids;
  }
  // One in `n` of those that were carried out.
  std::vector<Id> some_answered(size_t n) const {
    std::vector<Id> ids;
    size_t place = 0;
    for (const auto& [id, request] : all_requests()) {
      if (request.is_answered() && request.was_carried_out() && place++ % n == 0) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  // The first thing that is wrong, in one line; empty: nothing. Everything that was in doubt must
  // have been asked for, and every timer must have had its time to run.
  std::string check() const {
    if (!series_stored_twice().empty()) return series_stored_twice() + " was stored twice";
    std::string wrong = first_wrong(
        *this, {&KillLedger::receipts_are_as_promised, &KillLedger::doubts_have_one_truth,
                &KillLedger::runs_were_asked_for, &KillLedger::stored_timers_have_run,
                &KillLedger::moved_timers_have_run, &KillLedger::what_was_won_has_not_run,
                &KillLedger::fences_and_leases_are_exclusive, &KillLedger::losses_were_noticed,
                &KillLedger::what_is_gone_stays_gone});
    if (!wrong.empty()) return wrong;
    wrong = LedgerDates(*this).check();
    return wrong.empty() ? LedgerPolicies(*this).check() : wrong;
  }

  size_t requests() const { return all_requests().size(); }
  // How many requests have the receipt that is promised.
  size_t receipts() const {
    size_t count = 0;
    for (const auto& [id, request] : all_requests()) {
      count += request.receipt == rules().receipt ? 1 : 0;
    }
    return count;
  }
  size_t starts() const {
    size_t count = 0;
    for (const auto& [timer, starts] : all_starts()) {
      count += starts.size();
    }
    return count;
  }
  // Runs of timers that had run before and had not asked for it: the process had died. Another date
  // of a series is no repetition.
  size_t repeated() const {
    size_t count = 0;
    for (const auto& [timer, starts] : all_starts()) {
      for (size_t i = 0; i + 1 < starts.size(); i++) {
        const bool is_next = is_series(timer.first) && starts[i].due_us != starts[i + 1].due_us;
        count += starts[i].retries() || is_next ? 0 : 1;
      }
    }
    return count;
  }
  // Runs of series, beside the first of each timer.
  size_t further_dates() const {
    size_t count = 0;
    for (const auto& [timer, starts] : all_starts()) {
      count += is_series(timer.first) ? starts.size() - 1 : 0;
    }
    return count;
  }
  // Runs that have given up.
  size_t failed() const {
    size_t count = 0;
    for (const auto& [timer, starts] : all_starts()) {
      count += static_cast<size_t>(std::count_if(
          starts.begin(), starts.end(), [](const Start& start) { return start.gives_up(); }));
    }
    return count;
  }
  // How many answers have that verdict.
  size_t answers(const std::string& verdict) const {
    size_t count = 0;
    for (const auto& [id, request] : all_requests()) {
      for (const Answer& answer : request.answers()) {
        count += answer.verdict == verdict ? 1 : 0;
      }
    }
    return count;
  }

 private:
  std::string receipts_are_as_promised() const {
    for (const auto& [id, request] : all_requests()) {
      if (rules().has_unknown_receipts && request.receipt == "unknown") continue;
      const bool was_told = request.is_answered() && request.was_carried_out();
      if (was_told && request.receipt != rules().receipt && !rules().undoes_other_receipts) {
        return request.what + " of " + request.name + " has the receipt " + request.receipt;
      }
    }
    return {};
  }

  // Whether the store may have forgotten it, because of all that it was asked afterwards.
  bool may_be_forgotten(const Id& id) const {
    const auto& all = all_requests();
    const auto later =
        std::distance(all.upper_bound(id), all.upper_bound(Id(id.first, UINT64_MAX)));
    const int64_t told_us = all.at(id).told_us;  // 0 if it was in doubt
    const auto later_of_all = std::count_if(all.begin(), all.end(), [told_us](const auto& each) {
      return !each.second.is_answered() || each.second.told_us >= told_us;
    });
    return static_cast<size_t>(later) >= rules().remembered ||
           static_cast<size_t>(later_of_all) / 4 >= rules().remembered;
  }

  // Whoever asks, and however often, is told the same; and what was told at once stays true.
  std::string doubts_have_one_truth() const {
    for (const auto& [id, request] : all_requests()) {
      if (request.is_answered() && (may_be_undone(request) || may_be_lost(request))) continue;
      const std::string which = request.what + " of " + request.name;
      if (!request.is_answered() && request.asked.size() < 2) {
        return which + " is in doubt, and was not asked for twice";
      }
      for (const std::string& asked : request.asked) {
        const bool was_refused = request.what == "keep" && asked == kExists;
        if (asked == "refused 61" && may_be_forgotten(id)) continue;  // ENODATA
        if (asked.compare(0, 3, "ok ") != 0 && !was_refused)
          return which + " cannot be asked for: " + asked;
        if (asked != request.truth()) {
          return which + " has two answers: " + request.truth() + " and " + asked;
        }
      }
    }
    return {};
  }

  // No run begins before its time, and each is for a time that somebody has asked for, of a timer
  // that was stored.
  std::string runs_were_asked_for() const {
    std::map<std::string, std::set<int64_t>> dues;
    std::set<Timer> stored;
    // Names that may have a successor, whose number nobody was told.
    std::set<std::string> followed;
    const LedgerDates dates(*this);
    for (const auto& [id, request] : all_requests()) {
      if (!request.is_answered() &&
          (rules().undoes_runs || events().may_lose(request.process, INT64_MAX))) {
        // It may have been carried out, have had its run, and have been undone.
        dues[request.name].insert(request.due_us);
        followed.insert(request.name);
      }
      if (!request.was_carried_out()) continue;
      if (const uint64_t timer = request.stored()) {
        stored.insert({request.name, timer});
        dues[request.name].insert(request.due_us);
        if (is_series(request.name)) {
          followed.insert(request.name);
        }
      }
      for (const Answer& answer : request.answers()) {
        if (request.what == "reschedule" && answer.timer != 0 && answer.verdict != "done") {
          dues[request.name].insert(request.due_us);
        }
        if (answer.verdict == "after_run") {
          followed.insert(request.name);
        }
      }
    }
    for (const auto& [timer, starts] : all_starts()) {
      if (stored.count(timer) == 0 && followed.count(timer.first) == 0) {
        return text_of(timer) + " was not stored, and has run";
      }
      for (const Start& start : starts) {
        const bool was_asked_for =
            dues[timer.first].count(start.due_us) != 0 ||
            (is_series(timer.first) && dates.is_asked_for(timer.first, start.due_us)) ||
            may_be_retried(timer, start);
        if (!was_asked_for) {
          return text_of(timer) + " has run for a time that nobody asked for";
        }
        const int64_t most_us = clock_of(start).second;
        if (most_us < start.due_us) {
          return text_of(timer) + " has run " + std::to_string(start.due_us - most_us) +
                 " us early";
        }
      }
    }
    return {};
  }

  // Whether it may be the run of a timer that has failed, and that is due since it was retried. No
  // clock of a store is behind.
  bool may_be_retried(const Timer& timer, const Start& start) const {
    const std::vector<Start>& starts = starts_of(timer);
    return std::any_of(starts.begin(), starts.end(), [&start](const Start& each) {
      return each.gives_up() && each.fence < start.fence && start.due_us >= each.now_us;
    });
  }

  // Timers that a cancel has found, whatever it has said.
  std::set<Timer> cancelled() const {
    std::set<Timer> timers;
    for (const auto& [id, request] : all_requests()) {
      for (const Answer& answer : request.answers()) {
        if (request.what == "cancel" && answer.has_found()) {
          timers.insert({request.name, answer.timer});
        }
      }
    }
    return timers;
  }
  std::string stored_timers_have_run() const {
    std::set<Timer> ended = cancelled();
    ended.merge(LedgerPolicies(*this).replaced());
    std::set<Timer> kept;  // by all faults
    for (const auto& [id, request] : all_requests()) {
      if (request.is_answered() && (may_be_undone(request) || may_be_lost(request))) continue;
      const Timer timer(request.name, request.stored());
      if (timer.second != 0 && starts_of(timer).empty() && ended.count(timer) == 0) {
        return text_of(timer) + " was stored, and has not run";
      }
      kept.insert(timer);
    }
    const LedgerDates dates(*this);
    for (const auto& [timer, starts] : all_starts()) {
      if (rules().undoes_other_receipts && kept.count(timer) == 0) continue;
      const Start& last =
          *std::max_element(starts.begin(), starts.end(),
                            [](const Start& a, const Start& b) { return a.fence < b.fence; });
      if (last.retries() && ended.count(timer) == 0 &&
          !events().may_lose(last.process, last.now_us) &&
          !(is_series(timer.first) && dates.has_gone_back(timer.first, last))) {
        return text_of(timer) + " has asked for another run, and had none";
      }
    }
    return {};
  }

  // What becomes of a timer that was moved once: all of its runs are for the new time. If it ran
  // when it was moved, a successor runs at that time.
  std::string moved_timers_have_run() const {
    std::map<std::string, size_t> moves;
    for (const auto& [id, request] : all_requests()) {
      moves[request.name] += request.what == "reschedule" ? 1 : 0;
    }
    std::set<std::string> cancelled_names;
    for (const Timer& timer : cancelled()) {
      cancelled_names.insert(timer.first);
    }
    for (const auto& [id, request] : all_requests()) {
      if (request.what != "reschedule" || moves[request.name] != 1) continue;
      if (is_series(request.name)) continue;
      if (may_be_undone(request)) continue;
      for (const Answer& answer : request.answers()) {
        const Timer timer(request.name, answer.timer);
        if (answer.verdict == "won" && answer.attempts == 0 && !gives_up(timer)) {
          for (const Start& start : starts_of(timer)) {
            if (start.due_us == request.due_us) continue;
            if (may_have_begun_before(start, request.decided_us())) continue;
            if (are_apart(request, start)) continue;
            return text_of(timer) + " was moved, and has run";
          }
        }
        if (answer.verdict == "after_run" && !may_be_lost(request) &&
            cancelled_names.count(request.name) == 0 && !has_successor(timer, request.due_us)) {
          return text_of(timer) + " has no successor";
        }
      }
    }
    return {};
  }

  bool has_successor(const Timer& timer, int64_t due_us) const {
    for (auto each = all_starts().lower_bound({timer.first, 0});
         each != all_starts().end() && each->first.first == timer.first; ++each) {
      if (each->first.second == timer.second) continue;
      for (const Start& start : each->second) {
        if (start.due_us == due_us) return true;
      }
    }
    return false;
  }

  bool gives_up(const Timer& timer) const {
    const std::vector<Start>& starts = starts_of(timer);
    return std::any_of(starts.begin(), starts.end(),
                       [](const Start& start) { return start.gives_up(); });
  }

  // A cancel or replace that was won says how many runs had begun. A timer that is moved after its
  // lease has ended begins to count anew, and its answer says how many there had been. So does one
  // that has failed and is retried.
  std::string what_was_won_has_not_run() const {
    std::map<Timer, uint64_t> allowed;
    std::map<Timer, const Request*> won;
    for (const auto& [id, request] : all_requests()) {
      if (may_be_undone(request) || is_series(request.name)) continue;
      for (const Answer& answer : request.answers()) {
        const Timer timer(request.name, answer.timer);
        if ((request.what == "cancel" || request.what == "replace") && answer.is_won()) {
          won.emplace(timer, &request);
          allowed[timer] += answer.attempts;
        } else if (request.what == "reschedule" && answer.verdict == "won_after") {
          allowed[timer] += answer.attempts;
        }
      }
    }
    for (const auto& [timer, cancel] : won) {
      const std::vector<Start>& starts = starts_of(timer);
      uint64_t failed = 0;  // the fence of the last run that has given up
      for (const Start& each : starts) {
        failed = each.gives_up() ? std::max(failed, each.fence) : failed;
      }
      const auto known = std::count_if(
          starts.begin(), starts.end(), [this, failed, request = cancel](const Start& each) {
            return each.fence > failed && !may_have_begun_before(each, request->decided_us()) &&
                   !are_apart(*request, each);
          });
      const auto counted = static_cast<size_t>(known);
      const uint64_t most = rules().undoes_runs ? 0 : allowed[timer];
      if (counted > most) {
        return text_of(timer) + (cancel->what == "cancel" ? " was cancelled" : " was replaced") +
               " after " + std::to_string(most) + " runs, and has had " + std::to_string(counted);
      }
    }
    return {};
  }

  // A name never has a fence twice. The next run of a timer does not begin before the lease of the
  // run before it has ended, unless that run has asked for it.
  std::string fences_and_leases_are_exclusive() const {
    std::map<std::string, std::set<uint64_t>> fences;
    for (const auto& [timer, unsorted] : all_starts()) {
      std::vector<Start> starts = unsorted;
      std::sort(starts.begin(), starts.end(),
                [](const Start& a, const Start& b) { return a.fence < b.fence; });
      const Start* before = nullptr;  // the last one that had a lease
      for (const Start& start : starts) {
        if (!fences[timer.first].insert(start.fence).second) {
          return text_of(timer) + " has had the fence " + std::to_string(start.fence) + " twice";
        }
        if (before != nullptr && !rules().undoes_runs) {
          // A run may begin so late that, after the clock was set, the next run of the timer has
          // begun before it.
          if (start.now_us < before->now_us && !is_lease_over(*before, start)) {
            return text_of(timer) + " has had a smaller fence in a later run";
          }
          // LedgerDates judges series.
          if (!before->retries() && !is_series(timer.first) &&
              !may_have_lost_lease(*before, start)) {
            return text_of(timer) + " has run during the lease of an earlier run";
          }
        }
        // A process that was stopped may begin a run whose lease has ended meanwhile.
        if (start.left_us > 0) {
          before = &start;
        }
      }
    }
    return {};
  }

  std::string losses_were_noticed() const {
    for (const auto& [id, request] : all_requests()) {
      if (request.is_after_loss && request.is_answered() && request.was_carried_out()) {
        return request.what + " of " + request.name + " was carried out after a loss";
      }
    }
    return {};
  }

  // After a loss of everything, later processes run only what later processes have stored.
  std::string what_is_gone_stays_gone() const {
    for (const size_t last : events().losses_of_everything()) {
      std::set<std::string> stored;
      for (const auto& [id, request] : all_requests()) {
        if (request.stores() && request.process > last) {
          stored.insert(request.name);
        }
      }
      for (const auto& [timer, starts] : all_starts()) {
        for (const Start& start : starts) {
          if (start.process > last && stored.count(timer.first) == 0) {
            return text_of(timer) + " was lost, and has run";
          }
        }
      }
    }
    return {};
  }
};

}  // namespace store_test

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/LedgerEvents.h"

namespace store_test {

// What processes have written down that used one store while there were faults, and what must hold
// of it.
// This header includes nothing of the store. Each process writes lines to a file of its own, each
// by one write(2). A last line without an end is what it was about to write, and says nothing.
//
//   ? SESSION NUMBER OPERATION NAME [DUE]       before a request is sent
//   ! SESSION NUMBER NOW RECEIPT RESULT         when its answer is there
//   a SESSION NUMBER RESULT                     another process has asked what became of it
//   s NAME TIMER DUE NOW FENCE LEFT RETRIES     a run begins; before anything else that it does
//   f                                           a fault of the process has happened
//   l LOSS KEPT                                 what was stored was lost: see LedgerEvents.h
//   c BEFORE AFTER AHEAD                        the clock of the store was set: see there, too
//
// OPERATION is schedule, cancel or reschedule. Each name is scheduled once. RESULT is "doubt",
// "refused" with an errno value, or "ok" with the number of the new timer and the answers, each as
// VERDICT:TIMER:ATTEMPTS and followed by a comma. RECEIPT is what an answer of a request that was
// carried out is worth, as WFStoreReceipt says it, or "-". Times are microseconds by the clock of
// the store; LEFT is how long the lease of the run lasts at least. RETRIES is 1 if the run is going
// to ask for another run, which no acknowledgement follows.
class KillLedger {
 public:
  using Id = std::pair<uint64_t, uint64_t>;

  struct Rules {
    // A store with one owner. When it is opened, earlier leases have ended.
    bool leases_end_with_process = false;
    // What each receipt has to be.
    std::string receipt = "file";
    // Faults may undo that a run has begun, and what it has said at its end: whatever has no
    // receipt. A timer may run again then although its lease lasts, and a cancel may not know of a
    // run.
    bool undoes_runs = false;
    // Faults may undo requests whose answers have another receipt than `receipt`.
    bool undoes_other_receipts = false;
    int64_t lease_us = 0;  // how long a lease lasts; needed with undoes_runs
    // A session is told what became of its last requests, so many of them. What became of earlier
    // ones may be forgotten, and then it is told that.
    size_t remembered = SIZE_MAX;
  };

  explicit KillLedger(Rules rules) : rules_(std::move(rules)) {}

  // What one process has written.
  void read(const std::string& text) {
    processes_++;
    is_after_loss_ = false;
    for (size_t begin = 0;;) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) return;
      read_line(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  // Requests without an answer.
  std::vector<Id> in_doubt() const {
    std::vector<Id> ids;
    for (const auto& [id, request] : requests_) {
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
    for (const auto& [id, request] : requests_) {
      if (request.is_answered() && request.was_carried_out() && place++ % n == 0) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  // The first thing that is wrong, in one line; empty: nothing. Everything that was in doubt must
  // have been asked for, and every timer must have had its time to run.
  std::string check() const {
    for (const auto rule :
         {&KillLedger::receipts_are_as_promised, &KillLedger::doubts_have_one_truth,
          &KillLedger::runs_were_asked_for, &KillLedger::stored_timers_have_run,
          &KillLedger::moved_timers_have_run, &KillLedger::what_was_won_has_not_run,
          &KillLedger::fences_and_leases_are_exclusive, &KillLedger::losses_were_noticed,
          &KillLedger::what_is_gone_stays_gone}) {
      std::string wrong = (this->*rule)();
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

  size_t requests() const { return requests_.size(); }
  size_t faults() const { return faults_; }
  // How many requests have the receipt that is promised.
  size_t receipts() const {
    size_t count = 0;
    for (const auto& [id, request] : requests_) {
      count += request.receipt == rules_.receipt ? 1 : 0;
    }
    return count;
  }
  size_t starts() const {
    size_t count = 0;
    for (const auto& [timer, starts] : starts_) {
      count += starts.size();
    }
    return count;
  }
  // Runs of timers that had run before and had not asked for it: the process had died.
  size_t repeated() const {
    size_t count = starts() - starts_.size();
    for (const auto& [timer, starts] : starts_) {
      for (size_t i = 0; i + 1 < starts.size(); i++) {
        count -= starts[i].retries ? 1 : 0;
      }
    }
    return count;
  }
  // How many answers have that verdict.
  size_t answers(const std::string& verdict) const {
    size_t count = 0;
    for (const auto& [id, request] : requests_) {
      for (const Answer& answer : answers_of(request)) {
        count += answer.verdict == verdict ? 1 : 0;
      }
    }
    return count;
  }

 private:
  static constexpr char kForgotten[] = "refused 61";  // ENODATA

  using Timer = std::pair<std::string, uint64_t>;  // its name and its number

  struct Request {
    std::string what;
    std::string name;
    int64_t due_us = 0;
    int64_t told_us = 0;
    std::string receipt;
    std::string result;
    std::vector<std::string> asked;
    size_t process = 0;
    bool is_after_loss = false;  // of what its process had opened

    // When it was known what became of it. What was in doubt was asked for after all faults.
    int64_t decided_us() const { return is_answered() ? told_us : INT64_MAX; }
    bool is_answered() const { return !result.empty() && result != "doubt"; }
    // What has become of it in the end.
    const std::string& truth() const { return is_answered() || asked.empty() ? result : asked[0]; }
    // It was carried out, unless it was a schedule that has stored nothing.
    bool was_carried_out() const { return truth().compare(0, 3, "ok ") == 0; }
  };

  struct Answer {
    std::string verdict;
    uint64_t timer = 0;
    uint64_t attempts = 0;
  };

  struct Start {
    int64_t due_us = 0;
    int64_t now_us = 0;
    uint64_t fence = 0;
    int64_t left_us = 0;
    bool retries = false;
    size_t process = 0;
  };

  void read_line(const std::string& line) {
    std::istringstream in(line);
    std::string mark;
    in >> mark;
    if (mark == "f") {
      faults_++;
      return;
    }
    if (mark == "l") {
      events_.read_loss(in, processes_);
      is_after_loss_ = true;
      return;
    }
    if (mark == "c") {
      events_.read_setting(in);
      return;
    }
    if (mark == "s") {
      Timer timer;
      Start start;
      in >> timer.first >> timer.second >> start.due_us >> start.now_us >> start.fence >>
          start.left_us >> start.retries;
      start.process = processes_;
      starts_[timer].push_back(start);
      return;
    }
    Id id;
    in >> id.first >> id.second;
    Request& request = requests_[id];
    if (mark == "?") {
      in >> request.what >> request.name >> request.due_us;
      request.process = processes_;
      request.is_after_loss = is_after_loss_;
      return;
    }
    if (mark == "!") {
      in >> request.told_us >> request.receipt;
    }
    std::string result;
    std::getline(in >> std::ws, result);
    if (mark == "!") {
      request.result = result;
    } else {
      request.asked.push_back(result);
    }
  }

  // "ok TIMER ANSWERS"
  static uint64_t stored_by(const Request& request) {
    const std::string& truth = request.truth();
    if (request.what != "schedule" || !request.was_carried_out()) return 0;
    return std::strtoull(truth.c_str() + 3, nullptr, 10);
  }
  static std::vector<Answer> answers_of(const Request& request) {
    std::vector<Answer> answers;
    std::istringstream in(request.truth());
    std::string word;
    if (!(in >> word) || word != "ok" || !(in >> word)) return answers;
    for (std::string item; std::getline(in >> std::ws, item, ',');) {
      for (char& c : item) {
        c = c == ':' ? ' ' : c;
      }
      Answer answer;
      std::istringstream(item) >> answer.verdict >> answer.timer >> answer.attempts;
      answers.push_back(answer);
    }
    return answers;
  }

  static std::string text_of(const Timer& timer) {
    return timer.first + " (" + std::to_string(timer.second) + ")";
  }

  const std::vector<Start>& starts_of(const Timer& timer) const {
    static const std::vector<Start> none;
    const auto found = starts_.find(timer);
    return found == starts_.end() ? none : found->second;
  }

  // Whether a fault may have undone it.
  bool may_be_undone(const Request& request) const {
    return rules_.undoes_other_receipts && request.receipt != rules_.receipt;
  }
  // What was in doubt was asked for after all losses, and what was found then was not lost.
  bool may_be_lost(const Request& request) const {
    return request.is_answered() && events_.may_lose(request.process, request.told_us);
  }
  // Whether a loss is between the request and the run, so that they cannot know of each other.
  bool are_apart(const Request& request, const Start& start) const {
    return (request.is_answered() &&
            events_.is_forgotten(request.process, request.told_us, start.process)) ||
           events_.is_forgotten(start.process, start.now_us, request.process);
  }

  // Whether the run may have begun before that time, and a fault have undone that it has begun.
  bool may_have_begun_before(const Start& start, int64_t us) const {
    return rules_.undoes_runs &&
           (start.left_us <= 0 || start.now_us + start.left_us - rules_.lease_us <= us);
  }

  std::string receipts_are_as_promised() const {
    for (const auto& [id, request] : requests_) {
      const bool was_told = request.is_answered() && request.was_carried_out();
      if (was_told && request.receipt != rules_.receipt && !rules_.undoes_other_receipts) {
        return request.what + " of " + request.name + " has the receipt " + request.receipt;
      }
    }
    return {};
  }

  // Whether the session has sent so many requests since that one.
  bool may_be_forgotten(const Id& id) const {
    const auto later =
        std::distance(requests_.upper_bound(id), requests_.upper_bound({id.first, UINT64_MAX}));
    return static_cast<size_t>(later) >= rules_.remembered;
  }

  // Whoever asks, and however often, is told the same; and what was told at once stays true.
  std::string doubts_have_one_truth() const {
    for (const auto& [id, request] : requests_) {
      if (request.is_answered() && (may_be_undone(request) || may_be_lost(request))) continue;
      const std::string which = request.what + " of " + request.name;
      if (!request.is_answered() && request.asked.size() < 2) {
        return which + " is in doubt, and was not asked for twice";
      }
      for (const std::string& asked : request.asked) {
        if (asked == kForgotten && may_be_forgotten(id)) continue;
        if (asked.compare(0, 3, "ok ") != 0) return which + " cannot be asked for: " + asked;
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
    std::set<std::string> followed;  // names that have a successor, whose number nobody was told
    for (const auto& [id, request] : requests_) {
      if (!request.is_answered() &&
          (rules_.undoes_runs || events_.may_lose(request.process, INT64_MAX))) {
        // It may have been carried out, have had its run, and have been undone.
        dues[request.name].insert(request.due_us);
        followed.insert(request.name);
      }
      if (!request.was_carried_out()) continue;
      if (const uint64_t timer = stored_by(request)) {
        stored.insert({request.name, timer});
        dues[request.name].insert(request.due_us);
      }
      for (const Answer& answer : answers_of(request)) {
        if (request.what == "reschedule" && answer.timer != 0 && answer.verdict != "done") {
          dues[request.name].insert(request.due_us);
        }
        if (answer.verdict == "after_run") {
          followed.insert(request.name);
        }
      }
    }
    for (const auto& [timer, starts] : starts_) {
      if (stored.count(timer) == 0 && followed.count(timer.first) == 0) {
        return text_of(timer) + " was not stored, and has run";
      }
      for (const Start& start : starts) {
        if (dues[timer.first].count(start.due_us) == 0) {
          return text_of(timer) + " has run for a time that nobody asked for";
        }
        const int64_t most_us = events_.clock_at(start.now_us).second;
        if (most_us < start.due_us) {
          return text_of(timer) + " has run " + std::to_string(start.due_us - most_us) +
                 " us early";
        }
      }
    }
    return {};
  }

  // Timers that a cancel has found, whatever it has said.
  std::set<Timer> cancelled() const {
    std::set<Timer> timers;
    for (const auto& [id, request] : requests_) {
      for (const Answer& answer : answers_of(request)) {
        if (request.what == "cancel" && answer.verdict != "done") {
          timers.insert({request.name, answer.timer});
        }
      }
    }
    return timers;
  }

  std::string stored_timers_have_run() const {
    const std::set<Timer> ended = cancelled();
    std::set<Timer> kept;  // by all faults
    for (const auto& [id, request] : requests_) {
      if (request.is_answered() && (may_be_undone(request) || may_be_lost(request))) continue;
      const Timer timer(request.name, stored_by(request));
      if (timer.second != 0 && starts_of(timer).empty() && ended.count(timer) == 0) {
        return text_of(timer) + " was stored, and has not run";
      }
      kept.insert(timer);
    }
    for (const auto& [timer, starts] : starts_) {
      if (rules_.undoes_other_receipts && kept.count(timer) == 0) continue;
      const Start& last =
          *std::max_element(starts.begin(), starts.end(),
                            [](const Start& a, const Start& b) { return a.fence < b.fence; });
      if (last.retries && ended.count(timer) == 0 && !events_.may_lose(last.process, last.now_us)) {
        return text_of(timer) + " has asked for another run, and had none";
      }
    }
    return {};
  }

  // What becomes of a timer that was moved once: all of its runs are for the new time. If it ran
  // when it was moved, a successor runs at that time.
  std::string moved_timers_have_run() const {
    std::map<std::string, size_t> moves;
    for (const auto& [id, request] : requests_) {
      moves[request.name] += request.what == "reschedule" ? 1 : 0;
    }
    std::set<std::string> cancelled_names;
    for (const Timer& timer : cancelled()) {
      cancelled_names.insert(timer.first);
    }
    for (const auto& [id, request] : requests_) {
      if (request.what != "reschedule" || moves[request.name] != 1) continue;
      if (may_be_undone(request)) continue;
      for (const Answer& answer : answers_of(request)) {
        const Timer timer(request.name, answer.timer);
        if (answer.verdict == "won" && answer.attempts == 0) {
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
    for (auto each = starts_.lower_bound({timer.first, 0});
         each != starts_.end() && each->first.first == timer.first; ++each) {
      if (each->first.second != timer.second && each->second[0].due_us == due_us) return true;
    }
    return false;
  }

  // A cancel that was won says how many runs had begun. A timer that is moved after its lease has
  // ended begins to count anew, and its answer says how many there had been.
  std::string what_was_won_has_not_run() const {
    std::map<Timer, uint64_t> allowed;
    std::map<Timer, const Request*> won;
    for (const auto& [id, request] : requests_) {
      if (may_be_undone(request)) continue;
      for (const Answer& answer : answers_of(request)) {
        const Timer timer(request.name, answer.timer);
        if (request.what == "cancel" &&
            (answer.verdict == "won" || answer.verdict == "won_after")) {
          won.emplace(timer, &request);
          allowed[timer] += answer.attempts;
        } else if (request.what == "reschedule" && answer.verdict == "won_after") {
          allowed[timer] += answer.attempts;
        }
      }
    }
    for (const auto& [timer, cancel] : won) {
      const std::vector<Start>& starts = starts_of(timer);
      const auto known =
          std::count_if(starts.begin(), starts.end(), [this, request = cancel](const Start& each) {
            return !may_have_begun_before(each, request->decided_us()) &&
                   !are_apart(*request, each);
          });
      const auto counted = static_cast<size_t>(known);
      const uint64_t most = rules_.undoes_runs ? 0 : allowed[timer];
      if (counted > most) {
        return text_of(timer) + " was cancelled after " + std::to_string(most) +
               " runs, and has had " + std::to_string(counted);
      }
    }
    return {};
  }

  // A name never has a fence twice. The next run of a timer does not begin before the lease of the
  // run before it has ended, unless that run has asked for it.
  std::string fences_and_leases_are_exclusive() const {
    std::map<std::string, std::set<uint64_t>> fences;
    for (const auto& [timer, unsorted] : starts_) {
      std::vector<Start> starts = unsorted;
      std::sort(starts.begin(), starts.end(),
                [](const Start& a, const Start& b) { return a.fence < b.fence; });
      const Start* before = nullptr;  // the last one that had a lease
      for (const Start& start : starts) {
        if (!fences[timer.first].insert(start.fence).second) {
          return text_of(timer) + " has had the fence " + std::to_string(start.fence) + " twice";
        }
        if (before != nullptr && !rules_.undoes_runs) {
          if (start.now_us < before->now_us) {
            return text_of(timer) + " has had a smaller fence in a later run";
          }
          const bool has_ended =
              (rules_.leases_end_with_process && start.process != before->process) ||
              events_.is_forgotten(before->process, before->now_us, start.process);
          const int64_t end_us = events_.clock_at(before->now_us).first + before->left_us;
          if (!before->retries && !has_ended && events_.clock_at(start.now_us).second < end_us) {
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
    for (const auto& [id, request] : requests_) {
      if (request.is_after_loss && request.is_answered() && request.was_carried_out()) {
        return request.what + " of " + request.name + " was carried out after a loss";
      }
    }
    return {};
  }

  // After a loss of everything only what is stored by processes that begin later runs there.
  std::string what_is_gone_stays_gone() const {
    for (const size_t last : events_.losses_of_everything()) {
      std::set<std::string> stored;
      for (const auto& [id, request] : requests_) {
        if (request.what == "schedule" && request.process > last) {
          stored.insert(request.name);
        }
      }
      for (const auto& [timer, starts] : starts_) {
        for (const Start& start : starts) {
          if (start.process > last && stored.count(timer.first) == 0) {
            return text_of(timer) + " was lost, and has run";
          }
        }
      }
    }
    return {};
  }

  std::map<Id, Request> requests_;
  std::map<Timer, std::vector<Start>> starts_;
  const Rules rules_;
  LedgerEvents events_;
  size_t processes_ = 0;
  size_t faults_ = 0;
  bool is_after_loss_ = false;
};

}  // namespace store_test

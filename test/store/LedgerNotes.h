#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <istream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/LedgerEvents.h"

namespace store_test {

// What processes have written down that used one store while there were faults. KillLedger judges
// it. This header includes nothing of the store. Each process writes lines to a file of its own,
// each by one write(2). A last line without an end is what it was about to write, and says nothing.
//
//   ? SESSION NUMBER OPERATION NAME [DUE [PERIOD MISSED]]   before a request is sent
//   ! SESSION NUMBER NOW RECEIPT RESULT         when its answer is there
//   a SESSION NUMBER RESULT                     another process has asked what became of it
//   s NAME TIMER DUE NOW FENCE LEFT AGAIN SHOWN
//                                               a run begins; before anything else that it does
//   d NAME TIMER NOW FENCE                      it ends: of series, and names that have one timer
//   f                                           a fault of the process has happened
//   e                                           the process runs all that is left, and ends series;
//                                               then it keeps a timer for each name that was kept
//   l LOSS KEPT                                 what was stored was lost: see LedgerEvents.h
//   c BEFORE AFTER AHEAD                        the clock of the store was set: see there, too
//
// OPERATION is schedule, keep, replace, cancel, reschedule or retry_failed. PERIOD says that the
// timer recurs: it is a series. MISSED is "each" if each date has a run, and "latest" if some may
// be left out. RESULT is "doubt", "refused" with an errno value, or "ok" with a number and the
// answers, each as VERDICT:TIMER:ATTEMPTS and followed by a comma. The number is that of the new
// timer, or how many failed timers were found. RECEIPT is what an answer of a request that was
// carried out is worth, as WFStoreReceipt says it, or "-". Times are microseconds: DUE by the clock
// of the store, NOW by that of the machine. LEFT is how long the lease of the run lasts at least.
// AGAIN is 1 if the run is going to ask for another run, which no acknowledgement follows, and 2 if
// it is going to give up. SHOWN is what the clock of the store showed when the run was given to its
// process; it may be missing.
class LedgerNotes {
 public:
  // Checks the rules of a ledger in turn. Returns the first thing that is wrong; empty: nothing.
  template <class Ledger>
  static std::string first_wrong(const Ledger& ledger,
                                 std::initializer_list<std::string (Ledger::*)() const> rules) {
    for (const auto rule : rules) {
      std::string wrong = (ledger.*rule)();
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

  using Id = std::pair<uint64_t, uint64_t>;
  using Timer = std::pair<std::string, uint64_t>;  // its name and its number
  // The RESULT of a timer that was not kept because there was another one: EEXIST.
  static inline const std::string kExists = "refused 17";

  struct Rules {
    // A store with one owner. When it is opened, earlier leases have ended.
    bool leases_end_with_process = false;
    // What each receipt has to be.
    std::string receipt = "file";
    // It may also be "unknown", because some server of several was away and could not be asked.
    bool has_unknown_receipts = false;
    // Faults may undo that a run has begun, and what it has said at its end: whatever has no
    // receipt. A timer may run again then although its lease lasts, and a cancel may not know of a
    // run.
    bool undoes_runs = false;
    // Faults may undo requests whose answers have another receipt than `receipt`.
    bool undoes_other_receipts = false;
    int64_t lease_us = 0;  // how long a lease lasts; needed with undoes_runs
    // A session is told what became of its last requests, so many of them; all sessions together
    // are told of four times as many. What became of earlier ones may be forgotten, and then they
    // are told that.
    size_t remembered = SIZE_MAX;
  };

  struct Answer {
    std::string verdict;
    uint64_t timer = 0;
    uint64_t attempts = 0;

    // It has found a timer, which has not ended.
    bool is_won() const { return verdict == "won" || verdict == "won_after"; }
    bool has_found() const { return timer != 0 && verdict != "done"; }
  };

  struct Request {
    std::string what;
    std::string name;
    int64_t due_us = 0;
    int64_t period_us = 0;
    std::string missed;
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
    // It may have been carried out: ask() says ok, too, for one that never will be.
    bool was_carried_out() const { return truth().compare(0, 3, "ok ") == 0; }
    bool stores() const { return what == "schedule" || what == "keep" || what == "replace"; }
    // The number in "ok NUMBER ANSWERS".
    uint64_t number() const {
      return was_carried_out() ? std::strtoull(truth().c_str() + 3, nullptr, 10) : 0;
    }
    // The timer that it has stored, or 0.
    uint64_t stored() const { return stores() ? number() : 0; }
    std::vector<Answer> answers() const;
  };

  struct Start {
    uint64_t timer = 0;
    int64_t due_us = 0;
    int64_t now_us = 0;
    uint64_t fence = 0;
    int64_t left_us = 0;
    int again = 0;
    int64_t shown_us = 0;
    size_t process = 0;

    bool retries() const { return again != 0; }
    bool gives_up() const { return again == 2; }
  };

  explicit LedgerNotes(Rules rules) : rules_(std::move(rules)) {}

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

  const Rules& rules() const { return rules_; }
  const LedgerEvents& events() const { return events_; }
  const std::map<Id, Request>& all_requests() const { return requests_; }
  const std::map<Timer, std::vector<Start>>& all_starts() const { return starts_; }
  // The names for which there was such a request.
  std::set<std::string> names_of(const std::string& what) const {
    std::set<std::string> names;
    for (const auto& [id, request] : requests_) {
      if (request.what == what) {
        names.insert(request.name);
      }
    }
    return names;
  }
  const std::vector<Start>& starts_of(const Timer& timer) const {
    static const std::vector<Start> none;
    const auto found = starts_.find(timer);
    return found == starts_.end() ? none : found->second;
  }
  // The requests that have stored series, by their names.
  const std::map<std::string, const Request*>& series() const { return series_; }
  // A series that was stored twice, which is an error of the test.
  const std::string& series_stored_twice() const { return twice_; }
  bool is_series(const std::string& name) const { return series_.count(name) != 0; }
  // When the run with that fence of the name has ended; INT64_MAX if it has not.
  int64_t end_us(const std::string& name, uint64_t fence) const {
    const auto found = ends_.find({name, fence});
    return found == ends_.end() ? INT64_MAX : found->second;
  }
  size_t faults() const { return faults_; }
  // Whether that process has run all that was left.
  bool is_last(size_t process) const { return process == last_; }

  static std::string text_of(const Timer& timer) {
    return timer.first + " (" + std::to_string(timer.second) + ")";
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
  // Whether the run began after the request was decided, and with a lease, and no fault has hidden
  // one from the other. A process that was stopped may begin a run whose lease has ended meanwhile.
  bool has_begun_after(const Start& start, const Request& request) const {
    return start.left_us > 0 && start.now_us > request.decided_us() &&
           !may_have_begun_before(start, request.decided_us()) && !are_apart(request, start);
  }
  // What the clock of the store may have shown when the run began, at least and at most.
  std::pair<int64_t, int64_t> clock_of(const Start& start) const {
    return events_.clock_of_run(start.now_us, start.shown_us);
  }
  // Whether the lease of the run may have been over when the other one began.
  bool may_have_lost_lease(const Start& start, const Start& later) const {
    return (rules_.leases_end_with_process && later.process != start.process) ||
           events_.is_forgotten(start.process, start.now_us, later.process) ||
           is_lease_over(start, later);
  }
  // The same by the clock of the store alone. A process may know by the clock that the run was
  // given by, or by that of NOW, how long the lease lasts.
  bool is_lease_over(const Start& start, const Start& later) const {
    const int64_t least_us = std::min(clock_of(start).first, events_.clock_at(start.now_us).first);
    return clock_of(later).second >= least_us + start.left_us;
  }

 private:
  void read_line(const std::string& line) {
    std::istringstream in(line);
    std::string mark;
    in >> mark;
    if (mark == "f") {
      faults_++;
      return;
    }
    if (mark == "e") {
      last_ = processes_;
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
          start.left_us >> start.again >> start.shown_us;
      start.timer = timer.second;
      start.process = processes_;
      starts_[timer].push_back(start);
      return;
    }
    if (mark == "d") {
      Timer timer;
      int64_t now_us = 0;
      uint64_t fence = 0;
      in >> timer.first >> timer.second >> now_us >> fence;
      ends_[{timer.first, fence}] = now_us;
      return;
    }
    Id id;
    in >> id.first >> id.second;
    Request& request = requests_[id];
    if (mark == "?") {
      in >> request.what >> request.name >> request.due_us >> request.period_us >> request.missed;
      request.process = processes_;
      request.is_after_loss = is_after_loss_;
      if (request.period_us != 0 && !series_.emplace(request.name, &request).second) {
        twice_ = request.name;
      }
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

  std::map<Id, Request> requests_;
  std::map<Timer, std::vector<Start>> starts_;
  std::map<std::string, const Request*> series_;
  std::string twice_;
  std::map<std::pair<std::string, uint64_t>, int64_t> ends_;  // by names and fences
  const Rules rules_;
  LedgerEvents events_;
  size_t processes_ = 0;
  size_t last_ = 0;
  size_t faults_ = 0;
  bool is_after_loss_ = false;
};

inline std::vector<LedgerNotes::Answer> LedgerNotes::Request::answers() const {
  std::vector<Answer> answers;
  std::istringstream in(truth());
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

}  // namespace store_test

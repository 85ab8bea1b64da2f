#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <ios>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/Dial.h"
#include "store/KillLedger.h"
#include "store/LedgerProcess.h"
#include "store/SqliteChild.h"
#include "support/Eventually.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"
#include "support/Text.h"

namespace store_test {

// A store, the processes that use it while there are faults, and what the ledger says in the end. A
// test that has this as its fixture is a program of its own, whose main() begins with
// is_a_ledger_process(): the processes are that program.
class LedgerRounds {
 public:
  explicit LedgerRounds(const KillLedger::Rules& rules = {}) { set_rules(rules); }

  void set_rules(const KillLedger::Rules& rules) {
    rules_ = rules;
    rules_.remembered = kRemembered;
  }

  // A new store. `url` may be set later.
  void begin_store(const std::string& url = "") {
    directory_ = std::make_unique<test_support::FastDir>();
    notes_.clear();
    losses_ = 0;
    url_ = url;
  }
  void set_url(const std::string& url) { url_ = url; }
  std::string path(const std::string& name) const { return directory_->path(name); }

  // All processes have these variables, too.
  void set_variables(std::vector<std::string> variables) { variables_ = std::move(variables); }

  // `more` has further variables.
  std::unique_ptr<test_support::SqliteChild> start(const std::string& part,
                                                   const std::vector<std::string>& more = {}) {
    notes_.push_back(path("notes" + std::to_string(notes_.size())));
    std::vector<std::string> variables = {
        "LEDGER_PART=" + part,
        "LEDGER_URL=" + url_,
        "LEDGER_NOTES=" + notes_.back(),
        "LEDGER_LIST=" + path("list"),
        "LEDGER_KEPT=" + path("kept"),
        "WORKFLOW_TEST_SEED=" + std::to_string(test_support::test_seed())};
    variables.insert(variables.end(), variables_.begin(), variables_.end());
    variables.insert(variables.end(), more.begin(), more.end());
    return std::make_unique<test_support::SqliteChild>(variables);
  }
  std::unique_ptr<test_support::SqliteChild> start_worker(const std::string& name,
                                                          const std::string& other,
                                                          std::vector<std::string> more = {}) {
    more.push_back("LEDGER_NAME=" + name);
    more.push_back("LEDGER_OTHER=" + other);
    return start("work", more);
  }

  // What was stored later than that is gone, or everything (0): see LedgerEvents.h. `first` is the
  // first process of those that have the store open.
  void note_loss(int64_t kept_us, size_t first) {
    losses_++;
    for (size_t process = first; process < processes(); process++) {
      note("l " + std::to_string(losses_) + ' ' + std::to_string(kept_us), notes_[process]);
    }
  }
  // Sets the clock of the store so many seconds ahead of that of the machine.
  void set_clock(Dial& clock, int64_t seconds) {
    const int64_t before_us = now_us();
    clock.set(seconds);
    note("c " + std::to_string(before_us) + ' ' + std::to_string(now_us()) + ' ' +
             std::to_string(seconds * 1'000'000),
         path("clock"));
  }

  // How many processes were started for this store. The first one is 0.
  size_t processes() const { return notes_.size(); }
  // How many answers of this store are such a RESULT, or begin so.
  size_t answers(const std::string& result) const {
    size_t count = 0;
    for (size_t process = 0; process < processes(); process++) {
      count += answers(result, process);
    }
    return count;
  }
  size_t answers(const std::string& result, size_t process) const {
    size_t count = 0;
    std::ifstream lines(notes_[process]);
    for (std::string line; std::getline(lines, line);) {
      // "! SESSION NUMBER NOW RECEIPT RESULT"
      size_t place = 0;
      for (int i = 0; i < 5 && place != std::string::npos; i++) {
        place = line.find(' ', place + 1);
      }
      const bool is_answer = line[0] == '!' && place != std::string::npos;
      count += is_answer && line.compare(place + 1, result.size(), result) == 0 ? 1 : 0;
    }
    return count;
  }

  // How many faults that process has noted.
  size_t faults(size_t process) const {
    size_t count = 0;
    std::ifstream lines(notes_[process]);
    for (std::string line; std::getline(lines, line);) {
      count += line == "f" ? 1 : 0;
    }
    return count;
  }
  // How many runs have begun, of timers whose names begin so.
  size_t starts(const std::string& name) const {
    size_t count = 0;
    for (const std::string& file : notes_) {
      std::ifstream lines(file);
      for (std::string line; std::getline(lines, line);) {
        count += line.compare(0, name.size() + 2, "s " + name) == 0 ? 1 : 0;
      }
    }
    return count;
  }

  // How many runs of timers whose names begin with `name` had begun when a process, the first of
  // all, had begun the n-th one of those with `others`. Nothing if none has begun so many.
  std::optional<size_t> starts_before(size_t n, const std::string& others,
                                      const std::string& name) const {
    std::vector<int64_t> starts;
    std::optional<int64_t> first_us;
    for (const std::string& file : notes_) {
      size_t count = 0;
      std::ifstream lines(file);
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string mark, timer;
        uint64_t number = 0;
        int64_t due_us = 0;
        int64_t now_us = 0;
        words >> mark >> timer >> number >> due_us >> now_us;
        if (mark != "s") continue;
        if (timer.starts_with(name)) {
          starts.push_back(now_us);
        } else if (timer.starts_with(others) && ++count == n) {
          first_us = std::min(first_us.value_or(now_us), now_us);
        }
      }
    }
    if (!first_us) return std::nullopt;
    return static_cast<size_t>(
        std::count_if(starts.begin(), starts.end(), [&](int64_t us) { return us < *first_us; }));
  }
  // Whether a process has asked for something and was not answered yet.
  bool has_asked(size_t process) const {
    size_t questions = 0;
    size_t answers = 0;
    std::ifstream lines(notes_[process]);
    for (std::string line; std::getline(lines, line);) {
      questions += line.starts_with("? ") ? 1 : 0;
      answers += line.starts_with("! ") ? 1 : 0;
    }
    return questions > answers;
  }

  // Waits until another request of each process since that one was answered so.
  bool wait_for_answer_of_each(const std::string& result, size_t first) const {
    for (size_t process = first; process < processes(); process++) {
      const size_t enough = answers(result, process) + 1;
      if (!test_support::eventually([&, process] { return answers(result, process) >= enough; })) {
        return false;
      }
    }
    return true;
  }
  // Waits until so many more requests were carried out.
  bool wait_for_answers(size_t more) const {
    const size_t enough = answers("ok ") + more;
    return test_support::eventually([this, enough] { return answers("ok ") >= enough; });
  }
  // The same of one process.
  bool wait_for_answers(size_t more, size_t process) const {
    const size_t enough = answers("ok ", process) + more;
    return test_support::eventually(
        [this, process, enough] { return answers("ok ", process) >= enough; });
  }

  // What is left of the store runs, and what is in doubt is settled: before that and after it, or
  // twice after it, if it is in doubt only since then. Returns what is wrong, in one line; empty:
  // nothing.
  std::string end_store() {
    KillLedger ledger(rules_);
    read_into(ledger);
    std::vector<KillLedger::Id> asked = ledger.in_doubt();
    for (const KillLedger::Id& id : ledger.some_answered(50)) {
      asked.push_back(id);
    }
    write_list(asked);
    {
      std::ofstream kept(path("kept"));
      for (const std::string& name : ledger.names_of("keep")) {
        kept << name << '\n';
      }
    }
    std::string wrong = play_part("settle", "settled");
    if (wrong.empty()) {
      wrong = play_part("finish", "empty");
    }
    if (!wrong.empty()) return wrong;
    KillLedger finished(rules_);
    read_into(finished);
    for (const KillLedger::Id& id : finished.in_doubt()) {
      if (std::find(asked.begin(), asked.end(), id) == asked.end()) {
        asked.insert(asked.end(), 2, id);
      }
    }
    write_list(asked);
    wrong = play_part("settle", "settled");
    if (!wrong.empty()) return wrong;
    KillLedger all(rules_);
    read_into(all);
    requests_ += all.requests();
    in_doubt_ += finished.in_doubt().size();
    starts_ += all.starts();
    repeated_ += all.repeated();
    dates_ += all.further_dates();
    failed_ += all.failed();
    won_ += all.answers("won");
    running_ += all.answers("running") + all.answers("after_run");
    faults_ += all.faults();
    receipts_ += all.receipts();
    return all.check();
  }

  // A history in which little happened would show little.
  bool saw_enough() const { return in_doubt_ > 0 && saw_much(); }
  // The same where nothing may be in doubt.
  bool saw_much() const {
    return starts_ > 20 && won_ > 0 && receipts_ > 20 && dates_ > 0 && failed_ > 0;
  }
  size_t faults() const { return faults_; }

  void print(int64_t rounds) const {
    std::printf(
        "%lld rounds: %zu requests, %zu in doubt; %zu runs, %zu of them repeated, %zu failed, %zu "
        "further dates; %zu won, %zu while running\n",
        static_cast<long long>(rounds), requests_, in_doubt_, starts_, repeated_, failed_, dates_,
        won_, running_);
  }

 private:
  // Adds a line to a file, to which a process may write, too.
  static void note(const std::string& line, const std::string& file) {
    std::ofstream(file, std::ios::app) << line + '\n' << std::flush;
  }

  // What a process that settles will ask for.
  void write_list(const std::vector<KillLedger::Id>& ids) const {
    std::ofstream list(path("list"));
    for (const auto& [session, number] : ids) {
      list << session << ' ' << number << '\n';
    }
  }
  // Returns what is wrong, unless the process says `line` and ends.
  std::string play_part(const std::string& part, const std::string& line) {
    const auto child = start(part, {"LEDGER_RATE=1000000"});  // as fast as it can
    const std::string said = child->line().value_or("nothing");
    if (said != line) return part + " says " + said;
    const int code = child->wait();
    return code == 0 ? "" : part + " ends with " + std::to_string(code);
  }

  void read_into(KillLedger& ledger) const {
    ledger.read(test_support::text_of(path("clock")));
    for (const std::string& file : notes_) {
      ledger.read(test_support::text_of(file));
    }
  }

  KillLedger::Rules rules_;
  std::unique_ptr<test_support::FastDir> directory_;
  std::string url_;
  std::vector<std::string> notes_;
  std::vector<std::string> variables_;
  size_t losses_ = 0;  // of this store
  size_t requests_ = 0, in_doubt_ = 0, starts_ = 0, repeated_ = 0, won_ = 0, running_ = 0;
  size_t dates_ = 0, failed_ = 0;
  size_t faults_ = 0, receipts_ = 0;
};

}  // namespace store_test

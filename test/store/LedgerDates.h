#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "store/LedgerNotes.h"

namespace store_test {

// What must hold of series: timers that recur. It is a part of KillLedger, and as that it includes
// nothing of the store. The name of a series belongs to nothing else, and is stored once. A series
// goes on with a new timer when it was moved while it ran, or when a run of it has failed. The
// timer that has failed is no part of the series any more: if it is retried, it runs once for that
// time. No process moves a series that others retry.
class LedgerDates {
 public:
  using Start = LedgerNotes::Start;

  explicit LedgerDates(const LedgerNotes& notes) : notes_(notes) {
    for (const auto& [id, request] : notes.all_requests()) {
      if (!notes.is_series(request.name)) continue;
      Series& series = series_[request.name];
      if (request.what == "reschedule" && may_have_moved(request)) {
        series.moves.push_back(&request);
      } else if (request.what == "cancel") {
        series.cancels.push_back(&request);
      }
    }
    for (const auto& [timer, starts] : notes.all_starts()) {
      if (!notes.is_series(timer.first)) continue;
      Series& series = series_[timer.first];
      for (const Start& start : starts) {
        series.runs.push_back(
            {&start, std::any_of(starts.begin(), starts.end(), [&start](const Start& each) {
               return each.gives_up() && each.fence < start.fence;
             })});
      }
    }
    for (auto& [name, series] : series_) {
      series.stored = notes.series().at(name);
      std::sort(series.runs.begin(), series.runs.end(),
                [](const Run& a, const Run& b) { return a.start->fence < b.start->fence; });
    }
  }

  // Whether a run of the series may be for that time: for one of its dates, or one to which it was
  // moved.
  bool is_asked_for(const std::string& name, int64_t due_us) const {
    const Series& series = series_.at(name);
    return is_date(series, due_us) ||
           std::any_of(series.moves.begin(), series.moves.end(),
                       [due_us](const Request* move) { return move->due_us == due_us; });
  }

  // Whether an earlier timer of the series has run for that date, or one before it, later than that
  // run. So a loss of power has undone that it failed, and with it the timer that came after it.
  bool has_gone_back(const std::string& name, const Start& start) const {
    if (!notes_.rules().undoes_runs) return false;
    const Series& series = series_.at(name);
    return std::any_of(series.runs.begin(), series.runs.end(), [&](const Run& run) {
      return run.start->timer < start.timer && run.start->now_us > start.now_us &&
             run.start->due_us <= start.due_us && is_date(series, run.start->due_us);
    });
  }

  // The first thing that is wrong, as in KillLedger.
  std::string check() const {
    for (const auto& [name, series] : series_) {
      for (const auto rule : {&LedgerDates::dates_have_one_run, &LedgerDates::runs_have_one_lease,
                              &LedgerDates::no_date_is_left_out, &LedgerDates::a_cancel_ends_it,
                              &LedgerDates::only_a_cancel_ends_it}) {
        std::string wrong = (this->*rule)(series);
        if (!wrong.empty()) return name + wrong;
      }
    }
    return {};
  }

 private:
  using Request = LedgerNotes::Request;

  struct Run {
    const Start* start;
    // Its timer had given up before. If that was taken, the run is no part of the series.
    bool may_have_failed;
  };
  struct Series {
    const Request* stored = nullptr;
    std::vector<const Request*> moves;
    std::vector<const Request*> cancels;
    std::vector<Run> runs;  // in the order of their fences
  };

  // What was not answered may have moved something that is gone now.
  static bool may_have_moved(const Request& move) {
    const auto answers = move.answers();
    return !move.is_answered() ||
           std::any_of(answers.begin(), answers.end(),
                       [](const LedgerNotes::Answer& answer) { return answer.has_found(); });
  }
  static bool is_date(const Series& series, int64_t due_us) {
    return due_us >= series.stored->due_us &&
           (due_us - series.stored->due_us) % series.stored->period_us == 0;
  }
  static std::string text_of_date(int64_t due_us) { return " the date " + std::to_string(due_us); }

  // Another run for the same date begins only if the one before has asked for that, or has lost its
  // lease, or if the series was moved back to that date or an earlier one, or while it ran.
  std::string dates_have_one_run(const Series& series) const {
    if (notes_.rules().undoes_runs) return {};
    std::map<int64_t, const Start*> last;  // of those that had a lease
    for (const Run& run : series.runs) {
      if (run.may_have_failed) continue;
      const Start& start = *run.start;
      const auto before = last.find(start.due_us);
      if (before != last.end() && before->second->again != 1 &&
          !notes_.may_have_lost_lease(*before->second, start) &&
          !may_be_moved_back(series, *before->second) &&
          !is_of_successor(series, *before->second, start)) {
        return " has run twice for" + text_of_date(start.due_us);
      }
      if (start.left_us > 0) {
        last[start.due_us] = &start;
      }
    }
    return {};
  }
  // A move may be answered before the run under way writes that it has begun. So it counts if it
  // was answered when the date of the run had come.
  bool may_be_moved_back(const Series& series, const Start& start) const {
    return std::any_of(
        series.moves.begin(), series.moves.end(), [this, &start](const Request* move) {
          return move->due_us <= start.due_us &&
                 (!move->is_answered() ||
                  notes_.events().clock_of_answer(move->told_us).second >= start.due_us);
        });
  }

  // A timer that was moved while it ran has a successor for the new time. If its run has to be
  // repeated later than that, both run for the latest date that has come by then.
  static bool is_of_successor(const Series& series, const Start& before, const Start& start) {
    return start.timer != before.timer &&
           std::any_of(series.moves.begin(), series.moves.end(), [&](const Request* move) {
             const auto answers = move->answers();
             return move->due_us <= start.due_us &&
                    std::any_of(answers.begin(), answers.end(),
                                [&before](const LedgerNotes::Answer& answer) {
                                  return answer.verdict == "after_run" &&
                                         answer.timer == before.timer;
                                });
           });
  }

  // A run begins when the one before it, for whatever date, has ended or lost its lease: that of
  // its series, or of its timer if that has failed.
  std::string runs_have_one_lease(const Series& series) const {
    if (notes_.rules().undoes_runs) return {};
    const std::string& name = series.stored->name;
    std::map<uint64_t, const Start*> failed;  // the last run of each timer, of those with a lease
    const Start* last = nullptr;              // the same of the series
    for (const Run& run : series.runs) {
      const Start& start = *run.start;
      const Start*& before = run.may_have_failed ? failed[start.timer] : last;
      if (before != nullptr && notes_.end_us(name, before->fence) > start.now_us &&
          !notes_.may_have_lost_lease(*before, start)) {
        return " has run for" + text_of_date(start.due_us) + " during the run for" +
               text_of_date(before->due_us);
      }
      if (start.left_us > 0) {
        before = &start;
      }
    }
    return {};
  }

  // If each missed date counts, there is a run for each date until the last one that has a run.
  std::string no_date_is_left_out(const Series& series) const {
    if (series.stored->missed != "each" || !series.moves.empty()) return {};
    std::set<int64_t> dates;
    int64_t last_us = series.stored->due_us - series.stored->period_us;
    for (const Run& run : series.runs) {
      dates.insert(run.start->due_us);
      if (!run.may_have_failed) {
        last_us = std::max(last_us, run.start->due_us);
      }
    }
    for (int64_t us = series.stored->due_us; us <= last_us; us += series.stored->period_us) {
      if (dates.count(us) == 0) return " has left out" + text_of_date(us);
    }
    return {};
  }

  // Whatever date comes next. A run that was under way goes on, and so may one that has lost its
  // lease. A timer that was cancelled while it ran may be moved all the same until it has ended.
  std::string a_cancel_ends_it(const Series& series) const {
    std::set<uint64_t> followed;
    for (const Request* move : series.moves) {
      for (const LedgerNotes::Answer& answer : move->answers()) {
        if (answer.verdict == "after_run" || answer.verdict == "won_after") {
          followed.insert(answer.timer);
        }
      }
    }
    for (const Request* cancel : series.cancels) {
      if (notes_.may_be_undone(*cancel)) continue;
      bool has_ended = false;
      uint64_t allowed = 0;
      for (const LedgerNotes::Answer& answer : cancel->answers()) {
        if (!answer.has_found()) continue;
        has_ended = answer.is_won() || followed.count(answer.timer) == 0;
        allowed += answer.attempts;
        if (!has_ended) break;
      }
      const auto later = static_cast<uint64_t>(
          std::count_if(series.runs.begin(), series.runs.end(), [&](const Run& run) {
            return !run.may_have_failed && notes_.has_begun_after(*run.start, *cancel);
          }));
      if (has_ended && later > allowed) {
        return " was cancelled, and " + std::to_string(later) + " runs have begun after that";
      }
    }
    return {};
  }

  // A series goes on until it is cancelled. The last process cancels all that are left, after it
  // has run each of them.
  std::string only_a_cancel_ends_it(const Series& series) const {
    const Request& stored = *series.stored;
    if (stored.stored() == 0) return {};
    if (stored.is_answered() && (notes_.may_be_undone(stored) || notes_.may_be_lost(stored))) {
      return {};
    }
    bool was_found = false;
    bool was_found_before = false;
    for (const Request* cancel : series.cancels) {
      for (const LedgerNotes::Answer& answer : cancel->answers()) {
        was_found = was_found || answer.has_found();
        was_found_before =
            was_found_before || (answer.has_found() && !notes_.is_last(cancel->process));
      }
    }
    if (!was_found) return " recurs, and is gone although nobody has cancelled it";
    const bool goes_on =
        std::any_of(series.runs.begin(), series.runs.end(),
                    [this](const Run& run) { return notes_.is_last(run.start->process); });
    return was_found_before || goes_on ? "" : " recurs, and has not gone on";
  }

  const LedgerNotes& notes_;
  std::map<std::string, Series> series_;
};

}  // namespace store_test

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "store/LedgerNotes.h"

namespace store_test {

// What must hold of the ends of runs where one process was killed, and others have run what it has
// left. It goes beyond KillLedger, and as that it includes nothing of the store.
class LedgerEnds {
 public:
  struct Killed {
    size_t process = 1;
    // Timers of which it was told, when it was alive, that the end of their only run was taken.
    std::set<std::string> acknowledged = {};
    // Whether its runs of that name write down when they end.
    std::function<bool(const std::string& name)> notes_ends = nullptr;
  };

  LedgerEnds(const LedgerNotes& notes, Killed killed) : notes_(notes), killed_(std::move(killed)) {}

  // The first thing that is wrong, as in KillLedger.
  std::string check() const {
    return LedgerNotes::first_wrong(
        *this, {&LedgerEnds::what_was_acknowledged_is_over, &LedgerEnds::what_is_done_is_over,
                &LedgerEnds::what_was_cut_off_runs});
  }

 private:
  using Timer = LedgerNotes::Timer;
  using Start = LedgerNotes::Start;

  std::string what_was_acknowledged_is_over() const {
    for (const auto& [timer, starts] : notes_.all_starts()) {
      if (killed_.acknowledged.count(timer.first) == 0) continue;
      for (const Start& start : starts) {
        if (start.process != killed_.process) {
          return LedgerNotes::text_of(timer) + " was acknowledged, and has run again";
        }
      }
    }
    return {};
  }

  // Whoever is told that a timer is done is not told that of one that will run. One that has failed
  // may be retried.
  std::string what_is_done_is_over() const {
    for (const auto& [id, request] : notes_.all_requests()) {
      for (const LedgerNotes::Answer& answer : request.answers()) {
        const Timer timer(request.name, answer.timer);
        const auto& starts = notes_.starts_of(timer);
        const bool has_failed = std::any_of(starts.begin(), starts.end(),
                                            [](const Start& start) { return start.gives_up(); });
        if (answer.verdict != "done" || has_failed) continue;
        for (const Start& start : starts) {
          if (notes_.has_begun_after(start, request)) {
            return LedgerNotes::text_of(timer) + " was done, and has run again";
          }
        }
      }
    }
    return {};
  }

  // A run that the kill has cut off is repeated, unless its timer was cancelled or replaced.
  std::string what_was_cut_off_runs() const {
    std::set<Timer> ended;
    for (const auto& [id, request] : notes_.all_requests()) {
      if (request.what != "cancel" && request.what != "replace") continue;
      for (const LedgerNotes::Answer& answer : request.answers()) {
        if (answer.has_found() && request.process == killed_.process) {
          ended.insert({request.name, answer.timer});
        }
      }
    }
    for (const auto& [timer, starts] : notes_.all_starts()) {
      if (!killed_.notes_ends(timer.first) || ended.count(timer) != 0) continue;
      for (const Start& start : starts) {
        const bool was_cut_off = start.process == killed_.process && !start.retries() &&
                                 notes_.end_us(timer.first, start.fence) == INT64_MAX;
        const bool is_repeated =
            std::any_of(starts.begin(), starts.end(),
                        [&start](const Start& each) { return each.fence > start.fence; });
        if (was_cut_off && !is_repeated) {
          return LedgerNotes::text_of(timer) + " was cut off, and has not run again";
        }
      }
    }
    return {};
  }

  const LedgerNotes& notes_;
  const Killed killed_;
};

}  // namespace store_test

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <istream>
#include <map>
#include <utility>
#include <vector>

namespace store_test {

// What has happened to a store as a whole, for KillLedger: losses of what was stored, and clocks
// that were set. As the ledger, it includes nothing of the store. Processes have the numbers of the
// files in which they have written.
//
//   l LOSS KEPT
//       What was stored later than KEPT is gone, as in a server that has lost the end of its log. A
//       KEPT of 0 means that nothing is left. Each process that had the store open has this line,
//       with the same number LOSS, in its file: after the loss, and before the next request.
//       Processes that begin later have greater numbers.
//   c BEFORE AFTER AHEAD
//       Between these times the clock of the store was set, and shows AHEAD more than that of the
//       processes. All are microseconds.
class LedgerEvents {
 public:
  void read_loss(std::istream& in, size_t process) {
    uint64_t number = 0;
    in >> number;
    Loss& loss = losses_[number];
    in >> loss.kept_us;
    loss.last_process = process;
  }
  void read_setting(std::istream& in) {
    Setting setting;
    in >> setting.before_us >> setting.after_us >> setting.ahead_us;
    settings_.push_back(setting);
  }

  bool has_losses() const { return !losses_.empty(); }
  // Whether a loss may have undone what a process did, or was told, at that time.
  bool may_lose(size_t process, int64_t us) const {
    return std::any_of(losses_.begin(), losses_.end(), [&](const auto& loss) {
      return process <= loss.second.last_process && us > loss.second.kept_us;
    });
  }
  // Whether such a loss came before a later process, which cannot know of it then.
  bool is_forgotten(size_t process, int64_t us, size_t later) const {
    return std::any_of(losses_.begin(), losses_.end(), [&](const auto& loss) {
      return process <= loss.second.last_process && later > loss.second.last_process &&
             us > loss.second.kept_us;
    });
  }
  // The last process that had the store open, for each loss that has left nothing.
  std::vector<size_t> losses_of_everything() const {
    std::vector<size_t> processes;
    for (const auto& [number, loss] : losses_) {
      if (loss.kept_us == 0) {
        processes.push_back(loss.last_process);
      }
    }
    return processes;
  }

  // What the clock of the store would show, at least and at most, at `us`, the time of the machine
  // at which a run began, by the setting under which the run was given to its process. `shown_us`
  // is what that clock showed then, as the run says; 0: the run does not say.
  std::pair<int64_t, int64_t> clock_of_run(int64_t us, int64_t shown_us) const {
    if (shown_us == 0) return clock_at(us);
    int64_t nearest = 0;
    bool is_first = true;
    for (size_t i = 0; i <= settings_.size(); i++) {
      const auto [begin, end] = times_of(i);
      if (begin > us + kSlackUs || end < us - kLatestUs) continue;
      const int64_t ahead = ahead_of(i);
      if (is_first || std::abs(shown_us - us - ahead) < std::abs(shown_us - us - nearest)) {
        nearest = ahead;
      }
      is_first = false;
    }
    return {us + nearest, us + nearest};
  }
  // What the clock of the store may have shown, at least and at most, when something was done that
  // a process has written down at that time.
  std::pair<int64_t, int64_t> clock_at(int64_t us) const { return clock_at(us, kSlackUs); }
  // The same of an answer, which a busy process may write down long after it was decided.
  std::pair<int64_t, int64_t> clock_of_answer(int64_t us) const { return clock_at(us, kLatestUs); }

 private:
  // As late as that, or as early, a process may look at the clock of the store.
  static constexpr int64_t kSlackUs = 500'000;
  // A run may begin so long after it was given to its process.
  static constexpr int64_t kLatestUs = 10'000'000;

  struct Loss {
    int64_t kept_us = 0;
    size_t last_process = 0;  // of those that had the store open
  };
  struct Setting {
    int64_t before_us = 0;
    int64_t after_us = 0;
    int64_t ahead_us = 0;
  };

  // From when until when the i-th setting may have counted: the first is that none was made.
  std::pair<int64_t, int64_t> times_of(size_t i) const {
    return {i == 0 ? INT64_MIN : settings_[i - 1].before_us,
            i == settings_.size() ? INT64_MAX : settings_[i].after_us};
  }
  int64_t ahead_of(size_t i) const { return i == 0 ? 0 : settings_[i - 1].ahead_us; }
  // Of what was done at most `before_us` before that.
  std::pair<int64_t, int64_t> clock_at(int64_t us, int64_t before_us) const {
    int64_t least = INT64_MAX;
    int64_t most = INT64_MIN;
    for (size_t i = 0; i <= settings_.size(); i++) {
      const auto [begin, end] = times_of(i);
      if (begin > us + kSlackUs || end < us - before_us) continue;
      const int64_t ahead = ahead_of(i);
      least = std::min(least, us + ahead);
      most = std::max(most, us + ahead);
    }
    return {least, most};
  }

  std::map<uint64_t, Loss> losses_;
  std::vector<Setting> settings_;
};

}  // namespace store_test

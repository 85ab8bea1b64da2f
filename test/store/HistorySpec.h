#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/History.h"

namespace store_test::history {

// What a store does with the timers of one name, one operation after the other: the table of
// verdicts as a small machine. It knows of an operation only what its worker has written down. So
// it gives all states that may follow, and none if the answer cannot be true.
//
// 1. An operation decides at one moment between its call and its end. All of its conditions ("is
//    due", "the lease is over") are looked at with that moment.
// 2. What a worker could not write down is unknown (number 0) or lies between two times, until an
//    answer tells.
// 3. Numbers of timers grow in the order in which they are stored, and fences in that of the
//    claims.

// A time that is known to lie between two.
struct Between {
  int64_t low = 0;
  int64_t high = 0;
};

struct Timer {
  enum class Stage { kWaiting, kLeased, kBlocked, kFailed };

  uint64_t key = 0;    // of the checker's own
  int64_t number = 0;  // of the store; 0: unknown
  Stage stage = Stage::kWaiting;
  int64_t due_us = 0;  // -1: unknown
  Between wake;        // when it may be claimed
  int64_t fence = 0;   // of the lease; 0: unknown
  int64_t attempts = 0;
  bool marked = false;      // cancelled while it was leased
  uint64_t after = 0;       // the key of the timer that blocks it
  bool is_reached = false;  // whether `wake` has come, at the moment that is looked at

  bool is_live() const { return stage == Stage::kLeased && !is_reached; }
  bool is_over() const { return stage == Stage::kLeased && is_reached; }
};

struct State {
  std::vector<Timer> timers;  // in the order in which they were stored
  std::string outcome;        // of the one that has ended last; empty: there was none
  int64_t ended_number = 0;
  int64_t last_number = 0;
  int64_t last_fence = 0;
  uint64_t next_key = 1;

  // Two states of the same text are the same.
  std::string text() const {
    std::string text = outcome;
    const auto add = [&text](int64_t part) { text += ' ' + std::to_string(part); };
    add(ended_number);
    add(last_number);
    add(last_fence);
    for (const Timer& timer : timers) {
      text += " |";
      for (const int64_t part :
           {timer.number, static_cast<int64_t>(timer.stage), timer.due_us, timer.wake.low,
            timer.wake.high, timer.fence, timer.attempts, static_cast<int64_t>(timer.marked),
            static_cast<int64_t>(place(timer.after))}) {
        add(part);
      }
    }
    return text;
  }

  size_t place(uint64_t key) const {
    size_t place = 0;
    while (place < timers.size() && timers[place].key != key) {
      place++;
    }
    return place;
  }
  Timer* follower(uint64_t key) {
    for (Timer& timer : timers) {
      if (timer.stage == Timer::Stage::kBlocked && timer.after == key) return &timer;
    }
    return nullptr;
  }
  void release(uint64_t key) {
    if (Timer* const timer = follower(key)) {
      timer->stage = Timer::Stage::kWaiting;
      timer->after = 0;
    }
  }
  void end(uint64_t key, const std::string& how) {
    outcome = how;
    ended_number = timers[place(key)].number;
    remove(key);
  }
  void remove(uint64_t key) {
    release(key);
    timers.erase(timers.begin() + static_cast<std::ptrdiff_t>(place(key)));
  }
};

// One operation in one state at one moment.
class HistoryStep {
 public:
  // The state after it; nothing if it cannot have had its answer. `left_out`: the keys of the
  // timers that a claim has not seen.
  static std::optional<State> take(const State& state, const Operation& operation,
                                   const std::set<uint64_t>& left_out = {}) {
    // An answer may tell a number that was unknown so far. Each turn learns one.
    State known = state;
    for (size_t turn = 0; turn <= state.timers.size() + 1; turn++) {
      HistoryStep step(known, operation, left_out);
      step.carry_out();
      if (!step.learnt_) {
        return step.is_possible_ && in_order(step.state_) ? std::optional<State>(step.state_)
                                                          : std::nullopt;
      }
      known = std::move(step.before_);
    }
    return {};
  }

 private:
  using Stage = Timer::Stage;

  HistoryStep(const State& state, const Operation& operation, const std::set<uint64_t>& left_out)
      : before_(state), state_(state), operation_(operation), left_out_(left_out) {}

  static bool in_order(const State& state) {
    int64_t last = 0;
    for (const Timer& timer : state.timers) {
      if (timer.number != 0 && timer.number <= last) return false;
      last = std::max(last, timer.number);
    }
    return true;
  }

  void expect(bool holds) { is_possible_ = is_possible_ && holds; }

  // Compares a number of the answer with that of a timer as it was before.
  void expect_number(const Timer& timer, int64_t number) {
    if (timer.number == 0 && number != 0 && before_.place(timer.key) < before_.timers.size()) {
      before_.timers[before_.place(timer.key)].number = number;
      before_.last_number = std::max(before_.last_number, number);
      learnt_ = true;
    } else {
      expect(timer.number == number);
    }
  }

  void carry_out() {
    const std::string& what = operation_.what;
    if (what == "schedule") {
      schedule();
    } else if (what == "cancel") {
      cancel();
    } else if (what == "reschedule") {
      reschedule();
    } else if (what == "claim") {
      claim();
    } else if (what == "finish") {
      finish();
    } else if (what == "extend") {
      extend();
    } else if (what == "retry_failed" || what == "remove_failed") {
      decide_failed(what == "remove_failed");
    } else if (what == "list") {
      list();
    } else {
      expect(what == "count" &&
             (!operation_.answered ||
              operation_.answered_number("count") == static_cast<int64_t>(state_.timers.size())));
    }
  }

  // The next answer about a timer.
  void answer(const std::string& verdict, const Timer& timer) {
    if (!operation_.answered) return;
    const auto list = operation_.answered_list("answers");
    const size_t place = answers_++;
    if (place >= list.size() || list[place].size() < 3 || list[place][0] != verdict) {
      expect(false);
      return;
    }
    const std::vector<std::string>& parts = list[place];
    expect(Operation::number_in(parts[2]) == timer.attempts);
    if (timer.is_live()) {
      expect(parts.size() == 4 && (timer.fence == 0 || std::to_string(timer.fence) == parts[3]));
    }
    expect_number(timer, Operation::number_in(parts[1]));
  }

  // After the last one. `tells_of_none`: if there was no timer, one answer says so.
  void answers_are_all(bool tells_of_none) {
    if (!operation_.answered) return;
    const auto list = operation_.answered_list("answers");
    if (answers_ > 0 || !tells_of_none) {
      expect(list.size() == answers_);
      return;
    }
    if (list.size() != 1) {
      expect(false);
    } else if (state_.outcome.empty()) {
      expect(list[0][0] == "unknown");
    } else if (list[0].size() != 3 || list[0][0] != "done" || list[0][2] != state_.outcome) {
      expect(false);
    } else if (before_.ended_number == 0) {
      before_.ended_number = Operation::number_in(list[0][1]);
      learnt_ = true;
    } else {
      expect(Operation::number_in(list[0][1]) == state_.ended_number);
    }
  }

  std::vector<uint64_t> keys(bool failed) const {
    std::vector<uint64_t> keys;
    for (const Timer& timer : state_.timers) {
      if ((timer.stage == Stage::kFailed) == failed) {
        keys.push_back(timer.key);
      }
    }
    return keys;
  }
  Timer& at(uint64_t key) { return state_.timers[state_.place(key)]; }

  static const char* won(const Timer& timer) { return timer.is_over() ? "won_after" : "won"; }

  void store(int64_t due_us, uint64_t after, int64_t number) {
    Timer timer;
    timer.key = state_.next_key++;
    timer.number = number;
    timer.due_us = due_us;
    timer.wake = {due_us, due_us};
    timer.after = after;
    timer.stage = after == 0 ? Stage::kWaiting : Stage::kBlocked;
    state_.timers.push_back(timer);
  }

  void schedule() {
    const std::string policy = operation_.argument("policy");
    const std::vector<uint64_t> others = keys(false);
    if (policy == "keep" && !others.empty()) {
      expect(!operation_.answered || operation_.result == "exists");
      return;
    }
    expect(operation_.result != "exists");
    uint64_t after = 0;
    if (policy == "replace") {
      for (const uint64_t key : others) {
        // As it was before: the end of another one may just have released it.
        const Timer timer = before_.timers[before_.place(key)];
        if (timer.is_live()) {
          answer("after_run", timer);
          after = key;
          continue;
        }
        if (timer.stage != Stage::kBlocked) {
          answer(won(timer), timer);
        }
        state_.end(key, "cancelled");
      }
    }
    answers_are_all(policy == "replace");
    const int64_t number = operation_.answered ? operation_.answered_number("timer") : 0;
    expect(number == 0 || number > state_.last_number);
    state_.last_number = std::max(state_.last_number, number);
    store(operation_.number_of("due"), after, number);
  }

  void cancel() {
    const auto max = static_cast<size_t>(operation_.number_of("max"));
    size_t met = 0;
    for (const uint64_t key : keys(false)) {
      if (met++ == max) break;
      const Timer timer = at(key);
      if (timer.is_live()) {
        answer("running", timer);
        at(key).marked = true;
      } else {
        answer(won(timer), timer);
        state_.end(key, "cancelled");
      }
    }
    answers_are_all(true);
  }

  void reschedule() {
    const auto max = static_cast<size_t>(operation_.number_of("max"));
    const int64_t due_us = operation_.number_of("due");
    size_t met = 0;
    for (const uint64_t key : keys(false)) {
      if (at(key).stage == Stage::kBlocked) continue;
      if (met++ == max) break;
      const Timer timer = at(key);
      if (timer.is_live()) {
        answer("after_run", timer);
        if (Timer* const follower = state_.follower(key)) {
          follower->due_us = due_us;
          follower->wake = {due_us, due_us};
        } else {
          store(due_us, key, 0);
        }
        continue;
      }
      answer(won(timer), timer);
      wait(at(key), {due_us, due_us});
      at(key).due_us = due_us;
      at(key).attempts = timer.is_over() ? 0 : timer.attempts;
    }
    answers_are_all(true);
  }

  static void wait(Timer& timer, Between wake) {
    timer.stage = Stage::kWaiting;
    timer.wake = wake;
    timer.marked = false;
    timer.fence = 0;
  }

  // The items of the answer in the order of their numbers.
  std::vector<std::vector<std::string>> items(const char* key) const {
    auto items = operation_.answered_list(key);
    std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
      return Operation::number_in(a[0]) < Operation::number_in(b[0]);
    });
    return items;
  }

  // An end of a lease, or a time from now on, that the worker may not know.
  Between from_now(const char* key) const {
    const int64_t length_us = operation_.number_of(key);
    return {operation_.called_us + length_us, operation_.ended_us + length_us};
  }

  void claim() {
    std::vector<uint64_t> due;
    for (Timer& timer : state_.timers) {
      const bool may_be_taken = timer.stage == Stage::kWaiting || timer.stage == Stage::kLeased;
      if (may_be_taken && timer.is_reached && left_out_.count(timer.key) == 0) {
        due.push_back(timer.key);
      }
    }
    expect(!operation_.answered ||
           operation_.answered_number("more") == (left_out_.empty() ? 0 : 1));
    const auto claimed = items("claimed");
    if (operation_.answered && claimed.size() != due.size()) {
      expect(false);
      return;
    }
    const int64_t last_fence = state_.last_fence;
    for (size_t i = 0; i < due.size(); i++) {
      Timer& timer = at(due[i]);
      timer.stage = Stage::kLeased;
      timer.attempts++;
      timer.fence = 0;
      timer.wake = from_now("lease");
      if (!operation_.answered) continue;
      // NUMBER:FENCE:ATTEMPTS:DUE:LEASE_END
      const std::vector<std::string>& parts = claimed[i];
      timer.fence = Operation::number_in(parts[1]);
      expect(timer.fence > last_fence);
      state_.last_fence = std::max(state_.last_fence, timer.fence);
      expect(timer.attempts == Operation::number_in(parts[2]));
      expect(timer.due_us == -1 || timer.due_us == Operation::number_in(parts[3]));
      timer.due_us = Operation::number_in(parts[3]);
      set_lease(timer, Operation::number_in(parts[4]));
      expect_number(timer, Operation::number_in(parts[0]));
    }
  }

  // The end of a lease that an answer tells. It tells the moment, too.
  void set_lease(Timer& timer, int64_t end_us) {
    expect(timer.wake.low <= end_us && end_us <= timer.wake.high);
    timer.wake = {end_us, end_us};
  }

  Timer* find_run() {
    for (Timer& timer : state_.timers) {
      if (timer.number == operation_.number_of("timer") && timer.is_live() &&
          timer.fence == operation_.number_of("fence")) {
        return &timer;
      }
    }
    return nullptr;
  }

  void finish() {
    Timer* const run = find_run();
    expect(!operation_.answered || operation_.answered_number("accepted") == (run ? 1 : 0));
    if (!run) return;
    const std::string how = operation_.argument("how");
    const int64_t next_us = operation_.number_of("next");
    const uint64_t key = run->key;
    if (how == "retry" && !run->marked) {
      wait(*run, {next_us, next_us});
    } else if (how == "retry") {
      state_.end(key, "cancelled");
    } else if (how == "failed") {
      state_.outcome = "failed";
      state_.ended_number = run->number;
      wait(*run, {kNever, kNever});
      run->stage = Stage::kFailed;
      state_.release(key);
    } else if (next_us != kNever && !run->marked && !state_.follower(key)) {
      wait(*run, {next_us, next_us});
      run->due_us = next_us;
      run->attempts = 0;
    } else {
      state_.end(key, how);
    }
  }

  void extend() {
    Timer* const run = find_run();
    expect(!operation_.answered || operation_.answered_number("live") == (run ? 1 : 0));
    if (!run) return;
    run->wake = from_now("lease");
    if (operation_.answered) {
      expect(operation_.answered_number("cancelled") == (run->marked ? 1 : 0));
      set_lease(*run, operation_.answered_number("end"));
    }
  }

  void decide_failed(bool remove) {
    const std::vector<uint64_t> failed = keys(true);
    expect(!operation_.answered ||
           operation_.answered_number("count") == static_cast<int64_t>(failed.size()));
    for (const uint64_t key : failed) {
      if (remove) {
        state_.remove(key);
        continue;
      }
      wait(at(key), {operation_.called_us, operation_.ended_us});
      at(key).due_us = -1;
      at(key).attempts = 0;
    }
  }

  void list() {
    if (!operation_.answered) return;
    const auto listed = items("timers");
    if (listed.size() != state_.timers.size()) {
      expect(false);
      return;
    }
    for (size_t i = 0; i < listed.size(); i++) {
      const Timer timer = state_.timers[i];
      const char* const stage = timer.stage == Stage::kFailed    ? "failed"
                                : timer.stage == Stage::kBlocked ? "blocked"
                                : timer.is_live()                ? "running"
                                                                 : "waiting";
      // NUMBER:STAGE:ATTEMPTS:DUE
      expect(listed[i][1] == stage);
      expect(Operation::number_in(listed[i][2]) == timer.attempts);
      expect(timer.due_us == -1 || Operation::number_in(listed[i][3]) == timer.due_us);
      expect_number(timer, Operation::number_in(listed[i][0]));
    }
  }

  State before_;  // with what the answer has told of it
  State state_;
  const Operation& operation_;
  const std::set<uint64_t>& left_out_;
  size_t answers_ = 0;
  bool is_possible_ = true;
  bool learnt_ = false;
};

// All states that may follow `state` when `operation` is carried out.
class HistorySpec {
 public:
  static std::vector<State> after(const State& state, const Operation& operation) {
    std::vector<State> results;
    std::set<std::string> known;
    for (const int64_t now_us : moments(state, operation)) {
      std::vector<State> looked;
      look(state, operation, now_us, 0, looked);
      for (const State& seen : looked) {
        settle(seen, operation, results, known);
      }
    }
    return results;
  }

 private:
  // The moments that make a difference.
  static std::set<int64_t> moments(const State& state, const Operation& operation) {
    std::set<int64_t> moments = {operation.called_us};
    for (const Timer& timer : state.timers) {
      for (const int64_t us : {timer.wake.low, timer.wake.high}) {
        if (us > operation.called_us && us <= operation.ended_us && us != kNever) {
          moments.insert(us);
        }
      }
    }
    return moments;
  }

  // Decides which times have come at that moment. A time that is not known may have come or not.
  static void look(State state, const Operation& operation, int64_t now_us, size_t place,
                   std::vector<State>& results) {
    if (place == state.timers.size()) {
      results.push_back(std::move(state));
      return;
    }
    Timer& timer = state.timers[place];
    if (timer.wake.low > now_us || timer.wake.high <= now_us) {
      timer.is_reached = timer.wake.high <= now_us;
      look(std::move(state), operation, now_us, place + 1, results);
      return;
    }
    State other = state;
    timer.is_reached = true;
    timer.wake.high = std::min(timer.wake.high, operation.ended_us);
    look(std::move(state), operation, now_us, place + 1, results);
    Timer& same = other.timers[place];
    same.is_reached = false;
    same.wake.low = std::max(same.wake.low, operation.called_us + 1);
    look(std::move(other), operation, now_us, place + 1, results);
  }

  // What a claim may leave out. A store with several parts counts first what is due in each of
  // them, and then takes so many of the oldest: what is stored in between may displace what was
  // counted.
  static std::vector<std::set<uint64_t>> choices(const State& state, const Operation& operation) {
    std::vector<std::set<uint64_t>> choices = {{}};
    if (operation.argument("parts") != "1") return choices;
    for (const Timer& timer : state.timers) {
      const bool is_due = timer.is_reached && (timer.stage == Timer::Stage::kWaiting ||
                                               timer.stage == Timer::Stage::kLeased);
      for (size_t i = is_due ? choices.size() : 0; i > 0; i--) {
        choices.push_back(choices[i - 1]);
        choices.back().insert(timer.key);
      }
    }
    return choices;
  }

  // A claim of any name ends those that were cancelled while they ran and whose leases are over, in
  // the order of the leases. So the first ones of them may have ended already; when this operation
  // is a claim itself, all have.
  static void settle(State state, const Operation& operation, std::vector<State>& results,
                     std::set<std::string>& known) {
    for (;;) {
      const Timer* first = nullptr;
      for (const Timer& timer : state.timers) {
        const bool is_due = timer.is_over() && timer.marked;
        if (is_due && (!first || timer.wake.low < first->wake.low)) {
          first = &timer;
        }
      }
      if (!first || operation.what != "claim") {
        for (const std::set<uint64_t>& left_out : choices(state, operation)) {
          std::optional<State> result = HistoryStep::take(state, operation, left_out);
          if (result && known.insert(result->text()).second) {
            results.push_back(std::move(*result));
          }
        }
      }
      if (!first) return;
      state.end(first->key, "cancelled");
    }
  }
};

}  // namespace store_test::history

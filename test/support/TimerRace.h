#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "factory/TimerTask.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

namespace race {

// Threads that create, start, cancel and dismiss timers at random while others expire, callbacks
// that do the same, and then an account of every single timer:
//
// 1. The callback of a started timer ran exactly once, that of a dropped one never.
// 2. No timer expired early, and no callback ran inside a call that cancels.
// 3. A timer with a name of its own was cancelled once if its outcome is ECANCELED, and otherwise
//    never.
// 4. For a shared name whose timers all start, the counts of the cancels add up to the number of
//    ECANCELED outcomes.
// 5. For a shared name whose timers may be dropped, the counts add up to at least that number, and
//    at most to that number plus the dropped timers.
// 6. Nothing is left in the registry.
//
// It uses no test framework, so that it also runs while a process exits.
class TimerRace final : public Round {
 public:
  struct Options {
    int threads = 4;
    int steps = 100;  // of each thread
    uint64_t longest_delay_us = 200;
    bool exits_meanwhile = false;  // the process does
  };

  TimerRace(uint64_t number, workflow::Runtime* runtime, const Options& options)
      : Round(number, runtime),
        options_(options),
        capacity_(static_cast<size_t>(options.threads) * static_cast<size_t>(options.steps) * 8),
        table_(std::make_unique<Timer[]>(capacity_)) {
    for (int i = 0; i < options_.threads; i++) {
      start_thread([this, i] { run(static_cast<uint64_t>(i)); });
    }
  }

  std::string finish() override {
    join_threads();
    if (end_all()) {
      account();
    } else {
      require(false, "callbacks are missing: " + std::to_string(started_.load()) + " started, " +
                         std::to_string(ended_.count()) + " ended");
    }
    return problem();
  }

  // Counts those that were dropped, too.
  size_t tasks() const override { return created(); }
  size_t outcomes(int state) const override {
    size_t n = 0;
    for (size_t i = 0; i < created(); i++) {
      n += table_[i].callbacks > 0 && table_[i].state == state;
    }
    return n;
  }

 private:
  enum Kind : size_t { kOwn, kShared, kDropped, kUnnamed };
  static constexpr size_t kNames = 3;  // shared ones, of each kind
  static constexpr int kLastGeneration = 3;

  struct Timer {
    Kind kind = kOwn;
    size_t name = 0;
    int generation = 0;
    int64_t delay_ns = 0;
    bool dropped = false;
    bool cancels_series = false;
    int64_t dispatched_ns = 0;
    int state = 0;
    int error = 0;
    std::atomic<int> callbacks{0};
    std::atomic<int> cancelled{0};  // kOwn
  };
  struct Unstarted {
    Timer* timer;
    WFTimerTask* task;
  };
  using Random = test_support::TestRandom;

  bool may_be_aborted() const { return is_stopped_meanwhile() || options_.exits_meanwhile; }
  size_t created() const { return std::min(created_.load(), capacity_); }
  size_t id_of(const Timer* timer) const { return static_cast<size_t>(timer - table_.get()); }

  std::string name_of(Kind kind, size_t name) const {
    static const char* const kPrefixes[] = {"own ", "shared ", "dropped "};
    return kPrefixes[kind] + std::to_string(name);
  }

  // The threads ------------------------------------------------------------------------------

  void run(uint64_t thread) {
    Random random(test_support::test_seed(), number() * 1000 + thread);
    std::vector<Unstarted> unstarted;
    for (int i = 0; i < options_.steps; i++) {
      step(random, unstarted);
    }
    for (const Unstarted& each : unstarted) {
      start_or_drop(random, each);
    }
  }

  void step(Random& random, std::vector<Unstarted>& unstarted) {
    switch (random.below(10)) {
      case 0:
      case 1:
        if (const Unstarted made = make(random, random_kind(random)); made.timer) {
          unstarted.push_back(made);
        }
        break;
      case 2:
      case 3:
        if (!unstarted.empty()) {
          std::swap(unstarted[random.below(unstarted.size())], unstarted.back());
          start_or_drop(random, unstarted.back());
          unstarted.pop_back();
        }
        break;
      case 4:
        drop_series(random);
        break;
      case 5:
      case 6:
        cancel_any(random);
        break;
      case 7:
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(60)));
        break;
      default:
        if (const Unstarted made = make(random, random_kind(random)); made.timer) {
          start_task(made);
        }
    }
  }

  static Kind random_kind(Random& random) { return static_cast<Kind>(random.below(4)); }

  Unstarted make(Random& random, Kind kind, int generation = 0) {
    const size_t id = created_.fetch_add(1);
    if (id >= capacity_) return {nullptr, nullptr};
    Timer* timer = &table_[id];
    timer->kind = kind;
    timer->name = kind == kOwn ? id : random.below(kNames);
    timer->generation = generation;
    timer->delay_ns = static_cast<int64_t>(random.below(options_.longest_delay_us * 1000));
    if (random.one_in(4)) {
      timer->delay_ns = static_cast<int64_t>(random.below(2));
    }
    return {timer, task_of(timer, kind != kUnnamed && random.one_in(6))};
  }

  WFTimerTask* task_of(Timer* timer, bool never) {
    const auto callback = [this, timer](WFTimerTask* task) { called(timer, task); };
    const time_t seconds = never ? -1 : 0;
    if (never) {
      timer->delay_ns = workflow::kNever;
    }
    const long nanoseconds = never ? 0 : static_cast<long>(timer->delay_ns);
    return timer->kind == kUnnamed
               ? WFTaskFactory::create_timer_task(seconds, nanoseconds, callback)
               : WFTaskFactory::create_timer_task(name_of(timer->kind, timer->name), seconds,
                                                  nanoseconds, callback);
  }

  void will_start(Timer* timer) {
    timer->dispatched_ns = workflow::monotonic_ns();
    started_.fetch_add(1);
  }

  void start_task(const Unstarted& made) {
    will_start(made.timer);
    made.task->start();
  }

  void start_or_drop(Random& random, const Unstarted& made) {
    if (made.timer->kind != kShared && random.one_in(3)) {
      made.timer->dropped = true;
      made.task->dismiss();
    } else {
      start_task(made);
    }
  }

  // A series that is dismissed, or cancelled by the callback of its first timer.
  void drop_series(Random& random) {
    const bool dismissed = random.one_in(2);
    const Unstarted first = make(random, dismissed ? kOwn : random_kind(random));
    if (!first.timer) return;
    SeriesWork* series = Workflow::create_series_work(first.task, nullptr);
    for (const Kind kind : {kOwn, kDropped, kUnnamed}) {
      if (const Unstarted made = make(random, kind); made.timer) {
        made.timer->dropped = true;
        series->push_back(made.task);
      }
    }
    if (dismissed) {
      first.timer->dropped = true;
      series->dismiss();
    } else {
      first.timer->cancels_series = true;
      will_start(first.timer);
      series->start();
    }
  }

  // Cancelling -------------------------------------------------------------------------------

  void cancel_any(Random& random) {
    const size_t max = random.one_in(2) ? SIZE_MAX : random.below(4);
    if (random.one_in(2)) {
      cancel(random.one_in(2) ? kShared : kDropped, random.below(kNames), max);
    } else if (const size_t n = created()) {
      // Most likely it is one that still exists.
      const size_t recent = std::min<size_t>(n, 50);
      cancel(kOwn, n - 1 - random.below(recent), max);
    }
  }

  void cancel(Kind kind, size_t name, size_t max) {
    cancelling_ = true;
    const std::string text = name_of(kind, name);
    const int n = max == SIZE_MAX ? WFTaskFactory::cancel_by_name(text)
                                  : WFTaskFactory::cancel_by_name(text, max);
    cancelling_ = false;
    if (kind == kOwn) {
      table_[name].cancelled.fetch_add(n);
    } else {
      cancelled_[kind][name].fetch_add(n);
    }
  }

  // Callbacks --------------------------------------------------------------------------------

  void called(Timer* timer, WFTimerTask* task) {
    enter();
    nested_.fetch_add(cancelling_);
    timer->callbacks.fetch_add(1);
    timer->state = task->get_state();
    timer->error = task->get_error();
    early_.fetch_add(timer->state == WFT_STATE_SUCCESS &&
                     workflow::monotonic_ns() - timer->dispatched_ns < timer->delay_ns);
    if (timer->cancels_series) {
      series_of(task)->cancel();
    } else if (!no_more_) {
      act_in_callback(timer, task);
    }
    ended_.add();
  }

  void act_in_callback(Timer* timer, WFTimerTask* task) {
    Random random(test_support::test_seed(), ((number() + 1) << 32) + id_of(timer));
    if (random.one_in(3)) {
      cancel_any(random);
    }
    if (timer->kind != kUnnamed && random.one_in(3)) {
      cancel(timer->kind, timer->name, random.one_in(2) ? SIZE_MAX : 1);
    }
    if (timer->generation < kLastGeneration && random.one_in(2)) {
      const Unstarted again = make(random, timer->kind, timer->generation + 1);
      if (!again.timer) return;
      if (random.one_in(3)) {
        will_start(again.timer);
        series_of(task)->push_back(again.task);
      } else {
        start_or_drop(random, again);
      }
    }
  }

  // The account ------------------------------------------------------------------------------

  // Waits until every started timer has ended. Returns false if that takes too long.
  bool end_all() {
    no_more_ = true;
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    // Ended is read before started: when they are equal no callback is running either.
    while (ended_.count() != started_.load()) {
      for (size_t name = 0; name < kNames; name++) {
        cancel(kShared, name, SIZE_MAX);
        cancel(kDropped, name, SIZE_MAX);
      }
      for (size_t id = 0; id < created(); id++) {
        cancel(kOwn, id, SIZE_MAX);
      }
      ended_.wait_for(started_.load(), std::chrono::milliseconds(5));
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  void account() {
    std::array<std::array<int, kNames>, kUnnamed> cancelled{};
    std::array<std::array<int, kNames>, kUnnamed> dropped{};
    for (size_t id = 0; id < created(); id++) {
      const Timer& timer = table_[id];
      account_for(timer);
      if (timer.kind == kShared || timer.kind == kDropped) {
        cancelled[timer.kind][timer.name] += is_cancelled(timer);
        dropped[timer.kind][timer.name] += timer.dropped;
      }
    }
    for (const Kind kind : {kShared, kDropped}) {
      for (size_t name = 0; name < kNames; name++) {
        const int counted = cancelled_[kind][name];
        require(counted >= cancelled[kind][name] &&
                    counted <= cancelled[kind][name] + dropped[kind][name],
                name_of(kind, name) + ": " + std::to_string(counted) + " counted, " +
                    std::to_string(cancelled[kind][name]) + " ended ECANCELED, " +
                    std::to_string(dropped[kind][name]) + " dropped");
      }
    }
    require(early_ == 0, std::to_string(early_) + " expired early");
    // A stopped library has no thread left to run the callback of a timer that is cancelled that
    // late.
    require(nested_ == 0 || may_be_aborted(), "a callback ran inside a cancelling call");
    require(workflow::NamedTimerTask::registry().empty(), "a name is left in the registry");
  }

  static bool is_cancelled(const Timer& timer) {
    return timer.callbacks == 1 && timer.state == WFT_STATE_SYS_ERROR && timer.error == ECANCELED;
  }

  void account_for(const Timer& timer) {
    const int cancelled = timer.cancelled;
    if (timer.dropped) {
      require(timer.callbacks == 0, "a dropped timer was called back", timer);
      require(cancelled <= 1, "counted twice", timer);
      return;
    }
    require(timer.callbacks == 1, "not exactly one callback", timer);
    const bool plain = timer.error == 0 && (timer.state == WFT_STATE_SUCCESS ||
                                            (timer.state == WFT_STATE_ABORTED && may_be_aborted()));
    require(plain || (is_cancelled(timer) && timer.kind != kUnnamed), "strange outcome", timer);
    require(timer.kind != kOwn || cancelled == is_cancelled(timer), "the count is not the outcome",
            timer);
  }

  using Round::require;
  void require(bool holds, const char* what, const Timer& timer) {
    if (!holds) {
      require(false, std::string(what) + ": timer " + std::to_string(id_of(&timer)) + ", kind " +
                         std::to_string(timer.kind) + ", callbacks " +
                         std::to_string(timer.callbacks) + ", state " +
                         std::to_string(timer.state) + ", error " + std::to_string(timer.error) +
                         ", cancelled " + std::to_string(timer.cancelled));
    }
  }

  static inline thread_local bool cancelling_ = false;

  const Options options_;
  const size_t capacity_;
  const std::unique_ptr<Timer[]> table_;
  std::atomic<size_t> created_{0};  // may pass capacity_
  std::atomic<size_t> started_{0};
  std::atomic<int> early_{0};
  std::atomic<int> nested_{0};
  std::atomic<bool> no_more_{false};  // callbacks create nothing any more
  std::array<std::array<std::atomic<int>, kNames>, kUnnamed> cancelled_{};
  test_support::Tally ended_;
};

}  // namespace race

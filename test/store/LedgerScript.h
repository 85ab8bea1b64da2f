#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "store/LedgerProcess.h"
#include "support/ChildProcess.h"
#include "support/Eventually.h"
#include "workflow/WFTimerStore.h"

namespace store_test {

// What a process asks a new store for that is killed at a certain step: the same each time, and one
// thing after the other, so that each step has its number. It writes notes as other processes do
// (LedgerProcess.h). Besides, it says to the test:
//
//   acknowledged NAME   the store has taken the end of the last run of that timer
//   closed              the store is closed, and has waited for all runs
class Script {
 public:
  Script(WFTimerStore& store, const Notes& notes) : store_(store), asker_(store, notes) {}

  void play() {
    end_runs();
    change_those_that_wait();
    change_those_that_run();
    recur();
    extend();
    asker_.cancel("last");
    asker_.wait();
    if (!store_.close(test_support::kPatience)) {
      ::_exit(4);
    }
    test_support::say("closed");
  }

 private:
  // Runs end in each way.
  void end_runs() {
    run("plain/1");
    run(kAgain + "1");
    run(kFails + "1");
    const uint64_t before = ended();
    asker_.retry_failed(kFails + "1");
    until([&] { return ended() > before; });
    // Several that are on the way together.
    const std::string names[] = {"plain/2", "plain/3", "plain/4"};
    for (const std::string& name : names) {
      asker_.schedule(name, now_us());
    }
    asker_.wait();
    until([&] { return ended() >= before + 4; });
    for (const std::string& name : names) {
      test_support::say("acknowledged " + name);
    }
    asker_.cancel(names[0]);  // it is done
    asker_.wait();
  }

  void change_those_that_wait() {
    const uint64_t before = ended();
    const int64_t soon = now_us() + 60'000;
    const std::string only = kOnly + "waits";
    asker_.schedule("moved", soon + 500'000);
    asker_.wait();
    asker_.reschedule("moved", soon);
    asker_.wait();
    asker_.schedule("cancelled", soon);
    asker_.wait();
    asker_.cancel("cancelled");
    asker_.wait();
    asker_.schedule(only, soon, WF_TIMER_KEEP);
    asker_.wait();
    asker_.schedule(only, soon, WF_TIMER_KEEP);
    asker_.wait();
    asker_.schedule(only, soon, WF_TIMER_REPLACE);
    asker_.wait();
    until([&] { return ended() >= before + 2; });
  }

  void change_those_that_run() {
    const std::string cancelled = kOnly + "cancelled";
    begin(cancelled);
    asker_.cancel(cancelled);
    asker_.wait();
    until_all_have_ended();
    const std::string replaced = kOnly + "replaced";
    const uint64_t before = ended();
    begin(replaced);
    asker_.schedule(replaced, now_us(), WF_TIMER_REPLACE);
    asker_.wait();
    until([&] { return ended() >= before + 2; });
  }

  void recur() {
    const std::string each = kSeries + "each";
    uint64_t before = store_.stats().begun;
    asker_.schedule_series(each, now_us(), true);
    asker_.wait();
    until([&] { return store_.stats().begun >= before + 2; });
    asker_.cancel(each);
    asker_.wait();
    until_all_have_ended();
    const std::string moved = kSeries + "moved";
    before = store_.stats().begun;
    asker_.schedule_series(moved, now_us(), false);
    asker_.wait();
    until([&] { return store_.stats().begun > before; });
    asker_.reschedule(moved, now_us() + 20'000);
    asker_.wait();
    until([&] { return store_.stats().begun > before + 1; });
    asker_.cancel(moved);
    asker_.wait();
    until_all_have_ended();
  }

  // A run takes long, and is moved meanwhile. Another timer waits for longer than that.
  void extend() {
    const uint64_t before = ended();
    asker_.schedule("last", now_us() + 1'200'000);
    asker_.wait();
    const std::string name = kSlow + "1";
    const uint64_t begun = store_.stats().begun;
    asker_.schedule(name, now_us());
    asker_.wait();
    until([&] { return store_.stats().begun > begun; });
    asker_.reschedule(name, now_us() + 50'000);
    asker_.wait();
    until([&] { return ended() >= before + 2; });
  }

  // Stores a timer that is due, and waits until it has ended or failed.
  void run(const std::string& name) {
    const WFTimerStoreStats before = store_.stats();
    asker_.schedule(name, now_us());
    asker_.wait();
    until([&] { return ended() > before.acknowledged + before.failed; });
    if (store_.stats().acknowledged > before.acknowledged) {
      test_support::say("acknowledged " + name);
    }
  }
  // Stores a timer that is due, and waits until its run has begun.
  void begin(const std::string& name) {
    const uint64_t before = store_.stats().begun;
    asker_.schedule(name, now_us(), WF_TIMER_KEEP);
    asker_.wait();
    until([&] { return store_.stats().begun > before; });
  }

  uint64_t ended() const {
    const WFTimerStoreStats stats = store_.stats();
    return stats.acknowledged + stats.failed;
  }
  void until_all_have_ended() const {
    until([this] {
      const WFTimerStoreStats stats = store_.stats();
      return stats.begun <= stats.acknowledged + stats.failed + stats.retried + stats.lost;
    });
  }
  static void until(const std::function<bool()>& condition) {
    if (!test_support::eventually(condition)) {
      test_support::say("error: it does not go on");
      ::_exit(4);
    }
  }

  WFTimerStore& store_;
  Asker asker_;
};

}  // namespace store_test

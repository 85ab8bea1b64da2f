#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/Dial.h"
#include "store/LedgerDisk.h"
#include "store/SqliteChild.h"
#include "support/Descriptors.h"
#include "support/Eventually.h"
#include "support/TestSeed.h"
#include "support/Text.h"
#include "util/Thread.h"
#include "util/UniqueFd.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// What processes do that use one store while there are faults. Each writes down what it asks for,
// what it is told and what it runs: see KillLedger.h, whose checker judges all of it. A process
// learns from variables what it has to do:
//
//   LEDGER_PART    work: ask for things and run timers until it is killed
//                  fill: store overdue timers, and run none
//                  finish: run whatever is left, with what has failed, and end the series;
//                          then keep a timer for each name of LEDGER_KEPT, and cancel it
//                  settle: ask for each request of the list
//   LEDGER_URL     the store
//   LEDGER_NOTES   the file for what it writes down
//   LEDGER_NAME    how the names of its own timers begin
//   LEDGER_OTHER   how other names begin whose timers it cancels or moves
//   LEDGER_LIST    settle: a file with the requests
//   LEDGER_KEPT    finish: a file with names
//   LEDGER_COUNT   fill: how many timers
//   LEDGER_SERIES  "latest" if no series has a run for each date that was missed
//   LEDGER_RATE    how many overdue timers may begin in a second
//   LEDGER_PAUSE_US  how long it waits after each request
//   LEDGER_DISK    what goes wrong with its disk: see LedgerDisk.h; and LEDGER_FILES
//   LEDGER_DIAL    the file of a Dial, by which the test says when something goes wrong
//   LEDGER_FAULT   what goes wrong then: see Strikes
//
// Some programs have further variables of their own.

namespace store_test {

inline constexpr std::chrono::microseconds kLease = std::chrono::seconds(1);
// So many answers are remembered for each process. One that runs for some minutes gets more.
inline constexpr size_t kRemembered = 100'000;

// The clock of the machine: also that of the store, unless the fault is "clock".
inline int64_t now_us() {
  struct timespec now = {};
  ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);  // the clocks of the process may be wrong
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

// The file of a process. What was written is there however the process ends.
class Notes {
 public:
  explicit Notes(const std::string& path = test_support::variable("LEDGER_NOTES"))
      : file_(::open(path.c_str(), kFlags, 0600)) {}
  void write(const std::string& line) const {
    const std::string text = line + '\n';
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      ::_exit(3);
    }
  }

 private:
  static constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const workflow::UniqueFd file_;
};

inline const char* text_of(WFStoreVerdict verdict) {
  static const char* const texts[] = {"none",      "won",  "running", "after_run",
                                      "won_after", "done", "unknown", "doubt"};
  return texts[static_cast<size_t>(verdict)];
}

// RESULT of LedgerNotes.h.
inline std::string text_of(const WFStoreResult& result) {
  if (result.verdict() == WFStoreVerdict::kInDoubt) return "doubt";
  if (!result.ok()) return "refused " + std::to_string(result.error);
  // What stores no timer may count.
  std::string text = "ok " + std::to_string(std::max(result.timer, result.count)) + ' ';
  for (const WFStoreAnswer& answer : result.answers) {
    text += std::string(text_of(answer.verdict)) + ':' + std::to_string(answer.timer) + ':' +
            std::to_string(answer.attempts) + ',';
  }
  return text;
}

// NOW RECEIPT RESULT
inline std::string text_of_answer(const WFStoreResult& result) {
  const bool was_carried_out = result.ok() && result.verdict() != WFStoreVerdict::kInDoubt;
  return std::to_string(now_us()) + ' ' + (was_carried_out ? result.receipt.to_string() : "-") +
         ' ' + text_of(result);
}

inline std::string text_of(const WFStoreRequestId& id) {
  return std::to_string(id.session) + ' ' + std::to_string(id.number);
}

inline std::unique_ptr<WFTimerStore> open_store(
    const std::string& url = test_support::variable("LEDGER_URL")) {
  WFStoreOptions options;
  options.lease = kLease;
  options.remembered = kRemembered;
  if (const int64_t rate = test_support::env_number("LEDGER_RATE", 0)) {
    options.catch_up_rate = static_cast<size_t>(rate);
  }
  std::string message;
  std::unique_ptr<WFTimerStore> store;
  // A Redis may be replaced, or be silent for so long that it may have been.
  test_support::eventually([&] {
    store.reset(WFTimerStore::open(url, options, &message));
    return store || errno != EAGAIN;
  });
  if (!store) {
    test_support::say("error " + std::to_string(errno) + ' ' + message);
    ::_exit(2);
  }
  return store;
}

// How the names of series begin, and those of timers of which a name has one.
inline const std::string kSeries = "every/";
inline const std::string kOnly = "one/";
// How the names of timers begin that a script stores, and whose runs are to end in a certain way:
// the first one asks for another, each gives up, or each takes so long that its lease is extended.
// In the process of a script, no other runs end so.
inline const std::string kAgain = "again/";
inline const std::string kFails = "fails/";
inline const std::string kSlow = "slow/";

// Names of which runs have begun. Any thread.
class Begun {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  bool has(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return names_.count(name) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

// Some runs take a while, some ask for another one, and some give up if there is no `begun`.
inline void handle(WFTimerStore& store, const Notes& notes, Begun* begun = nullptr) {
  WFStoreHandlerOptions options;
  options.max_attempts = 0;
  const bool is_script = test_support::variable("LEDGER_PART") == "script";
  const auto run = [&notes, begun, is_script](WFStoredTimer* timer) {
    // In this order: a lease that has not ended ends at their sum or later.
    const int64_t now = now_us();
    const int64_t left = timer->lease_left().count();
    const auto is_of = [timer](const std::string& beginning) {
      return timer->name().starts_with(beginning);
    };
    const auto has_turn = [is_script](uint64_t number, uint64_t each) {
      return !is_script && number % each == 0;
    };
    const bool retries = timer->attempt() == 1 && (has_turn(timer->timer(), 8) || is_of(kAgain));
    const bool is_only = is_of(kOnly);
    const bool is_series = is_of(kSeries);
    const bool is_slow = is_of(kSlow);
    const bool gives_up =
        !retries && !is_only && begun == nullptr && (has_turn(timer->fence(), 16) || is_of(kFails));
    const int64_t due =
        std::chrono::duration_cast<std::chrono::microseconds>(timer->due().time_since_epoch())
            .count();
    notes.write("s " + timer->name() + ' ' + std::to_string(timer->timer()) + ' ' +
                std::to_string(due) + ' ' + std::to_string(now) + ' ' +
                std::to_string(timer->fence()) + ' ' + std::to_string(left) + ' ' +
                (retries    ? "1 "
                 : gives_up ? "2 "
                            : "0 ") +
                std::to_string(due + timer->lateness().count()));
    if (begun != nullptr) {
      begun->add(timer->name());
    }
    if (retries) {
      timer->retry_after(std::chrono::milliseconds(5));
    } else if (gives_up) {
      timer->give_up("it was its turn");
    }
    // A run that loses its lease ends early, and is retried at once. That is to come later than the
    // lease that it wrote down.
    const auto leave = [timer] {
      if (WFScope::current().error() == ESTALE) {
        timer->retry_after(2 * kLease);
      }
    };
    leave();
    if (is_only || is_series || is_slow) {
      const auto end = [&notes, leave, name = timer->name(), number = timer->timer(),
                        fence = timer->fence()](WFTimerTask*) {
        leave();
        notes.write("d " + name + ' ' + std::to_string(number) + ' ' + std::to_string(now_us()) +
                    ' ' + std::to_string(fence));
      };
      series_of(timer)->push_back(
          WFTaskFactory::create_timer_task(0, is_slow ? 400'000'000 : 5'000'000, end));
    } else if (!retries && !gives_up && timer->timer() % 4 == 1) {
      series_of(timer)->push_back(
          WFTaskFactory::create_timer_task(0, 5'000'000, [leave](WFTimerTask*) { leave(); }));
    }
  };
  store.handle("kind", run, options);
}

// The dial of this process if LEDGER_FAULT is that.
inline std::unique_ptr<const Dial> dial_of(const std::string& fault) {
  if (test_support::variable("LEDGER_FAULT") != fault) return nullptr;
  return std::make_unique<const Dial>(test_support::variable("LEDGER_DIAL"));
}

// Asks a store for things, several at a time, and writes down what it asks for and is told.
class Asker {
 public:
  Asker(WFTimerStore& store, const Notes& notes) : store_(store), notes_(notes) {}
  ~Asker() { wait(); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  void schedule(const std::string& name, int64_t due_us, WFTimerPolicy policy = WF_TIMER_APPEND) {
    store({name, date(due_us), "kind", "", policy}, due_us, "");
  }
  void schedule_series(const std::string& name, int64_t due_us, bool every_missed_date) {
    constexpr std::chrono::milliseconds kPeriod(50);
    WFStoreTimer timer = {name, WFStoreDue::every(kPeriod, date(due_us)), "kind"};
    timer.every_missed_date = every_missed_date;
    store(timer, due_us,
          ' ' + std::to_string(std::chrono::microseconds(kPeriod).count()) +
              (every_missed_date ? " each" : " latest"));
  }
  void cancel(const std::string& name) {
    ask("cancel " + name,
        [&](auto answered) { return store_.create_cancel_task(name, std::move(answered)); });
  }
  void reschedule(const std::string& name, int64_t due_us) {
    ask("reschedule " + name + ' ' + std::to_string(due_us), [&](auto answered) {
      return store_.create_reschedule_task(name, date(due_us), std::move(answered));
    });
  }
  void retry_failed(const std::string& name) {
    ask("retry_failed " + name,
        [&](auto answered) { return store_.create_retry_failed_task(name, std::move(answered)); });
  }
  // Waits until all is answered.
  void wait() {
    for (int i = 0; i < kUnderWay; i++) {
      free_.acquire();
    }
    free_.release(kUnderWay);
  }

 private:
  static constexpr int kUnderWay = 16;

  static std::chrono::system_clock::time_point date(int64_t us) {
    return std::chrono::system_clock::time_point(std::chrono::microseconds(us));
  }

  void store(const WFStoreTimer& timer, int64_t due_us, const std::string& recurrence) {
    const char* const operation = timer.policy == WF_TIMER_KEEP      ? "keep "
                                  : timer.policy == WF_TIMER_REPLACE ? "replace "
                                                                     : "schedule ";
    ask(operation + timer.name + ' ' + std::to_string(due_us) + recurrence,
        [&](auto answered) { return store_.create_schedule_task(timer, std::move(answered)); });
  }

  template <class CREATE>
  void ask(const std::string& text, const CREATE& create) {
    free_.acquire();
    WFStoreTask* const task = create([this](WFStoreTask* answered) {
      notes_.write("! " + text_of(answered->request_id()) + ' ' +
                   text_of_answer(answered->result()));
      free_.release();
    });
    notes_.write("? " + text_of(task->request_id()) + ' ' + text);
    task->start();
  }

  WFTimerStore& store_;
  const Notes& notes_;
  std::counting_semaphore<> free_{kUnderWay};
};

// Asks a store for things of all kinds.
class Worker {
 public:
  Worker(WFTimerStore& store, const Notes& notes)
      : asker_(store, notes),
        own_(test_support::variable("LEDGER_NAME")),
        other_(test_support::variable("LEDGER_OTHER")),
        random_(test_support::test_seed(), std::hash<std::string>()(own_)) {}

  void ask() {
    const bool is_first = asked_++ == 0;
    if (is_first || (stored_ >= 10 && random_.one_in(8))) {
      ask_for_others();
      return;
    }
    const uint64_t kind = stored_ < 10 ? 0 : random_.below(5);
    if (kind == 3) {
      asker_.cancel(some_name());
    } else if (kind == 4) {
      const std::string name = some_name();
      asker_.reschedule(name, due_within(300'000));
    } else {
      asker_.schedule(own_ + std::to_string(stored_++), due_within(kind == 0 ? 50'000 : 300'000));
    }
  }
  // Stores a timer that has been due for long.
  void ask_for_overdue() {
    asker_.schedule(own_ + std::to_string(stored_++), now_us() - 10'000'000);
  }
  // Waits until all is answered.
  void wait() { asker_.wait(); }

 private:
  // Asks for something that concerns series, names that have one timer, or timers that have failed.
  void ask_for_others() {
    const uint64_t kind = random_.below(4);
    if (series_ * kRequestsOfSeries < asked_) {
      const uint64_t number = series_++;
      asker_.schedule_series(series_name(own_, number), due_within(50'000), has_each(number));
    } else if (kind == 0) {
      const uint64_t number = series_ - 1 - random_.below(std::min<uint64_t>(series_, 5));
      const std::string name = series_name(some_process(), number);
      // Not often: a process whose requests are mostly refused makes many in a short time, and its
      // series would be gone before their first date.
      if (random_.one_in(4)) {
        asker_.cancel(name);
      } else if (has_each(number)) {
        asker_.retry_failed(name);
      } else {
        asker_.reschedule(name, due_within(300'000));
      }
    } else if (kind == 1) {
      // A series that may be moved is not retried: a move would find the timer that was retried,
      // too, and what runs for the new time then would say nothing about the series.
      const uint64_t number = random_.below(series_);
      asker_.retry_failed(has_each(number) && random_.one_in(2) ? series_name(own_, number)
                                                                : some_name());
    } else {
      const std::string name = kOnly + some_process() + std::to_string(random_.below(3));
      const uint64_t how = random_.below(5);
      if (how == 0) {
        asker_.cancel(name);
      } else {
        asker_.schedule(name, due_within(50'000), how < 3 ? WF_TIMER_KEEP : WF_TIMER_REPLACE);
      }
    }
  }

  int64_t due_within(uint64_t us) {
    return now_us() + ahead_us() + static_cast<int64_t>(random_.below(us));
  }
  const std::string& some_process() { return random_.one_in(4) ? other_ : own_; }
  // One of the last of this process, as a rule, or of another one that may be there.
  std::string some_name() {
    const uint64_t back = random_.below(std::min<uint64_t>(stored_, 100));
    return some_process() + std::to_string(stored_ - 1 - back);
  }
  static std::string series_name(const std::string& process, uint64_t number) {
    return kSeries + process + std::to_string(number);
  }
  // Whether a series has a run for each date. Such a one is not moved.
  static bool has_each(uint64_t number) {
    return number % 2 == 0 && test_support::variable("LEDGER_SERIES") != "latest";
  }

  // How far the clock of the store is ahead of that of the machine: see Strikes.
  int64_t ahead_us() const { return clock_ ? clock_->get() * 1'000'000 : 0; }

  // A series is run by all processes until it is cancelled, so there are not to be many.
  static constexpr uint64_t kRequestsOfSeries = 150;

  Asker asker_;
  const std::string own_;
  const std::string other_;
  test_support::TestRandom random_;
  uint64_t asked_ = 0;
  uint64_t stored_ = 0;
  uint64_t series_ = 0;
  const std::unique_ptr<const Dial> clock_ = dial_of("clock");
};

// What goes wrong with this process when the test says so. LEDGER_FAULT is one of these:
//
//   clock        The dial says by how many seconds the clock of the store is ahead of that of the
//                machine. The program does the rest.
//   descriptors  While the dial is 1, there are no descriptors. An operation of the disk fails at
//                the beginning, so that the store has to be opened again with those that it had.
//   fork         When the dial becomes 1, the process forks. The child asks for things, and stays
//                until the test has closed its end of the output.
class Strikes {
 public:
  Strikes(WFTimerStore& store, const Notes& notes, Disk& disk)
      : store_(store), notes_(notes), disk_(disk) {
    if (dial_) {
      thread_ = std::thread([this] { watch(); });
    }
  }
  ~Strikes() {
    is_over_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  Strikes(const Strikes&) = delete;
  Strikes& operator=(const Strikes&) = delete;

 private:
  void watch() {
    for (int64_t before = 0; !is_over_; workflow::pause_ns(1'000'000)) {
      const int64_t now = dial_->get();
      if (now != before && !forks_) {
        lack_descriptors(now != 0);
      } else if (now != before && now != 0) {
        fork_here();
      }
      before = now;
    }
  }

  void lack_descriptors(bool lack) {
    if (lack) {
      none_.emplace();
      disk_.fail_soon();
    } else {
      none_.reset();
    }
  }

  void fork_here() {
    notes_.write("f");
    if (::fork() != 0) return;
    const auto session = static_cast<uint64_t>(::getpid());
    for (uint64_t number = 1; number <= 3; number++) {
      const int64_t due = now_us();
      const std::string name = "forked" + std::to_string(session) + '-' + std::to_string(number);
      WFStoreTimer timer;
      timer.name = name;
      timer.due = std::chrono::system_clock::time_point(std::chrono::microseconds(due));
      timer.kind = "kind";
      timer.request = WFStoreRequestId{session, number};
      notes_.write("? " + text_of(*timer.request) + " schedule " + name + ' ' +
                   std::to_string(due));
      notes_.write("! " + text_of(*timer.request) + ' ' + text_of_answer(store_.schedule(timer)));
    }
    test_support::say("forked");
    struct pollfd output = {STDOUT_FILENO, 0, 0};
    while (::poll(&output, 1, -1) < 0 || (output.revents & POLLERR) == 0) {
    }
    ::_exit(0);
  }

  WFTimerStore& store_;
  const Notes& notes_;
  Disk& disk_;
  const bool forks_ = test_support::variable("LEDGER_FAULT") == "fork";
  const std::unique_ptr<const Dial> dial_ = dial_of(forks_ ? "fork" : "descriptors");
  std::optional<test_support::NoDescriptors> none_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

namespace ledger_parts {

inline void work() {
  constexpr int kRequests = 20'000;  // no process is to be alive for so long
  const int64_t pause_us = test_support::env_number("LEDGER_PAUSE_US", 0);
  const Notes notes;
  Disk disk;
  const auto store = open_store();
  handle(*store, notes);
  test_support::say("begun");
  Worker worker(*store, notes);
  const Strikes strikes(*store, notes, disk);
  bool has_failed = false;
  for (int i = 0; i < kRequests || pause_us != 0; i++) {
    worker.ask();
    if (pause_us != 0) {
      ::usleep(static_cast<useconds_t>(pause_us));
    }
    if (!has_failed && disk.has_failed()) {
      notes.write("f");
      has_failed = true;
    }
  }
  test_support::wait_for_exit();
}

inline void fill() {
  const int64_t count = test_support::env_number("LEDGER_COUNT", 0);
  const Notes notes;
  const auto store = open_store();
  Worker worker(*store, notes);
  for (int64_t i = 0; i < count; i++) {
    worker.ask_for_overdue();
  }
  worker.wait();
  test_support::say("filled");
}

// Ends each series of which a run has begun here, and retries what has failed. Returns the last
// answer of the store: an error, or how many timers are left.
inline WFStoreResult end_what_is_left(WFTimerStore& store, Asker& asker, const Begun& begun,
                                      std::set<std::string>& ended) {
  WFStoreResult left = store.list(kSeries);
  for (const WFStoreInfo& info : left.timers) {
    if (begun.has(info.name) && ended.insert(info.name).second) {
      asker.cancel(info.name);
    }
  }
  if (!left.ok()) return left;
  left = store.list_failed("");
  for (const WFStoreInfo& info : left.timers) {
    asker.retry_failed(info.name);
  }
  if (!left.ok()) return left;
  asker.wait();
  return store.count("");
}

// Keeps a timer for each name of the file, when no timer is left, and cancels it.
inline void use_names_again(Asker& asker) {
  constexpr int64_t kTenYearsUs = 315'360'000'000'000;  // no clock of a test is set so far ahead
  std::ifstream names(test_support::variable("LEDGER_KEPT"));
  std::vector<std::string> used;
  for (std::string name; std::getline(names, name);) {
    asker.schedule(name, now_us() + kTenYearsUs, WF_TIMER_KEEP);
    used.push_back(name);
  }
  asker.wait();
  for (const std::string& name : used) {
    asker.cancel(name);
  }
  asker.wait();
}

inline void finish() {
  const Notes notes;
  notes.write("e");
  Begun begun;
  const auto store = open_store();
  Asker asker(*store, notes);
  handle(*store, notes, &begun);
  std::set<std::string> ended;
  WFStoreResult left;
  const bool is_empty = test_support::eventually([&] {
    left = end_what_is_left(*store, asker, begun, ended);
    return left.error == EILSEQ || (left.ok() && left.count == 0);
  });
  if (is_empty) {
    use_names_again(asker);
    left = store->count("");
  }
  if (left.error == EILSEQ) {
    test_support::say("error " + std::to_string(left.error) + ' ' + left.message);
    return;
  }
  test_support::say(is_empty && store->close(test_support::kPatience) ? "empty" : "not empty");
}

inline void settle() {
  const Notes notes;
  const auto store = open_store();
  std::ifstream list(test_support::variable("LEDGER_LIST"));
  for (WFStoreRequestId id; list >> id.session >> id.number;) {
    WFStoreResult result;
    test_support::eventually([&] {
      result = store->ask(id);
      return result.error == EILSEQ || result.verdict() != WFStoreVerdict::kInDoubt;
    });
    if (result.error == EILSEQ) {
      test_support::say("error " + std::to_string(result.error) + ' ' + result.message);
      return;
    }
    notes.write("a " + text_of(id) + ' ' + text_of(result));
  }
  test_support::say("settled");
}

}  // namespace ledger_parts

// Does its part, if this process has one. Returns whether it has.
inline bool is_a_ledger_process() {
  const std::string part = test_support::variable("LEDGER_PART");
  if (!part.empty()) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
  }
  if (part == "work") {
    ledger_parts::work();
  } else if (part == "fill") {
    ledger_parts::fill();
  } else if (part == "finish") {
    ledger_parts::finish();
  } else if (part == "settle") {
    ledger_parts::settle();
  }
  return !part.empty();
}

}  // namespace store_test

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/FaultVfs.h"
#include "store/SqliteChild.h"
#include "store/SqliteQueue.h"
#include "store/SqliteReported.h"
#include "store/SqliteSeals.h"
#include "support/Eventually.h"
#include "support/InChild.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Sanitizers.h"

// Several processes on one store. The children run this program, and play a part.

using namespace test_support;

namespace {

using workflow::SqliteLayout;

std::unique_ptr<workflow::StoreBackend> open_own(const workflow::SqliteSettings& settings = {},
                                                 std::function<void()> changed = nullptr) {
  auto options = options_of(workflow::system_clock(), static_cast<uint64_t>(::getpid()));
  options.changed = std::move(changed);
  const SqliteLayout layout =
      variable("STORE_LAYOUT") == "owned" ? SqliteLayout::kOwned : SqliteLayout::kShared;
  std::string message;
  int error = 0;
  auto backend = open_layout(layout, variable("STORE_PATH"), options, settings, &message, &error);
  if (!backend) {
    say("error: " + std::to_string(error) + " " + message);
    ::_exit(2);
  }
  return backend;
}

void write_for_ever() {
  report_for_ever(*open_own(), variable("STORE_NAME"), [](const workflow::StoreFailure& failure) {
    say("error: " + failure.message);
    ::_exit(2);
  });
}

// Uses a store, and is killed before the operation of the file system that STORE_NAME counts: from
// the creation of the store on, or from the moment on at which it is open.
void die_at_a_step(void (*use)(workflow::StoreBackend&), bool counts_creation) {
  FaultVfs vfs;
  const auto begin = [&vfs] {
    vfs.set_fault([left = std::atoll(variable("STORE_NAME").c_str())](auto, bool) mutable {
      if (left-- == 0) {
        ::kill(::getpid(), SIGKILL);
      }
      return SQLITE_OK;
    });
  };
  if (counts_creation) {
    begin();
  }
  workflow::SqliteSettings settings;
  settings.base_vfs = vfs.name();
  const auto backend = open_own(settings);
  if (!counts_creation) {
    begin();
  }
  use(*backend);
}

// A step that concerns a timer of that name. Says ": NAME" before it and ". NAME" after it.
template <class WHAT>
WHAT step(workflow::StoreBackend& backend, const std::string& name, WHAT what) {
  say(": " + name);
  auto answered = carry_out(backend, std::move(what));
  say(". " + name);
  return answered;
}

// Runs that end in each way, with successors that wait for them. See left_of_run().
void run_and_finish(workflow::StoreBackend& backend) {
  using How = workflow::FinishRequest::How;
  for (const How how : {How::kDone, How::kRetry, How::kFailed}) {
    const std::string name = std::to_string(static_cast<int>(how));
    step(backend, name, schedule(name, backend.now_us() - 1));
    const workflow::ClaimRequest claimed = step(backend, name, claim());
    step(backend, name, reschedule(name, backend.now_us()));
    // The successor that waits for the run keeps the name in the store, and so does a failure.
    step(backend, name, finish(claimed.claimed.at(0).run, how, workflow::kNeverUs));
    if (how == How::kDone) {
      step(backend, name, cancel(name));
    }
  }
}

constexpr int64_t kLaterUs = 4'000'000'000 * kSecondUs;  // a date that has not come

// Runs of timers that recur, whose ends have a next date: one that has come already, and then one
// that has not. The last run of some was cancelled or moved meanwhile, and no date follows. The
// dates are the first microseconds of 1970. See left_of_dates().
void run_dates(workflow::StoreBackend& backend) {
  using How = workflow::FinishRequest::How;
  for (const char* const each : {"done", "failed", "failed, cancelled", "failed, moved"}) {
    const std::string name = each;
    const How how = name == "done" ? How::kDone : How::kFailed;
    workflow::ScheduleRequest first = schedule(name, 1);
    first.spec.repeat = "each full moon";
    step(backend, name, first);
    const workflow::RunId run = step(backend, name, claim()).claimed.at(0).run;
    step(backend, name, finish(run, how, 2));
    const workflow::RunId next = step(backend, name, claim()).claimed.at(0).run;
    if (name.ends_with("cancelled")) {
      step(backend, name, cancel(name));
    } else if (name.ends_with("moved")) {
      step(backend, name, reschedule(name, 3));
    }
    step(backend, name, finish(next, how, kLaterUs));
    if (!name.ends_with("cancelled")) {
      step(backend, name, cancel(name));
    }
  }
}

// What is done to timers that wait, run or have failed. See left_of_change().
void change_each(workflow::StoreBackend& backend) {
  const int64_t soon_us = backend.now_us() - 1;
  const int64_t later_us = soon_us + 3600 * kSecondUs;
  step(backend, "replaced", schedule("replaced", soon_us));
  step(backend, "replaced", schedule("replaced", later_us, WF_TIMER_REPLACE));
  step(backend, "moved", schedule("moved", soon_us));
  step(backend, "moved", reschedule("moved", later_us));
  step(backend, "cancelled", schedule("cancelled", later_us));
  step(backend, "cancelled", cancel("cancelled"));

  step(backend, "extended", schedule("extended", soon_us));
  const workflow::RunId run = step(backend, "extended", claim()).claimed.at(0).run;
  workflow::ExtendRequest extension;
  extension.runs = {run};
  extension.lease_us = 10 * kLeaseUs;
  step(backend, "extended", extension);
  step(backend, "extended", finish(run));

  for (const bool remove : {false, true}) {
    const std::string name = remove ? "removed" : "retried";
    step(backend, name, schedule(name, soon_us));
    const workflow::ClaimRequest claimed = step(backend, name, claim());
    step(backend, name, finish(claimed.claimed.at(0).run, workflow::FinishRequest::How::kFailed));
    workflow::FailedRequest failed;
    failed.name = name;
    failed.remove = remove;
    step(backend, name, failed);
    if (!remove) {
      step(backend, name, cancel(name));  // or else the next claim takes it
    }
  }
}

// Commits as often as it can while the file STORE_STOP is missing. Says how many timers all have
// stored from its first turn to its last one, how many turns it had, and in how many of these more
// than a few others went first. What others do while the system lets this process wait between two
// requests does not count.
void take_turns() {
  constexpr int64_t kFew = 8;  // two of each of the others, and some more
  struct Turn {
    int64_t before;  // commits of all, when it asked
    int64_t after;   // and when it had the answer
    int64_t timer;   // the number of its timer. Each commit stores one
  };
  const auto backend = open_own();
  workflow::SqliteQueue queue;
  std::string message;
  if (queue.open(variable("STORE_PATH") + "-queue", &message) != 0) {
    say("error: " + message);
    ::_exit(2);
  }
  const std::atomic<int64_t>& commits = queue.page().commits;
  std::vector<Turn> turns;
  while (::access(variable("STORE_STOP").c_str(), F_OK) != 0) {
    workflow::StoreRequest request =
        make_request(schedule(variable("STORE_NAME"), backend->now_us() + 3600 * kSecondUs));
    workflow::StoreRequest* const requests[] = {&request};
    const int64_t before = commits;
    backend->execute(requests);
    if (request.failure.error != 0) {
      say("error: " + request.failure.message);
      ::_exit(2);
    }
    const uint64_t timer = std::get<workflow::ScheduleRequest>(request.what).timer;
    turns.push_back({before, commits, static_cast<int64_t>(timer)});
  }
  // How many commits have stored no timer: now and then nobody comes between a commit and its end.
  int64_t without_timer = INT64_MAX;
  for (const Turn& turn : turns) {
    without_timer = std::min(without_timer, turn.after - turn.timer);
  }
  const auto is_long = [without_timer](const Turn& turn) {
    return turn.timer + without_timer - turn.before - 1 > kFew;
  };
  say(std::to_string(turns.empty() ? 0 : turns.back().timer - turns.front().timer));
  say(std::to_string(turns.size()));
  say(std::to_string(std::count_if(turns.begin(), turns.end(), is_long)));
}

// Commits once each time that it is told to, and says the number of the timer that this has stored.
void store_when_told() {
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  sigprocmask(SIG_BLOCK, &told, nullptr);  // also for the threads of the store
  workflow::SqliteSettings settings;
  settings.busy_ms = 600'000;  // it keeps to its place, however busy the machine is
  const auto backend = open_own(settings);
  say("ready");
  for (int signal = 0; sigwait(&told, &signal) == 0;) {
    workflow::StoreFailure failure;
    const int64_t due_us = backend->now_us() + 3600 * kSecondUs;
    say(std::to_string(carry_out(*backend, schedule("tea", due_us), 0, 9, &failure).timer));
    if (failure.error != 0) {
      say("error: " + failure.message);
      ::_exit(2);
    }
  }
}

// Holds what is needed for a commit until it is killed.
void hold_the_lock() {
  open_own();
  workflow::SqliteQueue queue;
  std::string message;
  if (queue.open(variable("STORE_PATH") + "-queue", &message) != 0) {
    say("error: " + message);
    ::_exit(2);
  }
  queue.enter(1000);
  workflow::SqliteConnection connection;
  connection.open(variable("STORE_PATH"), SQLITE_OPEN_READWRITE,
                  workflow::SqliteSeals::over(nullptr));
  if (variable("STORE_NAME") == "ticket" || connection.run("BEGIN IMMEDIATE")) {
    say("held");
  }
  wait_for_exit();
}

// Is about to create the store until it is killed.
void begin_to_create() {
  workflow::SqliteQueue queue;
  std::string message;
  const std::string path = variable("STORE_PATH") + "-queue";
  if (queue.open(path, &message) != 0 || queue.lock_creation(&message) != 0) {
    say("error: " + message);
    ::_exit(2);
  }
  say(std::to_string(::getpid()));
  wait_for_exit();
}

// Stores, takes and acknowledges timers, and says before and after each step what it does. Each run
// adds one to the attempts of its timer until the process is killed.
void run_for_ever() {
  const auto backend = open_own();
  for (uint64_t number = 1;; number++) {
    const std::string name = variable("STORE_NAME") + std::to_string(number);
    say("? " + name);
    carry_out(*backend, schedule(name, 0), 0, 9);
    say("+ " + name);
    for (const auto& claimed : carry_out(*backend, claim(1)).claimed) {
      say("! " + claimed.spec.name + " " + std::to_string(claimed.attempts));
      if (number % 2 == 0) {
        say("? " + claimed.spec.name);
        if (carry_out(*backend, finish(claimed.run)).accepted) {
          say("- " + claimed.spec.name);
        }
      }
    }
  }
}

void own() {
  const auto backend = open_own();
  say("open");
  wait_for_exit();
}

void listen() {
  const auto backend = open_own({}, [] { say("changed"); });
  say("ready");
  wait_for_exit();
}

void store_one() {
  const auto backend = open_own();
  carry_out(*backend, schedule("tea", backend->now_us()));
}

int play(const std::string& part) {
  const std::map<std::string, void (*)()> parts = {
      {"write", write_for_ever},
      {"turns", take_turns},
      {"hold", hold_the_lock},
      {"create", begin_to_create},
      {"listen", listen},
      {"store", store_one},
      {"run", run_for_ever},
      {"own", own},
      {"told", store_when_told},
      {"runs", [] { die_at_a_step(run_and_finish, true); }},
      {"dates", [] { die_at_a_step(run_dates, false); }},
      {"changes", [] { die_at_a_step(change_each, false); }},
  };
  parts.at(part)();
  return 0;
}

class SqliteProcesses : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteChild> start(const std::string& part, const std::string& name = "",
                                     const std::string& layout = "shared") {
    return std::make_unique<SqliteChild>(std::vector<std::string>{
        "STORE_PART=" + part, "STORE_NAME=" + name, "STORE_PATH=" + path_,
        "STORE_STOP=" + directory_.path("stop"), "STORE_LAYOUT=" + layout});
  }

  std::unique_ptr<workflow::StoreBackend> open_owned() {
    message_.clear();
    error_ = 0;
    return open_layout(SqliteLayout::kOwned, path_, options_of(workflow::system_clock(), 1), {},
                       &message_, &error_);
  }

  std::unique_ptr<workflow::SqliteBackend> open(const workflow::SqliteSettings& settings = {}) {
    std::string message;
    auto options = options_of(workflow::system_clock(), 1);
    options.changed = [this] { told_.add(); };
    auto backend = open_backend(path_, options, settings, &message);
    EXPECT_TRUE(backend) << message;
    return backend;
  }

  // What is left of the timers of one name when the first `steps` of a part were carried out: the
  // attempts of each run that follows, with its date if the timer recurs, and the timers that
  // remain.
  using LeftAfter = std::function<std::string(const std::string& name, int steps)>;
  void kill_at_each_step(const std::string& part, SqliteLayout layout, const LeftAfter& left_after);

  static uint64_t count(workflow::StoreBackend& backend, const std::string& prefix) {
    return carry_out(backend, workflow::CountRequest{prefix, 0}).count;
  }

  FastDir directory_;
  std::string path_ = directory_.path("timers");
  Tally told_;
  std::string message_;
  int error_ = 0;
};

workflow::ListRequest list_all() {
  workflow::ListRequest list;
  list.max = 100'000;
  return list;
}

// WORKFLOW_STORE_KILLS sets the number of rounds.
TEST_F(SqliteProcesses, WhatWasReportedSurvivesAKill) {
  TestRandom random(test_seed());
  const int64_t rounds = env_number("WORKFLOW_STORE_KILLS", kSanitized ? 4 : 12);
  Reported reported;
  for (int64_t round = 0; round < rounds && !HasFailure(); round++) {
    std::vector<std::unique_ptr<SqliteChild>> children;
    for (int i = 0; i < 2; i++) {
      children.push_back(start("write", std::to_string(round) + (i == 0 ? " a " : " b ")));
    }
    for (const auto& child : children) {
      uint64_t lines = 10 + random.below(100);
      for (std::optional<std::string> line = child->line(); line; line = child->line()) {
        ASSERT_EQ(line->find("error"), std::string::npos) << *line;
        reported.note(*line);
        if (lines-- == 0) {
          child->kill();  // what it has said is read to the end
        }
      }
      reported.end();
    }
    const auto backend = open();
    ASSERT_TRUE(backend);
    reported.expect_in(*backend);
  }
  EXPECT_GT(reported.stored(), 20U);
}

// What run_and_finish() leaves.
std::string left_of_run(const std::string& name, int steps) {
  using How = workflow::FinishRequest::How;
  const auto how = static_cast<How>(std::stoi(name));
  switch (steps) {
    case 0:
      return "";
    case 1:
      return "1 ";
    case 2:
      return "2 ";
    case 3:
      return "2 1 ";  // the run that was killed, and then its successor
    case 4:
      return how == How::kDone     ? "1 "
             : how == How::kFailed ? "1 failed "
                                   : "waiting blocked ";  // until its retry, which is never
    default:
      return "";
  }
}

// What run_dates() leaves.
std::string left_of_dates(const std::string& name, int steps) {
  const std::string once = name == "done" ? "" : "failed ";
  const std::string twice = once + once;
  const std::vector<std::string> begun = {"", "1@1 ", "2@1 ", "1@2 " + once, "2@2 " + once};
  const std::vector<std::string> ended =
      name.ends_with("cancelled") ? std::vector<std::string>{once, twice}
      : name.ends_with("moved") ? std::vector<std::string>{"2@2 1@3 " + once, "1@3 " + twice, twice}
                                : std::vector<std::string>{twice + "waiting ", twice};
  const auto place = static_cast<size_t>(steps);
  return place < begun.size() ? begun[place] : ended.at(place - begun.size());
}

// What change_each() leaves.
std::string left_of_change(SqliteLayout layout, const std::string& name, int steps) {
  // The leases of an owner are over when it is gone, however long they would have lasted.
  const std::string extended = layout == SqliteLayout::kOwned ? "2 " : "running ";
  const std::map<std::string, std::vector<std::string>> left = {
      {"replaced", {"", "1 ", "waiting "}},
      {"moved", {"", "1 ", "waiting "}},
      {"cancelled", {"", "waiting ", ""}},
      {"extended", {"", "1 ", "2 ", extended, ""}},
      {"retried", {"", "1 ", "2 ", "failed ", "1 ", ""}},
      {"removed", {"", "1 ", "2 ", "failed ", ""}},
  };
  return left.at(name).at(static_cast<size_t>(steps));
}

// Runs all that there is, and says of each name what LeftAfter does. Nothing but that is there.
std::map<std::string, std::string> run_all(workflow::StoreBackend& backend) {
  std::map<std::string, std::string> left;
  for (workflow::ClaimRequest claimed = carry_out(backend, claim()); !claimed.claimed.empty();
       claimed = carry_out(backend, claim())) {
    for (const auto& each : claimed.claimed) {
      left[each.spec.name] += std::to_string(each.attempts) +
                              (each.spec.repeat.empty() ? "" : '@' + std::to_string(each.due_us)) +
                              ' ';
      EXPECT_TRUE(carry_out(backend, finish(each.run)).accepted);
    }
  }
  const char* const stages[] = {"waiting ", "running ", "blocked ", "failed "};
  for (const WFStoreInfo& info : carry_out(backend, list_all()).timers) {
    left[info.name] += stages[static_cast<size_t>(info.stage)];
  }
  return left;
}

// With what is left of each name the store goes on when the leases have ended.
void SqliteProcesses::kill_at_each_step(const std::string& part, SqliteLayout layout,
                                        const LeftAfter& left_after) {
  uint64_t steps = 0;
  for (int exit_code = -SIGKILL; exit_code != 0 && !HasFailure(); steps += kSanitized ? 5 : 1) {
    SCOPED_TRACE("step " + std::to_string(steps));
    path_ = directory_.path(std::to_string(steps));
    const auto child =
        start(part, std::to_string(steps), layout == SqliteLayout::kOwned ? "owned" : "shared");
    std::map<std::string, int> begun;
    std::map<std::string, int> done;
    for (std::optional<std::string> line = child->line(); line; line = child->line()) {
      ASSERT_EQ(line->find("error"), std::string::npos) << *line;
      (line->at(0) == ':' ? begun : done)[line->substr(2)]++;
    }
    exit_code = child->wait();
    ASSERT_TRUE(exit_code == -SIGKILL || exit_code == 0) << exit_code;
    SetClock later;
    later.us = workflow::system_clock().now_ns_on(workflow::ClockId::kWall) / 1000 + 2 * kLeaseUs;
    std::string message;
    const auto backend = open_layout(layout, path_, options_of(later), {}, &message);
    ASSERT_TRUE(backend) << message;
    std::map<std::string, std::string> left = run_all(*backend);
    for (const auto& [name, count] : begun) {
      const std::string found = left[name];
      EXPECT_TRUE(found == left_after(name, done[name]) || found == left_after(name, count))
          << name << " after " << done[name] << " to " << count << " steps: " << found;
      left.erase(name);
    }
    EXPECT_TRUE(left.empty()) << left.begin()->first;
  }
  EXPECT_GT(steps, 50U);
}

TEST_F(SqliteProcesses, WhatWasReportedSurvivesAKillAtEachStep) {
  kill_at_each_step("runs", SqliteLayout::kShared, left_of_run);
}

TEST_F(SqliteProcesses, WhatAnOwnerReportedSurvivesAKillAtEachStep) {
  kill_at_each_step("runs", SqliteLayout::kOwned, left_of_run);
}

TEST_F(SqliteProcesses, DatesThatWereReportedSurviveAKillAtEachStep) {
  kill_at_each_step("dates", SqliteLayout::kShared, left_of_dates);
}

TEST_F(SqliteProcesses, DatesThatAnOwnerReportedSurviveAKillAtEachStep) {
  kill_at_each_step("dates", SqliteLayout::kOwned, left_of_dates);
}

TEST_F(SqliteProcesses, ChangesThatWereReportedSurviveAKillAtEachStep) {
  kill_at_each_step("changes", SqliteLayout::kShared,
                    std::bind_front(left_of_change, SqliteLayout::kShared));
}

TEST_F(SqliteProcesses, ChangesThatAnOwnerReportedSurviveAKillAtEachStep) {
  kill_at_each_step("changes", SqliteLayout::kOwned,
                    std::bind_front(left_of_change, SqliteLayout::kOwned));
}

// And no process has two places in the queue. So each one gets its turn when each of the others has
// had at most one since it asked, however many they are and whatever they ask for.
TEST_F(SqliteProcesses, TurnsComeInTheOrderInWhichProcessesAsked) {
  ASSERT_TRUE(open());
  workflow::SqliteQueue queue;
  std::string message;
  ASSERT_EQ(queue.open(path_ + "-queue", &message), 0) << message;
  std::vector<std::unique_ptr<SqliteChild>> children;
  for (int i = 0; i < 4; i++) {
    children.push_back(start("told"));
    ASSERT_EQ(children.back()->line(), "ready");
  }
  TestRandom random(test_seed());
  std::vector<size_t> order = {0, 1, 2, 3};
  for (int round = 0; round < 10; round++) {
    for (size_t i = order.size() - 1; i > 0; i--) {
      std::swap(order[i], order[random.below(i + 1)]);
    }
    // While this process has its turn, they take their places behind it one after the other.
    queue.enter(600'000);
    const int64_t commits = queue.page().commits;
    for (const size_t place : order) {
      const uint64_t ticket = queue.page().ticket;
      children[place]->send(SIGUSR1);
      ASSERT_TRUE(eventually([&] { return queue.page().ticket > ticket; }));
    }
    EXPECT_EQ(queue.page().commits, commits);
    queue.leave();
    uint64_t last = 0;
    for (const size_t place : order) {
      const std::string line = children[place]->line().value_or("nothing");
      ASSERT_EQ(line.find_first_not_of("0123456789"), std::string::npos) << line;
      EXPECT_GT(std::stoull(line), last);
      last = std::stoull(line);
    }
  }
}

// Nor does a process wait for long until it has its place, which the others try to take as often as
// they can.
TEST_F(SqliteProcesses, NobodyStarves) {
  const auto backend = open();
  ASSERT_TRUE(backend);
  constexpr int kChildren = 4;
  constexpr uint64_t kCommits = kSanitized ? 2000 : 8000;
  std::vector<std::unique_ptr<SqliteChild>> children;
  for (int i = 0; i < kChildren; i++) {
    children.push_back(start("turns", std::to_string(i)));
  }
  const auto shares = [&backend] {
    std::vector<uint64_t> counts;
    for (int i = 0; i < kChildren; i++) {
      counts.push_back(count(*backend, std::to_string(i)));
    }
    return counts;
  };
  const auto sum = [](const std::vector<uint64_t>& counts) {
    uint64_t total = 0;
    for (const uint64_t each : counts) {
      total += each;
    }
    return total;
  };
  // From the moment on at which all of them take part.
  std::vector<uint64_t> before;
  ASSERT_TRUE(eventually([&] {
    before = shares();
    return *std::min_element(before.begin(), before.end()) >= 20;
  }));
  std::vector<uint64_t> after;
  ASSERT_TRUE(eventually([&] {
    after = shares();
    return sum(after) - sum(before) >= kCommits;
  }));
  // Each of them counts what happens until its last turn. So that is to come after the measurement.
  ASSERT_TRUE(eventually([&] {
    const std::vector<uint64_t> now = shares();
    return std::equal(now.begin(), now.end(), after.begin(), std::greater<>());
  }));
  std::ofstream(directory_.path("stop")) << "stop";
  for (const auto& child : children) {
    const std::optional<std::string> all = child->line();
    const std::optional<std::string> turns = child->line();
    const std::optional<std::string> long_ones = child->line();
    ASSERT_TRUE(all && turns && long_ones);
    EXPECT_GE(std::atoll(all->c_str()), static_cast<int64_t>(kCommits));
    // The system may let it wait before it has its place in the queue, so it waits long for a few
    // turns, however slow or busy the machine is. If others were quicker, it would for most.
    EXPECT_LT(std::atoll(long_ones->c_str()), std::atoll(turns->c_str()) / 5)
        << *long_ones << " of " << *turns;
    EXPECT_EQ(child->wait(), 0);
  }
}

TEST_F(SqliteProcesses, AProcessThatDiesWithTheLockLeavesItToOthers) {
  const auto backend = open();
  ASSERT_TRUE(backend);
  const auto child = start("hold");
  ASSERT_EQ(child->line(), "held");
  child->kill();
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
}

TEST_F(SqliteProcesses, AProcessThatIsStoppedWithTheLockMakesOthersReportThatItIsBusy) {
  workflow::SqliteSettings settings;
  settings.busy_ms = 50;
  const auto backend = open(settings);
  ASSERT_TRUE(backend);
  const auto child = start("hold");
  ASSERT_EQ(child->line(), "held");
  child->send(SIGSTOP);
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, EBUSY);
  EXPECT_FALSE(failure.in_doubt);
  child->kill();
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
}

TEST_F(SqliteProcesses, AProcessThatIsStoppedWhileItCreatesTheStoreIsNamed) {
  const auto child = start("create");
  const std::string id = child->line().value_or("");
  ASSERT_GT(std::atoi(id.c_str()), 0) << id;
  child->send(SIGSTOP);
  workflow::SqliteSettings settings;
  settings.busy_ms = 50;
  for (const SqliteLayout layout : {SqliteLayout::kShared, SqliteLayout::kOwned}) {
    std::string message;
    int error = 0;
    const auto options = options_of(workflow::system_clock());
    EXPECT_FALSE(open_layout(layout, path_, options, settings, &message, &error));
    EXPECT_EQ(error, EBUSY);
    EXPECT_NE(message.find("process " + id + " is creating"), std::string::npos) << message;
  }
  child->kill();
  EXPECT_TRUE(open(settings));
}

TEST_F(SqliteProcesses, AProcessThatIsStoppedWithATicketStopsNobody) {
  workflow::SqliteSettings settings;
  settings.busy_ms = 50;
  const auto backend = open(settings);
  ASSERT_TRUE(backend);
  const auto child = start("hold", "ticket");
  ASSERT_EQ(child->line(), "held");
  child->send(SIGSTOP);
  for (int i = 0; i < 3; i++) {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
    EXPECT_EQ(failure.error, 0) << failure.message;
  }
}

TEST_F(SqliteProcesses, OthersAreToldOfWhatIsDueSoonAndOfWhatWasCancelled) {
  const auto backend = open();
  ASSERT_TRUE(backend);
  const auto child = start("listen");
  ASSERT_EQ(child->line(), "ready");
  carry_out(*backend, schedule("tea", backend->now_us()));
  EXPECT_EQ(child->line(), "changed");
  ASSERT_EQ(carry_out(*backend, claim()).claimed.size(), 1U);
  carry_out(*backend, cancel("tea"));
  EXPECT_EQ(child->line(), "changed");
  // The process that sends the news does not receive it.
  EXPECT_EQ(told_.count(), 0U);
  // And the other way round.
  const auto other = start("store");
  EXPECT_TRUE(told_.wait_for(1));
  EXPECT_EQ(other->wait(), 0);
}

TEST_F(SqliteProcesses, OneStoreIsCreatedByManyAtOnce) {
  std::vector<std::unique_ptr<SqliteChild>> children;
  for (int i = 0; i < 6; i++) {
    children.push_back(start("store"));
  }
  for (const auto& child : children) {
    EXPECT_EQ(child->wait(), 0);
  }
  const auto backend = open();
  ASSERT_TRUE(backend);
  EXPECT_EQ(count(*backend, ""), 6U);
}

TEST_F(SqliteProcesses, AStoreGoesOnAfterAFork) {
  const auto backend = open();
  ASSERT_TRUE(backend);
  carry_out(*backend, schedule("tea", 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
  const auto other = start("store");
  EXPECT_EQ(other->wait(), 0);
  EXPECT_EQ(count(*backend, ""), 3U);
}

// ThreadSanitizer ends a process that starts threads after a fork with threads.
#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST_F(SqliteProcesses, AChildDoesNotOpenWhatItsParentHadOpen) {
  const auto open_twice = [this] {
    const auto options = options_of(workflow::system_clock(), 2);
    for (int i = 0; i < 2; i++) {
      int error = 0;
      std::string message;
      if (!open_backend(path_, options, {}, &message, &error)) {
        return message.find("forked") != std::string::npos ? error : 1;
      }
    }
    return 0;
  };
  // Without the functions of exit(3), among which a sanitizer looks for what the child has left of
  // its parent.
  const auto open_in_child = [&open_twice] {
    return in_child([&open_twice]() -> int { ::_exit(open_twice()); });
  };
  auto backend = open();
  ASSERT_TRUE(backend);
  EXPECT_EQ(open_in_child(), ECHILD);
  // The parent, and programs of their own, are not concerned.
  ASSERT_TRUE(open());
  EXPECT_EQ(start("store")->wait(), 0);
  EXPECT_EQ(count(*backend, ""), 1U);
  backend.reset();
  EXPECT_EQ(open_in_child(), 0);
}
#endif

// SQLite's locks on a file are those of the process, and would go if it closed the file once.
TEST_F(SqliteProcesses, OpeningAStoreAgainInTheSameProcessKeepsTheLocksOfTheFirst) {
  const auto backend = open();
  ASSERT_TRUE(backend);
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(open());
  }
  // If the locks were gone, this would delete the log as the last one to close.
  const auto child = start("store");
  EXPECT_EQ(child->wait(), 0);
  EXPECT_TRUE(std::filesystem::exists(path_ + "-wal"));
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
  EXPECT_EQ(count(*backend, ""), 2U);
}

// What its last words were is in doubt. WORKFLOW_STORE_KILLS sets the number of rounds.
TEST_F(SqliteProcesses, WhatAnOwnerReportedSurvivesAKill) {
  TestRandom random(test_seed());
  std::set<std::string> stored;
  std::set<std::string> ended;
  std::map<std::string, unsigned> attempts;
  const int64_t rounds = env_number("WORKFLOW_STORE_KILLS", kSanitized ? 4 : 12);
  // How much each round stores and ends is drawn, too.
  const auto has_seen_enough = [&] { return stored.size() > 20 && ended.size() > 20; };
  for (int64_t round = 0;
       !HasFailure() && (round < rounds || (!has_seen_enough() && round < 10 * rounds)); round++) {
    std::string doubt;
    const auto child = start("run", std::to_string(round) + " ", "owned");
    uint64_t lines = 10 + random.below(200);
    for (std::optional<std::string> line = child->line(); line; line = child->line()) {
      ASSERT_EQ(line->find("error"), std::string::npos) << *line;
      const std::string name = line->substr(2);
      const size_t space = name.rfind(' ');
      switch (line->at(0)) {
        case '+':
          stored.insert(name);
          doubt.clear();
          break;
        case '-':
          stored.erase(name);
          ended.insert(name);
          doubt.clear();
          break;
        case '!':
          // It may be the first to take it after several that died.
          EXPECT_GT(std::stoul(name.substr(space + 1)), attempts[name.substr(0, space)]);
          attempts[name.substr(0, space)] =
              static_cast<unsigned>(std::stoul(name.substr(space + 1)));
          break;
        default:
          doubt = name;
      }
      if (lines-- == 0) {
        child->kill();
      }
    }
    const auto backend = open_owned();
    ASSERT_TRUE(backend) << message_;
    workflow::ListRequest list;
    list.max = 100'000;
    list = carry_out(*backend, list);
    std::set<std::string> found;
    for (const WFStoreInfo& info : list.timers) {
      found.insert(info.name);
      EXPECT_TRUE(stored.count(info.name) || info.name == doubt) << info.name;
      EXPECT_GE(info.attempts, attempts[info.name]) << info.name;
      EXPECT_EQ(info.stage, WFStoreStage::kWaiting);
    }
    for (const std::string& name : stored) {
      EXPECT_TRUE(found.count(name) || name == doubt) << name;
    }
    for (const std::string& name : ended) {
      EXPECT_FALSE(found.count(name)) << name;
    }
    stored = found;  // what was in doubt is decided
  }
  EXPECT_TRUE(has_seen_enough()) << stored.size() << " stored, " << ended.size() << " ended";
}

TEST_F(SqliteProcesses, AnOwnerKeepsOtherProcessesOutUntilItDies) {
  const auto owner = start("own", "", "owned");
  ASSERT_EQ(owner->line(), "open");
  EXPECT_FALSE(open_owned());
  EXPECT_EQ(error_, EBUSY) << message_;
  const auto second = start("own", "", "owned");
  EXPECT_EQ(second->line().value_or("").substr(0, 10), "error: " + std::to_string(EBUSY) + " ");
  EXPECT_EQ(second->wait(), 2);
  const auto shared = start("store");
  EXPECT_EQ(shared->line().value_or("").substr(0, 10), "error: " + std::to_string(EINVAL) + " ");
  EXPECT_EQ(shared->wait(), 2);
  // Those who were refused have not taken the lock away.
  EXPECT_FALSE(open_owned());
  EXPECT_EQ(error_, EBUSY) << message_;
  owner->send(SIGSTOP);
  EXPECT_FALSE(open_owned());
  EXPECT_EQ(error_, EBUSY) << message_;
  owner->kill();
  EXPECT_TRUE(open_owned()) << message_;
}

TEST_F(SqliteProcesses, AnOwnerWhoseFilesWereRemovedLeavesTheirPlaceToTheNextOne) {
  const auto backend = open_owned();
  ASSERT_TRUE(backend) << message_;
  carry_out(*backend, schedule("tea", 0));
  carry_out(*backend, schedule("coffee", 0));
  const auto run = carry_out(*backend, claim(1)).claimed.at(0).run;
  for (const char* const suffix : {"", "-wal", "-shm", "-queue", "-reserve"}) {
    std::filesystem::remove(path_ + suffix);
  }
  const auto next = start("own", "", "owned");
  ASSERT_EQ(next->line(), "open");
  workflow::StoreFailure failure;
  EXPECT_TRUE(carry_out(*backend, claim(), 0, 1, &failure).claimed.empty());
  EXPECT_EQ(failure.error, ESTALE) << failure.message;
  EXPECT_EQ(backend->reopen(&message_), EBUSY);
  EXPECT_TRUE(backend->leases_are_lost());
  next->kill();
  // Its store is another one.
  EXPECT_EQ(backend->reopen(&message_), EILSEQ);
  EXPECT_FALSE(carry_out(*backend, finish(run), 0, 1, &failure).accepted);
  EXPECT_EQ(failure.error, EILSEQ) << failure.message;
}

#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST_F(SqliteProcesses, AChildDoesNotOpenWhatItsParentOwns) {
  auto backend = open_owned();
  ASSERT_TRUE(backend) << message_;
  const auto open_in_child = [this] {
    return in_child([this]() -> int {
      const auto own = open_owned();
      ::_exit(error_);
    });
  };
  EXPECT_EQ(open_in_child(), ECHILD);
  // The child has not taken the lock along: neither now nor when the parent has closed the store.
  const auto other = start("own", "", "owned");
  EXPECT_EQ(other->wait(), 2);
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("tea", 0), 0, 1, &failure);
  EXPECT_EQ(failure.error, 0) << failure.message;
  backend.reset();
  EXPECT_EQ(open_in_child(), 0);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string part = variable("STORE_PART");
  if (!part.empty()) return play(part);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
